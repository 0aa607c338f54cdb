"""The checks of an audit, one per item: each returns a summary if its item passes and raises otherwise.

A check raises Tampered (or any exception, for a damaged file) when its item fails, NotRun for a step that
left no trace, Unfinished while evidence is still to come, CannotTell where this machine cannot decide.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from protocol.evidence.audit import inventory
from protocol.evidence.bytes import files, journal, line_endings
from protocol.evidence.bytes.documents import Document
from protocol.evidence.findings import CannotTell, NotRun, Unfinished
from protocol.evidence.lock import bundle, closure, lock
from protocol.evidence.outside.anchors import Anchor
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import (
    anatomies,
    claim,
    late_randomness,
    ledger,
    probing,
    records,
    seal,
    selection,
    verdict,
)
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import CITED, PROTOCOL, SELECTION, Registration

PURPOSES = frozenset({"confirm", "confirm, decrypted"})  # for which confirm reads held-out problems


class Checks:
    """The steps that a registration has reached, by their traces, and the checks of its parts."""

    def __init__(self, study: Registration):
        self.study = study
        self.place = study.place("confirm")
        try:
            events = {entry.event for entry in study.entries}
        except Exception:  # check_ledger reports it; the files decide what was reached
            events = set()
        self.judged = study.has(verdict.NAME) or "verdict" in events
        self.sealed = self.judged or study.has(seal.NAME) or "seal" in events
        self.claimed = self.sealed or study.has(claim.NAME) or files.there(self.place) or "claim" in events
        self.ended = bool({"withdraw", "amended"} & events)
        self.swept = self.has("protocol", "content", "sweep")
        chosen = study.has(selection.NAME) or "selection" in events
        self.measures = self.has("protocol", "content", "cost") or bool({"cost", "costed"} & events)
        self.occludes = self.has("protocol", "content", "anatomy") or bool({*anatomies.EVENTS} & events)
        self.selected = self.swept and (self.claimed or chosen)
        self.due = self._due(events)

    def has(self, *path: str) -> bool:
        """Return whether the lock has a value at `path`, for items that only some studies have."""
        try:
            found: Any = self.study.lock.content
            for name in path:
                found = found.get(name) or {}
            return bool(found)
        except Exception:  # check_lock reports it
            return False

    def check_lock(self) -> str:
        self._named("lock", self.study.lock.digest, "register", "lock")
        return f"{self.study.lock.digest}, {len(self.study.lock.content['grid'])} cells"

    def check_protocol(self) -> str:
        data = files.read(self.study.folder / PROTOCOL, files.MOST_OF_A_DOCUMENT)
        locked = self.study.lock.content["protocol"]["sha256"]
        if closure.digest_of(data) != locked:
            line_endings.refuse_instead_of(PROTOCOL, data, locked)
            raise Tampered("protocol.toml: is not the file that was locked")
        return "protocol.toml is the file that was locked"

    def check_sources(self) -> str:
        sources = self.study.lock.content["sources"]
        if wrong := bundle.verify(self.study.bundle, sources):
            raise Tampered(f"{bundle.NAME}: {'; '.join(wrong[:3])}")
        if files.plain_sha256(self.study.bundle) != self.study.lock.content["bundle"]:
            raise Tampered(f"{bundle.NAME}: its members hold, its bytes are not those that were locked")
        return f"{len(sources)} files in {bundle.NAME} are those that were locked"

    def check_ledger(self) -> str:
        to_come = Unfinished(f"{ledger.NAME}: its {self.due} line is to come; run again what was cut off")
        if self.due == "register":
            raise to_come
        events = [entry.event for entry in self.study.entries]
        once = ["register", "claim", "seal", "verdict"]
        steps = [event for event in events if event in once]
        reached = once[: 1 + self.claimed + self.sealed + self.judged]
        if steps != [step for step in reached if step != self.due]:
            raise Tampered(f"{ledger.NAME}: says {', '.join(steps)} where the files say {', '.join(reached)}")
        if events[0] != "register" or ("verdict" in events and events[-1] != "verdict"):
            raise Tampered(f"{ledger.NAME}: begins with {events[0]} and ends with {events[-1]}")
        if closed := [event for event in events[:-1] if event in ledger.CLOSING]:
            raise Tampered(f"{ledger.NAME}: goes on after {closed[0]}, which closes it")
        first, last = ([*events, step].index(step) for step in ("claim", "seal"))
        if {"attempt", "held-out"} & {*events[:first], *events[last:]}:
            raise Tampered(f"{ledger.NAME}: held-out problems were read before the claim or after the seal")
        if "selection" in events[first:] or ("selection" in events and not self.swept):
            raise Tampered(f"{ledger.NAME}: a selection after the claim, or without a sweep")
        self._whole(self.study.folder / ledger.NAME)
        if self.due:
            raise to_come
        return f"{len(events)} lines, chained, up to {events[-1]}, head {self.study.entries[-1].sha256[:12]}"

    def check_probe(self) -> str:
        self._reached(self.due != "register")
        place, probed = self.study.place("probe"), self.study.probed
        if self.due == "register":  # there is no ledger yet, and nothing was probed before it
            raise NotRun
        attempts = self._attempts("probe", probed)
        if not files.there(place):
            raise NotRun
        for record in probed:
            body, lane = record["body"], records.key(record["body"])
            if (body["registration"], body["phase"]) != (self.study.lock.digest, "probe"):
                raise Tampered(f"{lane}: its record is of another registration or phase")
            if lane.problem not in self.study.lock.content["items"][lane.task]["dev"]:
                raise Tampered(f"{lane}: was probed and is not of the development split")
        records.trajectories(place, probed)
        probing.verify(self.study)
        if self.claimed and (shared := _prompts(probed) & _prompts(self.study.confirmed)):
            raise Tampered(f"a held-out prompt was probed on {min(shared)[0]}: {min(shared)[1][:12]}")
        fruitless = attempts - len({record["costs"]["attempt"] for record in probed})
        left = f", {fruitless} of them without a record" if fruitless > 0 else ""
        return f"{len(probed)} records, of the development split only; {attempts} attempts{left}"

    def check_selection(self) -> str:
        self._reached(self.selected)
        chosen = selection.verify(self.study)
        self._named("selection", chosen.digest, "selection", "selection")
        if selection.inherited(self.study):
            return self._inherited(chosen)
        self._stood_at(chosen)
        events = [entry.event for entry in self.study.entries]
        attempts = events[: [*events, "selection"].index("selection")].count("probe")
        for record in self.study.probed:
            if record["costs"]["attempt"] > attempts:
                lane, number = records.key(record["body"]), record["costs"]["attempt"]
                raise Tampered(f"{lane}: was probed in attempt {number}, after the selection")
        return f"{chosen.content['selected']['winner']}, before the claim, from the probe's records"

    def check_claim(self) -> str:
        self._reached(self.claimed)
        if not self.study.has(claim.NAME):
            raise Tampered(f"{claim.NAME}: missing")
        taken = self.study.claim
        if taken.content.get("selection") != selection.digest(self.study).get("selection"):
            raise Tampered(f"{claim.NAME}: names another selection than {selection.NAME}")
        self._named("claim", taken.digest, "claim", "claim")
        self._stood_at(taken)
        return f"names the lock; {self._attempts('attempt', self.study.confirmed)} attempts"

    def check_randomness(self, block: Callable[[], late_randomness.Block] | None) -> str:
        self._reached(self.claimed)
        return late_randomness.verify(self.study.lock, self.study.claim, block)

    def check_records(self) -> str:
        self._reached(self.claimed)
        shards = records.shards(self.place)
        kept = self.place / records.TRAJECTORIES
        if extra := _ours(files.listed(self.place)) - {kept, *shards}:
            raise Tampered(f"{min(extra).name}: is not evidence of ours")
        count = len(self.study.confirmed)
        for path in shards:
            self._whole(path)
        return f"{count} records, chained, in {len(shards)} shards"

    def check_trajectories(self) -> str:
        self._reached(self.claimed)
        found = self.study.sides
        if extra := _ours(records.side_files(self.place)) - records.cited(self.place, self.study.confirmed):
            if self.sealed:
                raise Tampered(f"{min(extra).name}: no record cites it")
            if self.ended:
                return f"{len(found)} cited, all there; of {len(extra)} it ended before a record cited them"
            raise Unfinished(f"{len(found)} hold; {len(extra)} are not cited yet")
        return f"{len(found)} cited, all there, none besides"

    def check_grid(self) -> str:
        self._reached(self.claimed)
        missing = seal.missing(self.study.lock, self.study.confirmed)
        if missing and self.sealed:
            raise Tampered(f"{len(missing)} registered records are missing, first {missing[0]}")
        if missing and self.ended:
            return f"{len(self.study.confirmed)} records; it ended before the other {len(missing)} ran"
        if missing:
            raise Unfinished(f"{len(self.study.confirmed)} records, {len(missing)} to go")
        self._opened()
        self._excluded()
        excluded, problems = records.excluded(self.study.confirmed)
        said = f"{len(self.study.confirmed)} registered lanes, one record each"
        return said + (f"; {excluded} of {problems} problems are excluded" if excluded else "")

    def check_seal(self) -> str:
        self._follows(self.sealed, after=self.claimed)
        self._named("seal", self.study.seal.digest, "seal", "seal")
        self._stood_at(self.study.seal)
        again = seal.contents(self.study, self.study.seal.content["ledger"])
        if wrong := closure.differences(self.study.seal.content, again):
            raise Tampered(f"{seal.NAME}: {'; '.join(wrong[:3])}")
        return f"outcome {again['outcome']}"

    def check_verdict(self) -> str:
        self._follows(self.judged, after=self.sealed)
        content = self.study.verdict.content
        if content.keys() != {"judged", "lock", "seal", "ledger"}:
            raise Tampered(f"{verdict.NAME}: needs judged, lock, seal and ledger, and nothing else")
        if (content["lock"], content["seal"]) != (self.study.lock.digest, self.study.seal.digest):
            raise Tampered(f"{verdict.NAME}: names another lock or seal")
        self._named("verdict", self.study.digest(verdict.NAME), "verdict", "sha256")
        self._stood_at(self.study.verdict)
        return "names lock, seal and ledger, and the ledger ends with it"

    def check_anchors(self, found: Sequence[Anchor]) -> str:
        told = "; ".join(" ".join(one.line().split()) for one in found)
        if not found:
            raise NotRun("no outside witness has seen it")
        if any(one.status == "failed" for one in found):
            raise Tampered(told)
        if not any(one.status == "held" for one in found):
            raise CannotTell(told)
        return told

    def _opened(self) -> None:
        """Raise Tampered unless the held-out problems of all registered tasks, and no others, were opened.

        Each attempt may open those of a task once, for the purpose of confirming.
        """
        asked = {cell[1] for cell in self.study.lock.content["grid"]}
        opened, attempts = dict.fromkeys(asked, 0), 0
        for entry in self.study.entries:
            attempts += entry.event == "attempt"
            if entry.event == "held-out":
                task, purpose = entry.body["task"], entry.body["purpose"]
                if task not in asked:
                    raise Tampered(
                        f"{ledger.NAME}: held-out ids of {task} were read, which is not registered"
                    )
                if purpose not in PURPOSES:
                    raise Tampered(f"{ledger.NAME}: held-out ids were read for another purpose: {purpose}")
                if opened[task] == attempts:
                    raise Tampered(f"{ledger.NAME}: held-out ids of {task} were read twice, or by no attempt")
                opened[task] = attempts
        if unopened := [task for task in sorted(asked) if not opened[task]]:
            raise Tampered(f"{ledger.NAME}: {unopened[0]} was confirmed and its held-out ids never opened")

    def _excluded(self) -> None:
        """Raise Tampered unless exactly the lanes that the registered predicate covers are excluded."""
        limit = (self.study.registered.get("exclude") or {}).get("prompt_tokens_above")
        for head in records.heads(self.study.confirmed):
            covered = limit is not None and head.prompt_tokens > limit
            if covered != (head.state == "excluded"):
                said = "is excluded and no" if not covered else "is not excluded and a"
                raise Tampered(f"{head.key}: {said} registered exclusion covers it")

    def _inherited(self, chosen: Document) -> str:
        """Follow an inherited selection to the registration that made it. Raises CannotTell without that."""
        study = self.study
        while selection.inherited(study):
            parent = selection.parent(study)
            if parent is None:
                named = study.lock.content["parent"]
                raise CannotTell(
                    f"that of {named['name']}, of whose lock {named['lock']} no folder is at hand"
                )
            study = parent
            if selection.verify(study).digest != chosen.digest:
                raise Tampered(f"{selection.NAME}: {study.folder.name} has another")
        return f"{chosen.digest}, that of {study.folder.name}, whose audit derives it again"

    def _attempts(self, event: str, found: Sequence[Record]) -> int:
        """Return how many attempts the ledger has; each must have found the records of those before it.

        Probe lines from before 2026-11-22 do not have the number of records.
        """
        lines = [entry.body for entry in self.study.entries if entry.event == event]
        started = Counter(head.attempt for head in records.heads(found))
        for number, line in enumerate(lines, start=1):
            before = sum(count for attempt, count in started.items() if attempt < number)
            if event == "probe" and line == {"number": number}:
                continue
            if line != {"number": number, "records": before}:
                raise Tampered(
                    f"attempt {number} found {line.get('records')} records; now it would find {before}"
                )
        if not set(started) <= set(range(1, len(lines) + 1)):
            raise Tampered("records are of an attempt that the ledger does not have")
        return len(lines)

    def _due(self, events: Collection[str]) -> str | None:
        """Return the event of the newest document if the ledger does not have its line yet; else None.

        A crash may come between the two; the interrupted command, run again, adds the line.
        """
        if self.study.traces() == [lock.NAME]:
            return CITED[lock.NAME][0]
        cited = (name for name in CITED if name != SELECTION or self.swept)
        newest = [CITED[name][0] for name in cited if self.study.has(name)][-1:]
        closed = not events or {*ledger.CLOSING} & {*events}
        return None if closed or {*newest} <= {*events} else newest[0]

    def _reached(self, reached: bool) -> None:
        if not reached:
            raise NotRun

    def _follows(self, reached: bool, *, after: bool) -> None:
        """Raise Unfinished for a missing step that confirm makes after the previous one, else NotRun."""
        if after and not reached and not self.ended:
            raise Unfinished(f"run: kv-prereg confirm {self.study.folder}")
        self._reached(reached)

    def _named(self, what: str, digest: str, event: str, field: str) -> None:
        """Raise Tampered unless the only ledger line of `event` cites `digest` or is still to come."""
        if event == self.due:
            return
        if [entry.body.get(field) for entry in self.study.entries if entry.event == event] != [digest]:
            raise Tampered(f"the ledger's {event} line is missing or cites another {what}")

    def _stood_at(self, document: Document) -> None:
        """Raise Tampered unless the ledger once had the count and the head in the document."""
        kept = document.content["ledger"]
        if kept["count"] > len(self.study.entries) or kept != ledger.at(self.study.entries[: kept["count"]]):
            raise Tampered("names a ledger head that this ledger never had; lines were cut or rewritten")

    def _whole(self, path: Path) -> None:
        with files.opened(path, share=2) as file:
            torn = journal.torn(file)
        if torn:
            text = f"{path.name}: ends in {torn} bytes of a torn line"
            if self.sealed:
                raise Tampered(text)
            if self.ended:  # no later attempt will cut it off
                return
            raise Unfinished(f"{text}, which the next attempt truncates")


def _ours(found: Iterable[Path]) -> set[Path]:
    """Return the paths without files of the operating system, which the inventory names as unknown."""
    return {path for path in found if not inventory.of_a_system(path.name)}


def _prompts(found: Iterable[Record]) -> set[tuple[str, str]]:
    """Return (model, prompt digest) of all records."""
    return {(head.key.model, head.prompt) for head in records.heads(found)}
