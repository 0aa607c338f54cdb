"""Formats an audit of published claims as one Markdown document: docs/published_claims.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis.claims.prose import FORMAT, LEVELS, METHOD, OPENING
from analysis.claims.reading import Paper
from analysis.claims.verdicts import (
    CONTRADICTED,
    UNCHECKED,
    VERDICTS,
    Finding,
    TableFinding,
    findings,
    table_findings,
)

__all__ = ["document"]

Result = tuple[Paper, list[TableFinding], list[Finding]]


def document(papers: Sequence[Paper]) -> str:
    """Format the audit of all papers. Raises ClaimError for a form that cannot be evaluated."""
    results = [(paper, table_findings(paper), findings(paper)) for paper in papers]
    parts = [OPENING, _totals(results), _contradicted(results), METHOD]
    parts += [_paper(paper, tables, claims) for paper, tables, claims in results]
    parts += [_undecided(results), FORMAT]
    return "\n".join(parts)


def _totals(results: Sequence[Result]) -> str:
    """Count claims by level, then by paper; no count adds up two levels."""
    claims = [found for _, _, each in results for found in each]
    number = Counter(found.verdict for found in claims)
    levels = [
        (LEVELS[level], sum(number[each] for each in verdicts.values()), *_cells(number, verdicts))
        for level, verdicts in VERDICTS.items()
    ]
    levels += [(LEVELS[verdict], number[verdict], "-", "-", "-") for verdict in UNCHECKED]
    by_level = _rows(("level", "claims", "yes", "no", "cannot be told"), levels)

    verdicts = [verdict for each in VERDICTS.values() for verdict in each.values()] + [*UNCHECKED]
    rows = []
    for paper, tables, each in results:
        here = Counter(found.verdict for found in each)
        cells = sum(len(found.table.values) for found in tables)
        impossible = sum(len(found.impossible) for found in tables)
        link = f"[{paper.title}](#{paper.key})"
        rows.append((link, len(each), *(here[verdict] for verdict in verdicts), cells, impossible))
    by_paper = _rows(("paper", "claims", *verdicts, "cells", "impossible"), rows)
    lines = [f"- {paper.title}: {paper.summary}\n" for paper, _, _ in results if paper.summary]
    said = (
        f"{len(claims)} claims. {number['supported']} are supported by a test or an interval, "
        f"{number['follows']} follow by arithmetic,\n{number['alike']} are transcribed alike: "
        "three different things, never added up."
    )
    return "\n".join(["## Totals", "", said, "", by_level, by_paper, *(["".join(lines)] if lines else [])])


def _cells(number: Mapping[str, int], verdicts: Mapping[bool | None, str]) -> list[str]:
    """Return the counts of the yes, no and open verdicts of a level, each with its word."""
    return [f"{number[verdicts[t]]} {verdicts[t]}" if t in verdicts else "-" for t in (True, False, None)]


def _contradicted(results: Iterable[Result]) -> str:
    rows = [
        (found.claim.id, found.claim.where, found.claim.sentence, found.numbers, found.verdict, found.because)
        for _, _, claims in results
        for found in claims
        if found.verdict in CONTRADICTED
    ]
    head = ("", "where", "claim", "numbers", "verdict", "in a sentence")
    return "## What contradicts\n\nThe papers' own numbers or equations say otherwise.\n\n" + _rows(
        head, rows
    )


def _paper(paper: Paper, tables: Sequence[TableFinding], claims: Sequence[Finding]) -> str:
    link = f" {paper.link}." if paper.link != "unknown" else ""
    opening = f'## <a id="{paper.key}"></a>{paper.title}\n\n{paper.authors}.{link} {paper.note}'.rstrip()
    audited = _rows(
        ("table", "what", "n", "draws", "cells", "granularity"),
        [
            (
                found.table.id,
                found.table.title,
                "/".join(sorted({str(n) for n in found.table.n.values() if n}, key=int)) or "-",
                found.table.draws or "-",
                len(found.table.values),
                f"{found.because} {found.table.note}".strip(),
            )
            for found in tables
        ],
    )
    judged = _rows(
        ("", "where", "claim", "numbers", "level", "verdict", "in a sentence"),
        [
            (
                found.claim.id,
                found.claim.where,
                found.claim.sentence,
                found.numbers,
                found.level,
                found.verdict,
                found.because,
            )
            for found in claims
        ],
    )
    equations = "\n".join(f"- `{each.id}`, {each.where}: {each.printed}" for each in paper.equations)
    stated = f"### Equations\n\n{equations}\n\n" if equations else ""
    return f"{opening}\n\n### Tables\n\n{audited}\n{stated}### Claims\n\n{judged}"


def _undecided(results: Iterable[Result]) -> str:
    """List the undecided claims by the reason why they are open."""
    kinds = {
        "not printed": "What they are about is not printed",
        "undecidable": "They depend on who solved what",
        "open": "They depend on what rounding hides",
        "no test": "No test fits what is printed; the sentence beside each says why",
    }
    left = [found for _, _, claims in results for found in claims]
    lines = []
    for verdict, why in kinds.items():
        here = [found.claim.id for found in left if found.verdict == verdict]
        lines += [f"- {why} ({len(here)}): {', '.join(here)}."] if here else []
    return "\n".join(["## What could not be decided, and why", "", *lines, ""])


def _rows(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
