"""The menu: the commands of `kv-prereg` by name and group, and their exit statuses."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

from protocol.formats.instruments import INSTRUMENTS

PROGRAM = "kv-prereg"
CUTOFF = 0.75  # for difflib; at 0.7 "validate" would match "calibrate", and "compute" "compare"
PREFIX_LENGTH = 5  # common letters of "policy" and "policies", "registration" and "register"

WORKFLOW = "The usual order of work"
INSPECTION = "Looked at"
VERSIONS = "Versions, witnesses, other readers"
SETUP = "What a protocol may name"
OUTPUTS = "Single results and drawings"


class Entry(NamedTuple):
    module: str  # `python -m <module>` is the same command
    summary: str
    group: str


def _instrument_entries(group: str, *, are_drawings: bool) -> dict[str, Entry]:
    return {
        name: Entry(command.module, command.summary, group)
        for instrument in INSTRUMENTS
        for name, command in instrument.commands.items()
        if command.is_drawing == are_drawings
    }


MENU: Mapping[str, Entry] = MappingProxyType(
    {
        "init": Entry("protocol.init", "write a commented protocol.toml to start from", WORKFLOW),
        "rehearse": Entry("protocol.rehearse", "the whole grid on a few problems; nothing is kept", WORKFLOW),
        "register": Entry("protocol.register", "check every field, self-test the rule, lock; once", WORKFLOW),
        "probe": Entry("protocol.probe", "run every cell on development problems", WORKFLOW),
        "confirm": Entry("protocol.confirm", "run the held-out problems, judge them; once", WORKFLOW),
        "audit": Entry("protocol.audit", "check everything from the files alone", WORKFLOW),
        "report": Entry("figures.report", "write one HTML page: a study, or the index of all", WORKFLOW),
        "replicate": Entry(
            "protocol.replicate", "run a confirmed study again: on the same or on --fresh problems", WORKFLOW
        ),
        "status": Entry("protocol.status", "show the state of each registration, and its next step", INSPECTION),
        "show": Entry("protocol.show", "one problem: its prompt, answers and kept tokens", INSPECTION),
        **_instrument_entries(INSPECTION, are_drawings=False),
        "diagnostics": Entry(
            "analysis.diagnostics", "check a study for known ways in which evaluations fail", INSPECTION
        ),
        "ablations": Entry("analysis.ablations", "what each ablation shows about the part left out", INSPECTION),
        "by-level": Entry("analysis.by_level", "contrasts split by length, depth or difficulty", INSPECTION),
        "evicted": Entry("analysis.evicted", "check that arms evicted: events, memory, every ratio", INSPECTION),
        "proxies": Entry("protocol.proxies", "proxy metrics for choosing arms, against accuracy", INSPECTION),
        "pool": Entry("figures.pool", "pool a study and its fresh replications", INSPECTION),
        "compare": Entry("analysis.compare", "compare result files of any harness, paired", INSPECTION),
        "claims": Entry("analysis.claims", "audit published claims from their printed numbers", INSPECTION),
        "amend": Entry("protocol.amend", "register a changed protocol as an amendment", VERSIONS),
        "withdraw": Entry("protocol.withdraw", "close a registration that gets no verdict", VERSIONS),
        "anchor": Entry("protocol.anchor", "get time stamps of outside witnesses, check them", VERSIONS),
        "audit-changed": Entry("protocol.audit_changed", "audit the studies that a change touches", VERSIONS),
        "export": Entry("protocol.export", "write a study as OSF, AsPredicted, in-toto, Croissant", VERSIONS),
        "regrade": Entry("protocol.regrade", "grade the recorded texts again", VERSIONS),
        "policies": Entry("policies", "list the policies, or all settings of one", SETUP),
        "tasks": Entry("protocol.tasks", "list the tasks; check, fetch, freeze or seal one", SETUP),
        "models": Entry("protocol.models", "the models; fetch one", SETUP),
        "calibrate": Entry("protocol.calibrate", "measure statistics that some policies need", SETUP),
        "split": Entry("splits.make", "split a data file into development and held-out problems", SETUP),
        "lm-eval": Entry("protocol.adapters.lm_eval", "lm-eval with the engine as its model", SETUP),
        "openvino": Entry("protocol.adapters.openvino_arm", "an arm that OpenVINO GenAI decodes", SETUP),
        "judge": Entry("analysis.judge", "the judgement of sealed records, as JSON", OUTPUTS),
        "look": Entry("analysis.look", "whether a study with interim looks stops or continues", OUTPUTS),
        "selection": Entry("analysis.selection", "the choice of a sweep, as JSON", OUTPUTS),
        "table": Entry("figures.table", "the verdict as confirm prints it", OUTPUTS),
        "draw": Entry("figures.study", "every drawing of a judged study", OUTPUTS),
        **_instrument_entries(OUTPUTS, are_drawings=True),
        "forest": Entry("figures.forest", "only its forest plot", OUTPUTS),
        "settings-map": Entry("figures.settings_map", "accuracy over two settings", OUTPUTS),
        "completion": Entry("protocol.completion", "shell completion for bash, zsh or fish", SETUP),
    }
)


class Status(NamedTuple):
    number: int
    meaning: str
    brief: str  # in a word or two, for the list of `kv-prereg help`
    commands: tuple[str, ...] = ()  # names of MENU; () means every command


STATUSES = (
    Status(0, "done and nothing failed; after a judgement: CONFIRMED", "done, CONFIRMED"),
    Status(1, "a new grade differs from the recorded one", "a grade differs", ("regrade",)),
    Status(
        2,
        "bad input (unknown name, malformed file, missing lock or package), or an error of the operating system",
        "bad input",
    ),
    Status(
        3,
        "drifted (today's bytes differ from the locked ones) or tampered (the evidence contradicts itself)",
        "drifted, tampered or failed",
    ),
    Status(3, "some lanes failed", "", ("rehearse",)),
    Status(3, "an item failed", "", ("audit",)),
    Status(
        4,
        "locked, claimed, closed, or running",
        "locked, claimed or closed already",
        ("register", "probe", *(instrument.name for instrument in INSTRUMENTS), "confirm", "amend", "withdraw"),
    ),
    Status(5, "UNANCHORED where --require-anchor was given", "not anchored", ("confirm", "audit", "anchor")),
    Status(6, "the study is unfinished, and what exists passed", "unfinished", ("audit", "confirm", "replicate")),
    Status(
        7,
        "a check could not be made here; the output says what is needed",
        "cannot be checked here",
        ("audit", "audit-changed", "status"),
    ),
    Status(10, "REFUTED", "REFUTED", ("confirm", "replicate")),
    Status(
        11,
        "INCONCLUSIVE, SCREENED (under 200 problems) or RE-USED (problems opened before)",
        "INCONCLUSIVE, SCREENED, RE-USED",
        ("confirm", "replicate"),
    ),
    Status(12, "DEVIATED", "DEVIATED", ("confirm", "replicate")),
    Status(70, "a fault of kv-prereg itself: please report it", "a fault of kv-prereg"),
    Status(130, "interrupted by hand; the same command continues where it stopped", "interrupted"),
    Status(143, "terminated, as by a batch system; the same command continues where it stopped", "terminated"),
)


def closest_command(name: str) -> str | None:
    """Return the command that a mistyped name resembles, or None."""
    name = name.lower()
    near = get_close_matches(name, MENU, n=1, cutoff=CUTOFF)
    same_prefix = [
        command for command in MENU if len(name) >= PREFIX_LENGTH and command[:PREFIX_LENGTH] == name[:PREFIX_LENGTH]
    ]
    return next(iter([*near, *same_prefix]), None)
