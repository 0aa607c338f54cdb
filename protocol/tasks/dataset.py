"""Tasks of published problems, whose text is brought here once: this repository holds ids and digests alone.

A data file is canonical JSON, one problem a line: `answer`, `level` (text, may be empty), `problem` and
`unique_id`. It lies in $KV_PREREG_HOME/data, or ~/.cache/kv-prereg/data.
"""

import http.client
import json
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import splits
from protocol.evidence import canonical, closure, files
from protocol.evidence.refusals import BadInput, Drifted
from protocol.tasks.problem import THINK, Problem

__all__ = ["INSTRUCTION", "Dataset", "aime24", "folder", "gsm8k", "math500"]

# What DeepSeek-R1's model cards ask to append to a mathematical problem; they ask for no system prompt.
INSTRUCTION = "\n\nPlease reason step by step, and put your final answer within \\boxed{}."

Row: TypeAlias = Mapping[str, Any]  # one line of the published file


def math500(number: int, row: Row) -> dict[str, str]:
    keep = ("answer", "problem", "unique_id")
    return {name: row[name] for name in keep} | {"level": str(row["level"])}


def aime24(number: int, row: Row) -> dict[str, str]:
    """Answers are three digits, as the contest writes them: 025."""
    unique_id = f"aime24/{row['id']}"
    return {"answer": row["answer"], "level": "", "problem": row["problem"], "unique_id": unique_id}


def gsm8k(number: int, row: Row) -> dict[str, str]:
    """The answer is what follows "####", without the commas between thousands; a problem is its line."""
    answer = row["answer"].rpartition("####")[2].strip().replace(",", "")
    unique_id = f"gsm8k/test/{number:04d}"
    return {"answer": answer, "level": "", "problem": row["question"], "unique_id": unique_id}


def folder() -> Path:
    """Where data files are kept, beside the fetched models."""
    return files.home() / "data"


@dataclass(frozen=True)
class Dataset:
    """A published set of problems; graded by math-verify.

    sha256: of the data file. source_sha256: of what the frozen ids were taken from. row: makes a line of the
    data file of the published file's line, counted from 0. url: where the published file is, at a revision
    that cannot move; None where there is none in JSON lines.
    """

    name: str
    sha256: str
    source_sha256: str
    row: Callable[[int, Row], dict[str, str]]
    url: str | None = None
    grader: ClassVar[str] = "math"

    def ids(self) -> tuple[str, ...]:
        return splits.load(self.name).ids

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """One user message: the problem and the instruction; a model that can think is made to.

        Reads the asked problem alone out of the data file. Raises BadInput for another task's id or without
        the file, Drifted when the file is not the pinned one.
        """
        wanted = f'"unique_id":{json.dumps(problem_id, ensure_ascii=False)}}}'.encode()
        for line in self._data().splitlines():
            if line.endswith(wanted):
                row = json.loads(line)
                context = row["problem"].strip() + INSTRUCTION
                return Problem(problem_id, context, "", THINK, row["answer"], row["level"])
        raise BadInput(f"problem {problem_id!r}: not of this task, whose ids run from {self.ids()[0]}")

    def source(self) -> str:
        return self.source_sha256

    def digest(self) -> str:
        """SHA-256 of the data file as it lies here; raises as `build` does."""
        return closure.digest_of(self._data())

    def fetch(self, published: Path | None = None) -> Path:
        """Make the data file of the published one: a file in JSON lines, else what is at `url`.

        A file that is there is verified instead. Raises Drifted when the problems are not the pinned ones.
        """
        path = folder() / f"{self.name}.jsonl"
        if path.exists():
            self._data()
            return path
        if published is None and self.url is None:
            raise BadInput(
                f"task {self.name}: published as Parquet alone; pass its JSON lines: "
                f"python -m protocol.tasks fetch {self.name} --from FILE"
            )
        try:
            raw = published.read_bytes() if published else download(str(self.url))
        except (OSError, http.client.HTTPException) as error:
            raise BadInput(f"task {self.name}: {published or self.url} could not be read: {error}") from error
        data = self._made(raw, published or self.url)
        self._verify(data, published or self.url)
        files.create(path, data)
        return path

    def _made(self, raw: bytes, where: object) -> bytes:
        lines = []
        for number, line in enumerate(raw.splitlines()):
            try:
                lines.append(canonical.dumps(self.row(number, json.loads(line))) + b"\n")
            except (ValueError, KeyError, TypeError, AttributeError, BadInput) as error:
                raise BadInput(
                    f"task {self.name}: {where}, line {number + 1}: not a published problem ({error!r})"
                ) from None
        return b"".join(lines)

    def _data(self) -> bytes:
        path = folder() / f"{self.name}.jsonl"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise BadInput(
                f"task {self.name}: no data at {path}; run: python -m protocol.tasks fetch {self.name}"
            ) from None
        self._verify(data, path)
        return data

    def _verify(self, data: bytes, where: object) -> None:
        found = closure.digest_of(data)
        if found != self.sha256:
            raise Drifted(
                f"task {self.name}: {where}: the problems have SHA-256 {found}, "
                f"not the pinned {self.sha256}; "
                f"use the published file (a data file that was altered: remove it and fetch again)"
            )


def download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
    return data
