"""The README: two commands, a verdict as it is printed, the studies as they were judged, and short."""

import contextlib
import importlib
import io
import json
import re
import shlex
import tomllib

import pytest
import studies
from looped import looped
from markdown_pages import blocks, commands
from studies import ROOT

import policies
from analysis.rules.verdict_line import verdict_word
from figures.table import verdict_table
from protocol import tasks
from protocol.command.menu import MENU
from protocol.presses import supported_presses

MINUS = "\N{MINUS SIGN}"
README = (ROOT / "README.md").read_text()
STUDIES = (ROOT / "docs/studies.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in STUDIES.splitlines() if line[:1] == "|"]
REGISTRATIONS = sorted(path.parent for path in (ROOT / "registrations").glob("*/protocol.toml"))


@pytest.mark.parametrize(("page", "most"), [("README.md", 120), ("ARCHITECTURE.md", 150)])
def test_it_stays_short(page, most):
    assert len((ROOT / page).read_text().splitlines()) <= most


def test_its_two_commands_are_targets_of_make():
    named = re.findall(r"^make (\w+)", blocks(ROOT / "README.md"), re.MULTILINE)
    assert named == ["confirm", "test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named) <= set(targets)


def test_its_verdict_is_the_one_that_is_printed():
    judged = json.loads((ROOT / "registrations/alpha-chain/verdict.json").read_text())["judged"]
    printed = iter(verdict_table(judged).splitlines())
    (block,) = re.findall(r"```\n(INCONCLUSIVE.*?)\n```", README, re.DOTALL)
    assert all(line in printed for line in block.splitlines())  # in their order


def test_an_experiment_takes_six_commands():
    own = re.findall(r"^kv-prereg (\w+) +registrations/001-mine", blocks(ROOT / "README.md"), re.MULTILINE)
    assert own == ["init", "rehearse", "register", "probe", "confirm", "audit"]


def test_what_it_found_is_said_as_on_the_page_of_all_studies():
    shown = [
        line
        for line in README.splitlines()
        if line[:1] == "|" and (ROOT / "registrations" / line[2:].split()[0]).exists()
    ]
    assert len(shown) >= 8
    assert {*shown} <= {*STUDIES.splitlines()}


@looped("folder", REGISTRATIONS, ids=lambda folder: folder.name)
def test_every_study_stands_in_the_table_as_it_was_judged(folder):
    ((_, _, word, decided),) = [row for row in ROWS if row[0] == folder.name]
    if not (folder / "verdict.json").exists():
        assert word == "not run"
        return
    judged = json.loads((folder / "verdict.json").read_text())["judged"]
    assert word == verdict_word(judged)
    contrasts = judged["contrasts"]
    counts = {
        "won": sum(one["better"] for one in contrasts),
        "lost": sum(one["worse"] for one in contrasts),
        "registered": judged["at_least"],
    }
    for number, what in re.findall(r"(\d+)(?: of \d+)?(?: contrasts)? (won|lost|registered)", decided):
        assert int(number) == counts[what], decided
    assert all(int(family) == len(contrasts) for family in re.findall(r"\d+ of (\d+)", decided))
    printed = {f"{100 * float(one['difference']):+.1f}" for one in contrasts}
    shown = {points.replace(MINUS, "-") for points in re.findall(rf"([{MINUS}+]\d+\.\d)(?= pp| and)", decided)}
    assert shown <= printed | {f"{-float(points):+.1f}" for points in printed}


def test_it_counts_policies_and_tasks():
    assert f"{len(policies.names())} policies, {len(tasks.names())} tasks" in README


# Every command of the page, in a fence or in a sentence: its module and what is typed after it.
FENCED = blocks(ROOT / "README.md")
INLINE = "\n".join(re.findall(r"`([^`\n]+)`", README))
TYPED = [
    (MENU[name].module if program == "kv-prereg" else name, rest)
    for program, name, rest in re.findall(
        r"^(kv-prereg|python -m) (?:help )?([\w.-]+)([^#\n]*)", f"{FENCED}\n{INLINE}", re.MULTILINE
    )
]


@looped(("module", "rest"), TYPED, ids=lambda part: part.strip())
def test_its_commands_take_what_is_typed(module, rest):
    assert module in commands()
    package = ROOT.joinpath(*module.split(".")).is_dir()
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        importlib.import_module(f"{module}.__main__" if package else module).main(["--help"])
    for word in shlex.split(rest):
        if word.startswith("-"):
            assert re.search(rf"{re.escape(word)}\b", out.getvalue()), f"{module} {word}"
        elif word.startswith("registrations/") and "mine" not in word:
            assert (ROOT / word).exists(), word


def test_it_says_how_many_answers_and_problems_the_shipped_study_has():
    folder = ROOT / "registrations" / "alpha-chain"
    answers = len(studies.shard_text(folder).splitlines())
    assert f"two models, {answers:,} answers" in README
    locked = json.loads((folder / "lock.json").read_bytes())
    assert f"Our study of {len(locked['items']['chain']['confirm'])} held-out problems" in README
    assert len(locked["protocol"]["content"]["models"]) == 2


def test_its_table_names_the_versions_that_are_compared_with():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = dict(each.split("==") for name in ("parity", "tasks") for each in extras[name] if "==" in each)
    assert f"kvpress {pinned['kvpress']} | lm-eval {pinned['lm-eval']} |" in README
    assert f"; {len(supported_presses.RUNNABLE)} presses |" in README


OURS = {"rule before results", "checked by others", "what they have more of"}  # rows that measure no other


def test_what_its_table_says_of_others_is_measured_on_a_page():
    table = README.partition("## Why not")[2].partition("\n\nHow each row")[0]
    named = re.findall(r"^\| \**([^|*]+?)\** \|", table, re.MULTILINE)
    told = (ROOT / "docs/systems.md").read_text()
    assert set(named) > OURS
    assert [name for name in named if name not in OURS and f"| {name.split(',')[0]} |" not in told] == []


def test_what_is_not_run_has_no_record_and_every_limit_is_so():
    for folder in REGISTRATIONS:
        if not (folder / "verdict.json").exists():
            assert not (folder / "records").exists(), folder.name
    assert "No shipped study is anchored" in README
    assert not any((folder / "anchors").exists() for folder in REGISTRATIONS)
    locks = [json.loads(path.read_bytes()) for path in ROOT.glob("registrations/*/lock.json")]
    late = {lock["name"] for lock in locks if lock["protocol"]["content"].get("randomness")}
    fresh = {
        "agreement-programs",
        "boundary-chain",
        "bytes-chain",
        "control-effect",
        "control-null",
        "per-head-chain",
        "crystal-regime",
        "crystal-retrieval-3",
        "looks-chain",
        "looks-chain-2",
        "openvino-bytes",
        "openvino-bytes-2",
        "programs-field",
        "programs-field-2",
        "programs-redundancy",
        "reads-programs",
        "slip-repairs",
        "think-answer",
        "think-answer-2",
    }
    assert late == fresh
    assert "the seeds of all but nineteen are author-chosen" in README


def test_no_torch_is_needed_where_it_says_so():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any(each.startswith("torch") for each in extras["dependencies"])
    assert "kv-prereg audit" in README.partition("No torch is needed: `pip install .`")[2][:100]
