"""The content common to all forms of the forest plot: contrasts in parts, the margin, heading and notes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from analysis.rules import RULES
from figures.canvas import numbers
from figures.canvas.contrasts import margins
from figures.canvas.page import INK
from figures.canvas.rows import Row, grouped, place

__all__ = [
    "AUXILIARY",
    "EQUAL",
    "MINUS",
    "Part",
    "dashed",
    "equal",
    "heading",
    "marks",
    "memory",
    "parts",
    "rows",
    "sides",
    "title",
]

AUXILIARY = 24  # auxiliary comparisons up to which they are drawn; the tables have all of them

MINUS = "\N{MINUS SIGN}"
# By what counts as memory: the column of comparisons interpolated to equal memory, and the meaning of the
# column "cache".
EQUAL = {"slots": "at equal slots", "bytes": "at equal bytes", "total": "at equal bytes, all"}
HELD = {
    "slots": "mean slots held",
    "bytes": "mean bytes of keys and values",
    "total": "mean bytes, with those of the policy's own state",
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


def parts(judged: Mapping[str, Any]) -> list[Part]:
    """Split the contrasts into the registered family and, if there are any, those outside the decision rule.

    The latter are the subject against further arms, corrected over their own number, and the comparators
    against these, not corrected.
    """
    registered = _marked(judged["contrasts"], "")
    if "beside" not in judged:
        return [Part("", registered, outside=False)]
    apart, method = judged["beside"], judged["method"]
    inside = f"{judged['family']}, {numbers.correction(method, judged)}"
    outside = f"{apart['family']}, {numbers.correction(method, apart)} over these alone"
    auxiliary = apart["auxiliary"] if len(apart["auxiliary"]) <= AUXILIARY else []
    return [
        Part(f"(a) Registered contrasts: {inside}", registered, outside=False),
        Part(
            f"(b) Outside the decision rule: {outside}",
            _marked(apart["contrasts"], "beside-") + _marked(auxiliary, "auxiliary-"),
            outside=True,
        ),
    ]


def _marked(contrasts: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        {**one, "mark": f"{name}{index}", "tested": name != "auxiliary-"}
        for index, one in enumerate(contrasts)
    ]


def rows(part: Part) -> list[Row]:
    """Return the contrasts of a part under headings.

    The only part is grouped by model, task and budget; others by these or by the two arms, whichever takes
    fewer headings, with the tested ones first.
    """
    if not part.name:
        several = len({one["subject"] for one in part.contrasts}) > 1
        named = lambda one: f"{one['subject']} " * several + f"against {one['against']}"  # noqa: E731
        return grouped(part.contrasts, named)
    found = []
    for tested, what in ((True, ""), (False, " (auxiliary, no correction)")):
        own = [one for one in part.contrasts if one["tested"] == tested]
        if len(set(map(_pair, own))) < len(set(map(_place, own))):
            heading, label = _pair, _place
        else:
            heading, label = _place, _pair
        for head in dict.fromkeys(map(heading, own)):
            found.append(Row(head + what, None))
            found += [Row(label(one), one) for one in own if heading(one) == head]
    return found


def _pair(one: Mapping[str, Any]) -> str:
    return f"{one['subject']} {MINUS} {one['against']}"


def _place(one: Mapping[str, Any]) -> str:
    model, task, budget = place(one)
    return f"{model} · {task} · budget {budget}"


def dashed(axes: Axes, rows: tuple[float, float], judged: Mapping[str, Any]) -> None:
    """Draw the margin over these rows."""
    for at in margins(judged):
        how: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
        axes.plot((at, at), rows, gid="margin", **how)


def title(judged: Mapping[str, Any]) -> str:
    letters = RULES[judged["rule"]].words.letters(judged)
    said = f"{letters[0]}: {judged['title']}" if letters else str(judged["title"])
    return said[:1].upper() + said[1:]


def heading(judged: Mapping[str, Any]) -> list[str]:
    said = [numbers.outcome(judged), f"{numbers.verdict_line(judged)}."]
    if "selected" in judged:
        subject = judged["contrasts"][0]["subject"]
        said.append(f"{subject} is {judged['selected']['arm']}, selected on development problems.")
    return said


def marks(judged: Mapping[str, Any], shown: Sequence[Part]) -> list[str]:
    """Return notes on the meaning of lines and markers."""
    contrasts = [one for part in shown for one in part.contrasts]
    thin = "simultaneous interval of the family"
    if bound := margins(judged):
        thin = "the limits that the rule compares with the margin"
    said = [f"Thick line: 95 % interval. Thin line: {thin}."]
    if bound:
        size = numbers.points(str(bound[0] / 100)).lstrip(MINUS)
        said.append(f"Dashed: the registered margin, {size} pp.")
    said.append("Arrowhead: it goes on.")
    saves = any("saves" in one for one in contrasts)
    why = "no memory was saved" if saves else "memory was not matched"
    marks = (
        "◆ differs from 0 after correction, at matched memory. ○ and ◇ count for nothing: no difference "
        f"after correction, or {why} (†)."
    )
    if bound:  # such a rule may require a difference from 0 below the margin
        marks = f"◆ differs from 0 after correction, ○ does not, ◇ does where {why} (†); no rule reads that."
    if not all(one["tested"] for one in contrasts):
        marks += " □ is not tested."
    if any(part.outside for part in shown):
        marks += " Grey: outside the decision rule."
    drawn = sum(not one["tested"] for one in contrasts)
    left = len(judged.get("beside", {}).get("auxiliary", ())) - drawn
    if left:
        marks += f" Not drawn: {left} auxiliary comparisons, which nothing corrects; the verdict lists them."
    return [" ".join(said), marks]


def memory(contrasts: Sequence[Mapping[str, Any]], first: str, second: str) -> list[str]:
    """Return notes on the meaning of the columns about memory."""
    by = numbers.matched_by(contrasts)
    said = [f"cache: {HELD[by]}, {first} over {second}."]
    if any(map(equal, contrasts)):
        said.append(
            f"{EQUAL[by]}: where memory was not matched, against the {second} interpolated between its "
            f"budgets; outside: those budgets do not bracket the {'slots' if by == 'slots' else 'bytes'}. "
            "Decides nothing."
        )
    return said


def equal(contrast: Mapping[str, Any]) -> str:
    """Return the text of an unmatched contrast interpolated to equal memory; empty for a matched one."""
    isocache = contrast.get("isocache")
    if isocache is None or isocache["why"] == "matched":
        return ""
    at = isocache["interpolated"]
    return str(isocache["why"]) if at is None else f"{numbers.points(at['difference'])} pp"


def sides(judged: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the two arms of a contrast; a single subject is called by its name."""
    subjects = {one["subject"] for one in judged["contrasts"]}
    if "beside" not in judged and len(subjects) == 1:
        return subjects.pop(), "comparator"
    return "first arm", "second arm"
