"""Print the verdict of a study as plain text, at most 110 columns wide.

    kv-prereg table registrations/quickstart

Exit status: 0 printed; 2 there is no verdict to print.
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.output import terms
from analysis.output.command import command
from analysis.rules import full_cache
from figures.canvas import numbers, page
from figures.canvas.rows import place
from figures.html.answer import answer

__all__ = ["verdict_table"]

WIDTH = 110
# Terms of the table that the help explains.
WORDS = (
    *(
        "CONFIRMED",
        "REFUTED",
        "INCONCLUSIVE",
        "SCREENED",
        "DEVIATED",
        "for MODEL alone",
        "n < 200",
        "n ≥ 200",
    ),
    *("UNANCHORED", "uninformative", "n", "pp", "95 % interval", "p", "Bonferroni", "cache", "charged"),
    *("matched", "better, worse", "accuracy", "slot", "peak", "no answer", "truncated", "failed lane"),
)
NAME = 24  # longest name, in columns, that is not shortened if a row has room


def verdict_table(judged: Mapping[str, Any], witness: str = numbers.WITNESS) -> str:
    """Format verdict, answer, contrasts, arms, and what the study proves and does not prove.

    witness: the external witness of the study, from `protocol.evidence.external.anchors` after verification.
    """
    alone = len({one["subject"] for one in judged["contrasts"]}) == 1
    heads = [head if alone or head != "against" else "arms" for head in CONTRASTS]
    rows, charges = [_contrast(one, alone) for one in judged["contrasts"]], _charges(judged)
    if numbers.matched_by(judged["contrasts"]) != "slots":  # bytes decide, and slots are printed too
        heads[-2:] = ["bytes", "slots", ""]
        rows = [(*row[:-1], _slots(one), row[-1]) for row, one in zip(rows, judged["contrasts"], strict=True)]
    if any(charges):
        heads.insert(-1, "charge")
        rows = [(*row[:-1], charge, row[-1]) for row, charge in zip(rows, charges, strict=True)]
    parts = [
        f"{numbers.word(judged)}  {numbers.grade(judged['label'])}  {witness}  {judged['title']}",
        numbers.verdict_line(judged),
        *filter(None, [full_cache.word(judged)]),
        "",
        answer(judged),
        "",
        *_aligned(heads, rows),
        *numbers.scores(judged["contrasts"]),
        "",
        *_aligned(ARMS, [_arm(one) for one in judged["arms"]]),
    ]
    missing = judged["missing"]
    if missing["lanes"]:
        parts += ["", f"{missing['lanes']} of {missing['registered']} lanes have no grade"]
    for heading, key in (("Proves", "proves"), ("Does not prove", "does_not_prove")):
        parts += ["", heading, *(f"- {sentence}" for sentence in judged[key] or ["nothing"])]
    return "\n".join(line for part in parts for line in _wrapped(part))


CONTRASTS = ("model", "task", "budget", "against", "n", "pp", "95 % interval", "p", "cache", "")
ARMS = (
    "model",
    "task",
    "budget",
    "arm",
    "accuracy",
    "slots",
    "peak",
    "tokens",
    "no answer",
    "truncated",
    "failed",
)


def _contrast(one: Mapping[str, Any], alone: bool) -> tuple[str, ...]:
    """Return the cells of a contrast. has_one_subject: the line of the rule names it."""
    where = (
        *place(one),
        one["against"] if alone else f"{one['subject']}, {one['against']}",
        numbers.size(one),
    )
    if one["difference"] is None:
        return (*where, "", "not estimated", "", "", "")
    mark = "better" if one["better"] else "worse" if one["worse"] else ""
    return (
        *where,
        numbers.points(one["difference"]),
        numbers.interval(one["low"], one["high"]),
        numbers.p_value(one["p"]),
        f"{float(one['cache_ratio']):.3f}",
        mark if one["matched"] else "unmatched" if one.get("saves") is None else "saves nothing",
    )


def _slots(one: Mapping[str, Any]) -> str:
    """Format the ratio of mean slots."""
    found = (one.get("memory") or {"ratios": {}})["ratios"].get("slots")
    return "" if found is None else f"{float(found):.3f}"


def _charges(judged: Mapping[str, Any]) -> list[str]:
    return [numbers.charge(one) for one in judged["contrasts"]]


def _arm(one: Mapping[str, Any]) -> tuple[str, ...]:
    measured = [("accuracy", ".3f"), ("mean_slots", ".1f"), ("peak_slots", ".1f"), ("mean_tokens", ".1f")]
    printed = ["" if one[name] is None else format(float(one[name]), how) for name, how in measured]
    counts = [str(one[name]) for name in ("no_answer", "truncated", "failed")]
    return (*place(one), one["arm"], *printed, *counts)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align text left and numbers right; the first four columns are shortened if a row is too wide."""
    for name in range(NAME, 1, -1):
        table = [[*(_short(cell, name) for cell in row[:4]), *row[4:]] for row in (head, *rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) <= WIDTH:
            break
    words = [i < 4 or title == "" for i, title in enumerate(head)]
    return ["  ".join(map(_set, row, widths, words)).rstrip() for row in table]


def _set(cell: str, width: int, word: bool) -> str:
    return cell.ljust(width) if word else cell.rjust(width)


def _short(name: str, longest: int) -> str:
    """Shorten a long name in the middle, since names may differ at either end."""
    end = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ")


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a confirmed registration, e.g. registrations/quickstart"}
    doc = f"{__doc__}\n{terms.told(*WORDS)}"
    return command("table", doc, folder, page.judged, page.NoVerdict, argv, show=verdict_table)


if __name__ == "__main__":
    sys.exit(main())
