"""Tasks of lm-eval over data of yours, in the schema in which they were published.

Prompts and official scores are those of the installed lm-eval, whose files the lock holds with those of every
other distribution; nothing of it is in this repository, and nothing is fetched.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from protocol import harness
from protocol.evidence.bytes import canonical
from protocol.evidence.lock import closure
from protocol.evidence.refusals import BadInput
from protocol.tasks import file_rows
from protocol.tasks.middle_cut import Longest, cut
from protocol.tasks.problem import Problem

__all__ = ["CRYSTALCACHE", "LmEvalTask"]

# The subsets of LongBench that CrystalCache reports (section 4.2 and table 15), by lm-eval's names; the list
# in its section 4.2 misspells two.
CRYSTALCACHE = tuple(
    f"longbench_{subset}"
    for subset in (
        *("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"),
        *("trec", "triviaqa", "samsum", "passage_count", "passage_retrieval_en"),
    )
)
MOST = 1 << 30  # bytes of a data file
IDS = ("_id", "unique_id", "id", "ID")
ASKED = ("context", "input", "question", "prompt", "problem", "Problem")  # of LongBench and of the others
ID = re.compile(r"[A-Za-z0-9._-]{1,80}")
SHORT, LONG = 4000, 8000  # words, at which LongBench-E parts its problems by length
LONGBENCH = "longbench_"
CHOSEN_FROM = ("trec",)  # subsets whose scores read all_classes
QUESTIONS = ("question", "input", "query", "problem")  # what fields of benchmarks call what is asked

Row: TypeAlias = Mapping[str, Any]  # in the schema in which it was published


class Rows(NamedTuple):
    by_id: Mapping[str, Row]
    are_numbered: bool  # for want of ids of their own


@dataclass(frozen=True)
class LmEvalTask:
    """The problems <lm_eval>/<id>, one a row of `data`, JSON lines: its own id, or its line where rows have
    none.

    lm_eval: the task's name there. longest: a longer prompt is cut in its middle. A gold answer is the row,
    as JSON. Rows with one `context`, as questions about one article are, are a cluster; the levels of
    LongBench are the lengths by which LongBench-E parts it. What follows the context in a prompt, from the
    line after it, is the question.
    """

    name: str
    lm_eval: str
    data: Path
    longest: Longest | None = None

    @property
    def grader(self) -> str:
        return f"{harness.PREFIX}{self.lm_eval}"

    def ids(self) -> tuple[str, ...]:
        """Raises BadInput, naming the line, for data that is no JSON lines."""
        return tuple(self._rows())

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id, and as harness.Harness does."""
        row = self._row(problem_id)
        try:
            prompt = harness.shared().prompt(self.lm_eval, row)
        except harness.TookTooLong:
            raise
        except BadInput as refused:
            raise BadInput(f"{self.data}: problem {problem_id!r}: {refused}") from None
        text = cut(prompt.text, self.longest, count)
        if text != prompt.text and not keeps_question(text, prompt.text, row):
            raise BadInput(
                f"tasks: longest: cuts the question of problem {problem_id!r} away; raise it, or leave it out"
            )
        context, question = asked(text, prompt.text, str(row.get("context") or ""))
        level = self.levels().get(problem_id, "")
        return Problem(problem_id, context, question, prompt.prefix, self.gold(problem_id), level)

    def gold(self, problem_id: str) -> str:
        return json.dumps(self._row(problem_id), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def clusters(self) -> Mapping[str, str]:
        """By id, the digest of the context or, without one, the id; empty where no two have the same."""
        by_id = {
            each: canonical.digest(str(row["context"]))[:16] if row.get("context") else each
            for each, row in self._rows().items()
        }
        return by_id if max(Counter(by_id.values()).values(), default=0) > 1 else {}

    def levels(self) -> Mapping[str, str]:
        """By id, "0-4k", "4-8k" or "8k+" words; empty where the rows do not say."""
        lengths = {each: row.get("length") for each, row in self._rows().items()}
        if not self.lm_eval.startswith(LONGBENCH):
            return {}
        by_id = {each: _level(length) for each, length in lengths.items() if isinstance(length, int)}
        return by_id if len(by_id) == len(lengths) else {}

    def redrawn(self, seed: int) -> "LmEvalTask":
        """Itself: what is published is not drawn."""
        return self

    def asked(self, problem_id: str) -> str:
        """SHA-256 of what a row asks: the same problem has it under every id, and for every task that reads
        it. Of a row without a field of ASKED, of all of it but its id.
        """
        row = self._row(problem_id)
        said = {name: row[name] for name in ASKED if name in row}
        said = said or {name: value for name, value in row.items() if name not in IDS}
        return canonical.digest({"row": json.dumps(said, sort_keys=True)})

    def recipe(self) -> str:
        """As `Task.recipe`: a published problem is known by its published id, a line by the file it is in."""
        data = self.digest() if self._read().are_numbered else ""
        return canonical.digest({"family": "lm_eval", "data": data})

    def source(self) -> str:
        """SHA-256 of what the problems are made of, but for lm-eval itself."""
        longest = None if self.longest is None else self.longest._asdict()
        parts = {"family": "lm_eval", "task": self.lm_eval, "data": self.digest(), "longest": longest}
        return canonical.digest(parts)

    def digest(self) -> str:
        """SHA-256 of the data file."""
        return closure.digest_of(file_rows.read(self.data, MOST))

    def _row(self, problem_id: str) -> Row:
        rows = self._rows()
        if problem_id not in rows:
            raise BadInput(
                f"problem {problem_id!r}: not of this task, whose ids run from {next(iter(rows), 'nothing')}"
            )
        return rows[problem_id]

    def _rows(self) -> Mapping[str, Row]:
        return self._read().by_id

    def _read(self) -> Rows:
        return _rows(self.lm_eval, self.data, file_rows.identity(self.data))


def asked(text: str, whole: str, context: str) -> tuple[str, str]:
    """(what stands before the question, the question) of a prompt that was cut of `whole`: the question is
    what follows `context` from the line after it. Put together with a line feed they are the prompt again.

    A prompt that does not hold its context once, or goes on in the same line, has no question apart.
    """
    _, found, after = whole.partition(context) if context else (whole, "", "")
    if not found or context in after or not text.endswith(after):
        return text, ""
    blank = len(after) - len(after.lstrip())
    line = after.rfind("\n", 0, blank)
    if line < 0 or not after[line + 1 :].strip():
        return text, ""
    question = after[line + 1 :]
    return text[: len(text) - len(question) - 1], question


def keeps_question(text: str, whole: str, row: Row) -> bool:
    """Whether `text`, cut of the prompt `whole`, holds what is asked: all that follows the context, and each
    other field of the row that is a question. Where only one field is asked, it is the question itself.
    """
    fields = {name: str(row[name]) for name in QUESTIONS if row.get(name)}
    context = str(row.get("context") or "")
    if not context and len(fields) > 1:  # as BABILong calls its context `input`
        context = fields.pop(max(fields, key=lambda name: len(fields[name])))
    after = whole.rpartition(context)[2] if context and context in whole else ""
    return text.endswith(after) and all(
        asked in text for name, asked in fields.items() if asked in whole and asked != context
    )


def _level(words: int) -> str:
    return "0-4k" if words < SHORT else "4-8k" if words < LONG else "8k+"


@lru_cache(maxsize=16)  # in one process a file is read once, and again when its identity changed
def _rows(task: str, path: Path, identity: str) -> Rows:
    data = file_rows.read(path, MOST)
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            row = json.loads(line.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
            json.dumps(row, ensure_ascii=False).encode()  # no half of a character
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}: line {number}: is no JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            raise BadInput(f"{path}: line {number}: is no JSON object; write one object a line")
        for says in _faults(task, row, rows[0] if rows else row):
            raise BadInput(f"{path}: line {number}: {says}")
        if (first := seen.setdefault(_asked(task, row), number)) != number:
            raise BadInput(
                f"{path}: line {number}: asks what line {first} asks; leave one of them out, or one could be "
                "for development and one held out"
            )
        rows.append(row)
    own = _own_ids(rows)
    ids = own or [f"{number:04d}" for number in range(len(rows))]
    by_id = {f"{task}/{each}": row for each, row in zip(ids, rows, strict=True)}
    return Rows(MappingProxyType(by_id), are_numbered=own is None)


def _faults(task: str, row: Row, first: Row) -> Iterator[str]:
    """What is wrong with a row, which lm-eval would ask or score all the same: a field that another row has
    and this one lacks, and of LongBench what its scorers read otherwise than it was meant.
    """
    for name in (*first, *row):
        if (name in first) != (name in row):
            which = "missing, and line 1 has it" if name in first else "line 1 has none"
            yield f"{name}: {which}; give every row the same fields, null where there is nothing"
    if not task.startswith(LONGBENCH):
        return
    subset = task.removeprefix(LONGBENCH)
    asked = "question" if "question" in row else "input"
    for name in (asked, "context"):
        if not isinstance(row.get(name), str):
            yield f"{name}: is no text; write the rows as LongBench publishes them"
    answers = row.get("answers")
    if not isinstance(answers, list) or not answers or not all(isinstance(each, str) for each in answers):
        yield 'answers: is no list of texts; write ["..."], as LongBench publishes them'
    if not row.get("context"):
        yield "context: is empty; write the rows as LongBench publishes them"
    classes = row.get("all_classes")
    if subset.removesuffix("_e") in CHOSEN_FROM and not (isinstance(classes, list) and classes):
        yield "all_classes: is no list of the classes; write it as LongBench publishes it"
    said = row.get("dataset", subset)
    if str(said).removesuffix("_e") != subset.removesuffix("_e"):
        yield f"dataset: {said!a}, where {task} asks the problems of {subset}; name the file of that subset"


def _asked(task: str, row: Row) -> str:
    """What tells two problems apart, whatever they are called."""
    if task.startswith(LONGBENCH):
        return canonical.digest([row["context"], row.get("question", row.get("input"))])
    known = {name: value for name, value in row.items() if name not in IDS}
    return closure.digest_of(json.dumps(known, sort_keys=True).encode())


def _own_ids(rows: list[Row]) -> list[str] | None:
    for field in IDS:
        found = [str(row.get(field, "")) for row in rows]
        if len(set(found)) == len(rows) and all(ID.fullmatch(each) for each in found):
            return found
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a field stands twice in it")
    return row
