"""A task whose problems another harness asks: their ids, and what its files may say of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from protocol.formats import canonical, strict_json
from protocol.formats.refusals import BadInput
from protocol.lock import closure
from protocol.tasks import file_rows

IDENTITY_FIELDS = ("doc_hash", "question", "input")  # what was asked, as the readers of result files digest it
FIELDS = ("id", "cluster", *IDENTITY_FIELDS)


@dataclass(frozen=True)
class OutsideTask:
    """The problems of the lines of `path`. With `draw`, held out are so many places, which a late value fills with
    problems of this pool: seed 0 is before it is known.
    """

    name: str
    path: Path
    draw: int | None = None
    has_scores: bool = False
    seed: int = 0
    grader = ""  # another harness grades
    is_held_out = True

    def ids(self) -> tuple[str, ...]:
        if self.draw is None:
            return tuple(self.pool)
        if self.draw > len(self.pool):
            raise BadInput(
                f"tasks: {self.name}: draw: {self.draw} problems, but {self.path.name} has only {len(self.pool)}; "
                "write a smaller number"
            )
        return tuple(f"drawn-{number:0{len(str(self.draw))}d}" for number in range(1, self.draw + 1))

    @property
    def pool(self) -> Mapping[str, Mapping[str, str]]:
        """The fields of every line, by id. Raises BadInput with the first faulty line."""
        return _load_pool(self.path, file_rows.file_identity(self.path))

    def released(self) -> dict[str, str]:
        """Return the id in the pool of every held-out problem: of drawn ones the first by the digest of seed and id."""
        if self.draw is None:
            return {name: name for name in self.pool}
        order = sorted(self.pool, key=lambda name: canonical.digest({"seed": str(self.seed), "id": name}))
        drawn = {*order[: self.draw]}
        return dict(zip(self.ids(), (name for name in self.pool if name in drawn), strict=True))

    def clusters(self) -> Mapping[str, str]:
        clusters = {name: row["cluster"] for name, row in self.pool.items() if "cluster" in row}
        if clusters and self.draw is not None:
            raise BadInput(
                f"tasks: {self.name}: draw: would draw single problems, but the pool has clusters, which "
                "belong together; leave out draw or all clusters"
            )
        return clusters

    def content_digest(self, problem_id: str) -> str:
        """Return the digest of what the file says of a problem; of its id in this file if it says nothing."""
        name = self.released()[problem_id]
        asked = {field: self.pool[name][field] for field in IDENTITY_FIELDS if field in self.pool[name]}
        return canonical.digest({"asked outside": asked or {"file": self.digest(), "id": name}})

    def redrawn(self, seed: int) -> "OutsideTask":
        return self if self.draw is None else replace(self, seed=seed)

    def recipe(self) -> str:
        return canonical.digest({"family": "outside", "file": self.digest(), "draw": self.draw, "seed": str(self.seed)})

    def source(self) -> str:
        return canonical.digest({"family": "outside", "file": self.digest(), "draw": self.draw})

    def digest(self) -> str:
        return closure.sha256_hex(file_rows.read_file(self.path))

    def build(self, problem_id: str, count: Callable[[str], int]) -> NoReturn:
        raise BadInput(f"task {self.name}: another harness runs its problems, so kv-prereg cannot build their prompts")

    def gold(self, problem_id: str) -> NoReturn:
        raise BadInput(f"task {self.name}: another harness grades its problems, so kv-prereg has no gold answers")


@lru_cache(maxsize=8)  # read once per process, and again if its identity changed
def _load_pool(path: Path, identity: str) -> Mapping[str, Mapping[str, str]]:
    rows: dict[str, Mapping[str, str]] = {}
    ids_by_question: dict[tuple[str | None, ...], str] = {}
    for number, line in enumerate(file_rows.read_file(path).removesuffix(b"\n").split(b"\n"), start=1):
        row = _parse_line(line, f"{path}: line {number}")
        if row["id"] in rows:
            raise BadInput(f"{path}: line {number}: id: {row['id']!a} occurs twice; every problem needs its own id")
        rows[row["id"]] = row
        asked = tuple(row.get(field) for field in IDENTITY_FIELDS)
        if any(asked) and (first := ids_by_question.setdefault(asked, row["id"])) != row["id"]:
            raise BadInput(f"{path}: line {number}: {row['id']!a} asks the same as {first!a}; leave one of them out")
    if 0 < (count := sum("cluster" in row for row in rows.values())) < len(rows):
        raise BadInput(f"{path}: cluster: only {count} of {len(rows)} lines have one; give one to all lines or to none")
    return MappingProxyType(rows)


def _parse_line(line: bytes, where: str) -> dict[str, str]:
    try:
        row: Any = strict_json.parse(line)
    except strict_json.JsonFault as fault:
        raise BadInput(f'{where}: {fault}; write one object on each line, such as {{"id": "17"}}') from None
    if not isinstance(row, dict) or "id" not in row:
        raise BadInput(f'{where}: id: missing; write one object on each line, such as {{"id": "17"}}')
    for name, value in row.items():
        if name not in FIELDS:
            raise BadInput(f"{where}: {name!a}: unknown field; a problem has {', '.join(FIELDS)}")
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"{where}: {name}: {value!a:.40} is not text in quotes")
    if row["id"] != row["id"].strip() or not row["id"].isprintable():
        raise BadInput(f"{where}: id: {row['id']!a} has white space around it or invisible characters; delete them")
    return dict(row)
