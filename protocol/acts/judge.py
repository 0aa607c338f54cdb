"""After the seal: apply the committed rule, write the verdict, draw it. Safe to repeat after a crash."""

from pathlib import Path
from typing import Any, NamedTuple

from analysis.judge import judge
from analysis.judgement import arm_text, eviction_counts
from analysis.judgement.study_files import RecordError
from figures.report import report
from protocol.evidence import verdict
from protocol.evidence.registration import Registration
from protocol.formats.progress_display import phase
from protocol.formats.refusals import Tampered

__all__ = ["Judgement", "format_prompt_differences", "format_selected", "format_unevicted", "judge_sealed"]


class Judgement(NamedTuple):
    content: dict[str, Any]
    files: tuple[Path, ...]  # the judged records, the verdict, its drawings and the report


def judge_sealed(study: Registration) -> Judgement:
    """Judge a sealed study. verdict.json is created once; an interrupted judging is completed, never repeated
    differently.
    """
    folder = study.folder
    try:
        with phase("judging"):
            judged = judge(folder)
    except RecordError as problem:
        raise Tampered(f"{folder}: {problem}") from None
    verdict.write(study, judged)
    with phase("drawing"):
        report_path = report(folder)
    return Judgement(judged, (study.phase_folder("confirm"), folder / verdict.NAME, folder / "figures", report_path))


def format_selected(judged: dict[str, Any]) -> list[str]:
    """Return lines that say which candidate of a sweep the subject is; none without a sweep."""
    if "selected" not in judged:
        return []
    subject, winner = judged["contrasts"][0]["subject"], judged["selected"]
    return [
        f"{subject} is {winner['arm']} ({arm_text.describe_arm(winner)}), selected on the development problems",
        "",
    ]


def format_unevicted(study: Registration) -> list[str]:
    """Return warnings about arms that evicted nothing, in some lanes or in all."""
    bodies = [record["body"] for record in study.reopen().confirm_records]
    return eviction_counts.eviction_warnings(
        eviction_counts.count_arms(bodies, study.protocol), arm_text.altered_arms(study.lock.content)
    )


def format_prompt_differences(study: Registration, judged: dict[str, Any]) -> list[str]:
    """Return lines about compared arms whose prompts differ; none if all prompts are the same."""
    winner = judged["selected"]["arm"] if "selected" in judged else None
    return arm_text.differing_prompt_sentences(study.lock.content, winner)
