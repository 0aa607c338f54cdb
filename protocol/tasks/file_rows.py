"""Parse problem files that a person writes: one JSON object a line, read strictly.

    {"id": "fox/1", "context": "A fox ate 3 hens.", "question": "How many hens?", "answer": "3"}

`answers` in place of `answer` lists several right answers. `level`, `cluster` (problems that belong together:
a template, a document) and `prefix` (how the answer begins) are optional, and so is `question` if the whole
problem is context. Every refusal names file, line and field, and says what to do.
"""

import codecs
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.formats import canonical, files, strict_json
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.suggestions import unknown_message
from protocol.formats.vocabulary import BLANKS
from protocol.grading.grade import Gold

MAX_BYTES = 1 << 28  # bytes of a file: parsing takes six times as much memory
MAX_LINE_BYTES = 1 << 24  # bytes: 30 times the longest document of LongBench
MAX_NAME_CHARACTERS = 200  # characters of an id, a level or a cluster, which may be copied into a lock
NAMES, TEXTS = ("id", "level", "cluster"), ("context", "question", "prefix")
FIELDS = ("id", "context", "question", "answer", "answers", "level", "cluster", "prefix")
PROGRAM_FIELDS = ("task_id", "test_list", "input_output", "official_tests")  # of published files of programs
# Fields that either all lines or no line may have.
ALL_OR_NONE = ("level", "cluster")
# Characters that join or separate letters, as Persian and emoji need.
JOINERS = frozenset("\u200c\u200d")


class Row(NamedTuple):
    """One problem. level, cluster and prefix are empty if the line has none."""

    id: str
    context: str
    question: str
    gold: Gold
    level: str
    cluster: str
    prefix: str

    def content_digest(self) -> str:
        """Return the digest of context and question, whatever the id and the answer."""
        return digest_text(self.context, self.question)


def digest_text(*parts: str) -> str:
    """Return the SHA-256 of what a problem asks: in one Unicode normalization, without line breaks, the border
    of question and context, and characters that print nothing.
    """
    text = "\n".join(parts)
    if not text.isascii():  # ASCII is normalized, and has none of these characters
        text = unicodedata.normalize("NFC", text)
        text = "".join(c for c in text if c not in JOINERS and not _is_variant(c))
    return canonical.digest({"asked": " ".join(text.split())})


class RowFault(NamedTuple):
    """A fault of a line. line: counted from 1; message: the field and the fix."""

    line: int
    message: str


class LineError(Exception):
    """A fault of a line, found while parsing it: the field and the fix."""


ReadLine = Callable[[Mapping[str, Any]], Row]


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a task file. Raises BadInput if it is missing, is no plain file, or is too large."""
    try:
        return files.read(path, max_bytes)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; put it there, next to the protocol that names it") from None
    except Tampered:
        if path.is_file() and not path.is_symlink():
            raise BadInput(f"{path}: has more than {max_bytes} bytes; use a smaller file") from None
        raise BadInput(f"{path}: is not a plain file; put a real file there") from None
    except OSError as error:
        raise BadInput(f"{path}: could not be read: {error.strerror}") from None


def load_rows(path: Path, read: ReadLine) -> Mapping[str, Row]:
    """Return the problems of a file by id, in file order, one a line. Raises BadInput with the first faulty
    line and the number of others. read: `read_problem`, or the reader of another format.
    """
    return _load_rows(path, file_identity(path), read)


def file_identity(path: Path) -> str:
    """Return a key that changes when the file changes; "" if it cannot be read, so that reading it reports why."""
    try:
        return files.file_identity(path)
    except OSError:
        return ""


@lru_cache(maxsize=8)  # read once per process, and again if its identity changed
def _load_rows(path: Path, identity: str, read: ReadLine) -> Mapping[str, Row]:
    rows_by_line, faults = parse_rows(read_file(path), read)
    if faults:
        more = f" ({len(faults) - 1} more: kv-prereg tasks check {path})" if len(faults) > 1 else ""
        raise BadInput(f"{path}: line {faults[0].line}: {faults[0].message}{more}")
    return MappingProxyType({row.id: row for row in rows_by_line.values()})


def parse_rows(data: bytes, read: ReadLine) -> tuple[Mapping[int, Row], tuple[RowFault, ...]]:
    """Return the problems of the valid lines, by line number, and one fault of each faulty line."""
    if data.startswith(codecs.BOM_UTF8):
        return {}, (RowFault(1, "begins with a byte order mark; save the file as UTF-8 without one"),)
    rows_by_line: dict[int, Row] = {}
    messages: dict[int, str] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            rows_by_line[number] = read(_parse_line(line))
        except LineError as fault:
            messages[number] = str(fault)
    for number, message in find_faults(rows_by_line):
        messages.setdefault(number, message)
    return rows_by_line, tuple(RowFault(*item) for item in sorted(messages.items()))


def find_faults(rows_by_line: Mapping[int, Row]) -> Iterator[RowFault]:
    """Yield faults that involve several lines: duplicate ids and problems, and fields that only some lines have."""
    id_lines: dict[str, int] = {}
    content_lines: dict[str, int] = {}
    for number, row in rows_by_line.items():
        if (first := id_lines.setdefault(row.id, number)) != number:
            yield RowFault(number, f"id: {row.id!a} is also the id of line {first}; every problem needs its own id")
        elif (first := content_lines.setdefault(row.content_digest(), number)) != number:
            yield RowFault(number, f"context: asks the same as line {first}; leave one of them out")
    for name in ALL_OR_NONE:
        numbers = {number for number, row in rows_by_line.items() if getattr(row, name)}
        if numbers and (lacking := [number for number in rows_by_line if number not in numbers]):
            yield RowFault(
                lacking[0], f"{name}: missing, although line {min(numbers)} has one; give one to all lines or to none"
            )


def _parse_line(line: bytes) -> Mapping[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise LineError(f"has {len(line)} bytes, over the limit of {MAX_LINE_BYTES}; shorten its context")
    if line.endswith(b"\r"):
        raise LineError("ends in CR LF; save the file with LF line endings")
    if not line.strip():
        raise LineError("is empty; delete it")
    try:
        row = strict_json.parse(line)
    except strict_json.JsonFault as fault:
        raise LineError(f"{fault}; write one JSON object on each line") from None
    if not isinstance(row, dict):
        raise LineError(f"is {_excerpt(row)}; write an object with id, context, question and answer")
    return row


def read_problem(row: Mapping[str, Any]) -> Row:
    """Return the problem of a line that has the fields of this module. Raises LineError."""
    for name in row:
        if name not in FIELDS:
            hint = "; lines with programs and tests need the grader program" if name in PROGRAM_FIELDS else ""
            raise LineError(unknown_message("field", name, FIELDS) + hint)
    for name in ("id", "context"):
        if name not in row:
            raise LineError(f"{name}: missing; every problem must have one")
    names = {name: parse_name(name, row[name]) for name in NAMES if name in row}
    texts = {name: parse_text(name, row[name]) for name in TEXTS if name in row}
    if not texts["context"]:
        raise LineError(
            "context: is empty; if there is no passage, put the whole problem into context and leave question out"
        )
    return Row(
        names["id"],
        texts["context"],
        texts.get("question", ""),
        _parse_gold(row),
        names.get("level", ""),
        names.get("cluster", ""),
        texts.get("prefix", ""),
    )


def _parse_gold(row: Mapping[str, Any]) -> Gold:
    if "answer" in row and "answers" in row:
        raise LineError("answer: cannot be combined with answers; leave one of the two out")
    if "answer" in row:
        return _parse_answer("answer", row["answer"])
    if "answers" not in row:
        raise LineError("answer: missing; write it, or write answers, a list in which every entry counts as right")
    answers = row["answers"]
    if not isinstance(answers, list) or not answers:
        raise LineError(f"answers: write a list of texts, not {_excerpt(answers)}")
    golds = tuple(_parse_answer(f"answers[{index}]", answer) for index, answer in enumerate(answers))
    for index, answer in enumerate(golds):
        if answer in golds[:index]:
            raise LineError(f"answers[{index}]: {_excerpt(answer)} occurs twice; name each once")
    return golds


def _parse_answer(name: str, value: Any) -> str:
    text = parse_text(name, value)
    if not text:
        raise LineError(f"{name}: is empty; write the text with which answers are compared")
    return _require_nfc(name, text)


def parse_name(name: str, value: Any) -> str:
    """Return a single line in one spelling, without hidden characters."""
    text = _require_nfc(name, _require_visible(name, _require_text(name, value), lambda character: False))
    if odd := next((c for c in text if _is_variant(c) or (c.isspace() and c != " ")), None):
        raise LineError(
            f"{name}: contains the character U+{ord(odd):04X}, which can make two names look alike; delete it"
        )
    if not text.strip() or text != text.strip():
        raise LineError(
            f"{name}: {_excerpt(text)} is empty or has white space around it; remove the white space, or write a name"
        )
    if len(text) > MAX_NAME_CHARACTERS:
        raise LineError(f"{name}: has {len(text)} characters, over the limit of {MAX_NAME_CHARACTERS}; shorten it")
    return text


def parse_text(name: str, value: Any) -> str:
    text = _require_visible(name, _require_text(name, value), lambda character: character in {"\n", "\t", *JOINERS})
    if name != "prefix" and text != text.strip():
        raise LineError(f"{name}: has white space around it, which a chat template may drop; remove it")
    return text


def _require_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    raise LineError(f"{name}: write text, not {_excerpt(value)}" + ("; put the text in quotes" if number else ""))


def _require_visible(name: str, text: str, allowed: Callable[[str], bool]) -> str:
    for position, character in enumerate(text, start=1):
        hidden = unicodedata.category(character)[0] == "C" or character in BLANKS
        if hidden and not allowed(character):
            raise LineError(
                f"{name}: contains the invisible character U+{ord(character):04X} at position {position}; delete it"
            )
    return text


def _is_variant(character: str) -> bool:
    """Whether it is a variation selector, which chooses the glyph of the letter before it; alone it prints nothing."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _require_nfc(name: str, text: str) -> str:
    if unicodedata.normalize("NFC", text) != text:
        raise LineError(
            f"{name}: is not in Unicode normal form NFC; normalise it, since otherwise different spellings look alike"
        )
    return text


def _excerpt(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
