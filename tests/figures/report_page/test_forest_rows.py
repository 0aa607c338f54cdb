"""The rows of a report's forest plot, against what was judged; and the answers that a row opens onto."""

import json
import re

import judgements
import pytest
import reports
from pages import Element, parsed

from figures.report_page import forest_rows, report_tables
from figures.report_page.discordant_answers import DiscordantAnswer


def drawn(judged: dict, behind: list[DiscordantAnswer] = ()) -> Element:
    return parsed(forest_rows.render_forest(judged, [list(behind)] * len(judged["contrasts"])))


def by_class(one: Element, name: str) -> list[Element]:
    """All elements of a class, in order."""
    below = [found for part in one.inside for found in by_class(part, name)]
    return [one, *below] if name in one.attributes.get("class", "").split() else below


def rows(page: Element) -> list[Element]:
    """Those of contrasts."""
    return [one for one in by_class(page, "row") if not {"heads", "axis"} & set(one.attributes["class"].split())]


def said(row: Element) -> dict[str, str]:
    """By the class of its cells, without the heads that a narrow screen shows."""
    kinds = ("label", "delta", "interval", "p", "size", "cache", "says")
    cells = {kind: found[0] for kind in kinds if (found := by_class(row, kind))}
    return {kind: cell.text.removeprefix("".join(b.text for b in cell.all("b"))) for kind, cell in cells.items()}


def test_every_contrast_has_its_row_with_its_numbers_and_mark():
    shown = rows(drawn(judgements.judgement()))
    assert [said(row)["label"] for row in shown] == [f"against {name}" for name in judgements.FIVE]
    assert said(shown[0]) == {
        "label": "against snapkv",
        "delta": "+12.5",
        "interval": "[+4.2, +20.8]",
        "p": "0.0001",
        "size": "96",
        "cache": "1.004",
        "says": "better",
    }
    assert [said(row)["says"] for row in shown] == [*("better", "neither", "unmatched", "worse", "not estimated")]
    marks = [[one.attributes["href"] for one in row.all("use")] for row in shown]
    # The simultaneous interval of snapkv goes on beyond one end of the axis, that of lacache beyond both.
    assert marks == [["#high", "#won"], ["#open"], ["#unfair"], ["#low", "#high", "#won"], []]
    assert ["counts" in row.attributes["class"] for row in shown] == [True, False, False, True, False]


def test_lines_and_marks_lie_at_their_numbers():
    """Points and nominal intervals lie from -14.6 to 20.8, and the axis has 6 % more on both sides."""
    low, high = -14.5833 - 0.06 * 35.4166, 20.8333 + 0.06 * 35.4166
    shown = rows(drawn(judgements.judgement()))

    def at(value: float) -> float:
        return pytest.approx(100 * (value - low) / (high - low), abs=0.02)

    lines = {one.attributes["class"]: one.attributes for one in shown[0].all("line")}
    places = {name: [float(one[end].rstrip("%")) for end in ("x1", "x2")] for name, one in lines.items()}
    assert places["zero"] == [at(0), at(0)]
    assert places["thick"] == [at(4.1667), at(20.8333)]
    assert places["thin"] == [at(1.6667), 100.0]  # 23.3 is cut: an arrowhead says so
    (mark,) = shown[1].all("use")
    assert float(mark.attributes["x"].rstrip("%")) == at(1.0417)


@pytest.mark.parametrize(
    ("rule", "margins"), [("non_inferior", [-5.0]), ("smallest_lossless", [-5.0]), ("equivalent", [-5.0, 5.0])]
)
def test_the_margin_of_a_rule_is_drawn_and_named(rule, margins):
    (row,) = judgements.judgement()["contrasts"][1:2]
    page = drawn(judgements.judgement([row], rule=rule, margin="0.050000"))
    ends = 5 * 1.12, 2 * 5 * 1.12  # the axis has 5 points on both sides of zero, and 6 % of its ten beyond
    low = -5.0 - 0.6
    found = [float(one.attributes["x1"].rstrip("%")) for one in by_class(page, "margin")]
    assert found == [pytest.approx(100 * (one - low) / ends[1], abs=0.02) for one in margins]
    assert "Dashed: the margin of the rule" in page.text
    assert not by_class(drawn(judgements.judgement()), "margin")


def test_beside_a_margin_the_thin_line_is_the_limits_that_the_rule_compares_with_it():
    """As in the drawn forest. The axis has ten points, and 6 % of them on both sides."""
    (row,) = judgements.judgement()["contrasts"][1:2]
    limits = {"low_margin": "-0.030000", "high_margin": "0.040000"}
    page = drawn(judgements.judgement([row | limits], rule="non_inferior", margin="0.050000"))
    (line,) = by_class(page, "thin")
    found = [float(line.attributes[end].rstrip("%")) for end in ("x1", "x2")]
    assert found == [pytest.approx(100 * (value + 5.6) / 11.2, abs=0.02) for value in (-3.0, 4.0)]
    assert "Thin line: the limits that the rule compares with it." in page.text
    (table,) = parsed(report_tables.contrasts_table("Family", [row | limits, row])).all("table")
    at = [cell.text for cell in table.all("th")].index("limits about the margin")
    cells = [[cell.text for cell in one.all("th") + one.all("td")] for one in table.all("tr")[1:]]
    assert [one[at] for one in cells] == ["[\N{MINUS SIGN}3.0, +4.0]", "not estimated"]


def test_rows_are_headed_by_their_place_or_their_two_arms_whichever_are_fewer():
    headings = [one.text for one in drawn(judgements.sixteen()).all("h3")]
    # Four rows are shown; the others of the first pair are folded, under its heading once more.
    assert headings == ["crystal against snapkv", "crystal against snapkv (continued)", "crystal against streaming"]
    labels = [said(row)["label"] for row in rows(drawn(judgements.sixteen()))]
    assert labels[0] == "smollm2-135m · needle-512 · budget 0.25"
    one = drawn(judgements.judgement())
    place = "tiny · needle-512 · budget 0.5"
    assert [heading.text for heading in one.all("h3")] == [place, f"{place} (continued)"]


def lane(**changes) -> DiscordantAnswer:
    same = "the same words " * 20
    return DiscordantAnswer("p-7", "gain", 3, f"{same}right end", f"{same}wrong end", len(same))._replace(**changes)


def test_a_row_opens_onto_its_answers_around_the_first_difference():
    page = drawn(judgements.judgement(), [lane(gold="42"), lane(kind="loss")])
    (first,) = by_class(page.all("details")[0], "behind")
    heads = [one.text for one in first.all("h4")]
    assert heads == [
        "12 gained: crystal was right, where snapkv was wrong. Shown: 1.",
        "1 lost: crystal was wrong, where snapkv was right.",
    ]
    assert first.all("li")[0].all("p")[0].text == "p-7, right answer: 42"  # one seed goes without saying
    own, other = first.all("li")[0].all("q")
    assert [one.text for one in own.all("mark") + other.all("mark")] == ["right", "wrong"]
    assert own.text.startswith("… ")
    assert own.text.endswith("the same words right end")
    assert len(own.text) < 90


@pytest.mark.parametrize(
    ("text", "differs", "shown"),
    [
        ("", 0, "(ends)"),
        ("abc", 3, "abc(ends)"),
        ("a\u200bb c", 3, "a\\u200bb c"),
        ("abc  def ghi", 3, "abc  def ghi"),
        ("x" * 500, 0, "x" * 240 + " …"),
        ("\u202eevil\x1b[0m\x00", 0, "\\u202eevil\\u001b[0m\\u0000"),
    ],
)
def test_texts_are_cut_with_a_mark_and_what_hides_in_them_is_shown(text, differs, shown):
    page = drawn(judgements.judgement(), [lane(subject=text, common_prefix=differs)])
    assert page.all("q")[0].text == shown


def test_the_text_of_a_model_never_becomes_markup():
    page = drawn(judgements.judgement(), [lane(subject=reports.HOSTILE, problem=reports.HOSTILE, common_prefix=0)])
    assert page.all("script") == page.all("img") == []
    assert page.all("q")[0].text == reports.HOSTILE
    assert page.all("bdi")[0].text == reports.HOSTILE


def test_a_page_does_not_grow_with_an_answer_that_is_all_of_a_text():
    page = drawn(judgements.judgement(), [lane(gold="7" * 100_000, problem="p" * 100_000)])
    assert len(page.all("li")[0].text) < 1_000
    assert page.all("li")[0].all("p")[0].text == f"{'p' * 240} …, right answer: {'7' * 240} …"


@pytest.mark.parametrize(("scored", "verb"), [(True, "scored higher"), ("agreement", "agreed more")])
def test_scores_are_called_higher_and_lower_and_agreement_more_and_less(scored, verb):
    rows = [one | {"scored": scored} for one in judgements.judgement()["contrasts"]]
    page = drawn(judgements.judgement(rows))
    assert f"12 gained: crystal {verb}." in page.text
    assert "was right" not in page.text


def test_the_answers_of_a_shipped_study_are_those_of_its_records(quickstart):
    """The first gained answer of the first contrast, by a plain loop over the records."""
    page = parsed((quickstart / "report.html").read_text())
    bodies = [json.loads(line)["body"] for line in (quickstart / "records/shard-0.jsonl").read_text().splitlines()]
    contrast = json.loads((quickstart / "verdict.json").read_bytes())["judged"]["contrasts"][1]
    by_arm = {
        name: {
            body["problem"]: body
            for body in bodies
            if body["cell"] == {**{k: contrast[k] for k in ("model", "task", "budget")}, "arm": name, "seed": 0}
        }
        for name in (contrast["subject"], contrast["against"])
    }
    own, other = by_arm.values()
    gained = [name for name in own if own[name]["grade"] == "correct" and other[name]["grade"] != "correct"]
    details = [one for one in page.all("details") if not one.attributes]
    found = details[1].all("li")
    assert len(gained) == contrast["gains"] == len(found) == 4
    assert {one.all("bdi")[0].text for one in found} == set(gained)
    for one in found:
        texts = [re.sub(r"^… | …$", "", quote.text) for quote in one.all("q")]
        name = one.all("bdi")[0].text
        for text, body in zip(texts, (own[name], other[name]), strict=True):
            assert text.removesuffix("(ends)") in body["text"]
