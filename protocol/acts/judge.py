"""After the seal: apply the committed rule, write the verdict, draw it. Safe to repeat after a crash."""

from pathlib import Path
from typing import Any, NamedTuple

from analysis.judge import judge
from analysis.output.phases import phase
from analysis.studies import arms, evicted
from analysis.studies.study_files import RecordError
from figures.report import report
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import verdict
from protocol.evidence.run.registration import Registration

__all__ = ["Judgement", "asked_apart", "judge_sealed", "kept", "selected"]


class Judgement(NamedTuple):
    judged: dict[str, Any]
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
        drawn = report(folder)
    return Judgement(judged, (study.place("confirm"), folder / verdict.NAME, folder / "figures", drawn))


def selected(judged: dict[str, Any]) -> list[str]:
    """Return lines that say which candidate of a sweep the subject is; none without a sweep."""
    if "selected" not in judged:
        return []
    subject, chosen = judged["contrasts"][0]["subject"], judged["selected"]
    return [
        f"{subject} is {chosen['arm']} ({arms.words(chosen)}), selected on the development problems",
        "",
    ]


def kept(study: Registration) -> list[str]:
    """Return warnings about arms that evicted nothing, in some lanes or in all."""
    bodies = [record["body"] for record in study.anew().confirmed]
    return evicted.warnings(evicted.counted(bodies, study.registered), arms.unlike(study.lock.content))


def asked_apart(study: Registration, judged: dict[str, Any]) -> list[str]:
    """Return lines about compared arms whose prompts differ; none if all prompts are the same."""
    chosen = judged["selected"]["arm"] if "selected" in judged else None
    return arms.apart(study.lock.content, chosen)
