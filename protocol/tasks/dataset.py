"""Tasks of published problems, whose text is fetched once: this repository has ids and digests alone.

A data file is canonical JSON, one problem a line: `answer`, `level` (text, may be empty), `problem` and
`unique_id`. It is in $KV_PREREG_HOME/data, or ~/.cache/kv-prereg/data. A sealed task has two files instead:
the development problems, in the same form, and the held-out ones, encrypted (see `encryption`).
"""

import http.client
import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import splits
from protocol.formats import canonical, files
from protocol.formats.refusals import BadInput, Drifted
from protocol.formats.suggestions import explain_os_error
from protocol.lock import closure
from protocol.tasks import encryption, file_rows
from protocol.tasks.problem import THINK, Problem

# The suffix that DeepSeek-R1's model cards recommend for mathematical problems, without a system prompt.
INSTRUCTION = "\n\nPlease reason step by step, and put your final answer within \\boxed{}."

Row: TypeAlias = Mapping[str, Any]  # one line of the published file


def math500(number: int, row: Row) -> dict[str, str]:
    names = ("answer", "problem", "unique_id")
    return {name: row[name] for name in names} | {"level": str(row["level"])}


def aime24(number: int, row: Row) -> dict[str, str]:
    """Convert a row. Answers have three digits, as the contest writes them: 025."""
    unique_id = f"aime24/{row['id']}"
    return {"answer": row["answer"], "level": "", "problem": row["problem"], "unique_id": unique_id}


def gsm8k(number: int, row: Row) -> dict[str, str]:
    """Convert a row. The answer is what follows "####", without thousands separators; the id is the line number."""
    answer = row["answer"].rpartition("####")[2].strip().replace(",", "")
    unique_id = f"gsm8k/test/{number:04d}"
    return {"answer": answer, "level": "", "problem": row["question"], "unique_id": unique_id}


def data_folder() -> Path:
    """Return the folder of data files, next to the fetched models."""
    return files.cache_home() / "data"


class SealedFiles(NamedTuple):
    """The files of a sealed task: dev is plain, confirm is encrypted."""

    dev: Path
    confirm: Path


@dataclass(frozen=True)
class Dataset:
    """A published set of problems, graded by math-verify.

    sha256: of the data file. source_sha256: of the file that the frozen ids were taken from. row: converts a
    line of the published file, numbered from 0, to a row of the data file. url: of the published file, at a
    fixed revision; None if it is not published as JSON lines. identity: a file with the private key for the
    held-out part of a sealed task; without it only its development problems are available. drawn_from: what the
    problems are a sample of. chance: as of `Task`.
    """

    name: str
    sha256: str
    source_sha256: str
    row: Callable[[int, Row], dict[str, str]]
    url: str | None = None
    identity: Path | None = None
    drawn_from: str = ""
    chance: str = "0"
    grader: ClassVar[str] = "math"

    def ids(self) -> tuple[str, ...]:
        return splits.load(self.name).ids

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """Return one user message: the problem and the instruction; a model that can think is made to.

        Parses only the requested problem of the data file. Raises BadInput for another task's id, without the
        file, and for a problem that is encrypted; Drifted when the file is not the pinned one.
        """
        row = self._find_row(problem_id)
        context = row["problem"].strip() + INSTRUCTION
        return Problem(problem_id, context, "", THINK, row["answer"], row["level"])

    def gold(self, problem_id: str) -> str:
        """Raises as `build` does."""
        return self._find_row(problem_id)["answer"]

    def population(self) -> str:
        return self.drawn_from

    def redrawn(self, seed: int) -> "Dataset":
        """Return the task itself: published problems are not drawn."""
        return self

    def content_digest(self, problem_id: str) -> str:
        """Return the digest of the published text, without the instruction. Raises as `build` does."""
        return file_rows.digest_text(self._find_row(problem_id)["problem"])

    def recipe(self) -> str:
        """As `Task.recipe`: a published problem is identified by its published id in every copy."""
        return canonical.digest({"family": "published"})

    def source(self) -> str:
        return self.source_sha256

    def digest(self) -> str | dict[str, str]:
        """Return the SHA-256 of the data file, or of each file of a sealed task. Raises as `build` does, and
        BadInput if a sealed task cannot be opened without pyrage: installed later it would be drift.
        """
        if not self.is_encrypted():
            return closure.sha256_hex(self._read_data())
        encryption.pyrage()
        return {"dev": closure.sha256_hex(self._read_data()), "confirm": files.sha256(self._sealed_paths().confirm)}

    def is_encrypted(self) -> bool:
        """Whether the held-out problems are encrypted here. Raises BadInput if the plain file exists too."""
        plain_path, encrypted_path = self._plain_path(), self._sealed_paths().confirm
        if plain_path.exists() and encrypted_path.exists():
            raise BadInput(
                f"task {self.name}: {plain_path} contains in the clear what {encrypted_path} keeps encrypted; "
                "remove one of the two"
            )
        return encrypted_path.exists()

    def encrypt(self, recipients: Sequence[str]) -> SealedFiles:
        """Write the two files of a sealed task next to the plain one; recipients: of `encryption.encrypt`.
        The plain file stays, and the task is refused until it is removed.

        Raises as `build` and `encrypt` do, and BadInput for a task that is sealed.
        """
        sealed = self._sealed_paths()
        if self.is_encrypted():
            raise BadInput(f"task {self.name}: is sealed: {sealed.confirm}")
        split = splits.load(self.name)
        lines = _lines_by_id(self._read_data(), split.ids, self._plain_path())
        dev, confirm = (b"".join(lines[item] for item in ids) for ids in (split.dev, split.confirm))
        ciphertext = encryption.encrypt(confirm, recipients)
        self._verify(self._join_parts(dev, confirm), sealed.confirm)
        if not sealed.dev.exists() or sealed.dev.read_bytes() != dev:  # a crash may have left it
            files.create(sealed.dev, dev)
        files.create(sealed.confirm, ciphertext)
        return sealed

    def with_identity(self, identity: Path) -> "Dataset":
        """Return this task with the key to its held-out part."""
        return replace(self, identity=identity)

    def refuse_other_key(self, identity: Path | None) -> None:
        """Raise BadInput unless `identity` opens the held-out part; decrypts none of it."""
        if identity is None:
            raise BadInput(
                f"task {self.name}: its held-out problems are encrypted; "
                "get the private key from its holder and pass it: --identity FILE"
            )
        encryption.refuse_other_key(self._sealed_paths().confirm, identity)

    def fetch(self, published: Path | None = None) -> Path:
        """Write the data file from the published one: a file in JSON lines, or the file at `url`.

        An existing file is verified instead. Raises Drifted when the problems are not the pinned ones.
        """
        path = self._plain_path()
        if self.is_encrypted():
            raise BadInput(
                f"task {self.name}: is sealed; to use the unencrypted task, remove {self._sealed_paths().confirm}"
            )
        if path.exists():
            self._read_data()
            return path
        if published is None and self.url is None:
            raise BadInput(
                f"task {self.name}: is published only as Parquet; convert it to JSON lines and pass the file: "
                f"kv-prereg tasks fetch {self.name} --from FILE"
            )
        try:
            raw = published.read_bytes() if published else download(str(self.url))
        except (OSError, http.client.HTTPException) as error:
            message = (
                explain_os_error(error)
                if published and isinstance(error, OSError)
                else f"{self.url} could not be read: {error}"
            )
            raise BadInput(f"task {self.name}: {message}") from error
        data = self._convert(raw, published or self.url)
        self._verify(data, published or self.url)
        files.create(path, data)
        return path

    def _find_row(self, problem_id: str) -> dict[str, str]:
        ending = f'"unique_id":{json.dumps(problem_id, ensure_ascii=False)}}}'.encode()
        for line in self._read_data().splitlines():
            if line.endswith(ending):
                row: dict[str, str] = json.loads(line)
                return row
        if self.identity is None and self.is_encrypted() and problem_id in splits.load(self.name).confirm:
            raise BadInput(f"problem {problem_id!r} of {self.name}: is encrypted; pass the key: --identity FILE")
        raise BadInput(f"problem {problem_id!r}: is not in this task, whose ids start at {self.ids()[0]}")

    def _convert(self, raw: bytes, location: object) -> bytes:
        lines = []
        for number, line in enumerate(raw.splitlines()):
            try:
                lines.append(canonical.dumps(self.row(number, json.loads(line))) + b"\n")
            except (ValueError, KeyError, TypeError, AttributeError, BadInput):
                raise BadInput(
                    f"task {self.name}: {location}, line {number + 1}: differs from the published problems; "
                    "give the published file"
                ) from None
        return b"".join(lines)

    def _plain_path(self) -> Path:
        return data_folder() / f"{self.name}.jsonl"

    def _sealed_paths(self) -> SealedFiles:
        return SealedFiles(data_folder() / f"{self.name}.dev.jsonl", data_folder() / f"{self.name}.confirm.jsonl.age")

    def _read_data(self) -> bytes:
        """Return every available problem, in the order of the data file."""
        if self.is_encrypted():
            return self._read_sealed()
        path = self._plain_path()
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise BadInput(f"task {self.name}: no data at {path}; run: kv-prereg tasks fetch {self.name}") from None
        self._verify(data, path)
        return data

    def _read_sealed(self) -> bytes:
        """Return the data file of a sealed task, verified; without the key, its development problems."""
        sealed = self._sealed_paths()
        try:
            dev = sealed.dev.read_bytes()
        except FileNotFoundError:
            raise BadInput(f"task {self.name}: {sealed.confirm} is there without {sealed.dev}; restore both") from None
        if self.identity is None:
            _lines_by_id(dev, splits.load(self.name).dev, sealed.dev)
            return dev
        data = self._join_parts(dev, encryption.decrypt(sealed.confirm, self.identity))
        self._verify(data, " and ".join(map(str, sealed)))
        return data

    def _join_parts(self, dev: bytes, confirm: bytes) -> bytes:
        """Return the data file that the two parts make up."""
        split, sealed = splits.load(self.name), self._sealed_paths()
        lines = _lines_by_id(dev, split.dev, sealed.dev) | _lines_by_id(confirm, split.confirm, sealed.confirm)
        return b"".join(lines[item] for item in split.ids)

    def _verify(self, data: bytes, location: object) -> None:
        actual = closure.sha256_hex(data)
        if actual != self.sha256:
            raise Drifted(
                f"task {self.name}: {location}: the problems have SHA-256 {actual}, not the pinned "
                f"{self.sha256}; use the published file (if the data file was altered, remove it and fetch it "
                "again)"
            )


def _lines_by_id(data: bytes, ids: Sequence[str], location: Path) -> dict[str, bytes]:
    """Return the lines of `data` by id. Raises Drifted unless they are exactly `ids`, in that order."""
    lines = data.splitlines(keepends=True)
    try:
        present = [json.loads(line)["unique_id"] for line in lines]
    except (ValueError, KeyError, TypeError):
        present = []
    if present != list(ids) or not data.endswith(b"\n"):
        raise Drifted(
            f"{location}: does not contain exactly the {len(ids)} problems of its split; restore the file as "
            "it was sealed"
        )
    return dict(zip(ids, lines, strict=True))


def download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
    return data


MATH500 = Dataset(
    "math500",
    sha256="fb890908c810bc7f836a7dde81fa21d9ee368a5d124fa15c2463232b96d5b69d",
    source_sha256="35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
    row=math500,
    drawn_from="of the 500 that were drawn from the 5,000 test problems of MATH",
    url=(
        "https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/"
        "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be/test.jsonl"
    ),
)
# On the hub as Parquet: HuggingFaceH4/aime_2024 @ 2fe88a2f1091d5048c0f36abc874fb997b3dd99a.
AIME24 = Dataset(
    "aime24",
    sha256="7ec9b3e7155f63fb411560be42b0e118e5e8ecb8352013b78b1701e4282dd336",
    source_sha256="7ec9b3e7155f63fb411560be42b0e118e5e8ecb8352013b78b1701e4282dd336",
    row=aime24,
    drawn_from="of the 30 of AIME 2024, of which there are no others",
    chance="0.001",  # one of the numbers from 0 to 999
)
GSM8K = Dataset(
    "gsm8k",
    sha256="eda17b583de6be58fa776cfd906873f5de42aaf5873eb27e4cc0452d8ffa7098",
    source_sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    row=gsm8k,
    drawn_from="of the 1,319 of the test split of GSM8K",
    url=(
        "https://raw.githubusercontent.com/openai/grade-school-math/"
        "3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl"
    ),
)
