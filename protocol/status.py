"""The index of registrations: where each one stands, and its one next step.

    kv-prereg status                 every registration below registrations/
    kv-prereg status registrations/quickstart

Only a locked folder counts as registered. Reads files, no torch and no model; whether the evidence verifies
is for kv-prereg audit. Of a study that is still to run it says what has drifted since the lock;
weights that were hashed before are not hashed again while the file is the same by size, times and inode.

Exit status: 0; 2 not a registration; 3 a registration is INVALID: its files contradict each other; 7 one
cannot be read here (rights, memory, line endings), and what to do about it is said.
"""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from analysis.output import counted, terms
from protocol import command
from protocol.acts import status
from protocol.acts.status import Line
from protocol.evidence.outside import anchors
from protocol.evidence.outside.history import Gone

WIDTH = 110
# Words of the output that the help explains.
WORDS = (
    *(
        "written",
        "locking was cut off",
        "locked",
        "drifted",
        "claimed",
        "attempt",
        "unfinished",
        "sealed",
        "judged",
    ),
    *("withdrawn", "amended", "INVALID", "cannot tell", *counted.SAID, *counted.RARE, "for MODEL alone"),
    *("ANCHORED", "UNANCHORED", "ledger", "head"),
)


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.status", __doc__)
    parser.epilog = terms.told(*WORDS)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("registrations"))
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args.folder, args.json))


def act(folder: Path, as_json: bool) -> int:
    registered, written, counts, gone = status.index(folder)
    values = {
        "registrations": [each.content() for each in registered],
        "written": [each.content() for each in written],
        "counts": counts,
        "gone": gone and gone._asdict(),
    }
    command.say(as_json, text(registered, written, counts, gone), values)
    return 3 if counts["INVALID"] else 7 if counts["cannot tell"] else 0


def text(
    registered: Sequence[Line], written: Sequence[Line], counts: dict[str, int], gone: Gone | None
) -> str:
    margin = 2 + max(len(one.at.name) for one in (*registered, *written))
    parts = [part for one in registered for part in block(one, margin)]
    if written:
        parts += ["", "written, not locked:"]
        parts += [f"{one.at.name:<{margin}}next: {one.next}" for one in written]
    return "\n".join([*parts, "", counted.total(counts), *absent(gone)]).lstrip("\n")


def block(one: Line, margin: int) -> list[str]:
    """Format one registration: its state, remarks and the next step."""
    lines = textwrap.wrap(headline(one), WIDTH - margin, break_long_words=False)
    for remark in remarks(one):
        lines += textwrap.wrap(remark, WIDTH - margin, break_long_words=False)
    lines.append(f"next: {one.next}")
    return [f"{one.at.name if place == 0 else '':<{margin}}{each}" for place, each in enumerate(lines)]


def headline(one: Line) -> str:
    """Format the state, the attempts and the ledger of a registration."""
    at = one.at
    parts = [state(one)]
    if at.probes:
        parts.append(f"probed {times(at.probes)}")
    if at.attempts:
        runs = one.runs is not None and one.runs.pid is not None
        aborted = at.attempts - (at.state in ("sealed", "judged") or runs)
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
            return f"{one.said}, {witnessed}"
        case "locked":
            chosen = f", {at.selected} selected" if at.selected else ", nothing selected" if at.swept else ""
            return f"locked{chosen}{drifted}"
        case "claimed":
            return f"claimed, {at.records} of {at.registered} records{drifted}"
        case "sealed":
            return "sealed, not judged"
        case "withdrawn" | "amended":
            return f"{at.state} {'after' if at.after_claim else 'before'} its claim"
        case "INVALID" | "cannot tell":
            return f"{at.state}: {at.why}"
    return "locking was cut off"


def remarks(one: Line) -> list[str]:
    at = one.at
    lines = []
    if one.runs is not None:
        lines.append(status.running(one.runs))
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


def absent(gone: Gone | None) -> list[str]:
    """Format the registrations that exist only in the git history."""
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
