"""Every tampering with a declared field of a finished study is named by its audit, though every digest that cites
what was tampered with is made anew.

What this leaves untold is listed with the reason. test_edits_of_a_lock.py goes through all tamperings of a lock.
"""

from typing import Any, NamedTuple

import pytest
import rewriting
import studies
import tamperings
from rewriting import Rewrite

from protocol import audit
from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import document_fields, record_fields
from protocol.formats.fields import Field, Table

RECORD = Table({"body": Field(record_fields.BODY, ""), "costs": Field(record_fields.COSTS, "")})
RECORD_ITEMS = ("records", "grid", "sense", "grades", "probe", "claim", "trajectories")
DOCUMENTS = {
    "selection": (document_fields.SELECTION, ("selection",)),
    "claim": (document_fields.CLAIM, ("claim", "selection")),
    "seal": (document_fields.SEAL, ("seal",)),
    "verdict": (document_fields.VERDICT, ("verdict", "judgement")),
}
UNTOLD = {
    "time changed": "by the clock of a machine, which proves nothing",
    "body.records removed": "an attempt of an earlier version does not say it",
    "body.text changed": "a text that grades alike is for a replay",
    "costs.prefill_seconds changed": "by a clock",
    "costs.decode_seconds changed": "by a clock",
    "costs.executor": "which process ran a lane is nobody else's to know",
    "costs.host": "as above",
    "costs.device removed": "records of before it was a field have none",
}
"""What no audit of a folder can tell, and why."""
pytestmark = pytest.mark.usefixtures("installed_once")
SAMPLE = 6  # tamperings in one test, spread over subjects and their fields


class Subject(NamedTuple):
    """What is tampered with.

    name: as `Rewrite.later` calls it. items: those of the audit of which one names it. line: how they call the line.
    """

    name: str
    table: Table
    content: Any
    items: tuple[str, ...]
    line: str = "?"


def documents(folder) -> list[Subject]:
    return [
        Subject(name, table, studies.content(folder / f"{name}.json"), items)
        for name, (table, items) in DOCUMENTS.items()
        if (folder / f"{name}.json").exists()
    ]


def ledger_lines(rewrite: Rewrite) -> list[Subject]:
    subjects = []
    for number, line in enumerate(rewrite.lines):
        declared = {name: ledger.FIELDS.fields[name] for name in ("event", "time")}
        table = Table(declared | {"body": ledger.EVENTS[line["event"]]})
        subjects.append(Subject(f"ledger.{number}", table, line, (), f"{ledger.NAME}:{number + 1}"))
    return subjects


def records(rewrite: Rewrite) -> list[Subject]:
    """A lane of the full cache, one that evicts, and one of the probe."""
    subjects = []
    for phase, number in (("confirm", 0), ("confirm", 1), ("probe", 1)):
        lane = rewrite.lanes[phase][number]
        content, name = {"body": lane.body, "costs": lane.costs}, f"{rewriting.PLACES[phase]}.{number}"
        subjects.append(Subject(name, RECORD, content, RECORD_ITEMS, f"shard-0.jsonl:{number + 1}"))
    return subjects


def is_named(subject: Subject, tampering: tamperings.Tampering, found) -> bool:
    """Whether an item that reads the subject does not hold, and names the field, what it says now, or the line. A grade
    that came of a moment, as a timeout does, cannot be told.
    """
    names = {str(name) for name in tampering.path[-2:] if isinstance(name, str)} | {
        subject.line,
        str(tampering.value).partition("#")[0],
    }
    names |= set(tampering.how.removesuffix(" swapped").split(" and ")) if tampering.how.endswith(" swapped") else set()
    names |= {subject.content["event"]} if "event" in subject.content else set()  # "the ledger's verdict line"
    return any(
        finding.status in ("failed", "unfinished", *(["cannot tell"] if finding.item == "grades" else []))
        and (finding.item in subject.items or not subject.items)
        and any(name in finding.detail for name in names)
        for finding in found
    )


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.soak) for start in range(1, 24))])
@pytest.mark.parametrize(
    ("study", "which"), [("plain", "documents"), ("plain", "ledger"), ("plain", "records"), ("sweep", "documents")]
)
def test_a_tampering_is_named_by_the_audit(study, which, start, confirmed, swept, tmp_path):
    folder = {"plain": confirmed, "sweep": swept}[study]
    rewrite = rewriting.read_study(folder)
    subjects = {"documents": documents(folder), "ledger": ledger_lines(rewrite), "records": records(rewrite)}[which]
    unnamed, tried = [], 0
    for subject in subjects:
        generated = list(tamperings.generate(subject.table, subject.content))
        for tampering in generated[start :: len(generated) * len(subjects) // SAMPLE + 1]:
            if str(tampering).startswith(tuple(UNTOLD)):
                continue
            rewrite, tried = rewriting.read_study(folder), tried + 1
            rewrite.later[subject.name] = tampering.apply
            tampered = Registration(rewriting.write_study(rewrite, tmp_path / str(tried) / "study"))
            findings = audit.audit(tampered, (), audit.AuditOptions()).findings
            if not is_named(subject, tampering, findings):
                unnamed.append((subject.name, str(tampering), [one for one in findings if one.status == "failed"][:3]))
    assert unnamed == []
