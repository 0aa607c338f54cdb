from pathlib import Path

import drawing_checks
import judgements
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from sampled import sampled

from figures.drawing import page
from figures.plots.forest import forest

JUDGED, SIXTEEN = judgements.judgement(), judgements.sixteen()
SHIPPED = sorted(path.parent for path in Path(__file__).parents[3].glob("registrations/*/verdict.json"))
SNAPKV, H2O, RANDOM, LACACHE, STREAMING = range(5)


@pytest.fixture(scope="module")
def five() -> Figure:
    return drawing_checks.drawn(forest, JUDGED)


@pytest.fixture(scope="module")
def sixteen() -> Figure:
    return drawing_checks.drawn(forest, SIXTEEN)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in drawing_checks.texts(figure)]


# ---------------------------------------------------------------- what is drawn is what was judged


@pytest.mark.parametrize(("drawn", "judged"), [("five", JUDGED), ("sixteen", SIXTEEN)], ids=["five", "sixteen"])
def test_drawn_points_and_nominal_intervals_are_the_judged_ones(drawn, judged, request):
    lines = drawing_checks.by_gid(request.getfixturevalue(drawn))
    for index, one in enumerate(judged["contrasts"]):
        if one["difference"] is None:
            assert f"point-{index}" not in lines
            continue
        (point,), (nominal,) = lines[f"point-{index}"], lines[f"nominal-{index}"]
        assert point.get_xdata()[0] == pytest.approx(100 * float(one["difference"]))
        assert list(nominal.get_xdata()) == pytest.approx([100 * float(one[end]) for end in ("low", "high")])
        assert point.get_ydata()[0] == nominal.get_ydata()[0] == nominal.get_ydata()[1]


def test_simultaneous_intervals_are_the_judged_ones_where_they_fit(five):
    lines = drawing_checks.by_gid(five)
    for index, name in ((SNAPKV, "snapkv"), (H2O, "h2o"), (RANDOM, "random")):
        expected = [100 * float(end) for end in judgements.FIVE[name][3:5]]
        if index == SNAPKV:
            expected[1] = five.axes[0].get_xlim()[1]  # 23.3 lies beyond the axis
        assert list(lines[f"simultaneous-{index}"][0].get_xdata()) == pytest.approx(expected), name


def test_a_clipped_interval_ends_at_the_axis_with_an_arrow_on_that_side(five):
    left, right = five.axes[0].get_xlim()
    lines = drawing_checks.by_gid(five)
    arrows = {
        gid: [(line.get_marker(), line.get_xdata()[0]) for line in found]
        for gid, found in lines.items()
        if gid.startswith("clipped")
    }
    assert arrows == {
        f"clipped-{SNAPKV}": [(">", pytest.approx(right))],
        f"clipped-{LACACHE}": [("<", pytest.approx(left)), (">", pytest.approx(right))],
    }
    assert list(lines[f"simultaneous-{LACACHE}"][0].get_xdata()) == pytest.approx([left, right])


def test_no_interval_is_clipped_where_all_fit():
    row = judgements.contrast("h2o", *judgements.FIVE["h2o"])
    row |= {"low_simultaneous": "-0.050000", "high_simultaneous": "0.050000"}
    lines = drawing_checks.by_gid(forest(judgements.judgement([row])))
    assert not [gid for gid in lines if gid.startswith("clipped")]


def test_the_axis_shows_zero_and_five_points_on_both_sides():
    row = judgements.contrast("h2o", "0.3", "0.2", "0.4", "0.1", "0.5", "0.0001", True, False, True)
    figure = forest(judgements.judgement([row]))
    left, right = figure.axes[0].get_xlim()
    assert left <= -5
    assert right >= 40
    (zero,) = drawing_checks.by_gid(figure)["zero"]
    assert set(zero.get_xdata()) == {0}


@pytest.mark.parametrize(
    ("index", "marker", "filled"), [(SNAPKV, "D", True), (LACACHE, "D", True), (H2O, "o", False), (RANDOM, "D", False)]
)
def test_only_what_passes_with_matched_memory_is_a_filled_diamond(five, index, marker, filled):
    (point,) = drawing_checks.by_gid(five)[f"point-{index}"]
    assert point.get_marker() == marker
    assert bool(same_color(point.get_markerfacecolor(), "white")) != filled


def test_unmatched_rows_carry_a_dagger_and_rows_without_estimate_say_so(five):
    at = [(text.get_text(), text.get_position()[1]) for text in five.axes[0].texts]
    rows = {text: y for text, y in at if "against" in text}
    assert [y for text, y in at if text == "†"] == [rows["against random"]]
    assert [y for text, y in at if text == "not estimated"] == [rows["against streaming"]]
    assert ("1.250", rows["against random"]) in at


def test_every_row_prints_its_numbers_beside_its_point(five):
    y = drawing_checks.by_gid(five)[f"point-{LACACHE}"][0].get_ydata()[0]
    row = {text.get_text() for text in five.axes[0].texts if text.get_position()[1] == y}
    assert row == {
        "against lacache",
        "\N{MINUS SIGN}9.4",
        "[\N{MINUS SIGN}14.6, \N{MINUS SIGN}4.2]",
        "0.0010",
        "96",
        "1.004",
    }


def test_groups_are_headed_by_model_task_and_budget(sixteen):
    heads = [text for text in texts(sixteen) if " · budget " in text]
    assert len(heads) == 8
    assert heads[0] == "smollm2-135m · needle-512 · budget 0.25"
    assert len(drawing_checks.by_gid(sixteen)["zero"]) == 8
    assert sum(text.startswith("against ") for text in texts(sixteen)) == 16


def test_verdict_size_witness_and_rule_head_the_figure(five):
    assert "INCONCLUSIVE for tiny alone, n < 200, UNANCHORED" in texts(five)
    said = drawing_checks.said(five)
    assert "crystal better in at least 3 of 5 contrasts" in said
    assert "(Bonferroni 0.01)." in said
    branch = judgements.judgement(
        rule="branch",
        branch={"registered": "A", "symmetric": "B"},
        verdict="CONFIRMED",
        at_least=None,
        label="confirmatory-grade",
        witness="ANCHORED (lock by ots block 900000)",
    )
    assert (
        "CONFIRMED (branch A, symmetric B) for tiny alone, n ≥ 200, ANCHORED (lock by ots block 900000)"
        in drawing_checks.said(forest(branch))
    )


def test_no_drawing_of_max_t_speaks_of_bonferroni():
    for judged in (JUDGED, study()):
        assert "Bonferroni" not in drawing_checks.said(forest(judged | {"method": "max-t"}))
    said = drawing_checks.said(forest(study(method="max-t")))
    assert "(a) Registered contrasts: 2, max-t 0.05" in said
    assert "(b) Outside the decision rule: 2, max-t 0.05 over these only" in said


# ---------------------------------------------------------------- shipped studies


@pytest.mark.parametrize("folder", sampled(SHIPPED, of=6))
def test_every_shipped_verdict_can_be_drawn(folder):
    drawing_checks.drawn(forest, page.read_judged(folder))


# ---------------------------------------------------------------- a second panel


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
    apart |= {"contrasts": rows(name, "snapkv", HIGHER, APART), "auxiliary": rows("1d", "snapkv", HIGHER, NONE)}
    registered = rows(name, "1d", HIGHER, LOWER)
    fields = {"rule": "branch", "at_least": None, "branch": {"registered": "A", "symmetric": "B"}} | changes
    return judgements.judgement(registered, **fields, beside=apart)


@pytest.fixture(scope="module")
def two() -> Figure:
    return drawing_checks.drawn(forest, study())


def test_without_comparisons_beside_the_rule_there_is_one_panel():
    judged = study()
    del judged["beside"]
    assert len(forest(judged).axes) == 1


def test_every_contrast_is_drawn_where_it_was_judged_in_its_own_panel_on_one_axis(two):
    judged = study()
    found = drawing_checks.by_gid(two)
    first, second = two.axes
    assert first.get_xlim() == second.get_xlim()
    assert [first.get_position().x0, first.get_position().x1] == [second.get_position().x0, second.get_position().x1]
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


def test_what_was_not_corrected_never_looks_significant(two):
    found = drawing_checks.by_gid(two)
    assert [found[f"point-{name}"][0].get_marker() for name in ("0", "beside-0")] == ["D", "D"]
    (untested,) = found["point-auxiliary-0"]
    assert untested.get_marker() == "s"
    assert same_color(untested.get_markerfacecolor(), "white")
    assert "simultaneous-auxiliary-0" not in found


def test_what_the_rule_leaves_out_is_grey_regular_and_thinner_than_what_it_decides_by(two):
    found = drawing_checks.by_gid(two)
    inside, outside = found["point-0"][0], found["point-beside-0"][0]
    assert inside.get_marker() == outside.get_marker() == "D"
    assert same_color(inside.get_markerfacecolor(), page.INK)
    assert same_color(outside.get_markerfacecolor(), page.PALE)
    assert outside.get_markersize() < inside.get_markersize()
    for kind in ("nominal", "simultaneous"):
        assert found[f"{kind}-beside-0"][0].get_linewidth() < found[f"{kind}-0"][0].get_linewidth()
        assert same_color(found[f"{kind}-beside-0"][0].get_color(), page.PALE)
    first, second = two.axes
    y = inside.get_ydata()[0]
    row = [text for text in first.texts if text.get_position()[1] == y]
    assert {text.get_weight() for text in row if text.get_text() == "+6.0"} == {"bold"}
    assert {text.get_weight() for text in second.texts} == {"normal"}
    assert all(
        same_color(text.get_color(), page.PALE)
        for text in second.texts
        if "→" not in text.get_text() and "←" not in text.get_text()
    )


def many(count: int) -> dict:
    """The study above with so many auxiliary comparisons."""
    judged = study()
    one = judged["beside"]["auxiliary"][0]
    judged["beside"]["auxiliary"] = [one | {"budget": str(number)} for number in range(count)]
    return judged


def test_more_auxiliary_comparisons_than_make_a_page_are_counted_and_not_drawn():
    some, none = (drawing_checks.by_gid(forest(many(count))) for count in (24, 25))
    assert sum(gid.startswith("point-auxiliary-") for gid in some) == 24
    assert not [gid for gid in none if "auxiliary" in gid]
    assert "point-beside-0" in none
    assert "Not drawn" not in drawing_checks.said(forest(many(24)))
    assert "Not drawn: 25 auxiliary comparisons" in drawing_checks.said(forest(many(25)))


@pytest.mark.parametrize(("rule", "lines"), [("superior", []), ("non_inferior", [-3.0]), ("equivalent", [-3.0, 3.0])])
def test_the_margin_of_a_rule_stands_where_it_was_registered_and_in_no_panel_that_it_leaves_out(rule, lines):
    judged = study(rule=rule, at_least=2, margin="0.030000") if lines else study(rule=rule, at_least=2)
    judged |= {"rule": rule}
    drawn = forest(judged)
    margins = drawing_checks.by_gid(drawn).get("margin", [])
    assert sorted({line.get_xdata()[0] for line in margins}) == pytest.approx(lines)
    assert {line.axes for line in margins} <= {drawn.axes[0]}
    assert ("Dashed: the registered margin, 3.0 pp." in drawing_checks.said(drawn)) == bool(lines)
    assert ("are not counted" in drawing_checks.said(drawn)) != bool(lines)  # a margin may ask for no difference


def test_with_a_margin_the_thin_line_has_the_limits_that_are_compared_with_it():
    row = judgements.contrast("h2o", *judgements.FIVE["h2o"]) | {"low_margin": "-0.04", "high_margin": "0.03"}
    judged = judgements.judgement([row], rule="non_inferior", margin="0.030000")
    (thin,) = drawing_checks.by_gid(forest(judged))["simultaneous-0"]
    assert list(thin.get_xdata()) == pytest.approx([-4, 3])


def test_unmatched_memory_counts_for_nothing_in_the_second_panel_too(two):
    (point,) = drawing_checks.by_gid(two)["point-beside-1"]
    assert same_color(point.get_markerfacecolor(), "white")
    y = point.get_ydata()[0]
    row = [text for text in two.axes[1].texts if text.get_position()[1] == y]
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


def test_both_families_and_their_levels_head_their_panels(two):
    said = drawing_checks.said(two)
    assert "(a) Registered contrasts: 2, Bonferroni 0.01" in said
    assert "(b) Outside the decision rule: 2, Bonferroni 0.025 over these only" in said
    assert "1d \N{MINUS SIGN} snapkv (auxiliary, not corrected)" in said


@pytest.mark.parametrize("beside", [True, False])
def test_the_branch_heads_the_figure_and_the_winner_is_named(beside):
    judged = study(selected={"arm": "1d_div-1.0", "policy": "1d_div-1.0", "selection": "0" * 64})
    if not beside:
        del judged["beside"]
    said = drawing_checks.said(forest(judged))
    assert "Branch A: A small study" in said
    assert "INCONCLUSIVE (branch A, symmetric B)" in said
    assert "1d_div is 1d_div-1.0" in said
    no_letter = drawing_checks.said(forest(judged | {"branch": None}))
    assert "Branch" not in no_letter


def isocache(why: str, difference: str | None = None) -> dict:
    found = None if difference is None else {"difference": difference, "low": difference, "high": difference}
    return {"ratio": "1.2", "within": "0.1", "why": why, "interpolated": found}


def test_what_an_unmatched_contrast_would_be_at_equal_memory_has_a_column_where_there_is_any(two):
    judged = study()
    for one, held in zip(
        [*judged["contrasts"], *judged["beside"]["contrasts"]],
        (isocache("matched"), isocache("matched"), isocache("matched"), isocache("interpolated", "0.012")),
        strict=True,
    ):
        one["isocache"] = held
    judged["beside"]["auxiliary"][0]["isocache"] = isocache("outside")
    figure = forest(judged)
    (y,) = drawing_checks.by_gid(figure)["point-beside-1"][0].get_ydata()
    assert "+1.2 pp" in [text.get_text() for text in figure.axes[1].texts if text.get_position()[1] == y]
    shown = [text.get_text() for text in drawing_checks.texts(figure)]
    assert shown.count("at equal slots") == 2
    assert shown.count("outside") == 1
    assert "matched" not in shown
    assert "at equal slots" not in drawing_checks.said(two)


@pytest.mark.parametrize("name", ["a", "1d_div", "a-subject-of-a-very-long-name-" * 3])
def test_every_text_lies_on_the_page_and_on_no_other(name):
    drawing_checks.drawn(forest, study(name))
