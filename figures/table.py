"""Print the verdict of a study as plain text, as wide as the terminal, or 110 columns wide.

    kv-prereg table registrations/quickstart
    kv-prereg table registrations/quickstart --latex > table.tex    # or --markdown, or numbers with --json

The records are judged again, and a verdict that they do not support is not printed. Text that is pasted elsewhere
contains the verdict and its qualifiers in addition to the contrasts.
Exit status: 0 printed; 2 there is no verdict to print.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from analysis.rules import full_cache_gate, judged_numbers, verdict_line
from figures.drawing import formatting, page, verdict_formats
from figures.drawing.table_rows import cell_of
from figures.drawing.verdict_formats import Summary
from figures.report_page.answer import format_answer
from protocol.formats.reading_command import run_command
from protocol.formats.terminal import is_piped, line_width, shrink_columns, wrap_text
from protocol.formats.text_tables import format_columns
from protocol.formats.vocabulary import VERDICT_WORDS

# Terms of the table that the help explains.
EXPLAINED_TERMS = (
    *(*VERDICT_WORDS, "for MODEL alone", "n < 200", "n ≥ 200"),
    *("UNANCHORED", "uninformative", "n", "pp", "95 % interval", "p", "Bonferroni", "cache", "charged"),
    *("matched", "better, worse", "accuracy", "slot", "peak", "no answer", "truncated", "failed lane"),
)
NAMES, INDENT = 4, "  "  # cells of a row that are names; before numbers below them
MAX_NAME, MIN_NAME = 24, 6  # longest name, in columns, that is not shortened if a row has room; shortest beside numbers


def verdict_table(judged: Mapping[str, Any], witness: str = formatting.WITNESS) -> str:
    """Format verdict, answer, contrasts, arms, and what the study proves and does not prove.

    witness: the external witness of the study, from `protocol.evidence.external.anchors` after verification.
    """
    summary = summarize(judged, witness)
    head = [*summary.lines, "", format_answer({**judged, "witness": witness}), ""]
    contrasts = _align_columns(summary.headings, summary.rows)
    arms = _align_columns(ARM_HEADINGS, [_arm_cells(judged, entry) for entry in judged["arms"]])
    missing, parts = judged["missing"], list[str]()
    if missing["lanes"]:
        parts += ["", f"{missing['lanes']} of {missing['registered']} lanes have no grade"]
    for heading, key in (("Proves", "proves"), ("Does not prove", "does_not_prove")):
        parts += ["", heading, *(f"- {sentence}" for sentence in judged[key] or ["nothing"])]
    return "\n".join([*_wrap_lines(head), *contrasts, *_wrap_lines(summary.notes), "", *arms, *_wrap_lines(parts)])


def summarize(judged: Mapping[str, Any], witness: str = formatting.WITNESS) -> Summary:
    """Return the first lines of the table and its contrasts, as every format prints them."""
    has_one_subject = len({entry["subject"] for entry in judged["contrasts"]}) == 1
    heads = [head if has_one_subject or head != "against" else "arms" for head in CONTRAST_HEADINGS]
    heads = [formatting.interval_heading(judged["contrasts"]) if head == "95 % interval" else head for head in heads]
    rows = [_contrast_cells(entry, has_one_subject) for entry in judged["contrasts"]]
    charges = list(map(formatting.memory_charge, judged["contrasts"]))
    if formatting.memory_basis(judged["contrasts"]) != "slots":  # bytes decide, and slots are printed too
        heads[-2:] = ["bytes", "slots", ""]
        rows = [(*row[:-1], _slot_ratio(entry), row[-1]) for row, entry in zip(rows, judged["contrasts"], strict=True)]
    notes = formatting.score_notes(judged["contrasts"])
    if any(charges):
        notes.append(
            "charge: points that a difference in memory may have bought; p tests for a difference beyond them."
        )
        heads.insert(-1, "charge")
        rows = [(*row[:-1], charge, row[-1]) for row, charge in zip(rows, charges, strict=True)]
    lines = [
        f"{formatting.verdict_text(judged)}  {formatting.sample_text(judged)}  {witness}  {judged['title']}",
        *verdict_line.list_remarks(judged),
        formatting.rule_line(judged),
        *filter(None, [full_cache_gate.describe_gate(judged)]),
    ]
    return Summary(lines, heads, rows, notes)


CONTRAST_HEADINGS = ("model", "task", "budget", "against", "n", "pp", "95 % interval", "p", "cache", "")
ARM_HEADINGS = (
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


def _contrast_cells(contrast: Mapping[str, Any], has_one_subject: bool) -> tuple[str, ...]:
    """Return the cells of a contrast. has_one_subject: the line of the rule names it."""
    where = (
        *cell_of(contrast),
        contrast["against"] if has_one_subject else f"{contrast['subject']}, {contrast['against']}",
        formatting.format_size(contrast),
    )
    if contrast["difference"] is None:
        return (*where, "", "not estimated", "", "", "")
    mark = "better" if contrast["better"] else "worse" if contrast["worse"] else ""
    return (
        *where,
        judged_numbers.format_points(contrast["difference"]),
        judged_numbers.format_decisive_interval(contrast),
        judged_numbers.format_p(judged_numbers.decisive_p(contrast)),
        formatting.cache_ratio(contrast),
        formatting.idle_text(contrast) or mark,
    )


def _slot_ratio(contrast: Mapping[str, Any]) -> str:
    """Format the ratio of mean slots."""
    ratio = (contrast.get("memory") or {"ratios": {}})["ratios"].get("slots")
    return "" if ratio is None else f"{float(ratio):.3f}"


def _arm_cells(judged: Mapping[str, Any], arm: Mapping[str, Any]) -> tuple[str, ...]:
    measured = [("accuracy", ".3f"), ("mean_slots", ".1f"), ("peak_slots", ".1f"), ("mean_tokens", ".1f")]
    printed = ["" if arm[name] is None else format(float(arm[name]), spec) for name, spec in measured]
    unanswered = "" if formatting.was_fed(judged, arm) else str(arm["no_answer"])
    return (*cell_of(arm), arm["arm"], *printed, unanswered, str(arm["truncated"]), str(arm["failed"]))


def _align_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align text left and numbers right. Long names are shortened if a row is too wide for the terminal; where they
    would lose too much, numbers get a line of their own below the names. Files and pipes get whole names.
    """
    is_text = [i < NAMES or title == "" for i, title in enumerate(head)]
    if is_piped():
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        return [_pad_row(row, widths, is_text) for row in (head, *rows)]
    for length in range(MAX_NAME, MIN_NAME - 1, -1):
        table = [[*(_shorten(cell, length) for cell in row[:NAMES]), *row[NAMES:]] for row in (head, *rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) <= line_width():
            return [_pad_row(row, widths, is_text) for row in table]
    longest = (line_width() - 2 * (NAMES - 1)) // NAMES
    names = format_columns(head[:NAMES], [[_shorten(cell, longest) for cell in row[:NAMES]] for row in rows])
    numbers = [row[NAMES:] for row in (head, *rows)]
    widths = shrink_columns(numbers, line_width() - len(INDENT))
    wrapped = zip_longest(*map(wrap_text, numbers[0], widths), fillvalue="")
    lines = [names[0], *(INDENT + _pad_row(row, widths, is_text[NAMES:]) for row in wrapped)]
    for name, row in zip(names[1:], numbers[1:], strict=True):
        lines += [name, INDENT + _pad_row(row, widths, is_text[NAMES:])]
    return lines


def _pad_row(row: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    return "  ".join(map(_pad_cell, row, widths, is_text)).rstrip()


def _pad_cell(cell: str, width: int, is_text: bool) -> str:
    return cell.ljust(width) if is_text else cell.rjust(width)


def _shorten(name: str, longest: int) -> str:
    """Shorten a long name in the middle, since names may differ at either end."""
    end = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


def _wrap_lines(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in ([line] if len(line) <= line_width() else wrap_text(line, later="  "))]


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a confirmed registration, e.g. registrations/quickstart"}
    return run_command(
        "table",
        __doc__,
        folder,
        page.read_supported_judgement,
        argv,
        show=verdict_table,
        words=EXPLAINED_TERMS,
        formats={
            "markdown": lambda judged: verdict_formats.format_markdown(summarize(judged)),
            "latex": lambda judged: verdict_formats.format_latex(summarize(judged)),
            "json": lambda judged: verdict_formats.format_json(summarize(judged), judged),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
