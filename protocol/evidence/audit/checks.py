"""The checks of an audit, one per item: each returns a summary if its item passes and raises otherwise.

A check raises Tampered (or any exception, for a damaged file) when its item fails, NotRun for a step that
left no trace, Unfinished while evidence is still to come, CannotTell where this machine cannot decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.evidence import ledger, probe_attempts, records, registration, seal, verdict
from protocol.evidence.audit import inventory
from protocol.evidence.external.anchors import Anchor
from protocol.evidence.records import Record
from protocol.evidence.registration import ANCHORS, CITED, CLAIM, PROTOCOL, SELECTION, WITNESS, Registration
from protocol.formats import files, journal, line_endings, shards
from protocol.formats.citations import CITED_SHARD, CITES
from protocol.formats.documents import Document
from protocol.formats.findings import CannotTell, NotRun, Unfinished
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import Refusal, Tampered
from protocol.formats.runners import TABLE, find_runner
from protocol.lock import bundle, closure, lock, version_1

if TYPE_CHECKING:
    from protocol.evidence.late_randomness import Block

COMPLETED = "lock.ots"  # the proof that `kv-prereg anchor --upgrade` completes with its block


class Checks:
    """The steps that a registration has reached, by their traces, and the checks of its parts."""

    def __init__(self, study: Registration):
        self.study = study
        self.folder = study.phase_folder("confirm")
        try:
            events = {entry.event for entry in study.entries}
        except Exception:  # check_ledger reports it; the files decide what was reached
            events = set()
        self.is_judged = study.has(verdict.NAME) or "verdict" in events
        self.is_sealed = self.is_judged or study.has(seal.NAME) or "seal" in events
        self.is_claimed = self.is_sealed or study.has(CLAIM) or files.exists(self.folder) or "claim" in events
        self.has_ended = bool({"withdraw", "amended"} & events)
        self.has_sweep = self.has("protocol", "content", "sweep")
        has_selection = study.has(SELECTION) or "selection" in events
        self.instruments = [
            instrument
            for instrument in INSTRUMENTS
            if self.has("protocol", "content", instrument.name) or events.intersection(instrument.event_names)
        ]
        runner = find_runner(study.protocol) if self.has("protocol", "content", TABLE) else None
        self.unaudited = () if runner is None else runner.unaudited
        self.is_selected = self.has_sweep and (self.is_claimed or has_selection)
        self.pending_event = self._find_pending_event(events)

    def has(self, *path: str) -> bool:
        """Return whether the lock has a value at `path`, for items that only some studies have."""
        try:
            value: Any = self.study.lock.content
            for name in path:
                value = value.get(name) or {}
            return bool(value)
        except Exception:  # check_lock reports it
            return False

    def check_lock(self) -> str:
        self._check_cited("lock", self.study.lock.digest, "register", "lock")
        name, grid = self.study.lock.content["name"], self.study.lock.content["grid"]
        renamed = "" if name == self.study.name else f", locked under the name {name!a}"
        return f"{self.study.lock.digest}, {len(grid)} cells{renamed}"

    def check_protocol(self) -> str:
        data = files.read(self.study.folder / PROTOCOL, files.MAX_DOCUMENT_BYTES)
        locked = self.study.lock.content["protocol"]["sha256"]
        if closure.sha256_hex(data) != locked:
            line_endings.refuse_converted(PROTOCOL, data, locked)
            raise Tampered("protocol.toml: differs from the file that was locked")
        return "protocol.toml is the file that was locked"

    def check_sources(self) -> str:
        sources = self.study.lock.content["sources"]
        archive = self.study.bundle
        if wrong := bundle.differences(self.study.source_files, sources):
            raise Tampered(f"{archive.name}: {'; '.join(wrong[:3])}")
        is_own = archive.name == bundle.NAME
        if is_own and files.plain_sha256(archive) != self.study.lock.content["bundle"]:
            raise Tampered(f"{archive.name}: its members are correct, but its bytes differ from those that were locked")
        return f"{len(sources)} files in {archive.name} match the lock"

    def check_ledger(self) -> str:
        pending = Unfinished(
            f"{ledger.NAME}: its {self.pending_event} line is missing; run the interrupted command again"
        )
        if self.pending_event == "register":
            raise pending
        events = [entry.event for entry in self.study.entries]
        single_events = ["register", "claim", "seal", "verdict"]
        steps = [event for event in events if event in single_events]
        reached = single_events[: 1 + self.is_claimed + self.is_sealed + self.is_judged]
        if steps != [step for step in reached if step != self.pending_event]:
            raise Tampered(f"{ledger.NAME}: lists {', '.join(steps)}, but the files show {', '.join(reached)}")
        if events[0] != "register" or ("verdict" in events and events[-1] != "verdict"):
            raise Tampered(f"{ledger.NAME}: begins with {events[0]} and ends with {events[-1]}")
        if closed := [event for event in events[:-1] if event in ledger.CLOSING]:
            raise Tampered(f"{ledger.NAME}: continues after {closed[0]}, which closes it")
        first, last = ([*events, step].index(step) for step in ("claim", "seal"))
        if {"attempt", "held-out"} & {*events[:first], *events[last:]}:
            raise Tampered(f"{ledger.NAME}: held-out problems were read before the claim or after the seal")
        if "selection" in events[first:] or ("selection" in events and not self.has_sweep):
            raise Tampered(f"{ledger.NAME}: has a selection after the claim, or without a sweep")
        with files.open_plain(self.study.folder / ledger.NAME) as file:
            self._refuse_torn(ledger.NAME, journal.count_torn(file))
        if self.pending_event:
            raise pending
        return f"{len(events)} lines, chained, up to {events[-1]}, head {self.study.entries[-1].sha256[:12]}"

    def check_probe(self) -> str:
        self._require_reached(self.pending_event != "register")
        folder, probed = self.study.phase_folder("probe"), self.study.probe_records
        if self.pending_event == "register":  # there is no ledger yet, and nothing was probed before it
            raise NotRun
        attempts = self._count_attempts("probe", probed)
        if not files.exists(folder):
            raise NotRun
        self._refuse_packed(shards.list_shards(folder))
        for record in probed:
            body, lane = record["body"], records.body_key(record["body"])
            if (body["registration"], body["phase"]) != (self.study.lock.digest, "probe"):
                raise Tampered(f"{lane}: its record belongs to another registration or phase")
            if lane.problem not in self.study.lock.content["items"][lane.task]["dev"]:
                raise Tampered(f"{lane}: was probed, but is not in the development split")
        records.hash_trajectories(folder, probed)
        probe_attempts.verify(self.study)
        if self.is_claimed and (shared := _prompt_digests(probed) & _prompt_digests(self.study.confirm_records)):
            raise Tampered(f"a held-out prompt was probed on {min(shared)[0]}: {min(shared)[1][:12]}")
        fruitless_count = attempts - len({record["costs"]["attempt"] for record in probed})
        fruitless_text = f", {fruitless_count} of them without a record" if fruitless_count > 0 else ""
        return f"{len(probed)} records, all of the development split; {attempts} attempts{fruitless_text}"

    def check_selection(self) -> str:
        from protocol.evidence import selection

        self._require_reached(self.is_selected)
        document = selection.verify(self.study)
        self._check_cited("selection", document.digest, "selection", "selection")
        if selection.inherited_digest(self.study):
            return self._check_inherited(document)
        self._check_ledger_head(document, "selection")
        events = [entry.event for entry in self.study.entries]
        attempts = events[: [*events, "selection"].index("selection")].count("probe")
        for record in self.study.probe_records:
            if record["costs"]["attempt"] > attempts:
                lane, number = records.body_key(record["body"]), record["costs"]["attempt"]
                raise Tampered(f"{lane}: was probed in attempt {number}, after the selection")
        return f"{document.content['selected']['winner']}, selected before the claim from the probe's records"

    def check_claim(self) -> str:
        self._require_reached(self.is_claimed)
        if not self.study.has(CLAIM):
            raise Tampered(f"{CLAIM}: missing")
        document = self.study.claim
        if document.content.get("selection") != self._find_selection():
            raise Tampered(f"{CLAIM}: names a selection other than {SELECTION}")
        self._check_witness(document.content.get(WITNESS, {}))
        self._check_cited("claim", document.digest, "claim", "claim")
        self._check_ledger_head(document, "claim")
        return f"names the lock; {self._count_attempts('attempt', self.study.own_records)} attempts"

    def _find_selection(self) -> str | None:
        """Return the digest of the selection that the claim has to name; None without a sweep."""
        if not self.has_sweep:
            return None
        from protocol.evidence import selection

        return selection.read(self.study).digest

    def _check_witness(self, cited: Mapping[str, str]) -> None:
        """Raise Tampered unless the proofs that the claim cites are there, but for the block of a pending one."""
        present = self.study.lock_proofs()
        for name, digest in cited.items():
            if name not in present:
                raise Tampered(f"{CLAIM}: cites a proof of the lock that is missing: {ANCHORS}/{name!a}")
            if present[name] != digest and name != COMPLETED:
                raise Tampered(f"{ANCHORS}/{name}: differs from the proof of the lock that {CLAIM} cites")

    def check_randomness(self, block: Callable[[], Block] | None, value: Path | None) -> str:
        self._require_reached(self.is_claimed)
        from protocol.evidence import late_randomness

        return late_randomness.verify(self.study.lock, self.study.claim, block, value)

    def check_records(self) -> str:
        self._require_reached(self.is_claimed)
        paths = shards.list_shards(self.folder)
        trajectory_folder = self.folder / records.TRAJECTORIES
        if unknown_paths := _without_system_files(files.list_folder(self.folder)) - {trajectory_folder, *paths}:
            raise Tampered(f"{min(unknown_paths).name}: is not a file that kv-prereg writes as evidence")
        self._refuse_packed(paths)
        count = len(self.study.confirm_records)
        for name, shard in self.study.shards.items():
            self._refuse_torn(name, shard.torn)
            self._refuse_other_shard(name, shard.records)
        if kin := self._list_kin():
            from protocol.evidence.audit import copied_records

            copied_records.refuse_copied(self.study, kin)
        return f"{count} records, chained, in {len(paths)} shards"

    def check_trajectories(self) -> str:
        self._require_reached(self.is_claimed)
        digests = self.study.side_digests
        if uncited := _without_system_files(records.list_side_files(self.folder)) - records.cited_files(
            self.folder, self.study.confirm_records
        ):
            if self.is_sealed:
                raise Tampered(f"{min(uncited).name}: no record cites it")
            if self.has_ended:
                return f"{len(digests)} cited, all present; for {len(uncited)} more it ended before a record cited them"
            raise Unfinished(f"{len(digests)} are correct; {len(uncited)} are not cited yet")
        return f"{len(digests)} cited, all present, no others"

    def check_grid(self) -> str:
        self._require_reached(self.is_claimed)
        if self.study.look_words:
            from protocol.evidence import looks

            looks.check(self.study)
        missing = seal.missing_lanes(self.study.lock, self.study.due_items, self.study.confirm_records)
        if missing and self.is_sealed:
            raise Tampered(f"{len(missing)} registered records are missing, the first is {missing[0]}")
        if missing and self.has_ended:
            return f"{len(self.study.confirm_records)} records; it ended before the remaining {len(missing)} ran"
        if missing:
            raise Unfinished(f"{len(self.study.confirm_records)} records, {len(missing)} to go")
        self._check_opened()
        self._check_excluded()
        excluded, problems = records.count_excluded(self.study.confirm_records)
        summary = f"{len(self.study.confirm_records)} registered lanes, one record each"
        return summary + (f"; {excluded} of {problems} problems are excluded" if excluded else "")

    def check_seal(self) -> str:
        self._require_next(self.is_sealed, previous_reached=self.is_claimed)
        self._check_cited("seal", self.study.seal.digest, "seal", "seal")
        self._check_ledger_head(self.study.seal, "seal")
        recomputed = seal.make_content(self.study, self.study.seal.content["ledger"])
        if wrong := closure.differences(self.study.seal.content, recomputed):
            raise Tampered(f"{seal.NAME}: {'; '.join(wrong[:3])}")
        return f"outcome {recomputed['outcome']}"

    def check_verdict(self) -> str:
        self._require_next(self.is_judged, previous_reached=self.is_sealed)
        content = self.study.verdict.content
        if content.keys() != {"judged", "lock", "seal", "ledger"}:
            raise Tampered(f"{verdict.NAME}: must have the fields judged, lock, seal and ledger, and no others")
        if (content["lock"], content["seal"]) != (self.study.lock.digest, self.study.seal.digest):
            raise Tampered(f"{verdict.NAME}: names a different lock or seal")
        self._check_cited("verdict", self.study.digest(verdict.NAME), "verdict", "sha256")
        self._check_ledger_head(self.study.verdict, "verdict")
        return "names this lock, seal and ledger, and is the last line of the ledger"

    def check_anchors(self, anchors: Sequence[Anchor]) -> str:
        summary = "; ".join(" ".join(anchor.format_line().split()) for anchor in anchors)
        if not anchors:
            raise NotRun("no outside witness has seen it")
        if any(anchor.status == "failed" for anchor in anchors):
            raise Tampered(summary)
        if not any(anchor.status == "held" for anchor in anchors):
            raise CannotTell(summary)
        return summary

    def _check_opened(self) -> None:
        """Raise Tampered unless the held-out problems of all registered tasks, and no others, were opened.

        Each attempt may open those of a task once, for the purpose of confirming, and once more after each look.
        """
        tasks = {cell[1] for cell in self.study.lock.content["grid"]}
        opened, attempts = dict.fromkeys(tasks, 0), 0
        for entry in self.study.entries:
            attempts += entry.event in ("attempt", "look")
            if entry.event == "held-out":
                task, purpose = entry.body["task"], entry.body["purpose"]
                if task not in tasks:
                    raise Tampered(f"{ledger.NAME}: held-out ids of {task} were read, but that task is not registered")
                is_sealed = isinstance(self.study.lock.content["data"].get(task), Mapping)
                if purpose != ("confirm, decrypted" if is_sealed else "confirm"):
                    raise Tampered(
                        f"{ledger.NAME}: held-out ids were read for a purpose that is not allowed: {purpose}"
                    )
                if opened[task] == attempts:
                    raise Tampered(f"{ledger.NAME}: held-out ids of {task} were read twice, or outside any attempt")
                opened[task] = attempts
        if unopened := [task for task in sorted(tasks) if not opened[task]]:
            raise Tampered(f"{ledger.NAME}: {unopened[0]} was confirmed, but its held-out ids were never opened")

    def _check_excluded(self) -> None:
        """Raise Tampered unless exactly the lanes that the registered predicate covers are excluded."""
        limit = (self.study.protocol.get("exclude") or {}).get("prompt_tokens_above")
        for head in records.record_heads(self.study.confirm_records):
            is_covered = limit is not None and head.prompt_tokens > limit
            if is_covered != (head.state == "excluded"):
                message = "is excluded and no" if not is_covered else "is not excluded and a"
                raise Tampered(f"{head.key}: {message} registered exclusion covers it")

    def _check_inherited(self, document: Document) -> str:
        """Follow an inherited selection to the registration that made it. Raises CannotTell without that."""
        from protocol.evidence import selection

        study = self.study
        while selection.inherited_digest(study):
            parent = study.find_parent()
            if parent is None:
                reference = study.lock.content["parent"]
                raise CannotTell(f"that of {reference['name']}, but no folder here has its lock {reference['lock']}")
            study = parent
            if selection.verify(study).digest != document.digest:
                raise Tampered(f"{selection.NAME}: {study.folder.name} has another")
        return f"{document.digest}, that of {study.folder.name}, whose own audit rederives it"

    def _count_attempts(self, event: str, recorded: Sequence[Record]) -> int:
        """Return how many attempts the ledger has; each must have found the records of those before it.

        Some probe lines of studies of version 1 do not have the number of records.
        """
        bodies = [entry.body for entry in self.study.entries if entry.event == event]
        started = Counter(head.attempt for head in records.record_heads(recorded))
        for number, body in enumerate(bodies, start=1):
            earlier = sum(count for attempt, count in started.items() if attempt < number)
            if body == {"number": number} and event == "probe" and self.study.lock.digest in version_1.PROTOCOLS:
                continue
            if body != {"number": number, "records": earlier}:
                raise Tampered(
                    f"attempt {number} found {body.get('records')} records, but there are now {earlier} before it"
                )
        if not set(started) <= set(range(1, len(bodies) + 1)):
            raise Tampered("records name an attempt that is not in the ledger")
        return len(bodies)

    def _find_pending_event(self, events: Collection[str]) -> str | None:
        """Return the event of the newest document if the ledger does not have its line yet; else None.

        A crash may come between the two; the interrupted command, run again, adds the line.
        """
        if self.study.written_files() == [lock.NAME]:
            return CITED[lock.NAME][0]
        cited = (name for name in CITED if name != SELECTION or self.has_sweep)
        newest = [CITED[name][0] for name in cited if self.study.has(name)][-1:]
        is_closed = not events or {*ledger.CLOSING} & {*events}
        return None if is_closed or {*newest} <= {*events} else newest[0]

    def _require_reached(self, reached: bool) -> None:
        if not reached:
            raise NotRun

    def _require_next(self, reached: bool, *, previous_reached: bool) -> None:
        """Raise Unfinished for a missing step that confirm makes after the previous one, else NotRun."""
        if previous_reached and not reached and not self.has_ended:
            raise Unfinished(f"run: kv-prereg confirm {self.study.folder}")
        self._require_reached(reached)

    def _check_cited(self, document: str, digest: str, event: str, field: str) -> None:
        """Raise Tampered unless the only ledger line of `event` cites `digest` or is still to come."""
        if event == self.pending_event:
            return
        if [entry.body.get(field) for entry in self.study.entries if entry.event == event] != [digest]:
            raise Tampered(f"the ledger's {event} line is missing or cites another {document}")

    def _check_ledger_head(self, document: Document, event: str) -> None:
        """Raise Tampered unless the document names the head of the ledger that its own line continues."""
        head, entries = document.content["ledger"], self.study.entries
        before = next((entry.index for entry in entries if entry.event == event), len(entries))
        if head["count"] > len(entries) or head != ledger.head_of(entries[: head["count"]]):
            raise Tampered("names a ledger head that never was in this ledger; lines were removed or rewritten")
        if head["count"] != before:
            raise Tampered(f"names the ledger's first {head['count']} lines, but its own line comes after {before}")

    def _list_kin(self) -> list[Registration]:
        """Return the parents, and, unless version 1 ships it, the studies here that have a trajectory of this one."""
        kin, shelf = self.study.find_parents(), self.study.folder.resolve().parent
        if self.study.lock.digest in version_1.PROTOCOLS:
            return kin
        names = {path.name for path in records.list_side_files(self.folder)}
        shelves = {shelf.parent / name for name in (shelf.name, *registration.REGISTRATION_FOLDERS)}
        for other in map(Registration, sorted(path for each in shelves for path in each.glob("*/"))):
            with suppress(Refusal, OSError):  # of somebody else, or damaged
                shared = names & {path.name for path in records.list_side_files(other.phase_folder("confirm"))}
                kin += [other] if shared and other.lock.digest != self.study.lock.digest else []
        return kin

    def _refuse_other_shard(self, name: str, recorded: Iterable[Record]) -> None:
        """Raise Tampered unless a shard is the one that its records belong in: own ones, or those of cited arms."""
        cited = self.study.lock.content.get(CITES, {})
        for head in records.record_heads(recorded):
            expected = CITED_SHARD if head.key.arm in cited else shards.OWN
            if name != expected:
                raise Tampered(f"{name}: has the record of {head.key}, which belongs in {expected}")

    def _refuse_packed(self, paths: Iterable[Path]) -> None:
        """Raise Tampered for a packed shard of a study that may go on: no run appends to such a file."""
        if not (self.is_judged or self.has_ended) and (packed := [path for path in paths if shards.is_packed(path)]):
            raise Tampered(
                f"{packed[0].name}: is packed, but its study has not ended; only shards of ended studies may be packed"
            )

    def _refuse_torn(self, name: str, torn: int) -> None:
        if torn:
            text = f"{name}: ends in {torn} bytes of a torn line"
            if self.is_sealed:
                raise Tampered(text)
            if self.has_ended:  # no later attempt will cut it off
                return
            raise Unfinished(f"{text}, which the next attempt truncates")


def _without_system_files(paths: Iterable[Path]) -> set[Path]:
    """Return the paths without leftovers of systems and editors, which the inventory names as unknown."""
    return {path for path in paths if not inventory.is_leftover(path)}


def _prompt_digests(recorded: Iterable[Record]) -> set[tuple[str, str]]:
    """Return (model, prompt digest) of all records."""
    return {(head.key.model, head.prompt) for head in records.record_heads(recorded)}
