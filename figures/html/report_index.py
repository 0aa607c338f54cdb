"""The index page over all registrations: the answers of those that were judged, and the state of the rest."""

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from analysis.hypotheses import outcomes, tables
from analysis.hypotheses.outcomes import Record
from analysis.output import counted, headline
from analysis.studies import namesakes, plain_files
from analysis.studies.opened import opened
from analysis.studies.study_files import RecordError, document
from figures.canvas import numbers, page
from figures.html import finished, index_cards, markup
from figures.html.answer import answer
from figures.html.index_cards import Mark
from figures.html.markup import Html, Number, element, folded, sentences

__all__ = ["Compared", "Entry", "compared", "entries", "html"]

ENDED = {"withdraw": "withdrawn", "amended": "amended"}  # state by the event of the ledger's last line
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
    said: str = ""  # the verdict as printed
    alone: bool = False  # only one model ran
    grade: str = ""
    opened: str = ""  # held-out problems that were already opened when it was locked
    why: str = ""  # why it ended without a verdict, or cannot be read
    proofs: int = 0
    namesakes: tuple[str, ...] = ()  # notes on policies whose name another paper uses, too
    report: bool = False
    question: str = ""
    answer: str = ""
    contrasts: tuple[Mark, ...] = ()
    time: str = ""  # of the ledger's last line, by the clock of the machine that wrote it

    @property
    def registered(self) -> bool:
        return self.state != "written"


class Compared(NamedTuple):
    """What the registrations of a folder show about policies."""

    records: tuple[Record, ...] = ()
    unread: tuple[str, ...] = ()
    """Names of the registrations that have a file that is not in the documented format."""


NOTHING = Compared()
LONGEST = 500  # characters of an error message about a damaged file, which may cite all of it


def compared(folder: Path) -> Compared:
    records: list[Record] = []
    unread = []
    for path in outcomes.studies(folder):
        try:
            records += outcomes.read(path)
        except (RecordError, OSError):
            unread.append(path.name)
    return Compared(tuple(records), tuple(unread))


def entries(folder: Path) -> list[Entry]:
    """Return an entry for every folder in FOLDER with a protocol or a lock, by name."""
    return [
        _entry(path)
        for path in sorted(folder.iterdir())
        if any(os.path.lexists(path / name) for name in ("protocol.toml", "lock.json"))
    ]


def html(found: Sequence[Entry], said: Compared = NOTHING) -> str:
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
    rows: list[list[str | Number]] = [
        [
            _name(one),
            one.title,
            one.state,
            one.said,
            one.grade,
            one.opened,
            Number(str(one.proofs), one.proofs),
            one.why,
        ]
        for one in found
    ]
    return markup.page(
        element("title", "Registrations"),
        markup.skip("studies", "Skip to the studies"),
        element("header", element("h1", "Registrations"), element("p", element("strong", total(found)))),
        element(
            "main",
            sentences(
                "Every registration that was locked counts, withdrawn and amended ones too. The more there "
                "are, the more are confirmed by chance.",
                "This page repeats what the files say. To verify one: kv-prereg audit "
                "registrations/NAME. To write its report: kv-prereg report registrations/NAME. For "
                "what to do next: kv-prereg status.",
            ),
            element("div", *_groups(found), id="studies", tabindex="-1"),
            folded(
                "All registrations, as a table",
                Html(
                    sentences(
                        "Opened before: how many of its held-out problems an earlier registration had opened "
                        "when it was locked. The more who have read a problem, the less a further verdict on "
                        "it is worth."
                    )
                    + markup.table("All registrations", heads, rows)
                    + sentences(*_named(found))
                ),
                "table",
            ),
            *_hypotheses(said),
        ),
        more=index_cards.STYLE,
    )


def total(found: Sequence[Entry]) -> str:
    """Count the registrations by outcome, formatted as in `kv-prereg status`."""
    registered = [one for one in found if one.registered]
    judged = [one for one in registered if one.state == "judged"]
    counts = Counter(one.state for one in registered)
    counts += Counter(one.verdict for one in judged)
    counts["registered"], counts["judged"] = len(registered), len(judged)
    counts["unfinished"] = counts["claimed"] + counts["sealed"]
    counts["one_model"] = sum(one.verdict == "CONFIRMED" and one.alone for one in judged)
    return counted.total(counts)


def _groups(found: Sequence[Entry]) -> list[Html]:
    parts = []
    for title, states in GROUPS.items():
        own = sorted((one for one in found if one.state in states), key=lambda one: one.time, reverse=True)
        if own:
            parts.append(element("section", element("h2", title), *map(_card, own)))
    return parts


def _card(one: Entry) -> Html:
    word = one.verdict or BADGES.get(one.state, one.state)
    rest = one.said.removeprefix(one.verdict).strip()
    said = element("p", index_cards.badge(word), f" {rest}" * bool(rest), f" · {one.grade}" * bool(one.grade))
    title = f": {one.title}" if one.title else ""
    text = [
        said,
        element("h3", _name(one), title),
        element("p", one.question, class_="question") if one.question else "",
        element("p", one.answer) if one.answer else "",
        element("p", f"Ended because: {one.why}") if one.why else "",
    ]
    return element("article", element("div", *text), index_cards.thumbnail(one.contrasts), class_="study")


def _hypotheses(said: Compared) -> list[Html]:
    """Render what each gate was to show and its outcome; empty if no contrast compares policies."""
    if not outcomes.compared(said.records):
        return []
    found = said.records
    parts = [sentences(*tables.SAID["gates"], *tables.SAID["families"])]
    parts.append(markup.table("Families of intervention", tables.FAMILIES, tables.families_of(found)))
    parts.append(sentences(*tables.SAID["attempts"]))
    parts.append(markup.table("Gates", tables.ATTEMPTS, tables.attempts(found)))
    parts.append(sentences(*tables.SAID["registered"]))
    parts.append(
        markup.table("Registered verdicts, in order of time", tables.REGISTERED, tables.registered(found))
    )
    left = f"Not in these tables, since they cannot be read: {', '.join(said.unread)}."
    parts.append(sentences(left if said.unread else ""))
    return [folded("What policies were to show, and what became of it", Html("".join(parts)), "gates")]


def _named(found: Sequence[Entry]) -> list[str]:
    """Return which studies ran policies whose name another paper uses, too."""
    studies: dict[str, list[str]] = {}
    for one in found:
        for said in one.namesakes:
            studies.setdefault(said, []).append(one.name)
    return [f"{said}: {', '.join(names)}." for said, names in studies.items()]


def _name(one: Entry) -> str:
    return element("a", one.name, href=f"{quote(one.name, safe='')}/report.html") if one.report else one.name


def _entry(folder: Path) -> Entry:
    try:
        plain_files.refuse_other(folder)
        if not (folder / "lock.json").exists():
            return Entry(folder.name, "written", _written(folder))
        return _locked(folder)
    except Exception as problem:  # any error of a damaged file becomes its state
        return Entry(folder.name, "INVALID", "", why=" ".join(str(problem).split())[:LONGEST])


def _locked(folder: Path) -> Entry:
    _, lock = document(folder / "lock.json")
    state = next(state for name, state in STATES.items() if (folder / name).exists())
    last: dict[str, Any] = finished.acts(folder)[-1]
    judged = page.judged(folder) if state == "judged" else {}
    label = str(judged.get("label", ""))
    return Entry(
        folder.name,
        ENDED.get(last["event"], state),
        str(lock["protocol"]["content"]["title"]),
        str(judged.get("verdict", "")),
        numbers.word(judged) if judged else "",
        bool(headline.alone(judged)),
        numbers.grade(label),
        _opened(lock),
        str(last["body"].get("reason", "")),
        len(finished.proofs(folder)),
        tuple(namesakes.words(lock)),
        judged != {} and (folder / "report.html").is_file(),
        str(lock["protocol"]["content"].get("question", "")),
        _answer(judged, lock),
        index_cards.marks(judged),
        str(last.get("time", "")),
    )


def _answer(judged: dict[str, Any], lock: dict[str, Any]) -> str:
    """Return the answer; empty if the judgement has no contrasts."""
    if "contrasts" not in judged:
        return ""
    return answer(judged, lock["protocol"]["content"].get("decision", {}))


def _opened(lock: dict[str, Any]) -> str:
    """Return how many held-out problems of each task an earlier registration had opened; empty if none had.
    """
    if "opened" not in lock:
        return "not asked"
    counts = [f"{one.before} of {one.of} of {one.task}, by {', '.join(one.by)}" for one in opened(lock)]
    unread = [f"{one['name']} could not be read" for one in lock["opened"] if one["lock"] is None]
    return "; ".join(counts + unread) or "none"


def _written(folder: Path) -> str:
    try:
        return str(tomllib.loads(plain_files.read(folder / "protocol.toml").decode()).get("title", ""))
    except (OSError, ValueError, RecursionError):
        return ""
