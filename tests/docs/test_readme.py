"""The README: two commands, a verdict as it is printed, the studies as they were judged, and short."""

import json
import re

import pytest
from markdown_pages import blocks
from studies import ROOT

import policies
from figures.table import verdict_table
from protocol import tasks

MINUS = "\N{MINUS SIGN}"
README = (ROOT / "README.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line[:1] == "|"
]
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


def test_an_experiment_takes_five_commands():
    own = re.findall(
        r"^python -m protocol\.(\w+) +registrations/001-mine", blocks(ROOT / "README.md"), re.MULTILINE
    )
    assert own == ["rehearse", "register", "probe", "confirm", "audit"]


@pytest.mark.parametrize("folder", REGISTRATIONS, ids=lambda folder: folder.name)
def test_every_study_stands_in_the_table_as_it_was_judged(folder):
    ((_, _, word, decided),) = [row for row in ROWS if row[0] == folder.name]
    if not (folder / "verdict.json").exists():
        assert word == "not run"
        return
    judged = json.loads((folder / "verdict.json").read_text())["judged"]
    assert word == judged["verdict"]
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
    shown = {
        points.replace(MINUS, "-") for points in re.findall(rf"([{MINUS}+]\d+\.\d)(?= pp| and)", decided)
    }
    assert shown <= printed | {f"{-float(points):+.1f}" for points in printed}


def test_it_counts_policies_and_tasks():
    assert f"{len(policies.names())} policies, {len(tasks.names())} tasks" in README
