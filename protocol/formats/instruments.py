"""The registry of instruments: what each adds to the core, by import paths. The core names none of them.

An instrument measures something about a study that no verdict depends on. It has a table in protocol.toml, a
folder of evidence with events in the ledger, an item in the audit, and commands; it may have drawings and a
section of the report. It is one folder below protocol/instruments/ and one entry of INSTRUMENTS. Paths are
"module:attribute" and are imported when the core asks for them, so that an audit loads no torch.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.formats.registry import load_attribute


class Command(NamedTuple):
    """A command of kv-prereg. is_drawing: it draws, so it is listed with the drawings."""

    module: str
    summary: str
    is_drawing: bool = False


class Remeasured(NamedTuple):
    """A value of a line that was measured again. may_round: whether rounding may part it from the recorded one."""

    where: str
    recorded: Any
    now: Any
    may_round: bool = False


class Instrument(NamedTuple):
    """An instrument. name: of its table in protocol.toml, its folder in a registration, its item in the audit,
    its command and the ledger event that begins an attempt. end_event: ends one. later_events: the other ones.

    table: its `Table` of protocol.toml; description, if_absent: of that table in protocol and lock.
    faults: (value of the table, design, arms that evict) -> one line for each fault.
    feasibility: (table, items by task, scored tasks), raises BadInput before the lock.
    events: the `Field` of each of these events by name.
    files: a pattern of the names of its evidence files, by subfolder; "" is the folder itself.
    check: (study, is_claimed, has_ended) -> summary of the audit; recompute: (study) -> summary of what the
    audit computes again; replay: (opened study, number of lines -> the drawn ones) -> each `Remeasured` value.
    progress: (study) -> how far it is, or "" if it is complete. Only an instrument that has it is the next step
    of a locked study.
    rehearsal: (stand-in plan, development problems by task, lanes by model) -> the values and the lines that it
    adds to a rehearsal.
    verb, activity: what an attempt does, as a verb and as a clause. advice: how to get it where it is not
    registered.
    commands: its commands by name. drawings: the names of its drawings; draw: (folder, judged, study) -> each
    drawing with its data. captions: caption and alternative text of a drawing, by name. section: (folder) -> its
    section of the report or None; section_title, section_link: its heading, and its name in the list of sections.
    """

    name: str
    end_event: str
    table: str
    description: str
    if_absent: str
    faults: str
    events: str
    files: Mapping[str, str]
    check: str
    verb: str
    activity: str
    advice: str
    commands: Mapping[str, Command]
    later_events: tuple[str, ...] = ()
    feasibility: str = ""
    recompute: str = ""
    replay: str = ""
    progress: str = ""
    rehearsal: str = ""
    drawings: tuple[str, ...] = ()
    draw: str = ""
    captions: str = ""
    section: str = ""
    section_title: str = ""
    section_link: str = ""

    @property
    def event_names(self) -> tuple[str, ...]:
        return (self.name, self.end_event, *self.later_events)


INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        name="cost",
        end_event="costed",
        table="protocol.instruments.cost.table:TABLE",
        description="Time and memory, measured separately from the study's lanes.",
        if_absent="nothing",
        faults="protocol.instruments.cost.table:faults",
        events="protocol.instruments.cost.fields:EVENTS",
        files=MappingProxyType({"": r"[0-9a-f]{12}\.jsonl"}),
        check="protocol.instruments.cost.verify:check",
        replay="protocol.instruments.cost.run.measurement:measure_again",
        verb="measure",
        activity="time is measured",
        advice="or measure without evidence: python -m benchmarks.decode",
        commands=MappingProxyType(
            {
                "cost": Command("protocol.cost", "time and memory of every arm, as registered"),
                "draw-cost": Command(
                    "protocol.instruments.cost.drawings.draw",
                    "drawings of the measured time and memory",
                    is_drawing=True,
                ),
            }
        ),
        drawings=("cost_concurrency", "cost_frontier", "cost_memory", "cost_prefill", "cost_throughput"),
        draw="protocol.instruments.cost.drawings.draw:draw_with_study",
        captions="protocol.instruments.cost.drawings.labels:CAPTIONS",
    ),
    Instrument(
        name="anatomy",
        end_event="occluded",
        table="protocol.instruments.anatomy.table:TABLE",
        description="Which tokens development traces need: measured before the claim, independent of the rule.",
        if_absent="nothing is occluded or labelled",
        faults="protocol.instruments.anatomy.table:faults",
        events="protocol.instruments.anatomy.fields:EVENTS",
        files=MappingProxyType({"": r"traces\.jsonl|chosen\.json|verdict\.json", "values": r"[0-9a-f]{64}"}),
        check="protocol.instruments.anatomy.audit.verify:check",
        verb="label traces",
        activity="traces are labelled",
        advice="with the fields of docs/protocol.md",
        commands=MappingProxyType(
            {
                "anatomy": Command("protocol.anatomy", "which tokens answers need, and which signals rank them"),
                "needed": Command(
                    "protocol.instruments.anatomy.analysis", "all tables of an anatomy: signals, policies, power"
                ),
                "draw-anatomy": Command(
                    "protocol.instruments.anatomy.drawings.draw",
                    "drawings of needed tokens, and of the signals and arms",
                    is_drawing=True,
                ),
            }
        ),
        later_events=("anatomy-chosen", "anatomy-judged"),
        feasibility="protocol.instruments.anatomy.table:refuse_infeasible",
        recompute="protocol.instruments.anatomy.audit.recompute:check",
        replay="protocol.instruments.anatomy.run.labelling:label_again",
        progress="protocol.instruments.anatomy.trace_file:format_progress",
        rehearsal="protocol.instruments.anatomy.run.labelling:rehearse",
        drawings=("anatomy_curve", "anatomy_labels", "anatomy_map", "anatomy_trace"),
        draw="protocol.instruments.anatomy.drawings.draw:draw_with_study",
        captions="protocol.instruments.anatomy.drawings.captions:CAPTIONS",
        section="protocol.instruments.anatomy.drawings.report_section:render_section",
        section_title="Which tokens answers needed, and which signals ranked them",
        section_link="Needed tokens",
    ),
)


def get_instrument(name: str) -> Instrument:
    return next(instrument for instrument in INSTRUMENTS if instrument.name == name)


def event_loaders() -> dict[str, Callable[[], Any]]:
    """Return, for each event of the ledger that an instrument enters, a function that returns its `Field`."""
    return {
        event: partial(_load_event, instrument, event) for instrument in INSTRUMENTS for event in instrument.event_names
    }


def _load_event(instrument: Instrument, event: str) -> Any:
    return load_attribute(instrument.events)[event]


def folder_patterns() -> dict[str, tuple[str, re.Pattern[str]]]:
    """Return the table of protocol.toml and the pattern of file names, by folder in a registration."""
    return {
        f"{instrument.name}/{subfolder}".rstrip("/"): (instrument.name, re.compile(pattern))
        for instrument in INSTRUMENTS
        for subfolder, pattern in instrument.files.items()
    }
