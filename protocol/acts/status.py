"""The state of registrations, their drift, their anchors, and the one next step of each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.output import headline
from analysis.output.phases import lasting, phase
from analysis.rules import full_cache
from protocol import witnesses
from protocol.evidence.audit import amendment, standing
from protocol.evidence.audit.standing import Standing
from protocol.evidence.bytes import files
from protocol.evidence.lock import closure, lock
from protocol.evidence.outside import anchors, history
from protocol.evidence.outside.anchors import Anchor
from protocol.evidence.outside.history import Gone
from protocol.evidence.refusals import BadInput
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import drift
from protocol.running import under_way
from protocol.running.under_way import UnderWay

__all__ = ["Index", "Line", "index", "running"]

TO_RUN = ("locked", "claimed")
WAIT = "nothing: it is running"
OTHERS = ("REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED")  # verdicts besides CONFIRMED


class Line(NamedTuple):
    """A registration as an entry of the index."""

    at: Standing
    drifted: list[str]  # since the lock, for a study that is still to run
    anchors: list[Anchor]
    next: str
    said: str = ""  # for a judged study, as it is printed
    alone: bool = False  # the study has one model
    runs: UnderWay | None = None  # an attempt that has not ended

    def content(self) -> dict[str, Any]:
        about = {
            "said": self.said,
            "drifted": self.drifted,
            "anchors": anchors.word(self.anchors),
            "next": self.next,
            "runs": self.runs and self.runs._asdict() | {"left": self.runs.left},
        }
        return self.at._asdict() | about


class Index(NamedTuple):
    registered: list[Line]
    written: list[Line]  # folders with protocol.toml and nothing else
    counts: dict[str, int]
    gone: Gone | None  # None for a single registration


def index(folder: Path) -> Index:
    """Read the registration in `folder`, or those one level below it. Raises BadInput if there is none."""
    studies = registrations(folder)
    surroundings = cache(environment)
    with phase("reading the registrations"):
        lines = [line(study, surroundings) for study in studies]
    registered = [each for each in lines if each.at.state != "written"]
    written = [each for each in lines if each.at.state == "written"]
    gone = None if Registration(folder) in studies else history.gone(folder)
    return Index(registered, written, count(registered), gone)


def environment() -> dict[str, Any]:
    """Hash what is installed. Takes seconds, and is called only if a study is still to run."""
    with phase("hashing what is installed"):
        return closure.environment()


def registrations(folder: Path) -> list[Registration]:
    """Return the registration that `folder` is, or those one level below it, sorted."""
    if (own := Registration(folder)).known():
        return [own]
    below = [study for path in sorted(folder.glob("*/")) if (study := Registration(path)).known()]
    if not below:
        raise BadInput(f"{folder}: no protocol.toml here or one level below; name a registration")
    return below


def line(study: Registration, surroundings: Callable[[], Mapping[str, Any]]) -> Line:
    """Read the entry of one registration; any unexpected error in its files makes its state unreadable."""
    at = standing.standing(study)
    try:
        return _line(study, at, surroundings)
    except Exception as problem:
        at = standing.unreadable(study, problem)
        return Line(at, [], [], step(at, []))


def _line(study: Registration, at: Standing, surroundings: Callable[[], Mapping[str, Any]]) -> Line:
    differences: list[str] = []
    if at.state in TO_RUN:
        try:
            differences = drifted(study, surroundings())
        except (KeyError, TypeError, AttributeError) as problem:
            at = at._replace(state="INVALID", why=f"{lock.NAME}: is not a whole lock: {problem!r}")
    proofs = anchors.verified(study, witnesses.trusted(study)) if at.lock else []
    anchored = anchors.word(proofs) != "UNANCHORED"
    judged = study.verdict.content["judged"] if at.state == "judged" else {}
    runs = under_way.under_way(study) if at.state in TO_RUN else None
    following = WAIT if runs is not None and runs.pid is not None else step(at, differences, anchored)
    return Line(at, differences, proofs, following, said(judged), bool(headline.alone(judged)), runs)


def said(judged: Mapping[str, Any]) -> str:
    """Return the verdict with the model, if there is only one, and whether the full cache passed its gate."""
    if "contrasts" not in judged:
        return str(judged.get("verdict", ""))
    return headline.line(judged, full_cache.fault(judged))


def running(one: UnderWay) -> str:
    """Return one line about the attempt that is running or was interrupted."""
    counted = f"{one.recorded:,}" + (f" of {one.lanes:,}" if one.lanes else "") + " lanes recorded"
    began = datetime.fromtimestamp(one.began).astimezone().isoformat(" ", "minutes")
    spooled = f"; {one.spool}" if one.spool else ""
    if one.pid is None:
        return f"{one.phase} began {began} and no process here runs it now: {counted}{spooled}"
    new, taken = one.recorded - one.found, (one.last or one.began) - one.began
    speed = f", {60 * new / taken:,.0f} a minute" if new and taken > 0 else ""
    left = f", about {lasting(one.left)} left" if one.left else ""
    return f"{one.phase} runs since {began} as process {one.pid}: {counted}{speed}{left}{spooled}"


def drifted(study: Registration, environment: Mapping[str, Any]) -> list[str]:
    """Return one line for each change for which confirm refuses today, as far as it can be checked without
    torch.
    """
    path = study.folder / PROTOCOL
    now = {PROTOCOL: files.plain_sha256(path)} if files.there(path) else {}
    edited = closure.differences({PROTOCOL: study.lock.content["protocol"]["sha256"]}, now)
    return edited + drift.drifted(study, files.home(), environment)


def step(at: Standing, drifted: Sequence[str], anchored: bool = False) -> str:
    """Return the next step."""
    if at.state in TO_RUN and drifted:
        amend = f"; or: kv-prereg amend {at.folder} <new folder> --reason <why>"
        return "bring back what was locked" + (amend if at.state == "locked" else "")
    match at.state:
        case "written" | "locking":
            return f"kv-prereg register {at.folder}"
        case "locked" if at.swept and not at.selected:
            return f"kv-prereg probe {at.folder}"
        case "locked" | "claimed" | "sealed" if at.replicates:
            parent = Path(at.folder).parent.parent / "registrations" / at.replicates
            return f"kv-prereg replicate {parent}"
        case "locked" if at.anatomy not in (None, standing.LABELLED):  # possible only before the claim
            return f"kv-prereg anatomy {at.folder}"
        case "locked" if at.randomness == "anchor" and not anchored:
            return f"kv-prereg anchor {at.folder} lock --witness ots"
        case "locked" if at.randomness in ("nonce", "beacon"):
            return f"kv-prereg confirm {at.folder} --value FILE"
        case "locked" | "claimed" | "sealed":
            return f"kv-prereg confirm {at.folder}"
        case "judged" | "INVALID" | "cannot tell":
            return f"kv-prereg audit {at.folder}"
        case "withdrawn":
            return "nothing: it stays as it is"
        case "amended":
            after = amendment.successor(Registration(Path(at.folder)))
            if after is None:
                return f"bring back the registration with the lock {at.amended}"
            return f"kv-prereg status {Path(at.folder).parent / after.name}"


def count(registered: Sequence[Line]) -> dict[str, int]:
    """Count the registrations by verdict and by the other states that an index must not hide."""
    judged = [one for one in registered if one.at.state == "judged"]
    words = Counter(one.at.verdict for one in judged)
    states = Counter(one.at.state for one in registered)
    return {
        "registered": len(registered),
        "judged": len(judged),
        **{word: words[word] for word in ("CONFIRMED", *OTHERS)},
        "one_model": sum(one.at.verdict == "CONFIRMED" and one.alone for one in judged),
        **{state: states[state] for state in ("amended", "withdrawn", "INVALID", "cannot tell")},
        "locked": states["locked"] + states["locking"],
        "unfinished": states["claimed"] + states["sealed"],
    }
