"""The index page over all registrations: the answers of those that were judged, and the state of the rest."""

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from analysis.hypotheses import study_outcomes, tables
from analysis.hypotheses.study_outcomes import PolicyRecord
from analysis.judgement import policy_namesakes, untrusted_files
from analysis.judgement.previously_opened import opened_problems
from analysis.judgement.study_files import RecordError, read_document
from analysis.rules import verdict_counts, verdict_line
from figures.drawing import formatting, page
from figures.report_page import index_cards, judged_study, markup
from figures.report_page.answer import format_answer
from figures.report_page.index_cards import ContrastMark
from figures.report_page.markup import Html, NumberCell, element, folded_section, paragraphs

__all__ = ["Comparisons", "Entry", "read_comparisons", "read_entries", "render_index"]

ENDING_EVENTS = {"withdraw": "withdrawn", "amended": "amended"}  # state by the event of the ledger's last line
# the state of other studies by the latest document that exists
STATES = {"verdict.json": "judged", "seal.json": "sealed", "claim.json": "claimed", "lock.json": "locked"}
# Badges of states without a judgement; for other states the badge is the state.
BADGES = {"locked": "not run", "claimed": "unfinished", "sealed": "unfinished", "written": "not registered"}
GROUPS = {
    "Judged, the latest first": ("judged",),
    "Registered, without a verdict yet": ("locked", "claimed", "sealed"),
    "Ended without a verdict": ("amended", "withdrawn", "INVALID"),
    "Written, not registered": ("written",),
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
        return self.state != "written"


class Comparisons(NamedTuple):
    """What the registrations of a folder show about policies."""

    records: tuple[PolicyRecord, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Names of the registrations that have a file that is not in the documented format."""


NO_COMPARISON = Comparisons()
MAX_CHARACTERS = 500  # characters of an error message about a damaged file, which may cite all of it


def read_comparisons(folder: Path) -> Comparisons:
    records: list[PolicyRecord] = []
    unreadable = []
    for path in study_outcomes.list_registrations(folder):
        try:
            records += study_outcomes.read_records(path)
        except (RecordError, OSError):
            unreadable.append(path.name)
    return Comparisons(tuple(records), tuple(unreadable))


def read_entries(folder: Path) -> list[Entry]:
    """Return an entry for every folder in FOLDER with a protocol or a lock, by name."""
    return [
        _read_entry(path)
        for path in sorted(folder.iterdir())
        if any(os.path.lexists(path / name) for name in ("protocol.toml", "lock.json"))
    ]


def render_index(studies: Sequence[Entry], comparisons: Comparisons = NO_COMPARISON) -> str:
    """Return the page for the folder that contains the registrations. comparisons: `read_comparisons` of that
    folder.
    """
    heads = (
        "registration",
        "title",
        "state",
        "verdict",
        "grade",
        "opened before",
        "proofs kept",
        "ended because",
    )
    rows: list[list[str | NumberCell]] = [
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
    return markup.page(
        element("title", "Registrations"),
        markup.skip_link("studies", "Skip to the studies"),
        element("header", element("h1", "Registrations"), element("p", element("strong", format_total(studies)))),
        element(
            "main",
            paragraphs(
                "Every registration that was locked counts, withdrawn and amended ones too. The more there "
                "are, the more are confirmed by chance.",
                "This page repeats what the files say. To verify one: kv-prereg audit "
                "registrations/NAME. To write its report: kv-prereg report registrations/NAME. For "
                "what to do next: kv-prereg status.",
            ),
            element("div", *_render_groups(studies), id="studies", tabindex="-1"),
            folded_section(
                "All registrations, as a table",
                Html(
                    paragraphs(
                        "Opened before: how many of its held-out problems an earlier registration had opened "
                        "when it was locked. The more who have read a problem, the less a further verdict on "
                        "it is worth."
                    )
                    + markup.table("All registrations", heads, rows)
                    + paragraphs(*_format_namesakes(studies))
                ),
                "table",
            ),
            *_render_hypotheses(comparisons),
        ),
        more=index_cards.STYLE,
    )


def format_total(studies: Sequence[Entry]) -> str:
    """Count the registrations by outcome, formatted as in `kv-prereg status`."""
    registered_entries = [entry for entry in studies if entry.is_registered]
    judged_entries = [entry for entry in registered_entries if entry.state == "judged"]
    counts = Counter(entry.state for entry in registered_entries)
    counts += Counter(entry.verdict for entry in judged_entries)
    counts["registered"], counts["judged"] = len(registered_entries), len(judged_entries)
    counts["unfinished"] = counts["claimed"] + counts["sealed"]
    counts["one_model"] = sum(entry.verdict == "CONFIRMED" and entry.is_single_model for entry in judged_entries)
    return verdict_counts.format_counts(counts)


def _render_groups(studies: Sequence[Entry]) -> list[Html]:
    parts = []
    for title, states in GROUPS.items():
        members = sorted(
            (entry for entry in studies if entry.state in states), key=lambda entry: entry.time, reverse=True
        )
        if members:
            parts.append(element("section", element("h2", title), *map(_render_card, members)))
    return parts


def _render_card(entry: Entry) -> Html:
    word = entry.verdict or BADGES.get(entry.state, entry.state)
    rest = entry.verdict_text.removeprefix(entry.verdict).strip()
    verdict_line = element(
        "p", index_cards.render_badge(word), f" {rest}" * bool(rest), f" · {entry.grade}" * bool(entry.grade)
    )
    title = f": {entry.title}" if entry.title else ""
    text = [
        verdict_line,
        element("h3", _render_name(entry), title),
        element("p", entry.question, class_="question") if entry.question else "",
        element("p", entry.answer) if entry.answer else "",
        element("p", f"Ended because: {entry.reason}") if entry.reason else "",
    ]
    return element("article", element("div", *text), index_cards.render_thumbnail(entry.contrasts), class_="study")


def _render_hypotheses(comparisons: Comparisons) -> list[Html]:
    """Render what each gate was to show and its outcome; empty if no contrast compares policies."""
    if not study_outcomes.select_compared(comparisons.records):
        return []
    records = comparisons.records
    parts = [paragraphs(*tables.EXPLANATIONS["gates"], *tables.EXPLANATIONS["families"])]
    parts.append(markup.table("Families of intervention", tables.FAMILIES, tables.family_rows(records)))
    parts.append(paragraphs(*tables.EXPLANATIONS["attempts"]))
    parts.append(markup.table("Gates", tables.ATTEMPTS, tables.attempt_rows(records)))
    parts.append(paragraphs(*tables.EXPLANATIONS["registered"]))
    parts.append(
        markup.table("Registered verdicts, in order of time", tables.REGISTERED, tables.registered_rows(records))
    )
    omission_note = f"Not in these tables, since they cannot be read: {', '.join(comparisons.unreadable)}."
    parts.append(paragraphs(omission_note if comparisons.unreadable else ""))
    return [folded_section("What policies were to show, and what became of it", Html("".join(parts)), "gates")]


def _format_namesakes(entries: Sequence[Entry]) -> list[str]:
    """Return which studies ran policies whose name another paper uses, too."""
    studies: dict[str, list[str]] = {}
    for entry in entries:
        for note in entry.namesakes:
            studies.setdefault(note, []).append(entry.name)
    return [f"{note}: {', '.join(names)}." for note, names in studies.items()]


def _render_name(entry: Entry) -> str:
    return element("a", entry.name, href=f"{quote(entry.name, safe='')}/report.html") if entry.report else entry.name


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
    last: dict[str, Any] = judged_study.read_ledger(folder)[-1]
    judged = page.read_judged(folder) if state == "judged" else {}
    label = str(judged.get("label", ""))
    return Entry(
        folder.name,
        ENDING_EVENTS.get(last["event"], state),
        str(lock["protocol"]["content"]["title"]),
        str(judged.get("verdict", "")),
        formatting.verdict_text(judged) if judged else "",
        bool(verdict_line.format_single_model(judged)),
        formatting.sample_grade(label),
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
        return "not asked"
    counts = [
        f"{item.opened} of {item.total} of {item.task}, by {', '.join(item.by_registration)}"
        for item in opened_problems(lock)
    ]
    unreadable = [f"{item['name']} could not be read" for item in lock["opened"] if item["lock"] is None]
    return "; ".join(counts + unreadable) or "none"


def _read_title(folder: Path) -> str:
    try:
        return str(tomllib.loads(untrusted_files.read_bytes(folder / "protocol.toml").decode()).get("title", ""))
    except (OSError, ValueError, RecursionError):
        return ""
