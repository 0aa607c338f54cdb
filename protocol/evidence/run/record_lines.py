"""The lines of a shard, verified one by one, and their records.

Records of a small shard stay in memory; those of a large one are read again on access, since a parsed record
takes several times its bytes.
"""

import gc
import hashlib
import itertools
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, overload

from protocol.evidence.bytes import canonical, files, journal, line_endings
from protocol.evidence.refusals import Tampered
from protocol.evidence.run.record_fields import fault

__all__ = [
    "SHARE",
    "Head",
    "Joined",
    "Key",
    "Lines",
    "Read",
    "Record",
    "alone",
    "chosen",
    "heads",
    "key",
    "key_of",
    "line",
    "nothing_collected",
    "outcome_digest",
    "read_shard",
    "written",
]

KEPT = 1 << 26  # largest shard whose records stay parsed in memory; all shipped ones are smaller
MOST_OF_A_LINE = 1 << 26  # an answer of ten million tokens
SHARE = 2  # a shard may have half of this machine's memory; a large one takes a third of its size
SIZE = 32  # bytes of a SHA-256


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


class Head(NamedTuple):
    """The fields that are needed of all records at once; they stay in memory even for a large shard."""

    key: Key
    state: str
    prompt: str
    prompt_tokens: int
    trajectory: str | None
    attempt: int
    registration: str
    phase: str


class Read(NamedTuple):
    """The records of a shard, with the digest and the size of the bytes that they were read from."""

    records: Sequence[Record]
    torn: int  # bytes of an incomplete last line, after a crash
    sha256: str
    size: int
    chain: str  # of the last record


def key_of(cell: Mapping[str, Any], problem: str) -> Key:
    return Key(cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], problem)


def key(body: Mapping[str, Any]) -> Key:
    return key_of(body["cell"], body["problem"])


def heads(found: Iterable[Record]) -> Iterable[Head]:
    """Return the head of each record, in order."""
    return found.heads if isinstance(found, Lines | Joined) else map(_head, found)


def citations(found: Iterable[Record]) -> set[str]:
    """Return the trajectories that the records cite."""
    if isinstance(found, Lines | Joined):
        return {cited for head in found.heads if (cited := head.trajectory)}
    return {cited for record in found if (cited := record["body"]["trajectory"])}


def chosen(found: Sequence[Record], places: Iterable[int]) -> Iterable[Record]:
    """Return the records at these indices, in the given order."""
    return found.ordered(places) if isinstance(found, Lines) else map(found.__getitem__, places)


class Lines(Sequence[Record]):
    """The records of a shard, each read from its file and parsed on access.

    Raises Tampered for a line that changed since it was verified.
    """

    def __init__(self, path: Path) -> None:
        self.heads: list[Head] = []
        self._path = path
        self._starts, self._digests = array("Q", [0]), bytearray()
        self._texts: dict[str, str] = {}

    def add(self, record: Record, line: bytes, end: int) -> None:
        """Add the next record. line: without its newline. end: the file offset after the newline."""
        _share(record["body"], self._texts, BRIEF)
        self.heads.append(_head(record))
        self._starts.append(end)
        self._digests += hashlib.sha256(line).digest()

    def __len__(self) -> int:
        return len(self.heads)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        with self._opened() as file:
            return self._at(file, range(len(self))[place])

    def __iter__(self) -> Iterator[Record]:
        return self.ordered(range(len(self)))

    def ordered(self, places: Iterable[int]) -> Iterator[Record]:
        with self._opened() as file:
            for place in places:
                yield self._at(file, place)

    def bodies(self, places: Iterable[int]) -> Iterator[bytes]:
        """Yield the canonical bytes of the bodies at these indices, cut from the lines."""
        with self._opened() as file:
            for place in places:
                line = self._line(file, place)
                yield line[len(BEFORE) : line.rindex(BEHIND)]

    def _opened(self) -> Any:
        return files.opened(self._path, share=SHARE)

    def _at(self, file: BufferedReader, place: int) -> Record:
        record: Record = _PARSED(self._line(file, place).decode())
        _share(record["body"], self._texts, BRIEF)
        return record

    def _line(self, file: BufferedReader, place: int) -> bytes:
        start, end = self._starts[place], self._starts[place + 1]
        if file.tell() != start:
            file.seek(start)
        line = file.read(end - start)[:-1]
        if hashlib.sha256(line).digest() != self._digests[SIZE * place : SIZE * (place + 1)]:
            raise Tampered(f"{self._path.name}:{place + 1}: was changed while it was read")
        return line


class Joined(Sequence[Record]):
    """The concatenated records of several shards or of two phases."""

    def __init__(self, parts: Iterable[Sequence[Record]]) -> None:
        self._parts = [part for part in parts if len(part)]

    @property
    def heads(self) -> Iterator[Head]:
        return itertools.chain.from_iterable(map(heads, self._parts))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        for part in self._parts:
            if at < len(part):
                return part[at]
            at -= len(part)
        raise IndexError(place)

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(self._parts)

    def bodies(self, places: Iterable[int]) -> Iterator[bytes]:
        return (_WRITTEN(self[place]["body"]).encode() for place in places)


def read_shard(path: Path) -> Read:
    """Read and verify a shard.

    Raises Tampered for a line that does not verify, Rewritten, a subclass, for converted line endings, and
    TooLarge above half of this machine's memory.
    """
    with files.opened(path, share=SHARE) as file, nothing_collected():
        records: list[Record] = []
        lines = Lines(path) if os.fstat(file.fileno()).st_size > KEPT else None
        whole, chain, end, torn, texts = hashlib.sha256(), journal.START, 0, 0, dict[str, str]()
        for number, raw in enumerate(written(path, file), start=1):
            whole.update(raw)
            end += len(raw)
            if not raw.endswith(b"\n"):
                torn = len(raw)
                break
            where, own = f"{path.name}:{number}", raw[:-1]
            record = _as_written(own, chain) or _verified(own, chain, where)
            if wrong := fault(record["body"], record["costs"]):
                raise Tampered(f"{where}: {wrong}")
            chain = record["chain"]
            if lines is not None:
                lines.add(record, own, end)
            else:
                _share(record["body"], texts, SHARED)
                records.append(record)
    return Read(records if lines is None else lines, torn, whole.hexdigest(), end, chain)


def written(path: Path, file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines of a shard with their newlines; a torn last line has none.

    Raises Rewritten where every line ends in CRLF, Tampered for a line that is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(MOST_OF_A_LINE), b""), start=1):
        if (
            number == 1
            and line.endswith(b"\r\n")
            and all(
                other.endswith(b"\r\n") or not other.endswith(b"\n")
                for other in iter(lambda: file.readline(MOST_OF_A_LINE), b"")
            )
        ):
            raise line_endings.rewritten(path.name)
        if number == 1:
            file.seek(len(line))
        if len(line) == MOST_OF_A_LINE and not line.endswith(b"\n"):
            raise Tampered(f"{path.name}:{number}: has over {MOST_OF_A_LINE} bytes; no record of ours has")
        yield line


def line(body: bytes, costs: bytes, chain: str) -> tuple[bytes, str]:
    """Return the line of a record after `chain`, and the new chain. body, costs: canonical JSON."""
    sha256 = hashlib.sha256(b'{"body":%b,"costs":%b}' % (body, costs)).hexdigest()
    chained = following(chain, sha256)
    ends = chained.encode(), costs, sha256.encode()
    return b'{"body":%b,"chain":"%b","costs":%b,"sha256":"%b"}' % (body, *ends), chained


def alone(line: bytes, where: str) -> Record:
    """Parse one line without its chain. Raises Tampered for a wrong digest and for invalid fields."""
    record = _whole(line, where)
    if wrong := fault(record["body"], record["costs"]):
        raise Tampered(f"{where}: {wrong}")
    return record


def _head(record: Record) -> Head:
    body = record["body"]
    return Head(
        key(body),
        body["state"],
        body["prompt"],
        body["prompt_tokens"],
        body["trajectory"],
        record["costs"]["attempt"],
        body["registration"],
        body["phase"],
    )


def _as_written(own: bytes, chain: str) -> Record | None:
    """Parse a line that equals what `ShardWriter` would append after `chain`; return None for any other line.

    `_parse_chained` then finds the fault. A line with a very large integer gives None too.
    """
    try:
        record: Any = _PARSED(own.decode())
        body, costs = _WRITTEN(record["body"]).encode(), _WRITTEN(record["costs"]).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if own != line(body, costs, chain)[0] or canonical.LONG.search(own):
        return None
    found: Record = record
    return found


def _verified(line: bytes, chain: str, where: str) -> Record:
    """Parse a line after `chain`. Raises Tampered with the fault of an invalid line."""
    record = _whole(line, where)
    if following(chain, record["sha256"]) != record["chain"]:
        raise Tampered(f"{where}: does not follow the line before; lines were removed, added or swapped")
    return record


def _whole(line: bytes, where: str) -> Record:
    parsed = canonical.loads(line, where)
    if not isinstance(parsed, dict) or parsed.keys() != Record.__annotations__.keys():
        raise Tampered(f"{where}: not a record")
    record: Record = parsed  # type: ignore[assignment]  # its keys were just compared
    content = canonical.encoded({"body": record["body"], "costs": record["costs"]})
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise Tampered(f"{where}: its digest is not that of body and costs; the line was edited")
    return record


# The text around the body in a line of canonical JSON; the digests and costs after the body never contain it.
BEFORE, BEHIND = b'{"body":', b',"chain":"'
BRIEF = ("registration", "problem", "prompt")
SHARED = (*BRIEF, "trajectory")


def _share(body: dict[str, Any], texts: dict[str, str], names: Iterable[str]) -> None:
    """Share one object among equal texts, which saves half of the memory in a study with batches."""
    for name in names:
        if (text := body[name]) is not None:
            body[name] = texts.setdefault(text, text)
    for of in (body, body["cell"]):
        for name in ("phase", "state", "stop", "grade", "model", "task", "budget", "arm"):
            if isinstance(text := of.get(name), str):
                of[name] = texts.setdefault(text, text)
    if batch := body.get("batch"):
        batch["problems"] = [texts.setdefault(problem, problem) for problem in batch["problems"]]


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Pause garbage collection while parsing.

    Parsed JSON has no reference cycles, and searching for them takes longer than reading the records, a sixth
    of an audit.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def outcome_digest(found: Sequence[Record]) -> str:
    """Return the SHA-256 of the canonical bodies, sorted by key, each followed by a newline.

    It does not depend on costs or the order of lines: a run that was killed and resumed has the same digest
    as an uninterrupted one.
    """
    outcome = hashlib.sha256()
    keys = [head.key for head in heads(found)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    if isinstance(found, Lines | Joined):
        bodies = found.bodies(order)
    else:
        bodies = (_WRITTEN(found[place]["body"]).encode() for place in order)
    for body in bodies:
        outcome.update(body + b"\n")
    return outcome.hexdigest()


def following(chain: str, sha256: str) -> str:
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()


def _no_number(written: str) -> Any:
    raise ValueError(f"{written} is no whole number")


_PARSED = json.JSONDecoder(parse_float=_no_number, parse_constant=_no_number).decode
_WRITTEN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
