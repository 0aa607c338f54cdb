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

from analysis.rules import verdict_counts
from protocol import command
from protocol.acts import status
from protocol.acts.status import IndexEntry
from protocol.evidence.external import anchors
from protocol.evidence.external.git_history import MissingRegistrations
from protocol.formats import terms

WIDTH = 110
# Words of the output that the help explains.
TERMS = (
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
    *(
        "withdrawn",
        "amended",
        "INVALID",
        "cannot tell",
        *verdict_counts.ALWAYS_COUNTED,
        *verdict_counts.COUNTED_IF_ANY,
        "for MODEL alone",
    ),
    *("ANCHORED", "UNANCHORED", "ledger", "head"),
)


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("protocol.status", __doc__)
    parser.epilog = terms.format_terms(*TERMS)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("registrations"))
    args = parser.parse_args(argv)
    return command.execute(args.json, lambda: act(args.folder, args.json))


def act(folder: Path, as_json: bool) -> int:
    registered, written, counts, gone = status.read_index(folder)
    values = {
        "registrations": [entry.content() for entry in registered],
        "written": [entry.content() for entry in written],
        "counts": counts,
        "gone": gone and gone._asdict(),
    }
    command.print_result(as_json, format_index(registered, written, counts, gone), values)
    return 3 if counts["INVALID"] else 7 if counts["cannot tell"] else 0


def format_index(
    registered: Sequence[IndexEntry],
    written: Sequence[IndexEntry],
    counts: dict[str, int],
    gone: MissingRegistrations | None,
) -> str:
    margin = 2 + max(len(entry.status.name) for entry in (*registered, *written))
    parts = [part for entry in registered for part in format_entry(entry, margin)]
    if written:
        parts += ["", "written, not locked:"]
        parts += [f"{entry.status.name:<{margin}}next: {entry.next_step}" for entry in written]
    return "\n".join([*parts, "", verdict_counts.format_counts(counts), *format_gone(gone)]).lstrip("\n")


def format_entry(entry: IndexEntry, margin: int) -> list[str]:
    """Format one registration: its state, remarks and the next step."""
    lines = textwrap.wrap(format_headline(entry), WIDTH - margin, break_long_words=False)
    for remark in list_remarks(entry):
        lines += textwrap.wrap(remark, WIDTH - margin, break_long_words=False)
    lines.append(f"next: {entry.next_step}")
    return [f"{entry.status.name if position == 0 else '':<{margin}}{line}" for position, line in enumerate(lines)]


def format_headline(entry: IndexEntry) -> str:
    """Format the state, the attempts and the ledger of a registration."""
    study = entry.status
    parts = [format_state(entry)]
    if study.probes:
        parts.append(f"probed {format_count(study.probes)}")
    if study.attempts:
        is_running = entry.attempt is not None and entry.attempt.pid is not None
        aborted = study.attempts - (study.state in ("sealed", "judged") or is_running)
        parts.append(f"{format_count(study.attempts, 'attempt')}" + (f", {aborted} aborted" if aborted else ""))
    if study.ledger:
        parts.append(f"ledger: {format_count(study.ledger['count'], 'line')}, head {study.ledger['head'][:8]}")
    return "; ".join(parts)


def format_state(entry: IndexEntry) -> str:
    study = entry.status
    more = f" (and {len(entry.drift) - 1} more)" if len(entry.drift) > 1 else ""
    drifted = f", drifted: {entry.drift[0]}{more}" if entry.drift else ""
    witnessed = "ANCHORED" if anchors.format_anchoring(entry.anchors) != "UNANCHORED" else "UNANCHORED"
    match study.state:
        case "judged":
            return f"{entry.verdict_line}, {witnessed}"
        case "locked":
            chosen = f", {study.selected} selected" if study.selected else ", nothing selected" if study.swept else ""
            return f"locked{chosen}{drifted}"
        case "claimed":
            return f"claimed, {study.records} of {study.registered} records{drifted}"
        case "sealed":
            return "sealed, not judged"
        case "withdrawn" | "amended":
            return f"{study.state} {'after' if study.after_claim else 'before'} its claim"
        case "INVALID" | "cannot tell":
            return f"{study.state}: {study.why}"
    return "locking was cut off"


def list_remarks(entry: IndexEntry) -> list[str]:
    study = entry.status
    lines = []
    if entry.attempt is not None:
        lines.append(status.format_running(entry.attempt))
    if study.state in ("withdrawn", "amended"):
        lines.append(f"because: {study.why}")
    if study.amends:
        late = (
            "after a claim, so DEVIATED whatever the rule says" if study.amends["after_claim"] else "before any claim"
        )
        lines.append(f"amends {study.amends['name']}, {late}")
    if (anchoring := anchors.format_anchoring(entry.anchors)) != "UNANCHORED":
        lines.append(anchoring)
    return lines + [proof.format_line() for proof in entry.anchors if proof.status != "held"]


def format_gone(gone: MissingRegistrations | None) -> list[str]:
    """Format the registrations that exist only in the git history."""
    if gone is None:
        return []
    lines = [f"gone, and git has the lock: {', '.join(gone.names)}"] if gone.names else []
    return (
        lines
        if gone.is_complete
        else [*lines, "whether others are gone cannot be told: git's history is not whole here"]
    )


def format_count(number: int, noun: str = "time") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


if __name__ == "__main__":
    sys.exit(main())
