"""The status of a registration from its files: its state, and which results somebody could have seen.

Only the statements of the files are read. Whether they verify is for the audit: no digest of a record is
recomputed and nothing is derived again.
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

LABELLED = "judged"  # the anatomy has its verdict
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
    """The results of a study that could be known at some moment."""

    probe: Probed
    selection: bool
    claim: bool
    records: int  # of held-out problems
    verdict: str | None


class Standing(NamedTuple):
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
    replicates: str | None = None  # name of the study that this one repeats
    randomness: str | None = None  # source of its late value
    amended: str | None = None  # the lock that amends this one
    anatomy: str | None = None  # progress of [anatomy]: "judged", or the count of traces


def standing(study: Registration) -> Standing:
    """Return the status that the files of a study show.

    A damaged registration is INVALID, one that this machine cannot read is "cannot tell"; `why` is one line.
    """
    try:
        return _standing(study)
    except Exception as problem:  # any exception from a damaged file determines the state
        return unreadable(study, problem)


def unreadable(study: Registration, problem: Exception) -> Standing:
    """Return the status of a registration whose reading raised `error`."""
    if remedy := trouble(problem):
        return Standing(study.name, str(study.folder), "cannot tell", why=remedy)
    kind = "" if isinstance(problem, Tampered) else f"{type(problem).__name__}: "
    return Standing(study.name, str(study.folder), "INVALID", why=kind + line(problem))


def seen(study: Registration) -> Seen:
    """Return which results of a locked study can be known now.

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
    """Raise as `read_exposure` does."""
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
    if study.has(registration.SEAL):  # judging again adds the missing line of a verdict
        return "sealed"
    return "claimed" if study.has(registration.CLAIM) else "locked"


def _word(study: Registration) -> str | None:
    return verdict.word(study.verdict) if study.has(verdict.NAME) else None


def _recorded(study: Registration) -> int:
    sealed = study.has(registration.SEAL)
    return sum(study.seal.content["found"].values()) if sealed else _lines(study, "confirm")


def _lines(study: Registration, phase: str) -> int:
    """Return the number of complete lines in the shards of a phase."""
    return sum(map(files.lines, records.shards(study.place(phase))))
