"""The index page over all registrations: the answers of those that were judged, and the state of the rest."""

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from analysis.hypotheses import study_outcomes, tables
from analysis.hypotheses.study_outcomes import PolicyRecord
from analysis.judgement import policy_namesakes, untrusted_files
from analysis.judgement.previously_opened import opened_problems
from analysis.judgement.study_files import read_document, read_ledger
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import verdict_counts, verdict_line
from figures.drawing import formatting, page
from figures.report_page import index_cards, judged_study, rendering
from figures.report_page.answer import format_answer
from figures.report_page.index_cards import ContrastMark
from figures.report_page.rendering import Cell, NumberCell, render
from protocol.formats.copied_folders import find_copies

ENDING_EVENTS = {"withdraw": "withdrawn", "amended": "amended"}  # state by the event of the ledger's last line
# the state of other studies by the latest document that exists
STATES = {"verdict.json": "judged", "seal.json": "sealed", "claim.json": "claimed", "lock.json": "locked"}
# Badges of states without a judgement; for other states the badge is the state.
BADGES = {"locked": "not run", "claimed": "unfinished", "sealed": "unfinished", "written": "not registered"}
GROUPS = {
    "Judged, latest first": ("judged",),
    "Registered, no verdict yet": ("locked", "claimed", "sealed"),
    "Ended without a verdict": ("amended", "withdrawn", "INVALID"),
    "Written, not registered": ("written",),
    "Copies, not counted": ("copy",),
}


class Entry(NamedTuple):
    """A registration according to its files, which are not verified. Fields without a value are empty."""

    name: str
    state: str
    title: str
    verdict: str = ""
    verdict_text: str = ""  # the verdict as printed
    is_single_model: bool = False  # only one model ran
    grade: str = ""
    previously_opened: str = ""  # held-out problems that were already opened when it was locked
    reason: str = ""  # why it ended without a verdict, or cannot be read
    proofs: int = 0
    namesakes: tuple[str, ...] = ()  # notes on policies whose name another paper uses, too
    report: bool = False
    question: str = ""
    answer: str = ""
    contrasts: tuple[ContrastMark, ...] = ()
    time: str = ""  # of the ledger's last line, by the clock of the machine that wrote it

    @property
    def is_registered(self) -> bool:
        return self.state not in ("written", "copy")


class Comparisons(NamedTuple):
    """What the registrations of a folder show about policies."""

    records: tuple[PolicyRecord, ...] = ()
    unreadable: tuple[str, ...] = ()
    "Names of the registrations with a file that does not have the documented format."


NO_COMPARISON = Comparisons()
MAX_CHARACTERS = 500  # characters of an error message about a damaged file, which may cite all of it


def read_comparisons(folder: Path) -> Comparisons:
    records: list[PolicyRecord] = []
    unreadable = []
    paths = study_outcomes.list_registrations(folder)
    copies = find_copies(paths)
    for path in (path for path in paths if path not in copies):
        try:
            records += study_outcomes.read_records(path)
        except (RecordError, OSError):
            unreadable.append(path.name)
    return Comparisons(tuple(records), tuple(unreadable))


def read_entries(folder: Path) -> list[Entry]:
    """Return an entry for every folder in FOLDER with a protocol or a lock, by name."""
    paths = [
        path
        for path in sorted(folder.iterdir())
        if any(os.path.lexists(path / name) for name in ("protocol.toml", "lock.json"))
    ]
    copies = find_copies(paths)
    return [
        Entry(path.name, "copy", "", reason=f"has the lock of {copies[path].name}")
        if path in copies
        else _read_entry(path)
        for path in paths
    ]


def render_index(studies: Sequence[Entry], comparisons: Comparisons = NO_COMPARISON) -> str:
    """Return the page for a folder of registrations. comparisons: `read_comparisons` of that folder."""
    heads = ("registration", "title", "state", "verdict", "grade", "opened before", "proofs kept", "ended because")
    rows: list[list[Cell]] = [
        [
            _render_name(entry),
            entry.title,
            entry.state,
            entry.verdict_text,
            entry.grade,
            entry.previously_opened,
            NumberCell(str(entry.proofs), entry.proofs),
            entry.reason,
        ]
        for entry in studies
    ]
    latest_first = sorted(studies, key=lambda entry: entry.time, reverse=True)
    return render(
        "index.html",
        total=format_total(studies),
        groups={
            title: [_card_values(entry) for entry in members]
            for title, states in GROUPS.items()
            if (members := [entry for entry in latest_first if entry.state in states])
        },
        entries_table=rendering.table("All registrations", heads, rows),
        namesakes=_format_namesakes(studies),
        comparison_parts=_comparison_parts(comparisons.records),
        unreadable=comparisons.unreadable,
    )


def format_total(studies: Sequence[Entry]) -> str:
    """Count the registrations by outcome, formatted as in `kv-prereg status`."""
    registered_entries = [entry for entry in studies if entry.is_registered]
    judged_entries = [entry for entry in registered_entries if entry.state == "judged"]
    counts = Counter(entry.state for entry in registered_entries)
    counts += Counter(entry.verdict for entry in judged_entries)
    counts["registered"], counts["judged"] = len(registered_entries), len(judged_entries)
    counts["unfinished"] = counts["claimed"] + counts["sealed"]
    counts["unwitnessed"] = sum(verdict_line.UNWITNESSED in entry.verdict_text for entry in judged_entries)
    counts["one_model"] = sum(entry.verdict == "CONFIRMED" and entry.is_single_model for entry in judged_entries)
    return verdict_counts.format_counts(counts)


def _card_values(entry: Entry) -> dict[str, Any]:
    rest = entry.verdict_text.removeprefix(entry.verdict).strip()
    return entry._asdict() | {
        "badge": index_cards.render_badge(entry.verdict or BADGES.get(entry.state, entry.state)),
        "verdict_suffix": f" {rest}" * bool(rest),
        "link": _render_name(entry),
        "thumbnail": index_cards.render_thumbnail(entry.contrasts),
    }


def _comparison_parts(records: Sequence[PolicyRecord]) -> list[tuple[Sequence[str], Markup]]:
    """Return what each gate was to show and its outcome, as texts and a table of each part; empty if no
    contrast compares policies.
    """
    if not study_outcomes.select_compared(records):
        return []
    gates = [*tables.EXPLANATIONS["gates"], *tables.EXPLANATIONS["families"]]
    registered_title = "Registered verdicts, in order of time"
    return [
        (gates, rendering.table("Families of intervention", tables.FAMILIES, tables.family_rows(records))),
        (tables.EXPLANATIONS["attempts"], rendering.table("Gates", tables.ATTEMPTS, tables.attempt_rows(records))),
        (
            tables.EXPLANATIONS["registered"],
            rendering.table(registered_title, tables.REGISTERED, tables.registered_rows(records)),
        ),
    ]


def _format_namesakes(entries: Sequence[Entry]) -> list[str]:
    """Return which studies ran policies whose name another paper uses, too."""
    studies: dict[str, list[str]] = {}
    for entry in entries:
        for note in entry.namesakes:
            studies.setdefault(note, []).append(entry.name)
    return [f"{note}: {', '.join(names)}." for note, names in studies.items()]


def _render_name(entry: Entry) -> str:
    if not entry.report:
        return entry.name
    return Markup('<a href="{}/report.html">{}</a>').format(quote(entry.name, safe=""), entry.name)


def _read_entry(folder: Path) -> Entry:
    try:
        untrusted_files.refuse_special_files(folder)
        if not (folder / "lock.json").exists():
            return Entry(folder.name, "written", _read_title(folder))
        return _read_locked_entry(folder)
    except Exception as error:  # any error of a damaged file becomes its state
        return Entry(folder.name, "INVALID", "", reason=" ".join(str(error).split())[:MAX_CHARACTERS])


def _read_locked_entry(folder: Path) -> Entry:
    _, lock = read_document(folder / "lock.json")
    state = next(state for name, state in STATES.items() if (folder / name).exists())
    last: dict[str, Any] = read_ledger(folder)[-1]
    judged = page.read_supported_judgement(folder) if state == "judged" else {}
    return Entry(
        folder.name,
        ENDING_EVENTS.get(last["event"], state),
        str(lock["protocol"]["content"]["title"]),
        str(judged.get("verdict", "")),
        formatting.verdict_text(judged) if judged else "",
        bool(verdict_line.format_single_model(judged)),
        formatting.sample_text(judged),
        _format_opened(lock),
        str(last["body"].get("reason", "")),
        len(judged_study.list_proofs(folder)),
        tuple(policy_namesakes.describe_namesakes(lock)),
        judged != {} and (folder / "report.html").is_file(),
        str(lock["protocol"]["content"].get("question", "")),
        _format_answer(judged, lock),
        index_cards.contrast_marks(judged),
        str(last.get("time", "")),
    )


def _format_answer(judged: dict[str, Any], lock: dict[str, Any]) -> str:
    """Return the answer; empty if the judgement has no contrasts."""
    if "contrasts" not in judged:
        return ""
    return format_answer(judged, lock["protocol"]["content"].get("decision", {}))


def _format_opened(lock: dict[str, Any]) -> str:
    """Return how many held-out problems of each task an earlier registration had opened; empty if none had."""
    if "opened" not in lock:
        return "not recorded"
    counts = [
        f"{item.opened} of {item.total} of {item.task}, by {', '.join(item.by_registration)}"
        for item in opened_problems(lock)
    ]
    unreadable = [
        f"the problems of {item['name']} could not be read" for item in lock["opened"] if item["lock"] is None
    ]
    return "; ".join(counts + unreadable) or "none"


def _read_title(folder: Path) -> str:
    try:
        return str(tomllib.loads(untrusted_files.read_bytes(folder / "protocol.toml").decode()).get("title", ""))
    except (OSError, ValueError, RecursionError):
        return ""
