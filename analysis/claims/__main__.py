"""Audit published claims from their printed numbers, without raw data.

    kv-prereg claims --template paper.toml      writes a commented file to fill in (docs/claims.md)
    kv-prereg claims paper.toml
    kv-prereg claims analysis/published/*.toml   papers of this field, in a clone of this project

Prints for each claim the level of its check (transcribed, arithmetic, inference, or none) and its verdict, with the
numbers that decide it; the last line counts claims by level. For each table it prints whether its values are
possible at n. A template never replaces an existing file.
Exit status: 0 the audit ran, whatever its result; 2 a file cannot be read.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.claims.paper_file import ClaimError, Paper, read_paper
from analysis.claims.verdicts import judge_claims, judge_tables
from protocol.formats import progress_display
from protocol.formats.command_line import format_refusal, make_parser
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.json_text import dumps
from protocol.formats.progress_display import phase

TEMPLATE = Path(__file__).with_name("template.toml")


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser("kv-prereg claims", __doc__)
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE.toml",
        help="a file with the published numbers and claims of a paper",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print canonical JSON")
    output.add_argument(
        "--template", type=Path, metavar="FILE", help="write a commented file to fill in, under this name"
    )
    args = parser.parse_args(argv)
    if bool(args.files) == bool(args.template):
        parser.error("give either the files to check or --template FILE; --help describes both")
    try:
        if args.template:
            with args.template.open("xb") as file:
                file.write(TEMPLATE.read_bytes())
            print_escaped(
                f"{args.template}: written; fill it in, then run: kv-prereg claims {args.template}", sys.stdout
            )
            return 0
        with progress_display.show_phases(), phase(f"checking the claims of {len(args.files)} files"):
            papers = [read_paper(path) for path in args.files]
            text = dumps({"papers": [_to_json(paper) for paper in papers]}) if args.json else _format_text(papers)
        print_bytes(text)
    except (ClaimError, OSError) as error:
        print_escaped(f"{type(error).__name__}: {format_refusal(error)}", sys.stderr)
        return 2
    return 0


def _to_json(paper: Paper) -> dict[str, Any]:
    return {
        "key": paper.key,
        "title": paper.title,
        "tables": [
            {"id": finding.table.id, "impossible": list(finding.impossible), "because": finding.because}
            for finding in judge_tables(paper)
        ],
        "claims": [
            {
                "id": finding.claim.id,
                "where": finding.claim.where,
                "sentence": finding.claim.sentence,
                "level": finding.level,
                "verdict": finding.verdict,
                "numbers": finding.numbers,
                "because": finding.because,
            }
            for finding in judge_claims(paper)
        ],
    }


def _format_text(papers: Sequence[Paper]) -> str:
    lines: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    for paper in papers:
        lines += [paper.title, ""]
        lines += [f"{finding.table.id:24} {finding.because}" for finding in judge_tables(paper)]
        lines.append("")
        for finding in judge_claims(paper):
            counts[finding.level, finding.verdict] += 1
            lines.append(f"{finding.claim.id:6} {finding.level:12} {finding.verdict:16} {finding.claim.sentence}")
            lines.append(f"{'':6} {finding.because} [{finding.numbers}]")
        lines.append("")
    counted = (f"{level} {verdict}: {count}" for (level, verdict), count in sorted(counts.items()))
    return "\n".join([*lines, "; ".join(counted)]).rstrip()


if __name__ == "__main__":
    sys.exit(main())
