"""The files that other tools read: citation, forms, hook, action, workflow."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from studies import ROOT

from protocol.evidence.registration import REGISTRATION_FOLDERS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
ACTION = (ROOT / "action.yml").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def read(path: Path):
    return yaml.safe_load(path.read_text())


def test_the_citation_has_what_its_format_requires_and_the_package_says():
    cited = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()  # required by CFF 1.2.0
    assert cited["cff-version"] == "1.2.0"
    assert all(author.keys() & {"name", "family-names"} for author in cited["authors"])
    assert (str(cited["version"]), cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert cited["title"].casefold() == f"{PROJECT['name']}: {PROJECT['description']}".casefold()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_has_what_github_requires(form):
    made = read(form)
    assert {"name", "description", "body"} <= made.keys()
    fields = [part for part in made["body"] if part["type"] != "markdown"]
    assert fields
    assert {part["type"] for part in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    names = [part["id"] for part in fields]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)
    for part in fields:
        assert part["attributes"]["label"]
        assert (part["type"] in ("dropdown", "checkboxes")) == ("options" in part["attributes"])


def test_there_is_a_form_for_each_kind_of_report():
    assert [form.stem for form in FORMS] == ["bug", "deceived_audit", "policy", "registration"]


def test_the_hook_audits_with_the_installed_code_and_nothing_else():
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    assert hook["entry"] == "python -P -m protocol.audit_changed"
    assert hook["language"] == "python"
    assert hook["args"] == ["--"]  # a file may be named like an option
    for shelf in REGISTRATION_FOLDERS:
        assert re.search(hook["files"], f"{shelf}/mine/lock.json")
    assert not re.search(hook["files"], "src/lock.json")
    assert "confirm" not in str(hook)


def steps(made: dict) -> list[dict]:
    jobs = made["jobs"].values() if "jobs" in made else [made["runs"]]
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", [ROOT / "action.yml", *WORKFLOWS], ids=lambda path: path.stem)
def test_actions_of_others_are_named_by_commit_and_nothing_is_pasted_into_a_shell(path):
    for step in steps(read(path)):
        if used := step.get("uses"):
            assert used == "./" or re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", used), used
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_and_knows_no_secret(path):
    made = read(path)
    assert made["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in made["jobs"].values())
    assert set(made[True]) <= {"push", "pull_request"}  # `on`, as YAML 1.1 reads it
    assert "secrets." not in path.read_text()
    for step in steps(made):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_workflow_runs_targets_that_the_makefile_has():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = "".join(path.read_text() for path in WORKFLOWS)
    assert {"check", "docs", "test"} == set(re.findall(r"run: make (\w+)", said)) <= targets


# A Python that writes down how it was started, and prints what a hostile study would.
STUB = """#!/bin/sh
echo "$@" >> "$RUNNER_TEMP/started"
echo "::error::from a title"
exit "${STATUS:-0}"
"""


def step(name: str, tmp_path: Path, **more: str) -> subprocess.CompletedProcess:
    """A step of the action in its shell, as GitHub starts it."""
    (found,) = [step for step in steps(yaml.safe_load(ACTION)) if step["name"] == name]
    assert found["shell"] == "bash"
    places = {"RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(ROOT)}
    settings = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PATH": os.environ["PATH"]}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]]
    return subprocess.run(shell, cwd=tmp_path, env=places | settings | more, capture_output=True, text=True)


@pytest.fixture
def installed(tmp_path) -> Path:
    python = tmp_path / "kv-prereg" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STUB)
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("status", ["0", "3"])
def test_the_action_passes_on_how_the_audit_ended_and_obeys_nothing_that_it_prints(installed, status):
    done = step("Audit", installed, SINCE="main; touch stolen", STATUS=status)
    assert done.returncode == int(status)
    first, said, last = done.stdout.splitlines()
    word = first.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", word)
    assert (said, last) == ("::error::from a title", f"::{word}::")
    started = (installed / "started").read_text()
    assert started.startswith("-P -m protocol.audit_changed --since=main; touch stolen --summary ")
    assert not (installed / "stolen").exists()


def test_the_action_installs_itself_and_not_the_pull_request(installed):
    done = step("Install", installed, PYTHON=str(installed / "kv-prereg" / "bin" / "python"))
    assert done.returncode == 0, done.stderr
    made, put = (installed / "started").read_text().splitlines()
    assert made == f"-P -m venv {installed}/kv-prereg"
    assert put == "-P -m pip install --quiet -c constraints.txt ."


def test_the_action_refuses_events_that_carry_secrets(tmp_path):
    refusing = steps(yaml.safe_load(ACTION))[0]
    for event in ("pull_request_target", "workflow_run"):
        assert f"github.event_name == '{event}'" in refusing["if"]
    assert step(refusing["name"], tmp_path).returncode == 2


def test_only_packages_that_are_called_from_outside_list_their_names():
    facades = {"policies", "policies/crystal", "splits", "kv_prereg"}
    facades |= {f"protocol/{room}" for room in ("engine", "grading", "harness", "tasks")}
    allowed = {f"{facade}/__init__.py" for facade in facades}
    packages = ("analysis", "figures", "protocol", "policies", "splits", "kv_prereg")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    listing = {str(path.relative_to(ROOT)) for path in modules if "__all__ = " in path.read_text()}
    assert listing == allowed
