"""Records: the result of every lane, one line each, in append-only shards.

A line is the canonical {body, costs, sha256, chain}: `sha256` digests {body, costs}, and `chain` digests the
preceding line's chain (64 zeros for the first) followed by this `sha256`, both as ASCII hex. The body is the
output of the lane; costs are the resources it took, which may differ when it is decoded again. Trajectories
are stored next to the shards, those of one batch in a file named by the digest of its content.
`docs/records.md` describes every field.

`folder` is that of one phase of a registration: `records` when confirming, `probe` when probing.
"""

import gzip
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from protocol.evidence.bytes import canonical, files, gzipped, journal
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import record_lines
from protocol.evidence.run.record_fields import STATES as STATES
from protocol.evidence.run.record_fields import fault
from protocol.evidence.run.record_lines import Head as Head
from protocol.evidence.run.record_lines import Joined as Joined
from protocol.evidence.run.record_lines import Key as Key
from protocol.evidence.run.record_lines import Read as Read
from protocol.evidence.run.record_lines import Record as Record
from protocol.evidence.run.record_lines import chosen as chosen
from protocol.evidence.run.record_lines import citations
from protocol.evidence.run.record_lines import heads as heads
from protocol.evidence.run.record_lines import key as key
from protocol.evidence.run.record_lines import key_of as key_of
from protocol.evidence.run.record_lines import nothing_collected as nothing_collected
from protocol.evidence.run.record_lines import outcome_digest as outcome_digest
from protocol.evidence.run.record_lines import read_shard as read_shard

FOLDERS = MappingProxyType({"probe": "probe", "confirm": "records"})  # in a registration, by phase
TRAJECTORIES = "trajectories"


def excluded(found: Iterable[Record]) -> tuple[int, int]:
    """Return the number of excluded problems and of all problems; each model counts separately."""
    out: dict[tuple[str, str, str], bool] = {}
    for head in heads(found):
        out[head.key.model, head.key.task, head.key.problem] = head.state == "excluded"
    return sum(out.values()), len(out)


class Shard:
    """Appends to the shard in `folder` during a `with` block, as the only process.

    Entering truncates a torn last line, which was never acknowledged. Raises Tampered when a complete line
    does not verify, AlreadyClaimed while another process appends.
    """

    def __init__(self, place: Path):
        self._place = place
        self._held = ExitStack()

    def __enter__(self) -> Self:
        path = self._place / "shard-0.jsonl"
        self._lines = self._held.enter_context(journal.opened(path, wait=False, kept=False))
        try:
            found = read_shards(self._place)
            self._done = {head.key for head in heads(joined(found))}
            self._chain = found[path.name].chain
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

        Raises BadInput, and records nothing, for a lane that has its record, an invalid body, and a cited
        trajectory that was not stored first.
        """
        added: dict[Key, bytes] = {}
        there: set[str] = set()
        chain = self._chain
        for body, costs in batch:
            if wrong := fault(body, costs):
                raise BadInput(f"record: {wrong}")
            lane = key(body)
            if lane in self or lane in added:
                raise BadInput(f"{lane}: has its record, and a finished record is never rewritten")
            if (cited := body["trajectory"]) and (name := _name(cited)) not in there:
                if not _side_file(self._place, name).exists():
                    raise BadInput(f"{lane}: keep the trajectory {cited} before the record that cites it")
                there.add(name)
            added[lane], chain = record_lines.line(canonical.dumps(body), canonical.dumps(costs), chain)
        self._lines.append([*added.values()])
        self._done |= added.keys()
        self._chain = chain

    def keep_trajectories(self, contents: Sequence[Any]) -> str:
        """Store trajectories next to the shards in one file; return its name, for `make_citation`.

        The name is the digest of the canonical bytes, not of the compressed ones, which differ between builds
        of zlib: so a replication on another machine can have the same outcome digest.
        """
        data = canonical.dumps(list(contents))
        name = hashlib.sha256(data).hexdigest()
        if (path := _side_file(self._place, name)).exists():
            read_side_file(self._place, name)
        else:
            files.create(path, gzip.compress(data, mtime=0))
        return name


def cite(name: str, place: int) -> str:
    """Return the text by which a record cites a trajectory: its side file and its index, from 0."""
    return f"{name}#{place}"


def shards(place: Path) -> list[Path]:
    """Return the paths of the shards. Raises Tampered where the folder is a link or a file."""
    return [path for path in files.listed(place) if path.match("shard-*.jsonl")]


def read(place: Path) -> Sequence[Record]:
    """Read all complete records. Raises Tampered for a line that does not verify or repeats a lane."""
    return joined(read_shards(place))


def read_problem(place: Path, problem: str) -> list[Record]:
    """Read the records of one problem, in a fraction of the time of `read_records`.

    Each record is verified by its digest; verifying the chain is for an audit. Raises Tampered for a line
    that does not match its digest.
    """
    named = b'"problem":' + canonical.encoded(problem)
    found: list[Record] = []
    for path in shards(place):
        with files.opened(path, share=record_lines.SHARE) as file:
            for number, line in enumerate(record_lines.written(path, file), start=1):
                if named in line and line.endswith(b"\n"):
                    record = record_lines.alone(line[:-1], f"{path.name}:{number}")
                    if record["body"]["problem"] == problem:
                        found.append(record)
    return found


def read_shards(place: Path) -> dict[str, Read]:
    """Read all shards, by file name. Raises Tampered for a line that does not verify."""
    return {path.name: read_shard(path) for path in shards(place)}


def joined(reads: Mapping[str, Read]) -> Sequence[Record]:
    """Return the records of all shards. Raises Tampered for a lane with two records."""
    found: set[Key] = set()
    for name, read in reads.items():
        for head in heads(read.records):
            if head.key in found:
                raise Tampered(f"{name}: {head.key} is recorded twice")
            found.add(head.key)
    parts = [read.records for read in reads.values()]
    return parts[0] if len(parts) == 1 else Joined(parts)


def read_side_file(place: Path, name: str) -> Any:
    """Read a side file. Raises Tampered when it is missing or its content does not match its name."""
    path = _side_file(place, name)
    try:
        data = gzipped.read(path)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing, and a record cites it") from None
    if hashlib.sha256(data).hexdigest() != name:
        raise Tampered(f"{path.name}: its content has another digest than its name")
    return canonical.loads(data, path.name)


def side_files(place: Path) -> set[Path]:
    """Return all files in the trajectories folder, cited or not."""
    return set(files.listed(place / TRAJECTORIES))


def cited(place: Path, records: Iterable[Record]) -> set[Path]:
    """Return the paths of the side files that `records` cite."""
    return {_side_file(place, _name(cited)) for cited in citations(records)}


def trajectories(place: Path, records: Iterable[Record]) -> dict[str, str]:
    """Return the SHA-256 of each cited side file by name. Raises Tampered unless all exist and are intact."""
    found = {}
    for name, own in itertools.groupby(sorted(citations(records)), key=_name):
        held = _by_citation(place, name)
        for cited in own:
            _found(held, cited)
        path = _side_file(place, name)
        found[path.name] = files.sha256(path)
    return found


def trajectory(place: Path, cited: str) -> dict[str, Any]:
    """Read the trajectory that a record cites.

    Raises Tampered as `read_side_file` does, and where the file does not have it.
    """
    found: dict[str, Any] = _found(_by_citation(place, _name(cited)), cited)
    return found


def _by_citation(place: Path, name: str) -> dict[str, Any]:
    """Read the trajectories of a side file by the citations of records."""
    content = read_side_file(place, name)
    several = isinstance(content, list)
    held = {cite(name, at): one for at, one in enumerate(content)} if several else {name: content}
    if not all(isinstance(one, dict) for one in held.values()):
        raise Tampered(f"{_side_file(place, name).name}: holds what is no trajectory")
    return held  # before 2026-11-22 each trajectory had a file


def _found(held: Mapping[str, Any], cited: str) -> Any:
    if cited not in held:
        name, _, at = cited.partition("#")
        raise Tampered(f"{name}.json.gz: has no trajectory {at!r}, and a record cites it")
    return held[cited]


def _name(cited: str) -> str:
    """Return the name of the side file in a citation."""
    return cited.partition("#")[0]


def _side_file(place: Path, name: str) -> Path:
    return place / TRAJECTORIES / f"{name}.json.gz"
