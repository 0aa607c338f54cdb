"""Contrasts of a shipped study judged beside their words: mean caches of what was held, and iso-cache.

    python -m benchmarks.matched_mean_cache reasoning-field gates-chain        # some three minutes

Prints every contrast whose match or word changes, and every one that is interpolated to equal memory; then
every other arm with the line drawn through the subject. The studies keep the verdicts that they were locked with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.judgement import contrasts
from analysis.judgement.family import compare_family
from analysis.judgement.study_files import Study, read_study
from analysis.rules.rule import arm_pairs
from protocol.formats.text_tables import format_columns, format_points

__all__ = ["compare_rows", "main"]

Row = Mapping[str, Any]
HEAD = ("model", "budget", "contrast", "pp", "ratio as locked", "ratio held", "as locked", "now", "iso-cache, pp")


def compare_rows(study: Study, sides: Sequence[tuple[str, str]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of these contrasts: as the study is judged, and by today's rules."""
    decision = study.lock["protocol"]["content"]["decision"]
    graded, _ = contrasts.apply_missing_rule(study)
    today = graded._replace(lock={**graded.lock, "judging": 2})
    shipped, judged = (compare_family(each, sides, float(decision["alpha"])).rows for each in (graded, today))
    return shipped, judged


def _word(row: Row) -> str:
    return "void" if not row["matched"] else "better" if row["better"] else "worse" if row["worse"] else "open"


def _cells(shipped: Row, judged: Row) -> Iterator[str]:
    yield from (judged["model"], judged["budget"], f"{judged['subject']} - {judged['against']}")
    yield format_points(float(judged["difference"]))
    yield from (f"{float(row['cache_ratio']):.3f}" for row in (shipped, judged))
    yield from map(_word, (shipped, judged))
    at_equal = judged["isocache"]["interpolated"]
    limits = (format_points(float(at_equal[name])) for name in ("difference", "low", "high")) if at_equal else ()
    yield "{} ({} to {})".format(*limits) if at_equal else ""


def main(argv: Sequence[str] | None = None) -> int:
    for name in sys.argv[1:] if argv is None else argv:
        study = read_study(Path("registrations") / name)
        decision = study.lock["protocol"]["content"]["decision"]
        subject, others = decision["subject"], decision.get("beside", [])
        _print_family(name, study, [*arm_pairs(decision), *((subject, arm) for arm in others)])
        arms = [(arm, subject) for arm in (*decision["against"], *others)]
        _print_family(f"{name}, every arm against {subject}", study, arms)
    return 0


def _print_family(title: str, study: Study, sides: Sequence[tuple[str, str]]) -> None:
    shipped, judged = compare_rows(study, sides)
    rows = [
        tuple(_cells(*pair))
        for pair in zip(shipped, judged, strict=True)
        if _word(pair[0]) != _word(pair[1]) or pair[1]["isocache"]["interpolated"]
    ]
    words = [f"{word} {_count(shipped, word)}, {_count(judged, word)}" for word in ("void", "better", "worse")]
    print(f"{title}: {len(judged)} contrasts, as locked and now: {'; '.join(words)}\n")
    print("\n".join(format_columns(HEAD, rows)), "\n")


def _count(rows: Sequence[Row], word: str) -> int:
    return sum(_word(row) == word for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
