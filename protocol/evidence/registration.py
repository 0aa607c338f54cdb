"""One registration: its documents, ledger and records, each read on first use and cached.

A cached value is never read again. Documents are written once, so caching them is safe; code that writes to a
registration or guards access calls `reopen` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from protocol.evidence import ledger, records
from protocol.evidence.ledger import Entry
from protocol.evidence.records import Record
from protocol.formats import document_fields, documents, files, looks
from protocol.formats.citations import CITED_SHARD
from protocol.formats.documents import Document
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import BadInput, Refusal, Tampered
from protocol.formats.vocabulary import RANDOMNESS
from protocol.lock import bundle, lock
from protocol.lock.lock import Lock

PROTOCOL = "protocol.toml"
SELECTION = "selection.json"
CLAIM = "claim.json"
SEAL = "seal.json"
VERDICT = "verdict.json"
ANCHORS = "anchors"
WITNESS = "witness"  # the field of a claim with the proofs of the lock
REGISTRATION_FOLDERS = ("registrations", "replications")  # folders of a repository with registrations
TASK_FILES = ("file", "data")  # fields of a task that name a file next to the protocol
# Each document, in writing order, with the event and the field of the ledger line that cites it.
CITED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        lock.NAME: ("register", "lock"),
        SELECTION: ("selection", "selection"),
        CLAIM: ("claim", "claim"),
        SEAL: ("seal", "seal"),
        VERDICT: ("verdict", "sha256"),
    }
)


@dataclass(frozen=True)
class Registration:
    """The registration in `folder`, which may be incomplete; missing or damaged parts raise when read."""

    folder: Path

    @classmethod
    def with_lock(cls, folder: Path, locked: Lock) -> Registration:
        """Return the registration in the folder with a lock that was read before."""
        registration = cls(folder)
        vars(registration)["_lock"] = locked
        return registration

    def reopen(self) -> Registration:
        """Return the same registration with nothing cached except its lock."""
        return Registration.with_lock(self.folder, self.lock)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def bundle(self) -> Path:
        return bundle.find(self.folder)

    @cached_property
    def source_files(self) -> Mapping[str, bytes]:
        """The bytes of the locked sources by path, as their archive has them. Raises Tampered for an unreadable one."""
        return bundle.read(self.bundle, self.lock.content["sources"])

    @property
    def lock(self) -> Lock:
        """The lock. Raises BadInput when there is none."""
        if isinstance(self._lock, Refusal):
            raise self._lock.with_traceback(None)
        return self._lock

    @cached_property
    def _lock(self) -> Lock | Refusal:
        """The lock or the exception of reading it, so that the file is read only once."""
        try:
            return lock.read(self.folder)
        except Refusal as refusal:
            return refusal

    @property
    def protocol(self) -> Mapping[str, Any]:
        """The content of the protocol in the lock."""
        content: Mapping[str, Any] = self.lock.content["protocol"]["content"]
        return content

    @property
    def task_files(self) -> frozenset[str]:
        """The names of the files in the folder that the protocol's tasks read."""
        tasks = self.protocol["tasks"]
        return frozenset(str(task[field]) for task in tasks for field in TASK_FILES if field in task)

    @property
    def has_sweep(self) -> bool:
        """Whether the registration has a sweep, so that confirming it needs a selection."""
        return "sweep" in self.protocol

    @property
    def parent(self) -> Mapping[str, Any] | None:
        """For a reproduction or a replication, the parent's name, lock and, if it has one, selection; else None."""
        reference: Mapping[str, Any] | None = self.lock.content.get("parent")
        return reference

    def find_parents(self) -> list[Registration]:
        """Return every copy of the parent of a reproduction or replication, the most complete first: the folders with
        the name and the lock that it cites, in any folder of registrations here. None for a study that is no
        replication.
        """
        if (reference := self.parent) is None:
            return []
        shelves = sorted(self.folder.resolve().parent.parent.glob("*/"))
        candidates = (Registration(shelf / reference["name"]) for shelf in shelves)
        copies = [candidate for candidate in candidates if candidate.has_lock(reference["lock"])]
        return sorted(copies, key=lambda copy: -len(copy.written_files()))

    def find_parent(self) -> Registration | None:
        """Return the first of `find_parents`; None without one."""
        return next(iter(self.find_parents()), None)

    @property
    def reproduces(self) -> bool:
        """Whether it runs its parent's problems and seeds again, and so takes over what its parent measured."""
        return self.parent is not None and not self.parent.get("fresh")

    @cached_property
    def selection(self) -> Document:
        """The selection, unverified; `selection.verify` checks that it belongs to this lock."""
        return documents.read(self.folder / SELECTION, document_fields.SELECTION)

    @cached_property
    def claim(self) -> Document:
        """The claim. Raises BadInput when there is none, Tampered when it names another lock."""
        if not self.has(CLAIM):
            raise BadInput(f"{self.folder} has no claim; run: kv-prereg confirm {self.folder}")
        claim = documents.read(self.folder / CLAIM, document_fields.CLAIM)
        if claim.content.get("lock") != self.lock.digest:
            raise Tampered(f"{CLAIM}: names a lock other than {self.lock.digest}")
        return claim

    @cached_property
    def seal(self) -> Document:
        return documents.read(self.folder / SEAL, document_fields.SEAL)

    @cached_property
    def verdict(self) -> Document:
        return documents.read(self.folder / VERDICT, document_fields.VERDICT)

    @cached_property
    def entries(self) -> list[Entry]:
        """The lines of the ledger, with the chain verified."""
        return ledger.read(self.folder)

    @cached_property
    def due_items(self) -> Mapping[str, Mapping[str, Any]]:
        """The field `items` of the lock with the held-out problems that may be opened now: see `formats.looks`."""
        content = self.lock.content
        return looks.due_items(content, self.look_words) if looks.read_looks(content) else content["items"]

    @property
    def look_words(self) -> list[str]:
        """What the judge said after each look so far."""
        return [entry.body["word"] for entry in self.entries if entry.event == "look"]

    @cached_property
    def probe_records(self) -> Sequence[Record]:
        """The records of development problems."""
        return records.read_records(self.phase_folder("probe"))

    @cached_property
    def shards(self) -> dict[str, records.ShardContent]:
        """The shards of held-out problems, by file name."""
        return records.read_shards(self.phase_folder("confirm"))

    @cached_property
    def confirm_records(self) -> Sequence[Record]:
        """The records of held-out problems."""
        return records.join_shards(self.shards)

    @property
    def own_shards(self) -> list[Sequence[Record]]:
        """The records of each shard that this study decoded itself."""
        return [content.records for name, content in self.shards.items() if name != CITED_SHARD]

    @property
    def own_records(self) -> Sequence[Record]:
        """The records of held-out problems that this study decoded itself."""
        return records.JoinedRecords(self.own_shards)

    @cached_property
    def side_digests(self) -> dict[str, str]:
        """SHA-256 of the side files that records of held-out problems cite, by file name."""
        return records.hash_trajectories(self.phase_folder("confirm"), self.confirm_records)

    def late_key(self) -> str | None:
        """Return the claim's key, with which problems and seeds are drawn; None without late randomness. Raises
        Tampered for a key that does not follow from the lock and the value.
        """
        if RANDOMNESS not in self.protocol and RANDOMNESS not in self.claim.content:
            return None
        from protocol.evidence import late_randomness

        return late_randomness.claim_key(self.lock, self.claim)

    def lock_proofs(self) -> dict[str, str]:
        """Return the SHA-256 of each proof of the lock by an outside witness, by its file name in anchors/."""
        paths = files.list_folder(self.folder / ANCHORS)
        return {path.name: files.plain_sha256(path) for path in paths if path.name.startswith("lock.")}

    def phase_folder(self, phase: str) -> Path:
        """Return the folder with the records of a phase."""
        return self.folder / records.FOLDERS[phase]

    def has(self, document: str) -> bool:
        return files.exists(self.folder / document)

    def has_lock(self, digest: str) -> bool:
        """Return whether the lock has this digest. A damaged lock does not, which its own audit reports, nor one in
        another user's folder or under a name that no folder has.
        """
        try:
            return self.has(lock.NAME) and self.lock.digest == digest
        except (Refusal, OSError):
            return False

    def is_registration(self) -> bool:
        """Return whether the folder is a registration or the remains of one."""
        is_of_instrument = self._is_instrument_folder() and not self.has_documents()
        return self.has(PROTOCOL) or (bool(self.written_files()) and not is_of_instrument)

    def has_documents(self) -> bool:
        """Return whether something is registered in the folder: it has a document or a ledger of a registration. Any
        folder may be named records or probe, and that of an instrument may have a verdict of its own.
        """
        others = {*records.FOLDERS.values(), *([VERDICT] if self._is_instrument_folder() else [])}
        return bool({*self.written_files()} - others)

    def _is_instrument_folder(self) -> bool:
        is_named_so = any(self.folder.name == instrument.name for instrument in INSTRUMENTS)
        return is_named_so and Registration(self.folder.parent).has(lock.NAME)

    def written_files(self) -> list[str]:
        """Return the names of the existing files and folders that are written from the lock on."""
        names = [name for name in (*CITED, ledger.NAME, *records.FOLDERS.values()) if self.has(name)]
        return [name for name in names if name != ledger.NAME or self.has_entries]

    @property
    def has_entries(self) -> bool:
        """Whether the ledger has a complete line: a crash may leave it without its first one.

        An unreadable ledger counts as having one, and its reader refuses it.
        """
        try:
            return b"\n" in files.read(self.folder / ledger.NAME, files.MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            return False
        except (Tampered, OSError):
            return True

    def cited_digests(self, document: str) -> list[Any]:
        """Return the digests of a document in the lines of the ledger; a valid ledger has at most one."""
        event, field = CITED[document]
        return [entry.body.get(field) for entry in self.entries if entry.event == event]

    def digest(self, document: str) -> str:
        """Return the digest by which the ledger cites a document: for the verdict, that of its file."""
        if document == VERDICT:
            return files.plain_sha256(self.folder / document, files.MAX_DOCUMENT_BYTES)
        content: Document = getattr(self, document.removesuffix(".json"))
        return content.digest

    def count_events(self, event: str) -> int:
        """Return how many lines of `event` the ledger has."""
        return sum(entry.event == event for entry in self.entries)
