"""The content common to all forms of the forest plot: contrasts in parts, the margin, heading and notes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from analysis.rules import RULES, judged_numbers
from figures.drawing import formatting
from figures.drawing.contrasts import is_significant, rule_margins
from figures.drawing.page import INK, PALE, Sheet, new_sheet
from figures.drawing.table_rows import TableRow, cell_of, group_entries
from protocol.formats.vocabulary import READS

AUXILIARY = 24  # auxiliary comparisons up to which they are drawn; the tables have all of them

MINUS = "\N{MINUS SIGN}"
# By what counts as memory: the column of comparisons interpolated to equal memory, and the meaning of the
# column "cache".
EQUAL = {"slots": "at equal slots", "bytes": "at equal bytes", "total": "at equal bytes, all", READS: "at equal reads"}
MEMORY_NAMES = {
    "slots": "mean slots in use",
    "bytes": "mean bytes of keys and values",
    "total": "mean bytes, including the policy's own state",
    READS: "mean slots that a new token reads",
}


class Part(NamedTuple):
    """Contrasts that are drawn together. Each has "mark", the end of the gids of its artists, and "tested",
    whether it was tested at all.
    """

    name: str
    """Empty if there is only one part."""
    contrasts: list[dict[str, Any]]
    outside: bool
    """Whether the decision rule leaves them out."""

    @property
    def style(self) -> dict[str, str]:
        """Colour and weight of its names."""
        return {"color": self.ink, "weight": "normal" if self.outside else "bold"}

    @property
    def ink(self) -> str:
        return PALE if self.outside else INK

    def weight(self, contrast: Mapping[str, Any]) -> str:
        """Return the weight of the numbers of a contrast: bold if it is significant inside the rule."""
        return "bold" if is_significant(contrast) and not self.outside else "normal"


def split_parts(judged: Mapping[str, Any]) -> list[Part]:
    """Split the contrasts into the registered family and, if there are any, those outside the decision rule.

    The latter are the subject against further arms, corrected over their own number, and the comparators
    against these, not corrected.
    """
    registered = _mark_contrasts(judged["contrasts"], "")
    if "beside" not in judged:
        return [Part("", registered, outside=False)]
    outside_rule, method = judged["beside"], judged["method"]
    inside = f"{judged['family']}, {formatting.format_correction(method, judged)}"
    outside = f"{outside_rule['family']}, {formatting.format_correction(method, outside_rule)} over these only"
    auxiliary = outside_rule["auxiliary"] if len(outside_rule["auxiliary"]) <= AUXILIARY else []
    return [
        Part(f"(a) Registered contrasts: {inside}", registered, outside=False),
        Part(
            f"(b) Outside the decision rule: {outside}",
            _mark_contrasts(outside_rule["contrasts"], "beside-") + _mark_contrasts(auxiliary, "auxiliary-"),
            outside=True,
        ),
    ]


def _mark_contrasts(contrasts: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        {**contrast, "mark": f"{name}{index}", "tested": name != "auxiliary-"}
        for index, contrast in enumerate(contrasts)
    ]


def part_rows(part: Part) -> list[TableRow]:
    """Return the contrasts of a part under headings.

    The only part is grouped by model, task and budget; others by these or by the two arms, whichever takes
    fewer headings, with the tested ones first.
    """
    if not part.name:
        has_several = len({contrast["subject"] for contrast in part.contrasts}) > 1
        label_of = lambda contrast: f"{contrast['subject']} " * has_several + f"against {contrast['against']}"  # noqa: E731
        return group_entries(part.contrasts, label_of)
    rows = []
    for tested, suffix in ((True, ""), (False, " (auxiliary, not corrected)")):
        group = [contrast for contrast in part.contrasts if contrast["tested"] == tested]
        if len(set(map(pair_label, group))) < len(set(map(_setting_label, group))):
            heading, label = pair_label, _setting_label
        else:
            heading, label = _setting_label, pair_label
        for head in dict.fromkeys(map(heading, group)):
            rows.append(TableRow(head + suffix, None))
            rows += [TableRow(label(contrast), contrast) for contrast in group if heading(contrast) == head]
    return rows


def pair_label(contrast: Mapping[str, Any]) -> str:
    return f"{contrast['subject']} {MINUS} {contrast['against']}"


def _setting_label(contrast: Mapping[str, Any]) -> str:
    model, task, budget = cell_of(contrast)
    return f"{model} · {task} · budget {budget}"


def draw_margin(axes: Axes, rows: tuple[float, float], judged: Mapping[str, Any]) -> None:
    """Draw the margin over these rows."""
    for position in rule_margins(judged):
        style: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
        axes.plot((position, position), rows, gid="margin", **style)


def list_contrasts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [contrast for part in parts for contrast in part.contrasts]


def new_forest_sheet(
    judged: Mapping[str, Any], parts: Sequence[Part], width: float, body: float, notes: Sequence[str]
) -> Sheet:
    """Return the page of a forest. notes: on its numbers, between those on marks and on scores."""
    all_notes = [*_mark_notes(judged, parts), *notes, *formatting.score_notes(list_contrasts(parts))]
    return new_sheet(width, body, _title(judged), _heading_lines(judged), all_notes)


def _title(judged: Mapping[str, Any]) -> str:
    letters = RULES[judged["rule"]].text.letters(judged)
    text = f"{letters[0]}: {judged['title']}" if letters else str(judged["title"])
    return text[:1].upper() + text[1:]


def _heading_lines(judged: Mapping[str, Any]) -> list[str]:
    lines = [formatting.outcome_text(judged), f"{formatting.rule_line(judged)}."]
    if "selected" in judged:
        subject = judged["contrasts"][0]["subject"]
        lines.append(f"{subject} is {judged['selected']['arm']}, selected on development problems.")
    return lines


def _mark_notes(judged: Mapping[str, Any], parts: Sequence[Part]) -> list[str]:
    """Return notes on the meaning of lines and markers."""
    contrasts = list_contrasts(parts)
    thin = "simultaneous interval of the family"
    if bound := rule_margins(judged):
        thin = "the limits that the rule compares with the margin"
    sentences = [f"Thick line: 95 % interval. Thin line: {thin}."]
    if bound:
        size = judged_numbers.format_points(str(bound[0] / 100)).lstrip(MINUS)
        sentences.append(f"Dashed: the registered margin, {size} pp.")
    sentences.append("Arrowhead: the interval continues beyond the axis.")
    reason = formatting.unmatched_reason(contrasts)
    marks = (
        "◆ differs from 0 after correction, at matched memory. ○ and ◇ are not counted: no difference "
        f"after correction, or {reason} (†)."
    )
    if bound:  # such a rule may require a difference from 0 below the margin
        marks = f"◆ differs from 0 after correction, ○ does not, ◇ does, but {reason} (†); no rule uses this."
    if not all(contrast["tested"] for contrast in contrasts):
        marks += " □ is not tested."
    if any(part.outside for part in parts):
        marks += " Grey: outside the decision rule."
    drawn = sum(not contrast["tested"] for contrast in contrasts)
    omitted = len(judged.get("beside", {}).get("auxiliary", ())) - drawn
    if omitted:
        marks += f" Not drawn: {omitted} auxiliary comparisons without correction; the verdict lists them."
    return [" ".join(sentences), marks]


def memory_notes(contrasts: Sequence[Mapping[str, Any]], first: str, second: str) -> list[str]:
    """Return notes on the meaning of the columns about memory."""
    unit = formatting.memory_basis(contrasts)
    notes = [f"cache: {MEMORY_NAMES[unit]}, {first} over {second}."]
    if any(map(equal_memory_text, contrasts)):
        notes.append(
            f"{EQUAL[unit]}: where memory was not matched, the difference from the {second} interpolated "
            "between its budgets; outside means that those budgets do not bracket the "
            f"{unit if unit in ('slots', READS) else 'bytes'}. This decides nothing."
        )
    return notes


def equal_memory_text(contrast: Mapping[str, Any]) -> str:
    """Return the text of an unmatched contrast interpolated to equal memory; empty for a matched one."""
    isocache = contrast.get("isocache")
    if isocache is None or isocache["why"] == "matched":
        return ""
    if (interpolated := isocache["interpolated"]) is None:
        return str(isocache["why"])
    return f"{judged_numbers.format_points(interpolated['difference'])} pp"


def side_names(judged: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the two arms of a contrast; a single subject is called by its name."""
    subjects = {contrast["subject"] for contrast in judged["contrasts"]}
    if "beside" not in judged and len(subjects) == 1:
        return subjects.pop(), "comparator"
    return "first arm", "second arm"
