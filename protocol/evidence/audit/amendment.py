"""How a registration ends without a verdict: it is withdrawn, or another registration amends it.

Either way all its files remain, its ledger is closed, and the results that had been seen are recorded. An
amendment is a separate registration; its lock's `amends` names its direct parent, the reason, everything that
differs between the two locks, and whether held-out problems had been claimed before, by the parent or by one
that the parent amends in turn.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.audit import standing
from protocol.evidence.audit.standing import Seen
from protocol.evidence.bytes import canonical, fields
from protocol.evidence.bytes.fields import FLAG, Field, OrNull, Table, Text, Whole
from protocol.evidence.findings import CannotTell, NotRun, Unfinished
from protocol.evidence.lock import lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Refusal, Tampered
from protocol.evidence.run import claim, ledger, registration
from protocol.evidence.run.registration import Registration

# The parts of a lock that can change a number. Everything else follows from them or is about the folder.
_PARTS = ("batch", "sources", "data", "weights", "environment")
_PROBED = Table({name: Field(Whole(), name) for name in ("attempts", "records")})
_SEEN = Table(
    {
        "probe": Field(_PROBED, "Of development problems."),
        "selection": Field(FLAG, "Of a sweep."),
        "claim": Field(FLAG, "Of held-out problems."),
        "records": Field(Whole(), "Of held-out problems."),
        "verdict": Field(OrNull(Text()), "The word."),
    }
)
"""The fields of `study_status.Exposure` in a lock."""


def reason(text: str) -> str:
    """Return `text` on one line. Raises BadInput when it is empty or has unprintable characters."""
    if not (line := unicodedata.normalize("NFC", " ".join(text.split()))):
        raise BadInput("--reason: is empty; say why in a sentence that a reader can judge")
    if not line.isprintable():
        raise BadInput("--reason: holds characters that do not print; write it as plain text")
    return line


def withdraw(study: Registration, why: str) -> Seen:
    """Close the ledger of a study with the reason and the results that had been seen; return the latter.

    Raises AlreadyClaimed when the study has its verdict, is closed already, or is being run.
    """
    with claim.running(study):
        seen = standing.seen(study)
        if seen["verdict"]:
            raise AlreadyClaimed(f"{study.folder}: was judged {seen['verdict']}; a verdict is not withdrawn")
        ledger.refuse_closed(study.folder)
        _complete(study)
        ledger.append(study.folder, "withdraw", {"reason": why, "seen": seen})
        return seen


def describe(study: Registration, why: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `amends` for a lock with `content` that amends the lock of `study`.

    Raises BadInput when the two locks do not differ in anything that could change a number.
    """
    changed = diff(study.lock.content, content)
    if not changed:
        raise BadInput(f"{study.folder}: the amendment changes nothing; edit its protocol.toml first")
    seen = standing.seen(study)
    return {
        "name": study.name,
        "lock": study.lock.digest,
        "reason": why,
        "diff": changed,
        "seen": seen,
        "after_claim": after_claim(study.lock, seen),
    }


def after_claim(locked: Lock, seen: Seen) -> bool:
    """Return whether an amendment of `locked` comes after a claim, by `locked` or by a lock before it.

    exposure: the results of `locked` that had been seen.
    """
    return seen["claim"] or bool((locked.content.get("amends") or {}).get("after_claim"))


def diff(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every value that differs between the contents of two locks: {path, was, is}, ordered by path.

    A path names fields of the protocol, indices of lists of equal length, and each file or distribution
    separately; files are compared by digest. A value that only one lock has lacks `was` or `is`.
    """
    return list(_walk(_compared(was), _compared(now)))


def faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in a lock's field `amends` cannot come from `describe_amendment`."""
    if not (about := content.get("amends")):
        return
    if unlike := fields.fault(_SEEN, about["seen"], "amends.seen"):
        yield unlike
        return
    seen = about["seen"]
    if (seen["records"] or seen["verdict"]) and not seen["claim"]:
        yield "amends.seen: has records or a verdict of held-out problems, and no claim"
    if seen["claim"] and not about["after_claim"]:
        yield "amends.after_claim: false, and amends.seen has a claim"
    if not about["diff"]:
        yield "amends.diff: is empty, and an amendment changes something"
    values = dict(_values(_compared(content)))
    for one in about["diff"]:
        held = values.get(one["path"])
        if held != (canonical.dumps(one["is"]) if "is" in one else None):
            yield f"amends.diff: {one['path']!a} is not what this lock has there"


def close(study: Registration, by: Lock) -> None:
    """Close the ledger of `study`, which `amending_lock` amends.

    A ledger that is closed already stays as it is. Raises Tampered when more results of `study` were seen
    than `amending_lock` says, since somebody then went on with it.
    """
    about = by.content["amends"]
    if standing.seen(study) != about["seen"]:
        raise Tampered(
            f"{study.folder}: was gone on with after {by.content['name']} was locked as its amendment; "
            f"register {by.content['name']} anew, in another folder"
        )
    _complete(study)
    if ledger.closing(ledger.read(study.folder)) is None:
        ledger.append(study.folder, "amended", {"lock": by.digest, "reason": about["reason"]})


def successor(study: Registration) -> Registration | None:
    """Return the sibling registration whose lock amends that of `study`; None where there is none."""
    for path in sorted(study.folder.resolve().parent.glob(f"*/{lock.NAME}")):
        beside = Registration(path.parent)
        try:
            about = beside.lock.content.get("amends")
        except Refusal:  # the sibling's audit reports the damage
            continue
        if about and about["lock"] == study.lock.digest:
            return beside
    return None


def begun(study: Registration, new: Path) -> bool:
    """Return whether `new` has the lock that amends `study` while a crash prevented the remaining steps.

    Raises AlreadyClaimed when the amendment is complete, or when another folder amends `study`: only the
    newest registration can be amended.
    """
    folder = study.folder
    closed = ledger.closing(study.entries)
    after = successor(study)
    if after is None:
        if closed and closed.event == "amended":
            raise AlreadyClaimed(
                f"{folder}: was amended by the lock {closed.body.get('lock')}, which no folder beside has; "
                f"bring that back and amend it"
            )
        return False
    if after.folder == new.resolve():
        if closed and Registration(new).entered:
            raise AlreadyClaimed(f"{new}: amends {folder} already; to amend it in turn, name another folder")
        return True
    while further := successor(after):
        after = further
    raise AlreadyClaimed(
        f"{folder}: was amended before; amend the newest: "
        f"kv-prereg amend {folder.parent / after.name} {new} --reason ..."
    )


def refuse_open(study: Registration) -> None:
    """Raise BadInput while the ledger of the registration that `study` amends is still open."""
    amended, folder = _amended(study), study.folder
    if amended and ledger.closing(amended.entries) is None:
        raise BadInput(
            f"{folder}: amending was cut off before {amended.name} was closed; "
            f"run again: kv-prereg amend {folder.parent / amended.name} {folder} --reason ..."
        )


def verify(study: Registration) -> str:
    """Audit the amendment `study` and return a summary.

    Raises NotRun when it is no amendment, CannotTell without the sibling folder of its parent, Unfinished
    while the parent's ledger is open, Tampered when the two do not match.
    """
    about = study.lock.content.get("amends")
    if not about:
        raise NotRun
    name, amended = about["name"], _amended(study)
    if amended is None:
        raise CannotTell(f"of {name}, the lock that it amends ({about['lock']}), no folder is beside it")
    if diff(amended.lock.content, study.lock.content) != about["diff"]:
        raise Tampered(f"amends.diff: is not what differs between the lock of {name} and this one")
    if standing.seen(amended) != about["seen"]:
        raise Tampered(f"amends.seen: is not what the files of {name} show to have been seen")
    if about["after_claim"] != after_claim(amended.lock, about["seen"]):
        raise Tampered(f"amends.after_claim: is not what {name} and the locks before it show")
    closed = ledger.closing(amended.entries)
    if closed is None:
        if {*study.traces()} <= {lock.NAME, ledger.NAME}:  # nothing runs before: see `refuse_unclosed_parent`
            raise Unfinished(f"{name}: its ledger is not closed by this lock yet; run the same amend again")
        raise Tampered(f"{name}: is amended by this lock, and its ledger was not closed by it")
    own = {"lock": study.lock.digest, "reason": about["reason"]}
    if closed.event == "amended" and closed.body != own:
        raise Tampered(
            f"{name}: its ledger was closed by another amendment, the lock {closed.body.get('lock')}"
        )
    when = "after a claim" if about["after_claim"] else "before any claim"
    return f"{name}, {when}; {len(about['diff'])} values differ, as listed"


def ended(study: Registration) -> str:
    """Audit the end of a study other than by a verdict and return a summary.

    Raises NotRun for a study that did not end so, Tampered when other results had been seen than its
    withdrawal says or when another lock amends it, CannotTell when no sibling folder has the amending lock.
    """
    closed = ledger.closing(study.entries)
    if closed is None or closed.event == "verdict":
        raise NotRun
    why = closed.body.get("reason")
    if closed.event == "withdraw":
        seen = standing.seen(study)
        if closed.body.get("seen") != seen:
            raise Tampered(
                f"{ledger.NAME}: its withdrawal says that other things had been seen than are here"
            )
        return f"withdrawn {'after' if seen['claim'] else 'before'} its claim: {why}"
    after = successor(study)
    if after is None:
        raise CannotTell(f"amended by the lock {closed.body.get('lock')}, which no folder beside has")
    if after.lock.digest != closed.body.get("lock"):
        raise Tampered(f"{ledger.NAME}: was closed by another amendment than {after.name}")
    return f"amended by {after.name}: {why}"


def _amended(study: Registration) -> Registration | None:
    """Return the registration that `study` amends, if a sibling folder has its lock."""
    if not (about := study.lock.content.get("amends")):
        return None
    beside = Registration(study.folder.resolve().parent / about["name"])
    return beside if beside.locked_as(about["lock"]) else None


def _complete(study: Registration) -> None:
    """Add ledger lines that a crash prevented, so that a closed ledger cites all documents."""
    for name, (event, field) in registration.CITED.items():
        if study.has(name):
            ledger.ensure(study.folder, event, {field: study.digest(name)})


def _compared(content: Mapping[str, Any]) -> Any:
    """Return the compared part of a lock's content, in the form that reading a lock gives."""
    parts = {part: content[part] for part in _PARTS if part in content}
    return canonical.loads(canonical.dumps({"protocol": content["protocol"]["content"], **parts}), lock.NAME)


def _values(value: Any, *path: str) -> Iterator[tuple[str, bytes]]:
    """Yield `value` and every value in it as (path as in `diff_locks`, canonical bytes)."""
    yield "/".join(path), canonical.dumps(value)
    if isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else ((str(n), one) for n, one in enumerate(value))
        for name, one in named:
            yield from _values(one, *path, name)


def _walk(was: Any, now: Any, *path: str) -> Iterator[dict[str, Any]]:
    if canonical.dumps(was) == canonical.dumps(now):
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            if name in was and name in now:
                yield from _walk(was[name], now[name], *path, name)
            else:
                side = {"was": was[name]} if name in was else {"is": now[name]}
                yield {"path": "/".join((*path, name)), **side}
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from _walk(before, after, *path, str(place))
    else:
        yield {"path": "/".join(path), "was": was, "is": now}
