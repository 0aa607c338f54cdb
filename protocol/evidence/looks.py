"""The looks of a study in its ledger: a line after each, with the digest of the records that it saw and what was said.

The last look needs no line: the seal follows it.
"""

from collections.abc import Sequence

from protocol.evidence import ledger, records
from protocol.evidence.records import Record
from protocol.evidence.registration import Registration
from protocol.formats.looks import STOP, number_problems, read_looks
from protocol.formats.refusals import Tampered


def next_problems(study: Registration, task: str) -> tuple[str, ...]:
    """Return the held-out problems of the look that comes next, all of them without looks, in registered order."""
    numbers, number = number_problems(study.lock.content, task), len(study.look_words) + 1
    return tuple(problem for problem in study.lock.content["items"][task]["confirm"] if numbers[problem] == number)


def is_due(study: Registration) -> bool:
    """Return whether the judge is to be asked before more problems are opened."""
    return len(study.look_words) + 1 < len(read_looks(study.lock.content)) and not has_stopped(study)


def has_stopped(study: Registration) -> bool:
    return study.look_words[-1:] == [STOP]


def enter(study: Registration, word: str) -> None:
    """Enter the next look in the ledger. word: what the judge said."""
    number = len(study.look_words) + 1
    body = {"number": number, "problems": read_looks(study.lock.content)[number - 1], "word": word}
    ledger.append(study.folder, "look", {**body, "outcome": _outcome(study, number, study.confirm_records)})


def check(study: Registration) -> None:
    """Raise Tampered unless the looks of the ledger are the registered ones, in order, each on its own records."""
    registered = read_looks(study.lock.content)
    entries = [entry for entry in study.entries if entry.event == "look"]
    for number, entry in enumerate(entries, 1):
        body = entry.body
        if number >= len(registered) or (body["number"], body["problems"]) != (number, registered[number - 1]):
            raise Tampered(
                f"{ledger.NAME}: look {body['number']} at {body['problems']} problems is not the look that is "
                "registered there; DEVIATED from decision.looks"
            )
        if body["word"] == STOP and number < len(entries):
            raise Tampered(
                f"{ledger.NAME}: look {number + 1} was made after a look that said stop; DEVIATED from decision.looks"
            )
        if body["outcome"] != _outcome(study, number, study.confirm_records):
            raise Tampered(f"{ledger.NAME}: look {number} saw records other than those of its problems")


def _outcome(study: Registration, number: int, recorded: Sequence[Record]) -> str:
    """Return the digest of the records of the problems that the first `number` looks opened."""
    content = study.lock.content
    numbers = {task: number_problems(content, task) for task in content["items"]}
    return records.outcome_digest(
        [
            record
            for record, head in zip(recorded, records.record_heads(recorded), strict=True)
            if numbers[head.key.task].get(head.key.problem, number) <= number
        ]
    )
