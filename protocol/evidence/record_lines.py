"""The lines of a shard, verified one by one, and their records.

Records of a small shard stay in memory; those of a large one are read again on access, since a parsed record
takes several times its bytes.
"""

import gc
import hashlib
import itertools
import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict, overload

from protocol.formats import canonical, files, journal, line_endings, shards
from protocol.formats.record_fields import find_fault, find_state_fault, line_pattern
from protocol.formats.refusals import Tampered

MAX_PARSED_BYTES = 1 << 26  # largest shard whose records stay parsed in memory; all shipped ones are smaller
PARSED_TOGETHER = 32  # lines of a small shard
DIGEST_BYTES = 32  # bytes of a SHA-256


class Key(NamedTuple):
    """The lane of a record: its cell and its problem."""

    model: str
    task: str
    budget: str
    arm: str
    seed: int
    problem: str

    def __str__(self) -> str:
        return "/".join(map(str, self))


class Record(TypedDict):
    body: dict[str, Any]
    costs: dict[str, Any]
    sha256: str
    chain: str


class RecordHead(NamedTuple):
    """The fields that are needed of all records at once; they stay in memory even for a large shard."""

    key: Key
    state: str
    prompt: str
    prompt_tokens: int
    trajectory: str | None
    attempt: int
    registration: str
    phase: str


class ShardContent(NamedTuple):
    """The records of a shard, with the digest and the size of the bytes that they were read from."""

    records: Sequence[Record]
    torn: int  # bytes of an incomplete last line, after a crash
    sha256: str
    size: int
    chain: str  # of the last record


def lane_key(cell: Mapping[str, Any], problem: str) -> Key:
    return Key(cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], problem)


def body_key(body: Mapping[str, Any]) -> Key:
    return lane_key(body["cell"], body["problem"])


def record_heads(records: Iterable[Record]) -> Iterable[RecordHead]:
    """Return the head of each record, in order."""
    return records.heads if isinstance(records, KEEPS_HEADS) else map(_head, records)


def cited_trajectories(records: Iterable[Record]) -> set[str]:
    """Return the trajectories that the records cite."""
    if isinstance(records, KEEPS_HEADS):
        return {citation for head in records.heads if (citation := head.trajectory)}
    return {citation for record in records if (citation := record["body"]["trajectory"])}


def select_records(records: Sequence[Record], indices: Iterable[int]) -> Iterable[Record]:
    """Return the records at these indices, in the given order."""
    return records.iter_records(indices) if isinstance(records, LazyRecords) else map(records.__getitem__, indices)


class _RecordSequence(Sequence[Record], ABC):
    """Records that are not all in memory."""

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        positions = range(len(self))[index]
        return self._read(positions) if isinstance(positions, int) else list(map(self._read, positions))

    @abstractmethod
    def _read(self, position: int) -> Record:
        """Return the record at a position from 0."""


class ParsedRecords(list[Record]):
    """The records of a shard, all in memory, with their lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[bytes] = []
        self._texts = _SharedTexts(*HEAD_TEXTS, "trajectory")

    def add(self, record: Record, line: bytes) -> None:
        self._texts.share(record["body"])
        self.append(record)
        self._lines.append(line)

    @cached_property
    def heads(self) -> list[RecordHead]:
        return [*map(_head, self)]

    def bodies(self, indices: Iterable[int]) -> Iterator[bytes]:
        """Yield the canonical bytes of the bodies at these indices, cut from the lines."""
        return map(_cut_body, map(self._lines.__getitem__, indices))


class LazyRecords(_RecordSequence):
    """The records of a shard, each read from its file and parsed on access.

    The lines of a packed shard are read from a temporary file, since a gzip file is slow to read out of order.
    Raises Tampered for a line that changed since it was verified.
    """

    def __init__(self, path: Path) -> None:
        self.heads: list[RecordHead] = []
        self._path = path
        self._plain_copy = files.temporary_file(self) if shards.is_packed(path) else None
        self._starts, self._digests = array("Q", [0]), bytearray()
        self._texts = _SharedTexts(*HEAD_TEXTS)

    def add(self, record: Record, line: bytes) -> None:
        """Add the next record. line: without its newline."""
        self._texts.share(record["body"])
        self.heads.append(_head(record))
        self._starts.append(self._starts[-1] + len(line) + 1)
        self._digests += hashlib.sha256(line).digest()
        if self._plain_copy is not None:
            self._plain_copy.write(line + b"\n")

    def __len__(self) -> int:
        return len(self.heads)

    def _read(self, position: int) -> Record:
        with self._open() as file:
            return self._read_record(file, position)

    def __iter__(self) -> Iterator[Record]:
        return self.iter_records(range(len(self)))

    def iter_records(self, indices: Iterable[int]) -> Iterator[Record]:
        with self._open() as file:
            for index in indices:
                yield self._read_record(file, index)

    def bodies(self, indices: Iterable[int]) -> Iterator[bytes]:
        """Yield the canonical bytes of the bodies at these indices, cut from the lines."""
        with self._open() as file:
            for index in indices:
                yield _cut_body(self._read_line(file, index))

    def _open(self) -> AbstractContextManager[IO[bytes]]:
        if self._plain_copy is not None:
            return nullcontext(self._plain_copy)
        return files.open_plain(self._path, memory_share=shards.MEMORY_SHARE)

    def _read_record(self, file: IO[bytes], index: int) -> Record:
        record: Record = json.loads(self._read_line(file, index))
        self._texts.share(record["body"])  # equal texts are compared faster if they are one object
        return record

    def _read_line(self, file: IO[bytes], index: int) -> bytes:
        start, end = self._starts[index], self._starts[index + 1]
        if file.tell() != start:
            file.seek(start)
        line = file.read(end - start)[:-1]
        if hashlib.sha256(line).digest() != self._digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]:
            raise Tampered(f"{self._path.name}:{index + 1}: was changed while it was read")
        return line


class JoinedRecords(_RecordSequence):
    """The concatenated records of several shards or of two phases."""

    def __init__(self, parts: Iterable[Sequence[Record]]) -> None:
        self._parts = [part for part in parts if len(part)]

    @property
    def heads(self) -> Iterator[RecordHead]:
        return itertools.chain.from_iterable(map(record_heads, self._parts))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _read(self, position: int) -> Record:
        for part in self._parts:
            if position < len(part):
                return part[position]
            position -= len(part)
        raise IndexError(position)

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(self._parts)

    def bodies(self, indices: Iterable[int]) -> Iterator[bytes]:
        return (canonical.encode(self[index]["body"]) for index in indices)


KEEPS_HEADS = (ParsedRecords, LazyRecords, JoinedRecords)


def read_shard(path: Path) -> ShardContent:
    """Read and verify a shard.

    Raises Tampered for a line that does not verify, Rewritten, a subclass, for converted line endings, and
    TooLarge above half of this machine's memory.
    """
    with shards.open_shard(path) as file, pause_gc():
        is_large = shards.plain_bytes(path) > MAX_PARSED_BYTES
        records = LazyRecords(path) if is_large else ParsedRecords()
        digest, chain, end, torn = hashlib.sha256(), journal.START, 0, 0
        lines = iter_lines(path, file)
        while group := [*itertools.islice(lines, 1 if is_large else PARSED_TOGETHER)]:
            digest.update(b"".join(group))
            if not group[-1].endswith(b"\n"):
                torn = len(group.pop())
            group = [line[:-1] for line in group]
            for record, line in zip(_parse_group(group, chain, path.name, len(records) + 1), group, strict=True):
                chain, end = record["chain"], end + len(line) + 1
                records.add(record, line)
    return ShardContent(records, torn, digest.hexdigest(), end + torn, chain)


def iter_lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a shard with their newlines; a torn last line has none.

    Raises Rewritten where every line ends in CRLF, Tampered for a line that is too long.
    """
    if file.seekable():
        first = file.readline(files.MAX_LINE_BYTES)
        if first.endswith(b"\r\n") and all(
            line.endswith(b"\r\n") or not line.endswith(b"\n") for line in files.iter_lines(path, file)
        ):
            raise line_endings.rewritten_error(path.name)
        file.seek(0)
    yield from files.iter_lines(path, file)


def format_line(body: bytes, costs: bytes, chain: str) -> tuple[bytes, str]:
    """Return the line of a record after `chain`, and the new chain. body, costs: canonical JSON."""
    sha256 = hashlib.sha256(b'{"body":%b,"costs":%b}' % (body, costs)).hexdigest()
    new_chain = journal.next_chain(chain, sha256)
    tail = new_chain.encode(), costs, sha256.encode()
    return b'{"body":%b,"chain":"%b","costs":%b,"sha256":"%b"}' % (body, *tail), new_chain


def parse_record(line: bytes, source: str, chain: str | None = None) -> Record:
    """Parse one line, after `chain` if it is given. Raises Tampered for a wrong digest or chain, and invalid fields."""
    parsed = canonical.loads(line, source)
    if not isinstance(parsed, dict) or parsed.keys() != Record.__annotations__.keys():
        raise Tampered(f"{source}: not a record")
    record: Record = parsed  # type: ignore[assignment]  # its keys were just compared
    content = canonical.encode({"body": record["body"], "costs": record["costs"]})
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise Tampered(f"{source}: its digest does not match body and costs; the line was edited")
    if chain is not None and journal.next_chain(chain, record["sha256"]) != record["chain"]:
        raise Tampered(f"{source}: does not continue the line before; lines were removed, added or swapped")
    if wrong := find_fault(record["body"], record["costs"]):
        raise Tampered(f"{source}: {wrong}")
    return record


def _head(record: Record) -> RecordHead:
    body = record["body"]
    return RecordHead(
        body_key(body),
        body["state"],
        body["prompt"],
        body["prompt_tokens"],
        body["trajectory"],
        record["costs"]["attempt"],
        body["registration"],
        body["phase"],
    )


def _parse_group(lines: Sequence[bytes], chain: str, name: str, number: int) -> list[Record]:
    """Parse lines after `chain`, from line `number` of a shard. Raises Tampered with the fault of the first invalid."""
    if (records := _parse_exact(lines, chain)) is not None:
        return records
    records = []
    for line in lines:
        records.append(parse_record(line, f"{name}:{number + len(records)}", chain))
        chain = records[-1]["chain"]
    return records


def _parse_exact(lines: Sequence[bytes], chain: str) -> list[Record] | None:
    """Parse lines that equal what `ShardWriter` would append after `chain`, with valid fields, all at once: equal keys
    are one object, which takes half of the memory. Return None for others, in which `parse_record` finds the fault.
    """
    for data in lines:
        if (line := line_pattern().fullmatch(data)) is None:
            return None
        expected, chain = format_line(line["body"], line["costs"], chain)
        if data != expected:
            return None
    try:
        records: list[Record] = json.loads((b"[%b]" % b",".join(lines)).decode())
    except UnicodeDecodeError:
        return None
    return None if any(find_state_fault(record["body"]) for record in records) else records


# The text around the body in a line of canonical JSON; the digests and costs after the body never contain it.
BODY_START, BODY_END = b'{"body":', b',"chain":"'
HEAD_TEXTS = ("registration", "problem", "prompt")
WORDS = ("phase", "state", "stop", "grade")  # each one of a few
CELL_TEXTS = ("model", "task", "budget", "arm")


def _cut_body(line: bytes) -> bytes:
    return line[len(BODY_START) : line.rindex(BODY_END)]


class _SharedTexts:
    """Shares one object among equal texts of records, which saves half of the memory in a study with batches."""

    def __init__(self, *names: str) -> None:
        self._names = (*names, *WORDS)
        self._texts: dict[str, str] = {}
        self._problems: list[str] = []  # of the last batch

    def share(self, body: dict[str, Any]) -> None:
        share = self._texts.setdefault
        for fields, names in ((body, self._names), (body["cell"], CELL_TEXTS)):
            for name in names:
                if (text := fields[name]) is not None:
                    fields[name] = share(text, text)
        if batch := body.get("batch"):
            if batch["problems"] != self._problems:
                self._problems = [share(problem, problem) for problem in batch["problems"]]
            batch["problems"] = self._problems


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause garbage collection while parsing.

    Parsed JSON has no reference cycles, and searching for them takes longer than reading the records, a sixth
    of an audit.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def outcome_digest(records: Sequence[Record]) -> str:
    """Return the SHA-256 of the canonical bodies, sorted by key, each followed by a newline.

    It does not depend on costs or the order of lines: a run that was killed and resumed has the same digest
    as an uninterrupted one.
    """
    outcome = hashlib.sha256()
    keys = [head.key for head in record_heads(records)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    encoded = (canonical.encode(records[index]["body"]) for index in order)
    for body in records.bodies(order) if isinstance(records, KEEPS_HEADS) else encoded:
        outcome.update(body + b"\n")
    return outcome.hexdigest()
