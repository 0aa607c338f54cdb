"""Records: the result of every lane, one line each, in append-only shards.

A line is the canonical {body, costs, sha256, chain}: `sha256` digests {body, costs}, and `chain` digests the preceding
line's chain (64 zeros for the first) followed by this `sha256`, both as ASCII hex. The body is the output of the lane;
costs are the resources it took, which may differ when it is decoded again. Trajectories are stored next to the shards,
those of one batch in a file named by the digest of its content. `docs/records.md` describes every field.

`folder` is that of one phase of a registration: `records` when confirming, `probe` when probing.
"""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.evidence import record_lines
from protocol.evidence.record_lines import JoinedRecords as JoinedRecords
from protocol.evidence.record_lines import Key as Key
from protocol.evidence.record_lines import Record as Record
from protocol.evidence.record_lines import RecordHead as RecordHead
from protocol.evidence.record_lines import ShardContent as ShardContent
from protocol.evidence.record_lines import body_key as body_key
from protocol.evidence.record_lines import cited_trajectories
from protocol.evidence.record_lines import lane_key as lane_key
from protocol.evidence.record_lines import outcome_digest as outcome_digest
from protocol.evidence.record_lines import pause_gc as pause_gc
from protocol.evidence.record_lines import read_shard as read_shard
from protocol.evidence.record_lines import record_heads as record_heads
from protocol.evidence.record_lines import select_records as select_records
from protocol.formats import canonical, files, packed_file, shards
from protocol.formats.record_fields import FOLDERS as FOLDERS
from protocol.formats.record_fields import STATES as STATES
from protocol.formats.record_fields import side_file_pattern
from protocol.formats.refusals import Tampered

TRAJECTORIES = "trajectories"


def count_excluded(records: Iterable[Record]) -> tuple[int, int]:
    """Return the number of excluded problems and of all problems; each model counts separately."""
    excluded_by_problem: dict[tuple[str, str, str], bool] = {}
    for head in record_heads(records):
        excluded_by_problem[head.key.model, head.key.task, head.key.problem] = head.state == "excluded"
    return sum(excluded_by_problem.values()), len(excluded_by_problem)


def make_citation(name: str, index: int) -> str:
    """Return the text by which a record cites a trajectory: its side file and its index, from 0."""
    return f"{name}#{index}"


def read_records(folder: Path) -> Sequence[Record]:
    """Read all complete records. Raises Tampered for a line that does not verify or repeats a lane."""
    return join_shards(read_shards(folder))


def read_problem(folder: Path, problem: str) -> list[Record]:
    """Read the records of one problem, in a fraction of the time of `read_records`.

    Each record is verified by its digest; verifying the chain is for an audit. Raises Tampered for a line
    that does not match its digest.
    """
    marker = b'"problem":' + canonical.encode(problem)
    matches: list[Record] = []
    for path in shards.list_shards(folder):
        with shards.open_shard(path) as file:
            for number, line in enumerate(record_lines.iter_lines(path, file), start=1):
                if marker in line and line.endswith(b"\n"):
                    record = record_lines.parse_record(line[:-1], f"{path.name}:{number}")
                    if record["body"]["problem"] == problem:
                        matches.append(record)
    return matches


def read_shards(folder: Path) -> dict[str, ShardContent]:
    """Read all shards, by the name of their plain form. Raises Tampered for a line that does not verify."""
    return {shards.plain_name(path): read_shard(path) for path in shards.list_shards(folder)}


def join_shards(contents: Mapping[str, ShardContent]) -> Sequence[Record]:
    """Return the records of all shards. Raises Tampered for a lane with two records."""
    keys: set[Key] = set()
    for name, content in contents.items():
        for head in record_heads(content.records):
            if head.key in keys:
                raise Tampered(f"{name}: {head.key} is recorded twice")
            keys.add(head.key)
    parts = [content.records for content in contents.values()]
    return parts[0] if len(parts) == 1 else JoinedRecords(parts)


def read_side_file(folder: Path, name: str) -> Any:
    """Read a side file. Raises Tampered when it is missing or its content does not match its name."""
    path = side_file_path(folder, name)
    try:
        data = packed_file.read(path)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing, although a record cites it") from None
    if hashlib.sha256(data).hexdigest() != name:
        raise Tampered(f"{path.name}: the digest of its content differs from its name")
    return canonical.loads(data, path.name, side_file_pattern())


def list_side_files(folder: Path) -> set[Path]:
    """Return all files in the trajectories folder, cited or not."""
    return set(files.list_folder(folder / TRAJECTORIES))


def cited_files(folder: Path, records: Iterable[Record]) -> set[Path]:
    """Return the paths of the side files that `records` cite."""
    return {side_file_path(folder, side_file_name(citation)) for citation in cited_trajectories(records)}


def hash_trajectories(folder: Path, records: Iterable[Record]) -> dict[str, str]:
    """Return the SHA-256 of each cited side file by name. Raises Tampered unless all exist and are intact."""
    digests = {}
    for name, group in itertools.groupby(sorted(cited_trajectories(records)), key=side_file_name):
        by_citation = _read_by_citation(folder, name)
        for citation in group:
            _get_trajectory(by_citation, citation)
        path = side_file_path(folder, name)
        digests[path.name] = files.sha256(path)
    return digests


def read_trajectory(folder: Path, citation: str) -> dict[str, Any]:
    """Read the trajectory that a record cites.

    Raises Tampered as `read_side_file` does, and where the file does not have it.
    """
    content: dict[str, Any] = _get_trajectory(_read_by_citation(folder, side_file_name(citation)), citation)
    return content


def _read_by_citation(folder: Path, name: str) -> dict[str, Any]:
    """Read the trajectories of a side file by the citations of records."""
    content = read_side_file(folder, name)
    is_list = isinstance(content, list)
    by_citation = (
        {make_citation(name, index): item for index, item in enumerate(content)} if is_list else {name: content}
    )
    if not all(isinstance(item, dict) for item in by_citation.values()):
        raise Tampered(f"{side_file_path(folder, name).name}: contains something that is not a trajectory")
    return by_citation  # in version 1 a trajectory may have its own file


def _get_trajectory(by_citation: Mapping[str, Any], citation: str) -> Any:
    if citation not in by_citation:
        name, _, index = citation.partition("#")
        raise Tampered(f"{name}.json.gz: has no trajectory {index!r}, although a record cites it")
    return by_citation[citation]


def side_file_name(citation: str) -> str:
    """Return the name of the side file in a citation."""
    return citation.partition("#")[0]


def side_file_path(folder: Path, name: str) -> Path:
    return folder / TRAJECTORIES / f"{name}.json.gz"
