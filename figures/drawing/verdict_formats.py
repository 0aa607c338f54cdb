"""The table of a verdict for papers, pages and programs: LaTeX, Markdown, HTML, and JSON or data frames of numbers.

Each has the verdict and its remarks beside the contrasts, so that no table is pasted without what qualifies it.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

NAMES = ("model", "task", "budget", "subject", "against", "arm")  # text, whatever they look like
LATEX = {
    **{mark: rf"\{mark}" for mark in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"},
    **{"[": "{[}", "\N{MINUS SIGN}": "$-$", "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$"},
}


class Summary(NamedTuple):
    """lines: the verdict, its remarks and the rule. headings, rows: a row of cells for each contrast."""

    lines: Sequence[str]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def format_markdown(summary: Summary) -> str:
    """Format a table as GitHub reads it, below the lines."""
    first, *others = map(_escape_markdown, summary.lines)
    cells = [list(map(_escape_markdown, row)) for row in (summary.headings, *summary.rows)]
    table = [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *cells[1:])]
    return "\n\n".join([f"**{first}**", *others, "\n".join(table), *map(_escape_markdown, summary.notes)])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


def format_latex(summary: Summary) -> str:
    """Format a table of the package booktabs; the caption has the lines."""
    first, *others = map(_escape_latex, (*summary.lines, *summary.notes))
    names = summary.headings.index("n")
    rows = [" & ".join(map(_escape_latex, row)) + r" \\" for row in (summary.headings, *summary.rows)]
    columns = "l" * names + "r" * (len(summary.headings) - names - 1) + "l"
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{\textbf{{{first}}}. {'. '.join(others)}.}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}"),
        ]
    )


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def format_html(summary: Summary) -> str:
    first, *others = map(html.escape, (*summary.lines, *summary.notes))
    head, *rows = (map(html.escape, row) for row in (summary.headings, *summary.rows))
    lines = [f"<p><b>{first}</b></p>", "<table><thead><tr>", *(f"<th>{cell}</th>" for cell in head)]
    lines += ["</tr></thead><tbody>", *(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)]
    return "\n".join([*lines, "</tbody></table>", *(f"<p>{line}</p>" for line in others)])


def format_json(summary: Summary, judged: Mapping[str, Any]) -> str:
    """Format the lines, and the contrasts and arms as numbers."""
    tables = {name: number_rows(judged[name]) for name in ("contrasts", "arms")}
    return json.dumps({"verdict": summary.lines[0], "remarks": summary.lines[1:], **tables}, indent=1)


def number_rows(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the contrasts or arms of a judgement, in which decimals are text, with numbers: differences and intervals
    from -1 to 1, memory as `cache_ratio`, `charge` in points or None; `neighbour`, where one was tested and nothing is
    charged. What is nested is left out.
    """
    rows = []
    for entry in entries:
        row = {name: value for name, value in entry.items() if not isinstance(value, Mapping | list)}
        row = {name: value if name in NAMES else _read_number(value) for name, value in row.items()}
        if "memory" in entry:
            memory = entry["memory"] or {}
            row["charge"] = None if "neighbour" in memory else _read_number(memory.get("charge"))
            if "neighbour" in memory:
                row["neighbour"] = memory["neighbour"]
        rows.append(row)
    return rows


def _read_number(value: Any) -> Any:
    """Return the number of a decimal in text; anything else as it is."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?\d+\.\d+", value) else value
