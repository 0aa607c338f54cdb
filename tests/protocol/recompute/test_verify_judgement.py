"""The auditor's own analysis judges: what it says of a verdict that was written otherwise."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import studies

from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.lock import version_1
from protocol.recompute import verify_judgement, verify_selection

ALIKE = "reproduced by today's analysis"
REGISTRATIONS = studies.ROOT / "registrations"


@pytest.fixture
def study(confirmed, tmp_path) -> Path:
    """Locked, confirmed and judged by the code that is installed here."""
    return shutil.copytree(confirmed, tmp_path / "study")


@pytest.fixture
def old(tmp_path) -> Path:
    """Judged by the code of an earlier age, whose files are others."""
    return shutil.copytree(REGISTRATIONS / "quickstart", tmp_path / "quickstart")


def judge_as(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "verdict.json") -> Path:
    content = json.loads((folder / name).read_bytes())
    change(content["judged" if name == "verdict.json" else "selected"])
    (folder / name).write_bytes(canonical.dumps(content) + b"\n")
    return folder


def said(folder: Path) -> str:
    return verify_judgement.check(Registration(folder))


def refused(folder: Path, kind: type[Exception], *words: str) -> None:
    with pytest.raises(kind) as caught:
        said(folder)
    (line,) = str(caught.value).splitlines()
    assert line.isprintable()
    assert all(word in line for word in words), line


def test_a_study_of_this_tree_is_judged_alike_and_its_analysis_is_that_of_the_auditor(study):
    given = json.loads((study / "verdict.json").read_bytes())["judged"]["verdict"]
    assert said(study).startswith(given)
    assert f"{ALIKE}; its " in said(study)
    assert "files match the lock" in said(study)


def test_before_a_verdict_there_is_nothing_to_compare(registered):
    with pytest.raises(NotRun):
        said(registered)


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("verdict", "CONFIRMED", "verdict CONFIRMED, here"),
        ("label", "confirmatory-grade", "label confirmatory-grade, here screening-grade"),
        ("proves", ["That nothing is lost."], "proves"),
        ("does_not_prove", [], "does_not_prove 0 entries"),
        ("lossless", "yes", "lossless yes, here nothing"),
    ],
)
def test_another_judgement_by_the_same_code_is_an_edit(study, field, value, shown):
    refused(judge_as(study, lambda judged: judged.update({field: value})), Tampered, shown)


def test_another_p_by_the_same_code_is_an_edit(study):
    def change(judged: dict[str, Any]) -> None:
        judged["contrasts"][0]["low"] = "0.000001"

    refused(judge_as(study, change), Tampered, "contrasts[0].low 0.000001, here")


def test_a_word_that_the_records_do_not_bear_is_never_held(old):
    """Another version of the analysis might judge otherwise: both words are named, and what would tell."""
    words = ("verdict CONFIRMED, here SCREENED", "files of analysis differ from the locked ones", "--run-locked")
    refused(judge_as(old, lambda judged: judged.update(verdict="CONFIRMED")), CannotTell, *words)


def test_an_accuracy_that_the_records_do_not_bear_is_never_held(old):
    def change(judged: dict[str, Any]) -> None:
        judged["arms"][1]["accuracy"] = "1.000000"

    refused(judge_as(old, change), CannotTell, "arms[1].accuracy 1.000000, here 0.")


def a_narrower_interval(judged: dict[str, Any]) -> None:
    row = judged["contrasts"][0]
    row["high"] = f"{0.9 * float(row['high']) + 0.1 * float(row['low']):.6f}"


def test_an_older_version_that_is_known_may_have_computed_otherwise(old):
    assert "bounds and p values differ, none of them crosses zero" in said(judge_as(old, a_narrower_interval))


def test_a_study_that_does_not_ship_excuses_no_difference(old, monkeypatch):
    """Whoever writes a comment into an old version of the analysis makes another one."""
    monkeypatch.setattr(version_1, "PROTOCOLS", {"0" * 64: ""})
    with pytest.raises(Tampered, match="has version 1, which only the studies that ship"):
        said(old)


def test_another_release_may_have_judged_otherwise_and_excuses_nothing(study):
    """It cannot be told, and no difference is passed over."""
    judged = judge_as(study, a_narrower_interval)
    opened = Registration(judged)
    opened.lock.content["release"] = "9.9.9"
    with pytest.raises(CannotTell, match="differs from what today's analysis gives"):
        verify_judgement.check(opened)
    refused(judged, Tampered, "differs from what today's analysis gives")


def test_other_bundled_files_excuse_no_difference(study):
    judged = judge_as(study, a_narrower_interval)
    opened = Registration(judged)
    opened.lock.content["sources"]["analysis/judge.py"] = "0" * 64
    with pytest.raises(Tampered, match=r"1 of [0-9]+ files of analysis differ from the locked ones"):
        verify_judgement.check(opened)


def test_every_shipped_study_was_judged_by_today_s_analysis_or_is_a_known_one():
    found = [Registration(path.parent) for path in sorted(REGISTRATIONS.glob("*/lock.json"))]
    assert {study.lock.digest for study in found} >= version_1.PROTOCOLS.keys()
    old = [study for study in found if study.lock.digest in version_1.PROTOCOLS]
    assert all(verify_judgement.compare_installed(study).is_shipped for study in old)


@pytest.mark.parametrize("judged", [{"verdict": "CONFIRMED"}, {"verdict": "\x1b[2J\x1b]0;x\x07"}])
def test_a_judgement_of_another_shape_is_one_line(old, judged):
    def change(written: dict[str, Any]) -> None:
        written.clear()
        written.update(judged)

    refused(judge_as(old, change), CannotTell, "verdict")


def test_a_judgement_without_a_word_is_one_line(old):
    refused(judge_as(old, lambda judged: judged.pop("verdict")), Tampered, "verdict")


def test_records_that_cannot_be_judged_are_one_line(study):
    """A lane without its record: the lock alone says how many there are to be."""
    path = study / "records" / "shard-0.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    refused(study, Tampered, "lanes are registered")


def test_what_would_take_hours_is_not_begun(study, monkeypatch):
    monkeypatch.setattr(verify_judgement, "MAX_DRAWN", 1000)
    refused(study, CannotTell, "draws take many minutes", "kv-prereg judge")


def test_a_selection_is_derived_by_the_analysis_of_the_auditor():
    sweep = Registration(REGISTRATIONS / "alpha-chain")
    assert verify_selection.check_selection(sweep).startswith(f"1d_div-0.5, {ALIKE}")


def test_another_winner_is_never_held(tmp_path):
    shutil.copytree(REGISTRATIONS / "alpha-chain", tmp_path / "alpha-chain")
    folder = judge_as(tmp_path / "alpha-chain", lambda selected: selected.update(winner="1d_div-1.5"), "selection.json")
    with pytest.raises(CannotTell, match=r"winner 1d_div-1\.5, here 1d_div-0\.5"):
        verify_selection.check_selection(Registration(folder))


def test_a_study_without_a_sweep_has_no_selection(study):
    with pytest.raises(NotRun):
        verify_selection.check_selection(Registration(study))
