"""Parse problem files that a person writes: one JSON object a line, read strictly.

    {"id": "fox/1", "context": "A fox ate 3 hens.", "question": "How many hens?", "answer": "3"}

`answers` in place of `answer` lists several right answers. `level`, `cluster` (problems that belong together:
a template, a document) and `prefix` (how the answer begins) are optional, and so is `question` if the whole
problem is context. Every refusal names file, line and field, and says what to do.
"""

import codecs
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from protocol.evidence.bytes import canonical, files
from protocol.evidence.refusals import BadInput, Tampered, unknown
from protocol.grading.grade import Gold

__all__ = ["Row", "Wrong", "faults", "identity", "read", "rows", "told"]

MOST = 1 << 28  # bytes of a file: parsing takes six times as much memory
MOST_OF_A_LINE = 1 << 24  # bytes: 30 times the longest document of LongBench
MOST_OF_A_NAME = 200  # characters of an id, a level or a cluster, which may be copied into a lock
NAMES, TEXTS = ("id", "level", "cluster"), ("context", "question", "prefix")
FIELDS = ("id", "context", "question", "answer", "answers", "level", "cluster", "prefix")
# Fields that either all lines or no line may have.
ALL_OR_NONE = ("level", "cluster")
# Characters that print nothing: a joiner, fillers of Hangul, vowels of Khmer, Braille without a dot.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
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

    def asked(self) -> str:
        """Return the SHA-256 of context and question, whatever the id and the answer: in one Unicode
        normalization, without line breaks, the border of question and context, and characters that print
        nothing.
        """
        text = unicodedata.normalize("NFC", f"{self.context}\n{self.question}")
        seen = "".join(c for c in text if c not in JOINERS and not _is_variant(c))
        return canonical.digest({"asked": " ".join(seen.split())})


class Wrong(NamedTuple):
    """A fault of a line. line: counted from 1; message: the field and the fix."""

    line: int
    says: str


class _Fault(Exception):
    """A fault of a line, found while parsing it."""


def read(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a task file. Raises BadInput if it is missing, is no plain file, or is too large.
    """
    try:
        return files.read(path, most)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; put it there, beside the protocol that names it") from None
    except Tampered:
        if path.is_file() and not path.is_symlink():
            raise BadInput(f"{path}: has over {most} bytes; make it a smaller one") from None
        raise BadInput(f"{path}: is no plain file; put the file itself there") from None
    except OSError as error:
        raise BadInput(f"{path}: could not be read: {error.strerror}") from None


def rows(path: Path) -> Mapping[str, Row]:
    """Return the problems of a file by id, in file order, one a line. Raises BadInput with the first faulty
    line and the number of others.
    """
    return _rows(path, identity(path))


def identity(path: Path) -> str:
    """Return a key that changes when the file changes; "" if it cannot be read, so that reading it reports
    why.
    """
    try:
        return files.identity(path)
    except OSError:
        return ""


@lru_cache(maxsize=8)  # read once per process, and again if its identity changed
def _rows(path: Path, identity: str) -> Mapping[str, Row]:
    found, wrong = told(read(path))
    if wrong:
        more = f" ({len(wrong) - 1} more: kv-prereg tasks check {path})" if len(wrong) > 1 else ""
        raise BadInput(f"{path}: line {wrong[0].line}: {wrong[0].says}{more}")
    return MappingProxyType({row.id: row for row in found.values()})


def told(data: bytes) -> tuple[Mapping[int, Row], tuple[Wrong, ...]]:
    """Return the problems of the valid lines, by line number, and one fault of each faulty line."""
    if data.startswith(codecs.BOM_UTF8):
        return {}, (Wrong(1, "begins with a byte order mark; save the file as UTF-8 without one"),)
    found: dict[int, Row] = {}
    wrong: dict[int, str] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            found[number] = _row(line)
        except _Fault as fault:
            wrong[number] = str(fault)
    for number, says in faults(found):
        wrong.setdefault(number, says)
    return found, tuple(Wrong(*each) for each in sorted(wrong.items()))


def faults(found: Mapping[int, Row]) -> Iterator[Wrong]:
    """Yield faults that involve several lines: duplicate ids and problems, and fields that only some lines
    have.
    """
    ids: dict[str, int] = {}
    asked: dict[str, int] = {}
    for number, row in found.items():
        if (first := ids.setdefault(row.id, number)) != number:
            yield Wrong(number, f"id: {row.id!a} is that of line {first} too; one problem, one id")
        elif (first := asked.setdefault(row.asked(), number)) != number:
            yield Wrong(number, f"context: asks what line {first} asks; leave one of them out")
    for name in ALL_OR_NONE:
        has = {number for number, row in found.items() if getattr(row, name)}
        if has and (lacking := [number for number in found if number not in has]):
            yield Wrong(
                lacking[0], f"{name}: missing, and line {min(has)} has one; give one to all or to none"
            )


def _row(line: bytes) -> Row:
    if len(line) > MOST_OF_A_LINE:
        raise _Fault(f"has {len(line)} bytes, over {MOST_OF_A_LINE}; shorten its context")
    if line.endswith(b"\r"):
        raise _Fault("ends in CR LF; save the file with LF alone")
    if not line.strip():
        raise _Fault("is empty; delete it")
    try:
        row = json.loads(line.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _Fault(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Fault(f"no JSON: {error.msg} at character {error.colno}; write one object a line") from None
    except RecursionError:
        raise _Fault("nested too deeply; write an object of texts") from None
    except ValueError:  # thousands of digits
        raise _Fault("has a number that nobody can mean; answers are text, in quotes") from None
    if not isinstance(row, dict):
        raise _Fault(f"is {_shown(row)}; write an object with id, context, question and answer")
    for name in row:
        if name not in FIELDS:
            raise _Fault(unknown("field", name, FIELDS))
    for name in ("id", "context"):
        if name not in row:
            raise _Fault(f"{name}: missing; every problem has one")
    names = {name: _name(name, row[name]) for name in NAMES if name in row}
    texts = {name: _text(name, row[name]) for name in TEXTS if name in row}
    if not texts["context"]:
        raise _Fault("context: is empty; a problem without a passage has all its text there, and no question")
    return Row(
        names["id"],
        texts["context"],
        texts.get("question", ""),
        _gold(row),
        names.get("level", ""),
        names.get("cluster", ""),
        texts.get("prefix", ""),
    )


def _gold(row: Mapping[str, Any]) -> Gold:
    if "answer" in row and "answers" in row:
        raise _Fault("answer: stands beside answers; leave one of the two out")
    if "answer" in row:
        return _answer("answer", row["answer"])
    if "answers" not in row:
        raise _Fault("answer: missing; write it, or answers for a list of which each is right")
    answers = row["answers"]
    if not isinstance(answers, list) or not answers:
        raise _Fault(f"answers: write a list of texts, not {_shown(answers)}")
    found = tuple(_answer(f"answers[{place}]", each) for place, each in enumerate(answers))
    for place, each in enumerate(found):
        if each in found[:place]:
            raise _Fault(f"answers[{place}]: {_shown(each)} stands twice; name each once")
    return found


def _answer(name: str, value: Any) -> str:
    text = _text(name, value)
    if not text:
        raise _Fault(f"{name}: is empty; nothing can be compared with it")
    return _normal(name, text)


def _name(name: str, value: Any) -> str:
    """Return a single line in one spelling, without hidden characters."""
    text = _normal(name, _seen(name, _of_text(name, value), lambda character: False))
    if odd := next((c for c in text if _is_variant(c) or (c.isspace() and c != " ")), None):
        raise _Fault(f"{name}: has U+{ord(odd):04X}, with which two names look alike; delete it")
    if not text.strip() or text != text.strip():
        raise _Fault(f"{name}: {_shown(text)} is empty or has white space around it; strip it, or name one")
    if len(text) > MOST_OF_A_NAME:
        raise _Fault(f"{name}: has {len(text)} characters, over {MOST_OF_A_NAME}; shorten it")
    return text


def _text(name: str, value: Any) -> str:
    text = _seen(name, _of_text(name, value), lambda character: character in {"\n", "\t", *JOINERS})
    if name != "prefix" and text != text.strip():
        raise _Fault(f"{name}: has white space around it, which a chat template may drop; strip it")
    return text


def _of_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    raise _Fault(f"{name}: write text, not {_shown(value)}" + ("; text stands in quotes" if number else ""))


def _seen(name: str, text: str, allowed: Callable[[str], bool]) -> str:
    for place, character in enumerate(text, start=1):
        hidden = unicodedata.category(character)[0] == "C" or character in BLANK
        if hidden and not allowed(character):
            raise _Fault(
                f"{name}: has U+{ord(character):04X} at character {place}, which cannot be seen; delete it"
            )
    return text


def _is_variant(character: str) -> bool:
    """Whether it is a variation selector, which chooses the glyph of the letter before it; alone it prints
    nothing.
    """
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _normal(name: str, text: str) -> str:
    if unicodedata.normalize("NFC", text) != text:
        raise _Fault(f"{name}: is not NFC; normalise it, or two spellings look alike")
    return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Fault(f"{twice}: stands twice; keep one of them")
    return row


def _no_number(constant: str) -> NoReturn:
    raise _Fault(f"{constant} is no JSON; answers are text, in quotes")


def _shown(value: Any) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
