"""The page of an audit: its findings on one screen, in the words of a reviewer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.evidence import records
from protocol.evidence.audit.items import ITEMS, QUESTIONS
from protocol.evidence.registration import Registration
from protocol.formats.findings import Finding
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import Refusal
from protocol.formats.terminal import line_width, wrap_text

MARGIN = 13  # columns


def format_page(study: Registration, findings: Sequence[Finding], anchored: bool) -> list[str]:
    """Format the design, the items that passed, failed or are undetermined, and what is not proven."""
    by_status = {status: [finding for finding in findings if finding.status == status] for status in STATUSES}
    lines = [*_format_block("Registered", describe_design(study)), ""]
    lines += _format_block("Held", *_passed_paragraphs(by_status["held"]))
    for finding in by_status["failed"]:
        lines += _format_block("failed", f"{finding.item}: {finding.detail}")
    for status in ("unfinished", "cannot tell"):
        for finding in by_status[status]:
            lines += _format_block(status, f"{finding.item}: {finding.detail}")
    if by_status["not run"]:
        lines += _format_block("Not run", "; ".join(_format_short(finding) for finding in by_status["not run"]))
    return [*lines, "", *_format_block("Not proven", *list_unproven(study, findings, anchored))]


STATUSES = ("held", "failed", "unfinished", "cannot tell", "not run")


def format_details(findings: Iterable[Finding]) -> list[str]:
    """Format each finding as one full line."""
    return [f"{finding.status:<12} {finding.item}: {finding.detail}".rstrip(": ") for finding in findings]


def describe_design(study: Registration) -> str:
    """Describe the design in a sentence, or say that the lock cannot be read."""
    try:
        return _describe_lock(study.lock.content)
    except (Refusal, KeyError, TypeError, AttributeError, ValueError):
        return "a lock that cannot be read"


def _describe_lock(lock: Mapping[str, Any]) -> str:
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
        + (f"; states that it replicates {parent}" if parent else "")
    )


def list_unproven(study: Registration, findings: Iterable[Finding], anchored: bool) -> list[str]:
    """Return what a reader must not conclude even if all items passed; `figures.table` says what the verdict
    itself does not prove.
    """
    status = {finding.item: finding.status for finding in findings}
    sentences = []
    if study.has("records") and status.get("replay") != "held":
        sentences.append(
            "That the records were produced by the models: --replay decodes again a sample of the lanes on "
            "which the verdict depends most, and a replication decodes all lanes."
        )
    if status.get("grid") == "held" and status.get("replay") != "held":
        excluded, problems = records.count_excluded(study.confirm_records)
        if excluded:
            prefix = f"That the {excluded} excluded problems (of {problems}) were too long"
            sentences.append(f"{prefix}: --replay checks each of them.")
    if not anchored:
        sentences.append("When anything was written: no outside witness has stamped it (UNANCHORED).")
    if status.get("randomness") != "held":
        sentences.append("That the seeds were not chosen for their results: the author chose them.")
    return [*sentences, "That nothing was tried in private before the lock."]


def _passed_paragraphs(findings: Sequence[Finding]) -> list[str]:
    """Format the items that passed, grouped by the question that they answer."""
    names = {finding.item for finding in findings}
    sentences = []
    for question, words in QUESTIONS.items():
        passed = [item.name for item in ITEMS if item.question == question and item.name in names]
        if passed:
            sentences.append(f"{words[0].upper()}{words[1:]}: {', '.join(passed)}.")
    return [
        *sentences,
        *(f"{finding.item}: {finding.detail}." for finding in findings if finding.item in DETAILED_ITEMS),
    ]


DETAILED_ITEMS = (
    "files",
    "sources",
    "registered",
    *(instrument.name for instrument in INSTRUMENTS),
    "sense",
    "grades",
    "judgement",
    "replay",
    "locked code",
    "drawings",
    "simulations",
)


def _format_short(finding: Finding) -> str:
    return f"{finding.item} ({finding.detail})" if finding.detail else finding.item


def _format_block(head: str, *paragraphs: str) -> list[str]:
    """Wrap paragraphs after a word in the margin."""
    lines = [
        line for paragraph in paragraphs for line in wrap_text(" ".join(paragraph.split()), line_width() - MARGIN)
    ] or [""]
    return [f"{head if not position else '':<{MARGIN}}{line}".rstrip() for position, line in enumerate(lines)]
