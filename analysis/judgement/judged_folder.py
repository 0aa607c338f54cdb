"""The judgement of a folder: by its records, or as its verdict.json has it."""

from pathlib import Path
from typing import Any

from analysis.judgement import untrusted_files
from analysis.judgement.judgement import judge_study, selection_summary
from analysis.judgement.study_files import read_document, read_study
from analysis.judgement.untrusted_files import RecordError


def judge(folder: Path) -> dict[str, Any]:
    """Return the judgement of FOLDER. Raises RecordError for records that cannot be judged."""
    study = read_study(Path(folder))
    swept = "sweep" in study.lock["protocol"]["content"]
    return judge_study(study, selection_summary(*read_document(Path(folder) / "selection.json")) if swept else None)


def read_judged(folder: Path) -> dict[str, Any]:
    """Return the stored judgement of FOLDER. Raises RecordError without a verdict: nothing is derived from
    held-out records while a study runs.
    """
    untrusted_files.refuse_special_files(Path(folder))
    if not (Path(folder) / "verdict.json").exists():
        raise RecordError(f"{folder}: has no verdict; run: kv-prereg confirm {folder}")
    judged: dict[str, Any] = read_document(Path(folder) / "verdict.json")[1]["judged"]
    if not isinstance(judged, dict):
        raise RecordError(f"{folder}: verdict.json: judged: is not an object; run: kv-prereg audit {folder}")
    return judged
