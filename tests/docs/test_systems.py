"""docs/systems.md: what is named as here is here, no policy is forgotten, and what is not here has no trace."""

import re
import tomllib

from looped import looped
from markdown_pages import commands
from studies import ROOT

from analysis.hypotheses.policy_hypotheses import HYPOTHESES
from analysis.rules import RULES
from analysis.stats.methods import METHODS
from policies.catalogue import CATALOGUE
from policies.quantised.states import STATES
from protocol import tasks
from protocol.formats.policy_facts import read_policy_facts
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
    "think_only",
    "unmatched",
    "cache_tolerance",
    "hf:",
    "fits_in",
    "[cost]",
    "[cite]",
}  # of a protocol
KNOWN = {*HYPOTHESES, *CATALOGUE, *tasks.names(), *GRADERS, *RULES, *METHODS, *STATES, *FIELDS, *commands()}


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@looped("row", ROWS, ids=lambda row: row[0])
def test_a_row_says_who_names_it_and_what_it_is_here(row):
    _, papers, here, _ = row
    assert set(papers.split()) <= set("MCBKE")
    assert named(here) or here.startswith("not here: ") or "](" in here
    for one in named(here):
        module = re.fullmatch(r"python -m ([\w.]+)", one)
        assert one in KNOWN or (ROOT / one).is_file() or (module and module[1] in commands()), one


def test_every_policy_of_a_paper_is_named():
    of_papers = {name for name in CATALOGUE if HYPOTHESES[name].source != "ours"}
    assert of_papers - {name for _, _, here, _ in ROWS for name in named(here)} - set(named(PAGE)) == set()


def test_a_system_has_one_row():
    systems = [system for system, *_ in ROWS]
    assert len(systems) == len(set(systems))
    assert len(systems) > 100


QUANTISERS = ("KIVI", "KVQuant", "KVTuner", "MiniKV", "QAQ, Oaken", "ThinKV")  # those that the papers name


@looped("quantiser", QUANTISERS)
def test_a_quantiser_is_a_state_or_the_page_says_why_not(quantiser):
    (here,) = (here for system, _, here, _ in ROWS if system == quantiser)
    assert STATES.keys() & {*named(here)} or "not here: " in here
    assert {name for name in STATES if name.startswith(quantiser.lower())} <= {*named(here)}


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def things_of_ours() -> set[str]:
    """Every name that is here: policies, aliases, tasks, graders, rules, methods, files, functions, classes, and what
    the name of a variant begins with.
    """
    facts = read_policy_facts()
    names = {*KNOWN, *(alias for name in CATALOGUE for alias in facts[name].aliases)}
    names |= {name.partition("-")[0] for name in names}
    for package in ("policies", "protocol", "analysis"):
        for path in (ROOT / package).rglob("*.py"):
            names |= {path.stem, *re.findall(r"^(?:class|def) ([a-zA-Z]\w*)", path.read_text(), re.MULTILINE)}
    return {plain(name) for name in names}


def traces(row: tuple[str, ...], ours: set[str]) -> set[str]:
    """What a row has as not here, its systems or what follows these words, of which something here has the name."""
    here, _, rest = row[2].partition("not here: ")
    return {plain(name) for name in re.split(r",| and |\(.*\)", rest if here else row[0])} & ours


def test_what_is_not_here_has_the_name_of_nothing_that_is():
    ours = things_of_ours()
    assert {row[0]: found for row in ROWS if "not here: " in row[2] and (found := traces(row, ours))} == {}
    assert traces(("Delayed Association, KVzip and Branch (a rule)", "C", "not here: x", ""), ours) == {
        "kvzip",
        "branch",
    }
    assert traces(("ThinKV", "E", "`thinkv`; not here: its kernel and KVzip", ""), ours) == {"kvzip"}
    assert traces(("Syn_mem-5 and Pyramid", "M", "not here: x", ""), ours) == {"pyramid"}


def test_a_row_says_which_studies_that_ship_have_its_policies():
    """Of those that were judged, read from the protocols, of which the page is not made."""
    arms = {}
    for verdict in (ROOT / "registrations").glob("*/verdict.json"):
        protocol = tomllib.loads((verdict.parent / "protocol.toml").read_text())
        pairs = [(arm.get("policy"), arm.get("set", {}).get("state")) for arm in protocol["arms"].values()]
        arms[verdict.parent.name] = {name for policy, state in pairs for name in (policy, state, (policy, state))}
    for system, _, here, where in ROWS:
        policies = {name for name in named(here) if name in CATALOGUE or name in STATES}
        if pair := re.search(r"`([^`]+)` with the state `([^`]+)`", here):  # it is an arm that has both
            policies = {pair.groups()}
        if not policies or here.startswith("not here: "):
            continue
        studies, _, never = where.partition("never")
        having = {study for study, studied in arms.items() if studied & policies}
        expected = having if where == "every study" else {*re.findall(r"[a-z0-9-]+", studies)}
        assert expected == having, system
        unstudied = {name for name in policies if not any(name in studied for studied in arms.values())}
        assert ({*named(never)} or (unstudied if "never" in where else set())) == unstudied, system
