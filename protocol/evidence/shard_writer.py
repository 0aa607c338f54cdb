"""Write records: lines of one shard, and the trajectories that they cite."""

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from protocol.evidence import record_lines, records
from protocol.formats import canonical, files, journal, shards
from protocol.formats.record_fields import find_fault
from protocol.formats.refusals import BadInput


class ShardWriter:
    """Appends to the shard in `folder` during a `with` block, as the only process.

    Entering truncates a torn last line, which was never acknowledged. Raises Tampered when a complete line
    does not verify, AlreadyClaimed while another process appends and for a shard that was packed.
    """

    def __init__(self, folder: Path, name: str = shards.OWN):
        self._folder, self._name = folder, name

    def __enter__(self) -> Self:
        path = self._folder / self._name
        shards.refuse_packed(path)
        with ExitStack() as stack:
            self._journal = stack.enter_context(journal.open_journal(path, wait=False, keep_lines=False))
            shard_contents = records.read_shards(self._folder)
            self._done = {head.key for head in records.record_heads(records.join_shards(shard_contents))}
            self._chain = shard_contents[path.name].chain
            self._journal.drop_torn()
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exit_stack.close()

    def __contains__(self, lane: records.Key) -> bool:
        return lane in self._done

    def append(self, batch: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Record a batch of (body, costs) in one write and one fsync: all of it is on disk on return.

        Raises BadInput, and records nothing, for a lane that has its record, an invalid body, and a cited
        trajectory that was not stored first.
        """
        added: dict[records.Key, bytes] = {}
        checked_files: set[str] = set()
        chain = self._chain
        for body, costs in batch:
            if wrong := find_fault(body, costs):
                raise BadInput(f"record: {wrong}")
            lane = records.body_key(body)
            if lane in self or lane in added:
                raise BadInput(f"{lane}: has a record already, and a finished record is never rewritten")
            if (citation := body["trajectory"]) and (name := records.side_file_name(citation)) not in checked_files:
                if not records.side_file_path(self._folder, name).exists():
                    raise BadInput(f"{lane}: store the trajectory {citation} before the record that cites it")
                checked_files.add(name)
            added[lane], chain = record_lines.format_line(canonical.dumps(body), canonical.dumps(costs), chain)
        self._journal.append([*added.values()])
        self._done |= added.keys()
        self._chain = chain

    def keep_trajectories(self, contents: Sequence[Any]) -> str:
        """Store trajectories next to the shards in one file; return its name, for `make_citation`.

        The name is the digest of the canonical bytes, not of the compressed ones, which differ between builds
        of zlib: so a replication on another machine can have the same outcome digest.
        """
        data = canonical.dumps(list(contents))
        name = hashlib.sha256(data).hexdigest()
        if (path := records.side_file_path(self._folder, name)).exists():
            records.read_side_file(self._folder, name)
        else:
            files.create(path, gzip.compress(data, mtime=0))
        return name
