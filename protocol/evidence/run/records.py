"""Records: what every lane left behind, one line each, in append-only shards.

A line is the canonical {body, costs, sha256, chain}: `sha256` digests {body, costs}, and `chain` digests
the chain of the line before (64 zeros for the first) followed by this `sha256`, both as ASCII hex. The body
is what the lane produced; costs are what producing it took, and may differ when it is produced again.
Trajectories lie beside the shards, those of one batch in a file named by the digest of its content.
`docs/records.md` has every field.

`place` is the folder of one phase of a registration: `records` when confirming, `probe` when probing.
"""

import gc
import gzip
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypedDict

from protocol.evidence.bytes import canonical, files, gzipped, journal, line_endings
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run.record_fields import STATES as STATES
from protocol.evidence.run.record_fields import fault

FOLDERS = MappingProxyType({"probe": "probe", "confirm": "records"})  # by phase, below a registration
TRAJECTORIES = "trajectories"


class Key(NamedTuple):
    """The lane that a record is of: its cell and its problem."""

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


def key_of(cell: Mapping[str, Any], problem: str) -> Key:
    return Key(cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], problem)


def key(body: Mapping[str, Any]) -> Key:
    return key_of(body["cell"], body["problem"])


def excluded(found: Iterable[Record]) -> tuple[int, int]:
    """How many problems are excluded, and of how many: one that two models are asked counts twice."""
    out: dict[tuple[str, str, str], bool] = {}
    for body in (record["body"] for record in found):
        out[body["cell"]["model"], body["cell"]["task"], body["problem"]] = body["state"] == "excluded"
    return sum(out.values()), len(out)


class Shard:
    """The shard of `place` that this process appends to, for the length of a `with` block.

    Entering truncates a torn last line, which nobody was told is on disk. Raises Tampered when a whole line
    does not verify, AlreadyClaimed while another process appends.
    """

    def __init__(self, place: Path):
        self._place = place
        self._held = ExitStack()

    def __enter__(self) -> Self:
        path = self._place / "shard-0.jsonl"
        self._lines = self._held.enter_context(journal.opened(path, wait=False))
        try:
            self._done = {key(record["body"]) for record in read(self._place)}
            own = read_shard(path).records
            self._chain = own[-1]["chain"] if own else journal.START
            self._lines.drop_torn()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def __contains__(self, lane: Key) -> bool:
        return lane in self._done

    def append(self, batch: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Record a batch of (body, costs) in one write and one fsync: all of it is on disk on return.

        Raises BadInput, and records none of it, for a lane that has its record, a malformed body, and a
        trajectory that was not kept first.
        """
        added: dict[Key, Record] = {}
        chain = self._chain
        for body, costs in batch:
            if wrong := fault(body, costs):
                raise BadInput(f"record: {wrong}")
            lane = key(body)
            if lane in self or lane in added:
                raise BadInput(f"{lane}: has its record, and a finished record is never rewritten")
            if (cited := body["trajectory"]) and not _side_file(self._place, _name(cited)).exists():
                raise BadInput(f"{lane}: keep the trajectory {cited} before the record that cites it")
            sha256 = canonical.digest({"body": body, "costs": costs})
            chain = _next(chain, sha256)
            added[lane] = Record(body=dict(body), costs=dict(costs), sha256=sha256, chain=chain)
        self._lines.append([canonical.dumps(record) for record in added.values()])
        self._done |= added.keys()
        self._chain = chain

    def keep_trajectories(self, contents: Sequence[Any]) -> str:
        """Store them beside the shards in one file; returns its name, for `cite`.

        The name is the digest of the canonical bytes and not of the compressed ones, which differ between
        builds of zlib: a replication elsewhere can have the same outcome digest.
        """
        data = canonical.dumps(list(contents))
        name = hashlib.sha256(data).hexdigest()
        if (path := _side_file(self._place, name)).exists():
            read_side_file(self._place, name)
        else:
            files.create(path, gzip.compress(data, mtime=0))
        return name


def cite(name: str, place: int) -> str:
    """How a record names the trajectory at a place, from 0, of a side file."""
    return f"{name}#{place}"


def shards(place: Path) -> list[Path]:
    """Raises Tampered where the folder is a link or a file."""
    return [path for path in files.listed(place) if path.match("shard-*.jsonl")]


def read(place: Path) -> list[Record]:
    """Every whole record of every shard. Raises Tampered for a line that does not verify or repeats."""
    return joined(read_shards(place))


def read_problem(place: Path, problem: str) -> list[Record]:
    """The records of one problem, in a fraction of the time of `read`. Each is verified by its own digest; of
    the chain nothing is said, which is for an audit. Raises Tampered for a line that is not what its digest
    says.
    """
    named = b'"problem":' + canonical.encoded(problem)
    found: list[Record] = []
    for path in shards(place):
        data = files.read(path)
        line_endings.refuse_rewritten(path.name, data)
        for number, line in enumerate(journal.split(data).whole, start=1):
            if named in line:
                record = _alone(line, f"{path.name}:{number}")
                if record["body"]["problem"] == problem:
                    found.append(record)
    return found


class Read(NamedTuple):
    """A shard, and the digest and size of the very bytes that its records were read from."""

    records: list[Record]
    torn: int  # bytes of a last line that a crash cut short
    sha256: str
    size: int


def read_shards(place: Path) -> dict[str, Read]:
    """Each shard, by file name. Raises Tampered for a line that does not verify."""
    return {path.name: read_shard(path) for path in shards(place)}


def joined(reads: Mapping[str, Read]) -> list[Record]:
    """The records of all shards. Raises Tampered for a lane that is there twice."""
    found: dict[Key, Record] = {}
    for name, read in reads.items():
        for record in read.records:
            if (lane := key(record["body"])) in found:
                raise Tampered(f"{name}: {lane} is recorded twice")
            found[lane] = record
    return list(found.values())


def read_shard(path: Path) -> Read:
    """Raises Tampered for a line that does not verify, and Rewritten, a Tampered, for other line endings."""
    data = files.read(path)
    line_endings.refuse_rewritten(path.name, data)
    lines = journal.split(data)
    records: list[Record] = []
    chain = journal.START
    texts: dict[str, str] = {}
    with nothing_collected():
        for number, line in enumerate(lines.whole, start=1):
            where = f"{path.name}:{number}"
            record = _as_written(line, chain) or _verified(line, chain, where)
            if wrong := fault(record["body"], record["costs"]):
                raise Tampered(f"{where}: {wrong}")
            _share(record["body"], texts)
            chain = record["chain"]
            records.append(record)
    return Read(records, lines.torn, hashlib.sha256(data).hexdigest(), len(data))


def _as_written(line: bytes, chain: str) -> Record | None:
    """The record of a line that is to the byte what `Shard` appends after `chain`; None for any other line,
    of which `_verified` knows what is wrong, and for what may be beyond the numbers of canonical JSON.
    """
    try:
        record: Any = _PARSED(line.decode())
        body, costs = _WRITTEN(record["body"]).encode(), _WRITTEN(record["costs"]).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    sha256 = hashlib.sha256(b'{"body":%b,"costs":%b}' % (body, costs)).hexdigest()
    chained, signed = _next(chain, sha256).encode(), sha256.encode()
    written = b'{"body":%b,"chain":"%b","costs":%b,"sha256":"%b"}' % (body, chained, costs, signed)
    if line != written or canonical.LONG.search(line):
        return None
    found: Record = record
    return found


def _verified(line: bytes, chain: str, where: str) -> Record:
    """Raises Tampered for a line that is not what follows `chain`, and says why."""
    record = _whole(line, where)
    if _next(chain, record["sha256"]) != record["chain"]:
        raise Tampered(f"{where}: does not follow the line before; lines were removed, added or swapped")
    return record


def _alone(line: bytes, where: str) -> Record:
    """Raises Tampered for a line that its own digest does not hold, and for fields that are no record's."""
    record = _whole(line, where)
    if wrong := fault(record["body"], record["costs"]):
        raise Tampered(f"{where}: {wrong}")
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


def _share(body: dict[str, Any], texts: dict[str, str]) -> None:
    """One text where many records say the same: of a study with batches that is half of the memory."""
    for name in ("registration", "problem", "prompt", "trajectory"):
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
    """What a parser makes has no circles: looking for them in all records so far takes longer than reading
    does, and a sixth of an audit.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _no_number(written: str) -> Any:
    raise ValueError(f"{written} is no whole number")


_PARSED = json.JSONDecoder(parse_float=_no_number, parse_constant=_no_number).decode
_WRITTEN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def outcome_digest(records: Iterable[Record]) -> str:
    """SHA-256 of the canonical bodies, sorted by key, each followed by a newline.

    Neither costs nor the order of the lines are in it: a run that was killed and resumed has the digest of
    one that was not.
    """
    outcome = hashlib.sha256()
    for record in sorted(records, key=lambda record: key(record["body"])):
        outcome.update(_WRITTEN(record["body"]).encode() + b"\n")
    return outcome.hexdigest()


def read_side_file(place: Path, name: str) -> Any:
    """Raises Tampered when the side file is missing, or its content has another digest than its name."""
    path = _side_file(place, name)
    try:
        data = gzipped.read(path)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing, and a record cites it") from None
    if hashlib.sha256(data).hexdigest() != name:
        raise Tampered(f"{path.name}: its content has another digest than its name")
    return canonical.loads(data, path.name)


def side_files(place: Path) -> set[Path]:
    """Whatever lies among the trajectories of `place`, cited or not."""
    return set(files.listed(place / TRAJECTORIES))


def cited(place: Path, records: Iterable[Record]) -> set[Path]:
    """The side files that `records` cite."""
    names = {_name(cited) for record in records if (cited := record["body"]["trajectory"])}
    return {_side_file(place, name) for name in names}


def trajectories(place: Path, records: Iterable[Record]) -> dict[str, str]:
    """SHA-256 of each cited side file, by file name. Raises Tampered unless all are there and intact."""
    citations = sorted({cited for record in records if (cited := record["body"]["trajectory"])})
    found = {}
    for name, own in itertools.groupby(citations, key=_name):
        held = _by_citation(place, name)
        for cited in own:
            _found(held, cited)
        path = _side_file(place, name)
        found[path.name] = files.sha256(path)
    return found


def trajectory(place: Path, cited: str) -> dict[str, Any]:
    """The trajectory that a record of `place` cites. Raises Tampered as `read_side_file` does, and where the
    file does not hold it.
    """
    found: dict[str, Any] = _found(_by_citation(place, _name(cited)), cited)
    return found


def _by_citation(place: Path, name: str) -> dict[str, Any]:
    """The trajectories of a side file by what records call them."""
    content = read_side_file(place, name)
    several = isinstance(content, list)
    held = {cite(name, at): one for at, one in enumerate(content)} if several else {name: content}
    if not all(isinstance(one, dict) for one in held.values()):
        raise Tampered(f"{_side_file(place, name).name}: holds what is no trajectory")
    return held  # of before 2026-11-22: a file a trajectory


def _found(held: Mapping[str, Any], cited: str) -> Any:
    if cited not in held:
        name, _, at = cited.partition("#")
        raise Tampered(f"{name}.json.gz: has no trajectory {at!r}, and a record cites it")
    return held[cited]


def _name(cited: str) -> str:
    """The side file of a citation."""
    return cited.partition("#")[0]


def _side_file(place: Path, name: str) -> Path:
    return place / TRAJECTORIES / f"{name}.json.gz"


def _next(chain: str, sha256: str) -> str:
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()
