"""Audit published claims from their printed numbers, without raw data.

    kv-prereg claims analysis/published/*.toml
    kv-prereg claims analysis/published/*.toml --markdown docs/published_claims.md

For each claim how far its check reaches (transcribed, arithmetic, inference, or none) and its verdict, with
the numbers that decide; the last line counts by level. For each table, whether its values are possible at n.
Exit status: 0 the audit ran, whatever it found; 2 a file cannot be read.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.claims.markdown import document
from analysis.claims.reading import ClaimError, Paper, read
from analysis.claims.verdicts import findings, table_findings
from analysis.output import phases
from analysis.output.command import named, said
from analysis.output.phases import phase
from analysis.output.printed import dumps
from protocol.evidence.bytes.shown import print_bytes, put

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = named("claims", __doc__)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE.toml", help="published numbers and claims"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print canonical JSON")
    output.add_argument("--markdown", type=Path, metavar="FILE", help="write the document there")
    args = parser.parse_args(argv)
    try:
        with phases.showing(), phase(f"checking the claims of {len(args.files)} files"):
            papers = [read(path) for path in args.files]
            if args.markdown:
                text = document(papers)
                args.markdown.write_text(text, encoding="utf-8")
            else:
                text = dumps({"papers": [_data(paper) for paper in papers]}) if args.json else _text(papers)
        if not args.markdown:
            print_bytes(text)
    except (ClaimError, OSError) as error:
        put(f"{type(error).__name__}: {said(error)}\n", sys.stderr)
        return 2
    return 0


def _data(paper: Paper) -> dict[str, Any]:
    return {
        "key": paper.key,
        "title": paper.title,
        "tables": [
            {"id": found.table.id, "impossible": list(found.impossible), "because": found.because}
            for found in table_findings(paper)
        ],
        "claims": [
            {
                "id": found.claim.id,
                "where": found.claim.where,
                "sentence": found.claim.sentence,
                "level": found.level,
                "verdict": found.verdict,
                "numbers": found.numbers,
                "because": found.because,
            }
            for found in findings(paper)
        ],
    }


def _text(papers: Sequence[Paper]) -> str:
    lines: list[str] = []
    number: Counter[tuple[str, str]] = Counter()
    for paper in papers:
        lines += [paper.title, ""]
        lines += [f"{found.table.id:24} {found.because}" for found in table_findings(paper)]
        lines.append("")
        for found in findings(paper):
            number[found.level, found.verdict] += 1
            lines.append(f"{found.claim.id:6} {found.level:12} {found.verdict:16} {found.claim.sentence}")
            lines.append(f"{'':6} {found.because} [{found.numbers}]")
        lines.append("")
    counted = (f"{level} {verdict}: {times}" for (level, verdict), times in sorted(number.items()))
    return "\n".join([*lines, "; ".join(counted)]).rstrip()


if __name__ == "__main__":
    sys.exit(main())
