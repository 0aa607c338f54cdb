"""The status of a registration from its files: its state, and which results somebody could have seen.

Only the statements of the files are read. Whether they verify is for the audit: no digest of a record is
recomputed and nothing is derived again.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

from protocol.evidence import ledger, registration, verdict
from protocol.evidence.ledger import Entry, Head
from protocol.evidence.registration import Registration
from protocol.formats import shards
from protocol.formats.findings import find_remedy, one_line
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.registry import load_attribute
from protocol.formats.runners import TABLE
from protocol.lock import lock

State = Literal[
    "written",  # protocol.toml and nothing else
    "locking",  # a crash came between the lock and the first line of the ledger
    "locked",
    "claimed",
    "sealed",
    "judged",
    "withdrawn",
    "amended",
    "INVALID",  # the files contradict each other, or one is damaged
    "cannot tell",  # this machine, or this copy of the files, does not show it
]


class ProbeCounts(TypedDict):
    attempts: int
    records: int


class Exposure(TypedDict):
    """The results of a study that could be known at some moment."""

    probe: ProbeCounts
    selection: bool
    claim: bool
    records: int  # of held-out problems
    verdict: str | None


class StudyStatus(NamedTuple):
    """The status of a study. Fields that do not apply to its state are None or 0."""

    name: str
    folder: str
    state: State
    why: str | None = None  # reason of a withdrawal or an amendment, or why it is INVALID
    lock: str | None = None
    ledger: Head | None = None
    swept: bool = False
    selected: str | None = None  # the candidate of a sweep
    probes: int = 0  # attempts
    attempts: int = 0  # to confirm; all but the one that sealed were aborted
    records: int = 0
    registered: int = 0  # lanes, with one record each
    after_claim: bool = False  # withdrawn or amended after the claim
    verdict: str | None = None
    amends: dict[str, Any] | None = None  # name, lock and after_claim, as in the lock
    replicates: str | None = None  # name of the study that this one reproduces or replicates
    reproduces: bool = False  # with its problems and seeds
    randomness: str | None = None  # source of its late value
    is_outside: bool = False  # another harness runs it
    amended: str | None = None  # the lock that amends this one
    instruments: Mapping[str, str] = MappingProxyType({})  # progress of those that are registered; "" if complete


def read_status(study: Registration) -> StudyStatus:
    """Return the status that the files of a study show.

    A damaged registration is INVALID, one that this machine cannot read is "cannot tell"; `why` is one line.
    """
    try:
        return _read_status(study)
    except Exception as error:  # any exception from a damaged file determines the state
        return unreadable_status(study, error)


def unreadable_status(study: Registration, error: Exception) -> StudyStatus:
    """Return the status of a registration whose reading raised `error`."""
    if remedy := find_remedy(error):
        return StudyStatus(study.name, str(study.folder), "cannot tell", why=remedy)
    kind = "" if isinstance(error, Tampered) else f"{type(error).__name__}: "
    return StudyStatus(study.name, str(study.folder), "INVALID", why=kind + one_line(error))


def read_exposure(study: Registration) -> Exposure:
    """Return which results of a locked study can be known now.

    Raises BadInput when it is not locked, Tampered when its documents and its ledger contradict each other.
    """
    current = study.reopen()
    _refuse_contradiction(current)
    return {
        "probe": {"attempts": current.count_events("probe"), "records": _count_lines(current, "probe")},
        "selection": current.has(registration.SELECTION),
        "claim": current.has(registration.CLAIM),
        "records": _count_lines(current, "confirm"),
        "verdict": _verdict_word(current),
    }


def _refuse_contradiction(study: Registration) -> None:
    """Raise as `read_exposure` does."""
    locked = study.lock
    if study.written_files() == [lock.NAME]:
        raise BadInput(f"{study.folder}: locking was interrupted; run again: kv-prereg register {study.folder}")
    if [(entry.event, entry.body) for entry in study.entries[:1]] != [("register", {"lock": locked.digest})]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    for name, (event, _) in registration.CITED.items():
        cited = study.cited_digests(name)
        if study.has(name):
            digest = study.digest(name)
            if cited and cited != [digest]:
                raise Tampered(f"{ledger.NAME}: its {event} line cites a different {name}")
        elif cited:
            raise Tampered(f"{name}: missing, although the ledger has a line for it")


def _read_status(study: Registration) -> StudyStatus:
    files_written = study.written_files()
    if not files_written:
        return StudyStatus(study.name, str(study.folder), "written")
    if files_written == [lock.NAME]:
        return StudyStatus(study.name, str(study.folder), "locking", lock=study.lock.digest)
    if lock.NAME not in files_written:
        raise Tampered(f"{lock.NAME}: missing, although {files_written[0]} exists")
    _refuse_contradiction(study)
    content, amends = study.lock.content, study.lock.content.get("amends")
    closing = ledger.closing_entry(study.entries)
    selected = study.selection.content["selected"] if study.has(registration.SELECTION) else None
    return StudyStatus(
        study.name,
        str(study.folder),
        _state(study),
        why=closing.body.get("reason") if closing else None,
        lock=study.lock.digest,
        ledger=ledger.head_of(study.entries),
        swept=study.has_sweep,
        selected=selected["winner"] if selected else None,
        probes=study.count_events("probe"),
        attempts=study.count_events("attempt"),
        records=_count_records(study),
        registered=sum(len(study.due_items[task]["confirm"]) for _, task, *_ in content["grid"]),
        after_claim=study.has(registration.CLAIM) and closing is not None and closing.event != "verdict",
        verdict=_verdict_word(study),
        amends=amends and {field: amends[field] for field in ("name", "lock", "after_claim")},
        replicates=(study.parent or {}).get("name"),
        reproduces=study.reproduces,
        randomness=(study.protocol.get("randomness") or {}).get("source"),
        is_outside=TABLE in study.protocol,
        amended=closing.body["lock"] if closing and closing.event == "amended" else None,
        instruments={
            instrument.name: load_attribute(instrument.progress)(study)
            for instrument in INSTRUMENTS
            if instrument.progress and instrument.name in study.protocol
        },
    )


def _state(study: Registration) -> State:
    match ledger.closing_entry(study.entries):
        case Entry(event="withdraw"):
            return "withdrawn"
        case Entry(event="amended"):
            return "amended"
        case Entry():
            return "judged"
    if study.has(registration.SEAL):  # judging again adds the missing line of a verdict
        return "sealed"
    return "claimed" if study.has(registration.CLAIM) else "locked"


def _verdict_word(study: Registration) -> str | None:
    return verdict.read_word(study.verdict) if study.has(verdict.NAME) else None


def _count_records(study: Registration) -> int:
    is_sealed = study.has(registration.SEAL)
    return sum(study.seal.content["found"].values()) if is_sealed else _count_lines(study, "confirm")


def _count_lines(study: Registration, phase: str) -> int:
    """Return the number of complete lines in the shards of a phase."""
    return sum(map(shards.count_lines, shards.list_shards(study.phase_folder(phase))))
