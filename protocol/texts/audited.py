"""The page of an audit: its findings on one screen, in the words of a reviewer."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.evidence.audit.items import ITEMS, QUESTIONS
from protocol.evidence.findings import Finding
from protocol.evidence.refusals import Refusal
from protocol.evidence.run import records
from protocol.evidence.run.registration import Registration

__all__ = ["details", "page", "unproven"]

WIDTH, MARGIN = 110, 13


def page(study: Registration, findings: Sequence[Finding], anchored: bool) -> list[str]:
    """Format the design, the items that passed, failed or are undetermined, and what is not proven."""
    told = {status: [one for one in findings if one.status == status] for status in STATUSES}
    lines = [*_block("Registered", registered(study)), ""]
    lines += _block("Held", *_held(told["held"]))
    for one in told["failed"]:
        lines += _block("failed", f"{one.item}: {one.detail}")
    for status in ("unfinished", "cannot tell"):
        for one in told[status]:
            lines += _block(status, f"{one.item}: {one.detail}")
    if told["not run"]:
        lines += _block("Not run", "; ".join(_short(one) for one in told["not run"]))
    return [*lines, "", *_block("Not proven", *unproven(study, findings, anchored))]


STATUSES = ("held", "failed", "unfinished", "cannot tell", "not run")


def details(findings: Iterable[Finding]) -> list[str]:
    """Format each finding as one full line."""
    return [f"{one.status:<12} {one.item}: {one.detail}".rstrip(": ") for one in findings]


def registered(study: Registration) -> str:
    """Describe the design in a sentence, or say that the lock cannot be read."""
    try:
        return _registered(study.lock.content)
    except (Refusal, KeyError, TypeError, AttributeError, ValueError):
        return "a lock that cannot be read"


def _registered(lock: Mapping[str, Any]) -> str:
    content, decision = lock["protocol"]["content"], lock["protocol"]["content"]["decision"]
    held_out = sum(len(item["confirm"]) for item in lock["items"].values())
    counts = {
        "model": len(content["models"]),
        "task": len(content["tasks"]),
        "budget": len(content["budgets"]),
        "arm": len({cell[3] for cell in lock["grid"]}),
        "seed": len(content["seeds"]),
    }
    design = ", ".join(f"{number} {name}{'s' if number != 1 else ''}" for name, number in counts.items())
    parent = (lock.get("parent") or {}).get("name")
    return (
        f"{content['title']}: {len(lock['grid'])} cells ({design}) on {held_out} held-out problems; rule "
        f"{decision['rule']} at alpha {decision['alpha']} over {lock['checks']['tests']} contrasts"
        + (f"; says that it replicates {parent}" if parent else "")
    )


def unproven(study: Registration, findings: Iterable[Finding], anchored: bool) -> list[str]:
    """Return what a reader must not conclude even if all items passed; `figures.table` says what the verdict
    itself does not prove.
    """
    status = {one.item: one.status for one in findings}
    said = []
    if study.has("records") and status.get("replay") != "held":
        said.append(
            "That the records came out of the models: --replay 20 decodes 20 again, a replication all."
        )
    if status.get("grid") == "held" and status.get("replay") != "held":
        out, problems = records.excluded(study.confirmed)
        if out:
            told = f"That the {out} excluded problems (of {problems}) were too long"
            said.append(f"{told}: --replay looks at each.")
    if not anchored:
        said.append("When anything was written: no outside witness has seen it (UNANCHORED).")
    if status.get("randomness") != "held":
        said.append("That the seeds were not picked by their result: the author chose them.")
    return [*said, "That nothing was tried in private before the lock."]


def _held(held: Sequence[Finding]) -> list[str]:
    """Format the items that passed, grouped by the question that they answer."""
    names = {one.item for one in held}
    said = []
    for question, words in QUESTIONS.items():
        of = [item.name for item in ITEMS if item.question == question and item.name in names]
        if of:
            said.append(f"{words[0].upper()}{words[1:]}: {', '.join(of)}.")
    return [*said, *(f"{one.item}: {one.detail}." for one in held if one.item in TOLD)]


TOLD = (
    "files",
    "sources",
    "registered",
    "cost",
    "anatomy",
    "sense",
    "grades",
    "judgement",
    "replay",
    "locked code",
    "drawings",
)


def _short(one: Finding) -> str:
    return f"{one.item} ({one.detail})" if one.detail else one.item


def _block(head: str, *paragraphs: str) -> list[str]:
    """Wrap paragraphs after a word in the margin."""
    lines = [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(
            " ".join(paragraph.split()), WIDTH - MARGIN, break_long_words=True, break_on_hyphens=False
        )
    ] or [""]
    return [f"{head if not place else '':<{MARGIN}}{line}".rstrip() for place, line in enumerate(lines)]
