"""Where a registration stands, from its files: its state, and what somebody could have seen of it.

Read here is what the files say. Digests of records are not computed again, nor is anything derived: whether
the evidence verifies is for the audit.
"""

from typing import Any, Literal, NamedTuple, TypedDict

from protocol.evidence.bytes import files
from protocol.evidence.findings import line, trouble
from protocol.evidence.lock import lock
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import anatomies, ledger, records, registration, verdict
from protocol.evidence.run.ledger import Entry, Head
from protocol.evidence.run.registration import Registration

__all__ = ["LABELLED", "Seen", "Standing", "seen", "standing", "unreadable"]

LABELLED = "judged"  # of an anatomy
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
    anatomy: str | None = None  # how far [anatomy] is: "judged", or traces of those that are due


def standing(study: Registration) -> Standing:
    """The state that the files of a study show. A damaged registration is INVALID, one that this machine
    cannot read is "cannot tell", and `why` is one line.
    """
    try:
        return _standing(study)
    except Exception as problem:  # whatever a damaged file provokes is its state
        return unreadable(study, problem)


def unreadable(study: Registration, problem: Exception) -> Standing:
    """Where a registration stands of which reading provoked `problem`."""
    if remedy := trouble(problem):
        return Standing(study.name, str(study.folder), "cannot tell", why=remedy)
    kind = "" if isinstance(problem, Tampered) else f"{type(problem).__name__}: "
    return Standing(study.name, str(study.folder), "INVALID", why=kind + line(problem))


def seen(study: Registration) -> Seen:
    """What can be known of a locked study now.

    Raises BadInput when it is not locked, Tampered when its documents and its ledger contradict each other.
    """
    now = study.anew()
    _refuse_contradiction(now)
    return {
        "probe": {"attempts": now.count("probe"), "records": _lines(now, "probe")},
        "selection": now.has(registration.SELECTION),
        "claim": now.has(registration.CLAIM),
        "records": _lines(now, "confirm"),
        "verdict": _word(now),
    }


def _refuse_contradiction(study: Registration) -> None:
    """As `seen` raises."""
    locked = study.lock
    if study.traces() == [lock.NAME]:
        raise BadInput(
            f"{study.folder}: locking it was cut off; run again: kv-prereg register {study.folder}"
        )
    if [(entry.event, entry.body) for entry in study.entries[:1]] != [("register", {"lock": locked.digest})]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    for name, (event, _) in registration.CITED.items():
        cited = study.cited(name)
        if study.has(name):
            digest = study.digest(name)
            if cited and cited != [digest]:
                raise Tampered(f"{ledger.NAME}: its {event} line cites another {name}")
        elif cited:
            raise Tampered(f"{name}: missing, and the ledger has its line")


def _standing(study: Registration) -> Standing:
    present = study.traces()
    if not present:
        return Standing(study.name, str(study.folder), "written")
    if present == [lock.NAME]:
        return Standing(study.name, str(study.folder), "locking", lock=study.lock.digest)
    if lock.NAME not in present:
        raise Tampered(f"{lock.NAME}: missing, and {present[0]} is there")
    _refuse_contradiction(study)
    content, amends = study.lock.content, study.lock.content.get("amends")
    closed = ledger.closing(study.entries)
    chosen = study.selection.content["selected"] if study.has(registration.SELECTION) else None
    return Standing(
        study.name,
        str(study.folder),
        _state(study),
        why=closed.body.get("reason") if closed else None,
        lock=study.lock.digest,
        ledger=ledger.at(study.entries),
        swept=study.swept,
        selected=chosen["winner"] if chosen else None,
        probes=study.count("probe"),
        attempts=study.count("attempt"),
        records=_recorded(study),
        registered=sum(len(content["items"][task]["confirm"]) for _, task, *_ in content["grid"]),
        after_claim=study.has(registration.CLAIM) and closed is not None and closed.event != "verdict",
        verdict=_word(study),
        amends=amends and {field: amends[field] for field in ("name", "lock", "after_claim")},
        replicates=(study.parent or {}).get("name"),
        randomness=(study.registered.get("randomness") or {}).get("source"),
        amended=closed.body["lock"] if closed and closed.event == "amended" else None,
        anatomy=_labelled(study),
    )


def _labelled(study: Registration) -> str | None:
    if anatomies.registered(study.lock.content) is None:
        return None
    if study.count("anatomy-judged"):
        return LABELLED
    path = study.folder / registration.ANATOMY / anatomies.TRACES
    done = files.lines(path) if files.there(path) else 0
    return f"{done} of {len(anatomies.due(study.lock.content))} traces"


def _state(study: Registration) -> State:
    match ledger.closing(study.entries):
        case Entry(event="withdraw"):
            return "withdrawn"
        case Entry(event="amended"):
            return "amended"
        case Entry():
            return "judged"
    if study.has(registration.SEAL):  # a verdict without its line is completed by judging again
        return "sealed"
    return "claimed" if study.has(registration.CLAIM) else "locked"


def _word(study: Registration) -> str | None:
    return verdict.word(study.verdict) if study.has(verdict.NAME) else None


def _recorded(study: Registration) -> int:
    sealed = study.has(registration.SEAL)
    return sum(study.seal.content["found"].values()) if sealed else _lines(study, "confirm")


def _lines(study: Registration, phase: str) -> int:
    """Whole lines in the shards of a phase."""
    return sum(map(files.lines, records.shards(study.place(phase))))
