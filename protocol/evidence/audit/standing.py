"""Where a registration stands, from its files: its state, and what somebody could have seen of it.

Read here is what the files say. Digests of records are not computed again, nor is anything derived: whether
the evidence verifies is for the audit.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

from protocol.evidence.bytes import documents, files
from protocol.evidence.bytes.documents import Document
from protocol.evidence.lock import lock
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import claim, ledger, records, seal, selection, verdict
from protocol.evidence.run.ledger import Entry, Head

__all__ = ["CITED", "PROTOCOL", "Seen", "Standing", "digest", "known", "seen", "standing", "traces"]

PROTOCOL = "protocol.toml"
# Each document, in writing order, with the event whose line cites it and the field that does.
CITED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        lock.NAME: ("register", "lock"),
        selection.NAME: ("selection", "selection"),
        claim.NAME: ("claim", "claim"),
        seal.NAME: ("seal", "seal"),
        verdict.NAME: ("verdict", "sha256"),
    }
)
DECLARED = {module.NAME: module.FIELDS for module in (lock, selection, claim, seal, verdict)}

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
]


class Probed(TypedDict):
    attempts: int
    records: int


class Seen(TypedDict):
    """What could be known of a study at some moment, by what had been run or opened."""

    probe: Probed
    selection: bool
    claim: bool
    records: int  # of held-out problems
    verdict: str | None


class Standing(NamedTuple):
    """Fields that the state does not have are None or 0."""

    name: str
    folder: str
    state: State
    why: str | None = None  # of a withdrawal or an amendment; what is INVALID
    lock: str | None = None
    ledger: Head | None = None
    swept: bool = False
    selected: str | None = None  # the candidate of a sweep
    probes: int = 0  # attempts
    attempts: int = 0  # to confirm; all but the one that seals were aborted
    records: int = 0
    registered: int = 0  # lanes, each of which ends in one record
    after_claim: bool = False  # withdrawn or amended after it
    verdict: str | None = None
    amends: dict[str, Any] | None = None  # name, lock and after_claim, as in the lock
    replicates: str | None = None  # the name of the study that this one repeats
    randomness: str | None = None  # where its late value comes from
    amended: str | None = None  # the lock that amends this one


def known(folder: Path) -> bool:
    """Whether `folder` is a registration, or what is left of one."""
    return (folder / PROTOCOL).is_file() or bool(traces(folder))


def traces(folder: Path) -> list[str]:
    """What is there of all that is written from the lock on."""
    return [name for name in (*CITED, ledger.NAME, *records.FOLDERS.values()) if (folder / name).exists()]


def standing(folder: Path) -> Standing:
    """The state that the files of `folder` show. A damaged registration is INVALID, and `why` is one line."""
    name = folder.resolve().name
    try:
        return _standing(folder, name)
    except Exception as problem:  # whatever a damaged file provokes is its state
        kind = "" if isinstance(problem, Tampered) else f"{type(problem).__name__}: "
        return Standing(name, str(folder), "INVALID", why=kind + " ".join(str(problem).split()))


def seen(folder: Path) -> Seen:
    """What can be known of the locked study in `folder` now.

    Raises BadInput when it is not locked, Tampered when its documents and its ledger contradict each other.
    """
    held = _held(folder)
    return {
        "probe": {"attempts": _count(held, "probe"), "records": _lines(folder, "probe")},
        "selection": selection.NAME in held.documents,
        "claim": claim.NAME in held.documents,
        "records": _lines(folder, "confirm"),
        "verdict": _word(held),
    }


def digest(folder: Path, name: str) -> str:
    """What the ledger cites of a document: its digest or, of the verdict, that of its file."""
    return files.sha256(folder / name) if name == verdict.NAME else documents.read(folder / name).digest


class _Held(NamedTuple):
    """The documents that are there, by file name, and the ledger."""

    documents: dict[str, Document]
    entries: list[Entry]


def _held(folder: Path) -> _Held:
    locked = lock.read(folder)
    if traces(folder) == [lock.NAME]:
        raise BadInput(f"{folder}: locking it was cut off; run again: python -m protocol.register {folder}")
    entries = ledger.read(folder)
    if [(entry.event, entry.body) for entry in entries[:1]] != [("register", {"lock": locked.digest})]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    found = {}
    for name, (event, field) in CITED.items():
        cited = [entry.body.get(field) for entry in entries if entry.event == event]
        if (folder / name).exists():
            found[name] = documents.read(folder / name, DECLARED[name])
            if cited and cited != [digest(folder, name)]:
                raise Tampered(f"{ledger.NAME}: its {event} line cites another {name}")
        elif cited:
            raise Tampered(f"{name}: missing, and the ledger has its line")
    return _Held(found, entries)


def _standing(folder: Path, name: str) -> Standing:
    present = traces(folder)
    if not present:
        return Standing(name, str(folder), "written")
    if present == [lock.NAME]:
        return Standing(name, str(folder), "locking", lock=lock.read(folder).digest)
    if lock.NAME not in present:
        raise Tampered(f"{lock.NAME}: missing, and {present[0]} is there")
    held = _held(folder)
    locked = held.documents[lock.NAME]
    content, amends = locked.content, locked.content.get("amends")
    closed = ledger.closing(held.entries)
    found = held.documents.get(selection.NAME)
    return Standing(
        name,
        str(folder),
        _state(held),
        why=closed.body.get("reason") if closed else None,
        lock=locked.digest,
        ledger=ledger.at(held.entries),
        swept=selection.swept(locked),
        selected=found.content["selected"]["winner"] if found else None,
        probes=_count(held, "probe"),
        attempts=_count(held, "attempt"),
        records=_recorded(folder, held),
        registered=sum(len(content["items"][task]["confirm"]) for _, task, *_ in content["grid"]),
        after_claim=claim.NAME in held.documents and closed is not None and closed.event != "verdict",
        verdict=_word(held),
        amends=amends and {field: amends[field] for field in ("name", "lock", "after_claim")},
        replicates=(content.get("parent") or {}).get("name"),
        randomness=(content["protocol"]["content"].get("randomness") or {}).get("source"),
        amended=closed.body["lock"] if closed and closed.event == "amended" else None,
    )


def _state(held: _Held) -> State:
    match ledger.closing(held.entries):
        case Entry(event="withdraw"):
            return "withdrawn"
        case Entry(event="amended"):
            return "amended"
        case Entry():
            return "judged"
    if seal.NAME in held.documents:  # a verdict without its line is completed by judging again
        return "sealed"
    return "claimed" if claim.NAME in held.documents else "locked"


def _word(held: _Held) -> str | None:
    found = held.documents.get(verdict.NAME)
    return None if found is None else verdict.word(found)


def _count(held: _Held, event: str) -> int:
    return sum(entry.event == event for entry in held.entries)


def _recorded(folder: Path, held: _Held) -> int:
    sealed = held.documents.get(seal.NAME)
    return sum(sealed.content["found"].values()) if sealed else _lines(folder, "confirm")


def _lines(folder: Path, phase: str) -> int:
    """Whole lines in the shards of a phase."""
    return sum(path.read_bytes().count(b"\n") for path in records.shards(folder / records.FOLDERS[phase]))
