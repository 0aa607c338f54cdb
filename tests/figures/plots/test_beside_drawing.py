import judgements
import looking
import pytest
from matplotlib.colors import same_color

from figures import forest

HIGHER = ("0.060000", "0.030000", "0.090000", "0.020000", "0.100000", "0.000100", True, False, True)
LOWER = ("-0.010000", "-0.040000", "0.020000", "-0.050000", "0.030000", "0.512000", False, False, True)
APART = ("0.200000", "0.150000", "0.250000", "0.140000", "0.260000", "0.000100", True, False, False)
NONE = (None,) * 6 + (False, False, False)


def study(name: str = "1d_div", **changes) -> dict:
    """Two models: the subject against 1d, registered; both against snapkv, beside."""

    def rows(subject: str, against: str, *kinds: tuple) -> list[dict]:
        place = {"task": "chain", "budget": "64", "subject": subject}
        return [
            judgements.contrast(against, *kind, model=model, **place)
            for model, kind in zip((f"{name}-llama", "qwen"), kinds, strict=True)
        ]

    apart = {"family": 2, "alpha": "0.050000", "corrected_alpha": "0.025000"}
    apart |= {
        "contrasts": rows(name, "snapkv", HIGHER, APART),
        "auxiliary": rows("1d", "snapkv", HIGHER, NONE),
    }
    registered = rows(name, "1d", HIGHER, LOWER)
    fields = {"rule": "branch", "at_least": None, "branch": {"registered": "A", "symmetric": "B"}}
    return judgements.judgement(registered, **fields, beside=apart, **changes)


def test_without_comparisons_beside_the_rule_there_is_one_panel():
    judged = study()
    del judged["beside"]
    assert len(looking.drawn(forest.forest, judged).axes) == 1


def test_every_contrast_is_drawn_where_it_was_judged_in_its_own_panel_on_one_axis():
    judged = study()
    figure = looking.drawn(forest.forest, judged)
    found = looking.by_gid(figure)
    first, second = figure.axes
    assert first.get_xlim() == second.get_xlim()
    assert [first.get_position().x0, first.get_position().x1] == [
        second.get_position().x0,
        second.get_position().x1,
    ]
    assert first.get_position().y0 > second.get_position().y1
    groups = {"": judged["contrasts"], "beside-": judged["beside"]["contrasts"]}
    for name, rows in (groups | {"auxiliary-": judged["beside"]["auxiliary"]}).items():
        for index, one in enumerate(rows):
            if one["difference"] is None:
                assert f"point-{name}{index}" not in found
                continue
            (point,), (nominal,) = found[f"point-{name}{index}"], found[f"nominal-{name}{index}"]
            assert point.axes is nominal.axes is (second if name else first)
            assert point.get_xdata()[0] == pytest.approx(100 * float(one["difference"]))
            ends = [100 * float(one[end]) for end in ("low", "high")]
            assert list(nominal.get_xdata()) == pytest.approx(ends)


def test_what_was_not_corrected_never_looks_significant():
    found = looking.by_gid(looking.drawn(forest.forest, study()))
    assert [found[f"point-{name}"][0].get_marker() for name in ("0", "beside-0")] == ["D", "D"]
    (untested,) = found["point-auxiliary-0"]
    assert untested.get_marker() == "s"
    assert same_color(untested.get_markerfacecolor(), "white")
    assert "simultaneous-auxiliary-0" not in found
    for name, weight in (("0", "bold"), ("beside-0", "bold"), ("auxiliary-0", "normal")):
        point = found[f"point-{name}"][0]
        texts = [text for text in point.axes.texts if text.get_position()[1] == point.get_ydata()[0]]
        assert {text.get_weight() for text in texts if text.get_text() == "+6.0"} == {weight}


def test_unmatched_memory_counts_for_nothing_in_the_second_panel_too():
    figure = looking.drawn(forest.forest, study())
    (point,) = looking.by_gid(figure)["point-beside-1"]
    assert same_color(point.get_markerfacecolor(), "white")
    y = point.get_ydata()[0]
    row = [text for text in figure.axes[1].texts if text.get_position()[1] == y]
    assert {text.get_weight() for text in row} == {"normal"}
    assert [text.get_text() for text in row] == [
        "qwen · chain · budget 64",
        "+20.0",
        "[+15.0, +25.0]",
        "0.0001",
        "96",
        "1.250",
        "†",
    ]


def test_both_families_and_their_levels_head_their_panels():
    said = looking.said(looking.drawn(forest.forest, study()))
    assert "(a) Registered contrasts: 2, Bonferroni 0.01" in said
    assert "(b) Outside the decision rule: 2, Bonferroni 0.025 over these alone" in said
    assert "1d \N{MINUS SIGN} snapkv (auxiliary, no correction)" in said


@pytest.mark.parametrize("beside", [True, False])
def test_the_branch_heads_the_figure_and_the_winner_is_named(beside):
    judged = study(selected={"arm": "1d_div-1.0", "policy": "1d_div-1.0", "selection": "0" * 64})
    if not beside:
        del judged["beside"]
    said = looking.said(looking.drawn(forest.forest, judged))
    assert "Branch A: A small study" in said
    assert "INCONCLUSIVE (branch A; symmetric B)" in said
    assert "1d_div is 1d_div-1.0" in said
    no_letter = looking.said(looking.drawn(forest.forest, judged | {"branch": None}))
    assert "Branch" not in no_letter


def isocache(why: str, difference: str | None = None) -> dict:
    found = None if difference is None else {"difference": difference, "low": difference, "high": difference}
    return {"ratio": "1.2", "within": "0.1", "why": why, "interpolated": found}


def test_what_an_unmatched_contrast_would_be_at_equal_memory_has_a_column_where_there_is_any():
    judged = study()
    for one, held in zip(
        [*judged["contrasts"], *judged["beside"]["contrasts"]],
        (isocache("matched"), isocache("matched"), isocache("matched"), isocache("interpolated", "0.012")),
        strict=True,
    ):
        one["isocache"] = held
    judged["beside"]["auxiliary"][0]["isocache"] = isocache("outside")
    figure = looking.drawn(forest.forest, judged)
    (y,) = looking.by_gid(figure)["point-beside-1"][0].get_ydata()
    assert "+1.2 pp" in [text.get_text() for text in figure.axes[1].texts if text.get_position()[1] == y]
    shown = [text.get_text() for text in looking.texts(figure)]
    assert shown.count("at equal slots") == 2
    assert shown.count("outside") == 1
    assert "matched" not in shown
    assert "at equal slots" not in looking.said(looking.drawn(forest.forest, study()))


@pytest.mark.parametrize("name", ["a", "1d_div", "a-subject-of-a-very-long-name-" * 3])
def test_every_text_lies_on_the_page_and_on_no_other(name):
    figure = looking.drawn(forest.forest, study(name))
    assert looking.off_the_page(figure) == []
    assert looking.overlapping(figure) == []


def test_two_drawings_of_one_verdict_are_the_same_bytes(tmp_path):
    one, two = (forest.draw(judgements.write(tmp_path / name, study())) for name in "ab")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
