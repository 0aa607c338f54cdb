"""The index of registrations: where each one stands, and its one next step.

    python -m protocol.status                 every registration below registrations/
    python -m protocol.status registrations/quickstart

Only a locked folder counts as registered. Reads files, no torch and no model; whether the evidence verifies
is for python -m protocol.audit. Of a study that is still to run it says what has drifted since the lock;
weights that were hashed before are not hashed again while the file is the same by size, times and inode.

Exit status: 0; 2 not a registration; 3 a registration is INVALID: its files contradict each other.
"""

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from protocol import command, witnesses
from protocol.evidence.audit import amendment, standing
from protocol.evidence.audit.standing import PROTOCOL, Standing
from protocol.evidence.bytes import files
from protocol.evidence.lock import closure, lock
from protocol.evidence.outside import anchors, history
from protocol.evidence.outside.anchors import Anchor
from protocol.evidence.outside.history import Gone
from protocol.evidence.refusals import BadInput
from protocol.locked import drift

WIDTH = 110
TO_RUN = ("locked", "claimed")
OTHERS = ("REFUTED", "INCONCLUSIVE", "DEVIATED")  # what a rule says besides CONFIRMED


class Line(NamedTuple):
    """A registration as the index shows it."""

    at: Standing
    drifted: list[str]  # since the lock; of a study that is still to run
    anchors: list[Anchor]
    next: str

    def content(self) -> dict[str, Any]:
        about = {"drifted": self.drifted, "anchors": anchors.word(self.anchors), "next": self.next}
        return self.at._asdict() | about


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.status", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("registrations"))
    args = parser.parse_args(argv)

    def act() -> int:
        folders = found(args.folder)
        surroundings = cache(closure.environment)  # seconds, and only for studies that are still to run
        lines = [line(folder, surroundings) for folder in folders]
        registered = [one for one in lines if one.at.state != "written"]
        written = [one for one in lines if one.at.state == "written"]
        counts = count(registered)
        gone = None if folders == [args.folder] else history.gone(args.folder)
        values = {
            "registrations": [one.content() for one in registered],
            "written": [one.content() for one in written],
            "counts": counts,
            "gone": gone and gone._asdict(),
        }
        command.say(args.json, text(registered, written, counts, gone), values)
        return 3 if counts["INVALID"] else 0

    return command.answer(args.json, act)


def found(folder: Path) -> list[Path]:
    """The registration that `folder` is, or those one level below it, sorted."""
    if standing.known(folder):
        return [folder]
    below = sorted(path for path in folder.glob("*/") if standing.known(path))
    if not below:
        raise BadInput(f"{folder}: no protocol.toml here or one level below; name a registration")
    return below


def line(folder: Path, surroundings: Callable[[], Mapping[str, Any]]) -> Line:
    at = standing.standing(folder)
    found: list[str] = []
    if at.state in TO_RUN:
        try:
            found = drifted(folder, surroundings())
        except (KeyError, TypeError, AttributeError) as problem:
            at = at._replace(state="INVALID", why=f"{lock.NAME}: is not a whole lock: {problem!r}")
    proofs = anchors.verified(folder, witnesses.trusted(folder)) if at.lock else []
    anchored = anchors.word(proofs) != "UNANCHORED"
    return Line(at, found, proofs, step(at, found, anchored))


def drifted(folder: Path, environment: Mapping[str, Any]) -> list[str]:
    """One line for each change for which confirm refuses today, as far as it can be told without torch."""
    locked, path = lock.read(folder), folder / PROTOCOL
    now = {PROTOCOL: files.sha256(path)} if path.is_file() else {}
    found = closure.differences({PROTOCOL: locked.content["protocol"]["sha256"]}, now)
    return found + drift.drifted(locked, files.home(), environment)


def step(at: Standing, drifted: Sequence[str], anchored: bool = False) -> str:
    """The one thing to do next."""
    if at.state in TO_RUN and drifted:
        amend = f"; or: python -m protocol.amend {at.folder} <new folder> --reason <why>"
        return "bring back what was locked" + (amend if at.state == "locked" else "")
    match at.state:
        case "written" | "locking":
            return f"python -m protocol.register {at.folder}"
        case "locked" if at.swept and not at.selected:
            return f"python -m protocol.probe {at.folder}"
        case "locked" | "claimed" | "sealed" if at.replicates:
            parent = Path(at.folder).parent.parent / "registrations" / at.replicates
            return f"python -m protocol.replicate {parent}"
        case "locked" if at.randomness == "anchor" and not anchored:
            return f"python -m protocol.anchor {at.folder} lock --witness ots"
        case "locked" if at.randomness in ("nonce", "beacon"):
            return f"python -m protocol.confirm {at.folder} --value FILE"
        case "locked" | "claimed" | "sealed":
            return f"python -m protocol.confirm {at.folder}"
        case "judged" | "INVALID":
            return f"python -m protocol.audit {at.folder}"
        case "withdrawn":
            return "nothing: it stays as it is"
        case "amended":
            after = amendment.successor(Path(at.folder), str(at.lock))
            if after is None:
                return f"bring back the registration with the lock {at.amended}"
            return f"python -m protocol.status {Path(at.folder).parent / after.name}"


def count(registered: Sequence[Line]) -> dict[str, int]:
    """How many are registered, by verdict and by the other states that an index must not hide."""
    words = Counter(one.at.verdict for one in registered if one.at.state == "judged")
    states = Counter(one.at.state for one in registered)
    return {
        "registered": len(registered),
        **{word: words[word] for word in ("CONFIRMED", *OTHERS)},
        **{state: states[state] for state in ("amended", "withdrawn", "INVALID")},
        "unfinished": states["claimed"] + states["sealed"],
    }


def text(
    registered: Sequence[Line], written: Sequence[Line], counts: dict[str, int], gone: Gone | None
) -> str:
    margin = 2 + max(len(one.at.name) for one in (*registered, *written))
    parts = [part for one in registered for part in block(one, margin)]
    if written:
        parts += ["", "written, not locked:"]
        parts += [f"{one.at.name:<{margin}}next: {one.next}" for one in written]
    return "\n".join([*parts, "", total(counts), *absent(gone)]).lstrip("\n")


def block(one: Line, margin: int) -> list[str]:
    """The lines of one registration: what it is, what else to know of it, what to do next."""
    lines = textwrap.wrap(headline(one), WIDTH - margin, break_long_words=False)
    for remark in remarks(one):
        lines += textwrap.wrap(remark, WIDTH - margin, break_long_words=False)
    lines.append(f"next: {one.next}")
    return [f"{one.at.name if place == 0 else '':<{margin}}{each}" for place, each in enumerate(lines)]


def headline(one: Line) -> str:
    """Its state, its attempts, its ledger."""
    at = one.at
    parts = [state(one)]
    if at.probes:
        parts.append(f"probed {times(at.probes)}")
    if at.attempts:
        aborted = at.attempts - (at.state in ("sealed", "judged"))
        parts.append(f"{times(at.attempts, 'attempt')}" + (f", {aborted} aborted" if aborted else ""))
    if at.ledger:
        parts.append(f"ledger: {times(at.ledger['count'], 'line')}, head {at.ledger['head'][:8]}")
    return "; ".join(parts)


def state(one: Line) -> str:
    at = one.at
    more = f" (and {len(one.drifted) - 1} more)" if len(one.drifted) > 1 else ""
    drifted = f", drifted: {one.drifted[0]}{more}" if one.drifted else ""
    witnessed = "ANCHORED" if anchors.word(one.anchors) != "UNANCHORED" else "UNANCHORED"
    match at.state:
        case "judged":
            return f"{at.verdict}, {witnessed}"
        case "locked":
            chosen = f", {at.selected} selected" if at.selected else ", nothing selected" if at.swept else ""
            return f"locked{chosen}{drifted}"
        case "claimed":
            return f"claimed, {at.records} of {at.registered} records{drifted}"
        case "sealed":
            return "sealed, not judged"
        case "withdrawn" | "amended":
            return f"{at.state} {'after' if at.after_claim else 'before'} its claim"
        case "INVALID":
            return f"INVALID: {at.why}"
    return "locking was cut off"


def remarks(one: Line) -> list[str]:
    at = one.at
    lines = []
    if at.state in ("withdrawn", "amended"):
        lines.append(f"because: {at.why}")
    if at.amends:
        late = (
            "after a claim, so DEVIATED whatever the rule says"
            if at.amends["after_claim"]
            else "before any claim"
        )
        lines.append(f"amends {at.amends['name']}, {late}")
    if (word := anchors.word(one.anchors)) != "UNANCHORED":
        lines.append(word)
    return lines + [proof.line() for proof in one.anchors if proof.status != "held"]


def total(counts: dict[str, int]) -> str:
    others = [f"{counts[word]} {word}" for word in (*OTHERS, "INVALID") if counts[word]]
    listed = f" ({', '.join(others)})" if others else ""
    left = f"{counts['amended']} amended, {counts['withdrawn']} withdrawn"
    return (
        f"{counts['registered']} registered, {counts['CONFIRMED']} confirmed{listed}; "
        f"{left}, {counts['unfinished']} claimed and unfinished"
    )


def absent(gone: Gone | None) -> list[str]:
    """Registrations of which only git still knows."""
    if gone is None:
        return []
    lines = [f"gone, and git has the lock: {', '.join(gone.names)}"] if gone.names else []
    return (
        lines
        if gone.told
        else [*lines, "whether others are gone cannot be told: git's history is not whole here"]
    )


def times(number: int, what: str = "time") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


if __name__ == "__main__":
    sys.exit(main())
