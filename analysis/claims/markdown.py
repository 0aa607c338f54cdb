"""Formats an audit of published claims as one Markdown document: docs/published_claims.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis.claims.document_text import LEVELS, METHOD, OPENING
from analysis.claims.paper_file import Paper
from analysis.claims.verdicts import (
    CONTRADICTED,
    UNCHECKED,
    VERDICTS,
    Finding,
    TableFinding,
    judge_claims,
    judge_tables,
)

Result = tuple[Paper, list[TableFinding], list[Finding]]


def format_document(papers: Sequence[Paper], command: str) -> str:
    """Format the audit of all papers. command: what writes the page. Raises ClaimError for a form that cannot be
    evaluated.
    """
    results = [(paper, judge_tables(paper), judge_claims(paper)) for paper in papers]
    parts = [OPENING.format(command=command), _format_totals(results), _format_contradictions(results), METHOD]
    parts += [_format_paper(paper, tables, claims) for paper, tables, claims in results]
    parts.append(_format_undecided(results))
    return "\n".join(parts)


def _format_totals(results: Sequence[Result]) -> str:
    """Count claims by level, then by paper; no count adds up two levels."""
    claims = [finding for _, _, group in results for finding in group]
    counts = Counter(finding.verdict for finding in claims)
    levels = [
        (LEVELS[level], sum(counts[group] for group in verdicts.values()), *_verdict_cells(counts, verdicts))
        for level, verdicts in VERDICTS.items()
    ]
    levels += [(LEVELS[verdict], counts[verdict], "-", "-", "-") for verdict in UNCHECKED]
    by_level = _markdown_table(("level", "claims", "yes", "no", "cannot be told"), levels)

    verdicts = [verdict for group in VERDICTS.values() for verdict in group.values()] + [*UNCHECKED]
    rows = []
    for paper, tables, group in results:
        paper_counts = Counter(finding.verdict for finding in group)
        cells = sum(len(finding.table.values) for finding in tables)
        impossible = sum(len(finding.impossible) for finding in tables)
        link = f"[{paper.title}](#{paper.key})"
        rows.append((link, len(group), *(paper_counts[verdict] for verdict in verdicts), cells, impossible))
    by_paper = _markdown_table(("paper", "claims", *verdicts, "cells", "impossible"), rows)
    lines = [f"- {paper.title}: {paper.summary}\n" for paper, _, _ in results if paper.summary]
    summary = (
        f"{len(claims)} claims. {counts['supported']} are supported by a test or an interval, "
        f"{counts['follows']} follow by arithmetic,\n{counts['alike']} are transcribed alike: "
        "three different things, never added up."
    )
    return "\n".join(["## Totals", "", summary, "", by_level, by_paper, *(["".join(lines)] if lines else [])])


def _verdict_cells(counts: Mapping[str, int], verdicts: Mapping[bool | None, str]) -> list[str]:
    """Return the counts of the yes, no and open verdicts of a level, each with its word."""
    return [f"{counts[verdicts[t]]} {verdicts[t]}" if t in verdicts else "-" for t in (True, False, None)]


def _format_contradictions(results: Iterable[Result]) -> str:
    rows = [
        (
            finding.claim.id,
            finding.claim.where,
            finding.claim.sentence,
            finding.numbers,
            finding.verdict,
            finding.because,
        )
        for _, _, claims in results
        for finding in claims
        if finding.verdict in CONTRADICTED
    ]
    head = ("", "where", "claim", "numbers", "verdict", "in a sentence")
    return "## What contradicts\n\nThe papers' own numbers or equations say otherwise.\n\n" + _markdown_table(
        head, rows
    )


def _format_paper(paper: Paper, tables: Sequence[TableFinding], claims: Sequence[Finding]) -> str:
    link = f" {paper.link}." if paper.link != "unknown" else ""
    opening = f'## <a id="{paper.key}"></a>{paper.title}\n\n{paper.authors}.{link} {paper.note}'.rstrip()
    tables_text = _markdown_table(
        ("table", "what", "n", "draws", "cells", "granularity"),
        [
            (
                finding.table.id,
                finding.table.title,
                "/".join(sorted({str(n) for n in finding.table.n.values() if n}, key=int)) or "-",
                finding.table.draws or "-",
                len(finding.table.values),
                f"{finding.because} {finding.table.note}".strip(),
            )
            for finding in tables
        ],
    )
    claims_text = _markdown_table(
        ("", "where", "claim", "numbers", "level", "verdict", "in a sentence"),
        [
            (
                finding.claim.id,
                finding.claim.where,
                finding.claim.sentence,
                finding.numbers,
                finding.level,
                finding.verdict,
                finding.because,
            )
            for finding in claims
        ],
    )
    equations = "\n".join(f"- `{equation.id}`, {equation.where}: {equation.printed}" for equation in paper.equations)
    equations_text = f"### Equations\n\n{equations}\n\n" if equations else ""
    return f"{opening}\n\n### Tables\n\n{tables_text}\n{equations_text}### Claims\n\n{claims_text}"


def _format_undecided(results: Iterable[Result]) -> str:
    """List the undecided claims by the reason why they are open."""
    reasons = {
        "not printed": "What they are about is not printed",
        "undecidable": "They depend on who solved what",
        "open": "They depend on what rounding hides",
        "no test": "No test fits what is printed; the sentence beside each says why",
    }
    open_findings = [finding for _, _, claims in results for finding in claims]
    lines = []
    for verdict, reason in reasons.items():
        ids = [finding.claim.id for finding in open_findings if finding.verdict == verdict]
        lines += [f"- {reason} ({len(ids)}): {', '.join(ids)}."] if ids else []
    return "\n".join(["## What could not be decided, and why", "", *lines, ""])


def _markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
