"""docs/systems.md: what is named as here is here, and no policy is forgotten."""

import re

import pytest
from markdown_pages import commands
from studies import ROOT

from analysis.hypotheses.policy_hypotheses import HYPOTHESES
from analysis.rules import RULES
from analysis.stats.methods import METHODS
from policies.catalogue import CATALOGUE
from protocol import tasks
from protocol.grading import GRADERS

PAGE = (ROOT / "docs" / "systems.md").read_text().partition("## Compared with a script")[0]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| system |")
]
FIELDS = {
    "seeds",
    "temperature",
    "top_p",
    "cadence",
    "preserve",
    "cache_tolerance",
    "hf:",
    "fits_in",
    "[cost]",
}  # of a protocol
KNOWN = {*HYPOTHESES, *CATALOGUE, *tasks.names(), *GRADERS, *RULES, *METHODS, *FIELDS, *commands()}


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_says_who_names_it_and_what_it_is_here(row):
    _, papers, here = row
    assert set(papers.split()) <= set("MCBKE")
    assert named(here) or here.startswith("not here: ") or "](" in here
    for one in named(here):
        module = re.fullmatch(r"python -m ([\w.]+)", one)
        assert one in KNOWN or (ROOT / one).is_file() or (module and module[1] in commands()), one


def test_every_policy_of_a_paper_is_named():
    of_papers = {name for name in CATALOGUE if HYPOTHESES[name].source != "ours"}
    assert of_papers - {name for _, _, here in ROWS for name in named(here)} - set(named(PAGE)) == set()


def test_a_system_has_one_row():
    systems = [system for system, _, _ in ROWS]
    assert len(systems) == len(set(systems))
    assert len(systems) > 100


@pytest.mark.parametrize("row", [row for row in ROWS if row[2].startswith("not here: ")], ids=lambda row: row[0])
def test_what_is_not_here_is_no_policy_task_or_method_of_ours(row):
    systems = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in re.split(r",| and ", row[0])}
    ours = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in (*CATALOGUE, *tasks.names(), *GRADERS)}
    assert systems & ours == set()
