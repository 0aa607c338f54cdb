"""The outcome of an audit of published claims as one Markdown document: docs/published_claims.md."""

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.claims.prose import FORMAT, METHOD, OPENING
from analysis.claims.reading import Paper
from analysis.claims.verdicts import Finding, TableFinding, findings, table_findings

__all__ = ["document"]


def document(papers: Sequence[Paper]) -> str:
    """Raises ClaimError for a form that cannot be evaluated."""
    results = [(paper, table_findings(paper), findings(paper)) for paper in papers]
    parts = [OPENING, _summary(results), METHOD]
    parts += [_paper(paper, tables, claims) for paper, tables, claims in results]
    parts += [_undecided(results), FORMAT]
    return "\n".join(parts)


def _summary(results: Sequence[tuple[Paper, list[TableFinding], list[Finding]]]) -> str:
    head = ("paper", "claims", "consistent", "inconsistent", "not printed", "supported", "not supported",
            "undecidable", "cells", "impossible")  # fmt: skip
    rows: list[tuple[str, list[int]]] = []
    for paper, tables, claims in results:
        words = Counter(word for claim in claims for word in (claim.consistent, claim.supported))
        counted = [len(claims), *(words[word] for word in head[2:8])]
        counted.append(sum(len(found.table.values) for found in tables))
        counted.append(sum(len(found.impossible) for found in tables))
        rows.append((f"[{paper.title}](#{paper.key})", counted))
    total = [sum(column) for column in zip(*(counted for _, counted in rows), strict=True)]
    table = _rows(head, [[name, *counted] for name, counted in [*rows, ("all", total)]])
    lines = [f"- {paper.title}: {paper.summary}\n" for paper, _, _ in results if paper.summary]
    return "## Summary\n\n" + table + ("\n" + "".join(lines) if lines else "")


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
        ("", "where", "claim", "numbers", "consistent?", "supported?", "in a sentence"),
        [
            (
                found.claim.id,
                found.claim.where,
                found.claim.sentence,
                found.numbers,
                found.consistent,
                found.supported,
                found.because,
            )
            for found in claims
        ],
    )
    return f"{opening}\n\n### Tables\n\n{audited}\n### Claims\n\n{judged}"


def _undecided(results: Iterable[tuple[Paper, list[TableFinding], list[Finding]]]) -> str:
    """Claims by the reason that leaves them open."""
    left = [found for _, _, claims in results for found in claims if found.supported == "undecidable"]
    unprinted = [found for found in left if found.consistent == "not printed"]
    untested = [found for found in left if found.claim.cannot and found.consistent != "not printed"]
    open_ = [found for found in left if found not in unprinted and found not in untested]
    kinds = {
        "What they are about is not printed": unprinted,
        "They depend on who solved what, or on rounding": open_,
        "No test fits what is printed; the sentence beside each says why": untested,
    }
    lines = [
        f"- {kind} ({len(here)}): {', '.join(found.claim.id for found in here)}."
        for kind, here in kinds.items()
        if here
    ]
    return "\n".join(["## What could not be decided, and why", "", *lines, ""])


def _rows(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
