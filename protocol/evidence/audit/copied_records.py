"""Find records that were copied from another study here: no machine repeats its times, whoever copies records has those
of the source, and fresh problems are not those of the parent.
"""

from collections.abc import Iterable

from protocol.evidence import records
from protocol.evidence.records import Record
from protocol.evidence.registration import Registration
from protocol.formats.citations import list_cited_locks
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Refusal, Tampered
from protocol.formats.runners import TABLE

MIN_TIMES = 10  # different ones that two studies share, which do not repeat by chance
Times = tuple[tuple[str, str], ...]


def refuse_copied(study: Registration, kin: Iterable[Registration]) -> None:
    """Raise where at least half of the lanes that a study shares with another one here took the very seconds that they
    took there, and that at ten different times or more.

    Tampered if this study names the other one as an earlier one; nothing if the other one names this; CannotTell if
    neither does, since either may be the copy. Lanes are shared by their cell and problem; cited ones are not compared.
    kin: its parents, and studies here that have a trajectory of it.
    """
    _refuse_stale_problems(study)
    ours = _read_times(study.own_records)
    for other in kin:
        try:
            theirs, names_this = _read_times(other.own_records), study.lock.digest in _list_earlier(other)
        except (Refusal, OSError):  # of a damaged study, which its own audit reports
            continue
        shared = ours.keys() & theirs.keys()
        equal = [lane for lane in shared if ours[lane] == theirs[lane]]
        if 2 * len(equal) < len(shared) or len({ours[lane] for lane in equal}) < MIN_TIMES:
            continue
        text = f"{len(equal)} of {len(shared)} lanes have exactly the seconds of {other.name}"
        if other.lock.digest in _list_earlier(study):
            raise Tampered(f"{text}: they were copied, not run")
        if not names_this:
            raise CannotTell(f"{text}: one of the two was copied, and neither names the other as the earlier one")


def _refuse_stale_problems(study: Registration) -> None:
    """Raise Tampered where at least half of the problems of a fresh replication have the prompts of its parent's."""
    if study.parent is None or study.reproduces or TABLE in study.protocol:  # problems of a pool are drawn again
        return
    ours = _read_prompts(study.own_records)
    for parent in study.find_parents():
        try:
            theirs = _read_prompts(parent.own_records)
        except (Refusal, OSError):
            continue
        equal = sum(theirs.get(problem) == prompt for problem, prompt in ours.items())
        if equal and 2 * equal >= len(ours):
            raise Tampered(f"{equal} of {len(ours)} fresh problems have the prompt that they have in {parent.name}")


def _list_earlier(study: Registration) -> set[str]:
    """Return the locks that a lock names as earlier ones."""
    content = study.lock.content
    named = {entry["lock"] for entry in content.get("opened", ())} | list_cited_locks(content)
    return named | {reference["lock"] for field in ("parent", "amends") if (reference := content.get(field))}


def _read_prompts(recorded: Iterable[Record]) -> dict[tuple[str, str, str], str]:
    """Return the digest of each prompt, by model, task and problem."""
    heads = records.record_heads(recorded)
    return {(head.key.model, head.key.task, head.key.problem): head.prompt for head in heads}


def _read_times(recorded: Iterable[Record]) -> dict[records.Key, Times]:
    """Return what the clock said of each lane, by cell and problem."""
    return {
        records.body_key(record["body"]): tuple(
            (name, value) for name, value in sorted(record["costs"].items()) if name.endswith("seconds")
        )
        for record in recorded
    }
