"""The index of registrations: where each one stands, and its one next step.

    kv-prereg status                 every registration below registrations/
    kv-prereg status registrations/quickstart

Only a locked folder counts as registered. Reads files, no torch and no model. The records of a verdict are
judged again, unless it ships with kv-prereg; whether the evidence verifies is for kv-prereg audit. Of a study
that is still to run it says what has drifted since the lock; weights that were hashed before are not hashed
again while the file is the same by size, times and inode.

Exit status: 0; 2 not a registration; 3 a registration is INVALID: its files contradict each other; 7 one
cannot be read here (rights, memory, line endings), and what to do about it is said.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.judgement.shipped_verdicts import SHIPPED_VERDICTS
from analysis.rules import full_cache_gate, verdict_counts, verdict_line
from protocol import command, witnesses
from protocol.evidence.audit import amendment, study_status
from protocol.evidence.audit.study_status import StudyStatus
from protocol.evidence.external import anchors, missing_registrations
from protocol.evidence.external.anchors import Anchor
from protocol.evidence.external.missing_registrations import MissingRegistrations
from protocol.evidence.registration import PROTOCOL, VERDICT, Registration
from protocol.formats import escape, files
from protocol.formats.copied_folders import find_copies
from protocol.formats.progress_display import format_duration, phase
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.terminal import line_width, wrap_text
from protocol.formats.text_tables import format_count
from protocol.formats.vocabulary import VERDICT_WORDS
from protocol.lock import closure, installed_files, lock
from protocol.run import run_status
from protocol.run.run_status import RunStatus
from protocol.workspace import run_inputs

# Words of the output that the help explains.
TERMS = (
    *(
        "written",
        "locking was interrupted",
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

RUNNABLE_STATES = ("locked", "claimed")
RUNNING_STEP = "nothing: it is running"


class IndexEntry(NamedTuple):
    """A registration as an entry of the index."""

    status: StudyStatus
    drift: list[str]  # since the lock, for a study that is still to run
    anchors: list[Anchor]
    next_step: str
    verdict_line: str = ""  # for a judged study, as it is printed
    is_single_model: bool = False  # the study has one model
    is_unwitnessed: bool = False  # it is CONFIRMED, and no witness was verified
    attempt: RunStatus | None = None  # an attempt that has not ended

    def content(self) -> dict[str, Any]:
        about = {
            "said": self.verdict_line,
            "drifted": self.drift,
            "anchors": anchors.format_anchoring(self.anchors),
            "next": self.next_step,
            "runs": self.attempt and self.attempt._asdict() | {"left": self.attempt.seconds_left},
            "instruments": dict(self.status.instruments),
        }
        return self.status._asdict() | about


class Index(NamedTuple):
    registered: list[IndexEntry]
    unlocked: list[IndexEntry]  # folders with protocol.toml and nothing else
    counts: dict[str, int]
    removed: MissingRegistrations | None  # None for a single registration
    copies: dict[str, str]  # by folder of a copy, which is not counted, the one with the same lock


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("status", __doc__, TERMS)
    parser.add_argument("folder", type=command.read_folder, nargs="?", default=Path("registrations"))
    return command.run(parser, argv, command.Options(), act)


def act(args: command.Options) -> int:
    registered, written, counts, gone, copies = read_index(args.folder)
    values = {
        "registrations": [entry.content() for entry in registered],
        "written": [entry.content() for entry in written],
        "counts": counts,
        "gone": gone and {"names": gone.names, "told": gone.is_complete},
        "copies": copies,
    }
    text = format_index(registered, written, counts, gone)
    notes = [f"{name}: a copy of {original}, with its lock; not counted" for name, original in copies.items()]
    command.print_result(args.json, "\n".join([text, *notes]), values)
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
    lines = wrap_text(format_headline(entry), line_width() - margin)
    for remark in list_remarks(entry):
        lines += wrap_text(remark, line_width() - margin)
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
    return "locking was interrupted"


def list_remarks(entry: IndexEntry) -> list[str]:
    study = entry.status
    lines = []
    if entry.attempt is not None:
        lines.append(format_running(entry.attempt))
    if study.state in ("withdrawn", "amended"):
        lines.append(f"because: {study.why}")
    if study.amends:
        late = (
            "after a claim, so the verdict is DEVIATED whatever the rule says"
            if study.amends["after_claim"]
            else "before any claim"
        )
        lines.append(f"amends {study.amends['name']}, {late}")
    if (anchoring := anchors.format_anchoring(entry.anchors)) != "UNANCHORED":
        lines.append(anchoring)
    return lines + [proof.format_line() for proof in entry.anchors if proof.status != "held"]


def format_gone(gone: MissingRegistrations | None) -> list[str]:
    """Format the registrations that exist only in the git history."""
    if gone is None:
        return []
    lines = [f"gone, although git has the lock: {', '.join(gone.names)}"] if gone.names else []
    return (
        lines if gone.is_complete else [*lines, "other registrations may be gone too: git's history is incomplete here"]
    )


def read_index(folder: Path) -> Index:
    """Read the registration in `folder`, or those one level below it. Raises BadInput if there is none."""
    studies = find_registrations(folder)
    copies = find_copies(study.folder for study in studies)
    studies = [study for study in studies if study.folder not in copies]
    environment_of_machine = cache(installed_environment)
    with phase("reading the registrations"):
        entries = [read_entry(study, environment_of_machine) for study in studies]
    registered = [entry for entry in entries if entry.status.state != "written"]
    unlocked = [entry for entry in entries if entry.status.state == "written"]
    removed = None if Registration(folder) in studies else missing_registrations.find_missing(folder)
    names = {copy.name: original.name for copy, original in copies.items()}
    return Index(registered, unlocked, count_states(registered), removed, names)


def installed_environment() -> dict[str, Any]:
    """Hash what is installed. Takes seconds, and is called only if a study is still to run."""
    with phase("hashing installed files"):
        return installed_files.environment()


def find_registrations(folder: Path) -> list[Registration]:
    """Return the registration that `folder` is, or those one level below it, sorted."""
    if (registration := Registration(folder)).is_registration():
        return [registration]
    below = [study for path in sorted(folder.glob("*/")) if (study := Registration(path)).is_registration()]
    if broken := [study.folder for study in below if not escape.is_one_line(study.folder.name)]:
        raise BadInput(f"{broken[0]!a}: has a line break in its name; rename the folder")
    if not below:
        raise BadInput(f"{folder}: no protocol.toml here or one level below; name a registration")
    return below


def read_entry(study: Registration, installed: Callable[[], Mapping[str, Any]]) -> IndexEntry:
    """Read the entry of one registration; any unexpected error in its files makes its state unreadable."""
    status = study_status.read_status(study)
    try:
        return _read_entry(study, status, installed)
    except Exception as problem:
        status = study_status.unreadable_status(study, problem)
        return IndexEntry(status, [], [], next_step(status, []))


def _read_entry(study: Registration, status: StudyStatus, installed: Callable[[], Mapping[str, Any]]) -> IndexEntry:
    differences: list[str] = []
    if status.state in RUNNABLE_STATES:
        try:
            differences = find_drift(study, installed())
        except (KeyError, TypeError, AttributeError) as problem:
            status = status._replace(state="INVALID", why=f"{lock.NAME}: is not a complete lock: {problem!r}")
    proofs = anchors.verify_anchors(study, witnesses.make_witnesses(study)) if status.lock else []
    is_anchored = anchors.format_anchoring(proofs) != "UNANCHORED"
    judged = _read_judgement(study) if status.state == "judged" else {}
    if anchors.is_lock_witnessed(study, proofs):
        judged = verdict_line.witnessed(judged)
    runs_here = status.state in RUNNABLE_STATES and not status.is_outside
    attempt = run_status.read_run_status(study) if runs_here else None
    following_step = (
        RUNNING_STEP if attempt is not None and attempt.pid is not None else next_step(status, differences, is_anchored)
    )
    return IndexEntry(
        status,
        differences,
        proofs,
        following_step,
        " ".join(format_verdict(judged).split()),
        bool(verdict_line.format_single_model(judged)),
        verdict_line.verdict_word(judged) != judged.get("verdict") if judged else False,
        attempt,
    )


def _read_judgement(study: Registration) -> Mapping[str, Any]:
    """Return the judgement of a study, if the records support it; those that ship are known by digest. Raises Tampered
    for another one, of which no word is printed.
    """
    if study.digest(VERDICT) not in SHIPPED_VERDICTS:
        with phase(f"judging {study.name} again"):
            from analysis.judgement import recorded_judgement  # loads what judges

            recorded_judgement.refuse_unsupported_as(Tampered, study.folder)
    judged: Mapping[str, Any] = study.verdict.content["judged"]
    return judged


def format_verdict(judged: Mapping[str, Any]) -> str:
    """Return the verdict with the model, if there is only one, and whether the full cache passed its gate."""
    if "contrasts" not in judged:
        return str(judged.get("verdict", ""))
    return verdict_line.format_line(judged, full_cache_gate.describe_failure(judged))


def format_running(attempt: RunStatus) -> str:
    """Return one line about the attempt that is running or was interrupted."""
    counted = f"{attempt.recorded:,}" + (f" of {attempt.lanes:,}" if attempt.lanes else "") + " lanes recorded"
    began = datetime.fromtimestamp(attempt.started_at).astimezone().isoformat(" ", "minutes")
    spooled = f"; {attempt.spool}" if attempt.spool else ""
    if attempt.pid is None:
        return f"{attempt.phase} began {began}, but no process here is running it now: {counted}{spooled}"
    new, seconds = (
        attempt.recorded - attempt.recorded_before,
        (attempt.last_record_at or attempt.started_at) - attempt.started_at,
    )
    speed = f", {60 * new / seconds:,.0f} a minute" if new and seconds > 0 else ""
    remaining = f", about {format_duration(attempt.seconds_left)} left" if attempt.seconds_left else ""
    return (
        f"{attempt.phase} has been running since {began} as process {attempt.pid}: {counted}{speed}{remaining}{spooled}"
    )


def find_drift(study: Registration, environment: Mapping[str, Any]) -> list[str]:
    """Return one line for each change for which confirm refuses today, as far as it can be checked without torch."""
    path = study.folder / PROTOCOL
    now = {PROTOCOL: files.plain_sha256(path)} if files.exists(path) else {}
    edited = closure.differences({PROTOCOL: study.lock.content["protocol"]["sha256"]}, now)
    return edited + run_inputs.list_drift(study, files.cache_home(), environment)


def next_step(status: StudyStatus, drifted: Sequence[str], is_anchored: bool = False) -> str:
    """Return the next step."""
    if status.state in RUNNABLE_STATES and drifted:
        amend = f"; or: kv-prereg amend {status.folder} <new folder> --reason <why>"
        way_back = run_inputs.describe_way_back(Registration(Path(status.folder)), drifted)
        return way_back + (amend if status.state == "locked" else "")
    match status.state:
        case "written" | "locking":
            return f"kv-prereg register {status.folder}"
        case "locked" if status.swept and not status.selected:
            return f"kv-prereg probe {status.folder}"
        case "claimed" if status.is_outside:
            return f"kv-prereg confirm {status.folder} --outputs FOLDER"
        case "locked" | "claimed" | "sealed" if status.replicates and not status.is_outside:
            parent = Path(status.folder).parent.parent / "registrations" / status.replicates
            return f"kv-prereg replicate {'' if status.reproduces else '--fresh '}{parent}"
        case "locked" if incomplete := [name for name, left in status.instruments.items() if left]:
            return f"kv-prereg {incomplete[0]} {status.folder}"  # possible only before the claim
        case "locked" if status.randomness == "anchor" and not is_anchored:
            return f"kv-prereg anchor {status.folder} lock --witness ots"
        case "locked" if status.randomness in ("nonce", "beacon"):
            return f"kv-prereg confirm {status.folder} --value FILE"
        case "locked" | "claimed" | "sealed":
            return f"kv-prereg confirm {status.folder}"
        case "judged" | "INVALID" | "cannot tell":
            return f"kv-prereg audit {status.folder}"
        case "withdrawn":
            return "nothing: it stays as it is"
        case "amended":
            successor = amendment.find_successor(Registration(Path(status.folder)))
            if successor is None:
                return f"restore the registration with the lock {status.amended}"
            return f"kv-prereg status {Path(status.folder).parent / successor.name}"


def count_states(registered: Sequence[IndexEntry]) -> dict[str, int]:
    """Count the registrations by verdict and by the other states that an index must not hide."""
    judged = [entry for entry in registered if entry.status.state == "judged"]
    words = Counter(entry.status.verdict for entry in judged)
    states = Counter(entry.status.state for entry in registered)
    return {
        "registered": len(registered),
        "judged": len(judged),
        **{word: words[word] for word in VERDICT_WORDS},
        "one_model": sum(entry.status.verdict == "CONFIRMED" and entry.is_single_model for entry in judged),
        "unwitnessed": sum(entry.is_unwitnessed for entry in judged),
        **{state: states[state] for state in ("amended", "withdrawn", "INVALID", "cannot tell")},
        "locked": states["locked"] + states["locking"],
        "unfinished": states["claimed"] + states["sealed"],
    }


if __name__ == "__main__":
    sys.exit(main())
