"""`import kv_prereg`: light, typed, numbers as numbers, and what a command refuses is an exception with its line."""

import json
import shutil
import subprocess
import sys
import venv

import finished_study
import pandas as pd
import pytest
from studies import ROOT

import kv_prereg as kvp

STUDY = ROOT / "registrations" / "alpha-chain"
JUDGED = json.loads((STUDY / "verdict.json").read_text())["judged"]
# As a user writes it; mypy reads it against the installed package.
SCRIPT = '''"""A user's script."""

from pathlib import Path

import kv_prereg as kvp


def summarize(folder: Path) -> dict[str, str]:
    study = kvp.Study(folder)
    worst = study.contrasts["difference"].min()
    lanes = study.records
    return {
        "verdict": study.verdict.upper(),
        "worst": f"{100 * worst:+.1f}",
        "lanes": str(len(lanes)),
        "title": str(study.lock["protocol"]["content"]["title"]),
        "latex": study.to_latex().strip(),
        "markdown": study.to_markdown().strip(),
    }


def check(folder: Path) -> bool:
    try:
        audit = kvp.Study(folder).audit("--replay", "8")
    except kvp.Refused as refused:
        print(refused, refused.status + 0)
        return False
    return audit["verdict"] is not None


print(summarize(Path("registrations/alpha-chain")), check(Path("registrations/alpha-chain")), sorted(kvp.tasks()))
print(kvp.Study("registrations/alpha-chain").report().name)
'''


def test_importing_loads_no_library():
    heavy = "torch numpy pandas scipy matplotlib transformers"
    loaded = f"import sys, kv_prereg; print([name for name in {heavy!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_contrasts_and_arms_are_numbers():
    study = kvp.Study(STUDY)
    frame, arms = study.contrasts, study.arms
    assert study.verdict == "INCONCLUSIVE (branch C, symmetric C)"
    assert [f"{100 * value:+.1f}" for value in frame["difference"]] == ["-1.5", "+0.5", "+3.6", "+1.4"]  # of the README
    assert list(frame["budget"]) == ["64", "128", "64", "128"]
    for name in ("difference", "low", "high", "p", "cache_ratio"):
        assert frame[name].dtype == float
        assert list(frame[name]) == [float(contrast[name]) for contrast in JUDGED["contrasts"]]
    assert frame["better"].dtype == bool
    assert dict(zip(arms["arm"], arms["accuracy"], strict=True)).keys() == {arm["arm"] for arm in JUDGED["arms"]}


def test_records_are_every_registered_lane():
    records = kvp.Study(ROOT / "registrations/crystal-long").records
    lock = kvp.Study(ROOT / "registrations/crystal-long").lock
    held_out = sum(len(item["confirm"]) for item in lock["items"].values())
    assert len(records) == held_out * len(lock["grid"])
    right = records[records["arm"] == "full"]["correct"]
    judged = json.loads((ROOT / "registrations/crystal-long/verdict.json").read_text())["judged"]["arms"]
    assert {f"{right.mean():.6f}"} == {arm["accuracy"] for arm in judged if arm["arm"] == "full"}


def test_a_verdict_that_the_records_do_not_support_is_refused(tmp_path):
    folder = shutil.copytree(ROOT / "registrations/crystal-long", tmp_path / "crystal-long")
    edited = (folder / "verdict.json").read_text().replace('"INCONCLUSIVE"', '"CONFIRMED"')
    (folder / "verdict.json").write_text(edited)
    for read in (lambda study: study.verdict, lambda study: study.contrasts, kvp.Study.to_latex, kvp.Study.to_markdown):
        with pytest.raises(ValueError, match=r"verdict\.json does not follow from its records"):
            read(kvp.Study(folder))
    assert "does not follow from its records" in kvp.Study(folder)._repr_html_()


def test_what_a_command_refuses_is_raised_with_its_line_and_status(tmp_path):
    with pytest.raises(kvp.Refused, match=r"no protocol\.toml here") as refused:
        kvp.Study(tmp_path).register()
    assert refused.value.status == 2
    assert list(tmp_path.iterdir()) == []
    assert "no verdict" in kvp.Study(ROOT / "registrations/alpha-math500")._repr_html_()


def test_what_a_command_prints_is_returned():
    status = kvp.Study(STUDY).status()
    assert (status["name"], status["verdict"], status["records"]) == ("alpha-chain", "INCONCLUSIVE", 12_054)


def test_scores_are_compared_and_policies_found_by_name():
    scores = [("a", problem, int(problem % 4 > 0)) for problem in range(40)] + [
        ("b", problem, 0) for problem in range(40)
    ]
    compared = kvp.compare(pd.DataFrame(scores, columns=["arm", "id", "score"]))
    assert compared.contrasts["difference"][0] == 0.75
    assert kvp.policy("snapkv", {"scoring.window": 64}).scoring.window == 64
    assert "chain" in kvp.tasks()


@pytest.mark.soak
def test_the_installed_package_is_typed(tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv/bin/python")
    pip = [sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", str(ROOT)]
    subprocess.run(pip, check=True, cwd=tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    for text, status in ((SCRIPT, 0), (SCRIPT.replace("study.verdict.upper()", "study.verdict + 1"), 1)):
        (tmp_path / "script.py").write_text(text)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "script.py"]
        done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stdout


def test_a_shelf_is_not_taken_for_its_first_registration(tmp_path):
    for name in ("one", "two"):
        finished_study.locked(tmp_path / name)
    with pytest.raises(kvp.Refused, match=r"contains 2 registrations; name the folder of one"):
        kvp.Study(tmp_path).status()


def test_a_refused_report_says_why(tmp_path):
    with pytest.raises(kvp.Refused, match="contains no registration; name") as refused:
        kvp.Study(tmp_path).report()
    assert refused.value.status == 2
