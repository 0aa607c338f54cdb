"""Tasks of lm-eval over the user's data, in the schema in which the benchmark was published.

Prompts and official scores come from the installed lm-eval, whose files the lock lists with those of every
other distribution; this repository has no copy, and nothing is fetched.
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
from protocol.formats import canonical, strict_json
from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import OFFICIAL
from protocol.lock import closure
from protocol.tasks import file_rows
from protocol.tasks.middle_cut import MaxLength, cut_middle
from protocol.tasks.problem import Problem

# The subsets of LongBench that CrystalCache reports (section 4.2 and table 15), by lm-eval's names; the list
# in its section 4.2 misspells two.
CRYSTALCACHE = tuple(
    f"longbench_{subset}"
    for subset in (
        *("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"),
        *("trec", "triviaqa", "samsum", "passage_count", "passage_retrieval_en"),
    )
)
MAX_BYTES = 1 << 30  # bytes of a data file
IDS = ("_id", "unique_id", "id", "ID")
CONTENT_FIELDS = ("context", "input", "question", "prompt", "problem", "Problem")  # LongBench's and others' fields
ID = re.compile(r"[A-Za-z0-9._-]{1,80}")
SHORT_WORDS, LONG_WORDS = 4000, 8000  # words: the length classes of LongBench-E
LONGBENCH = "longbench_"
CHOSEN_FROM = ("trec",)  # subsets whose scores read all_classes
QUESTION_FIELDS = ("question", "input", "query", "problem")  # names of the question in benchmarks

Row: TypeAlias = Mapping[str, Any]  # in the schema in which it was published


class Rows(NamedTuple):
    by_id: Mapping[str, Row]
    are_numbered: bool  # ids are line numbers, since rows have none


@dataclass(frozen=True)
class LmEvalTask:
    """The problems <lm_eval>/<id>, one for each row of `data`, which is JSON lines: the row's id, or its line
    number if rows have none.

    lm_eval: the task's name in lm-eval. longest: a longer prompt is cut in its middle. A gold answer is the row, as
    JSON. Rows with the same `context`, such as questions about one article, form a cluster; the levels of LongBench are
    the length classes of LongBench-E. The question is the part of the prompt after the context, from the next line on.
    """

    name: str
    lm_eval: str
    data: Path
    longest: MaxLength | None = None

    @property
    def grader(self) -> str:
        return f"{OFFICIAL}{self.lm_eval}"

    def ids(self) -> tuple[str, ...]:
        """Return the ids. Raises BadInput, naming the line, for data that is not JSON lines."""
        return tuple(self._rows_by_id())

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id, and as harness.Harness does."""
        row = self._find_row(problem_id)
        try:
            prompt = harness.shared_harness().prompt(self.lm_eval, row)
        except harness.TookTooLong:
            raise
        except BadInput as refusal:
            raise BadInput(f"{self.data}: problem {problem_id!r}: {refusal}") from None
        text = cut_middle(prompt.text, self.longest, count)
        if text != prompt.text and not keeps_question(text, prompt.text, row):
            raise BadInput(
                f"tasks: longest: would cut off the question of problem {problem_id!r}; raise it, or leave it out"
            )
        context, question = split_question(text, prompt.text, str(row.get("context") or ""))
        level = self.levels().get(problem_id, "")
        return Problem(problem_id, context, question, prompt.prefix, self.gold(problem_id), level)

    def gold(self, problem_id: str) -> str:
        return json.dumps(self._find_row(problem_id), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def clusters(self) -> Mapping[str, str]:
        """Return by id the digest of the context or, without one, the id; empty if no two rows share a context."""
        by_id = {
            problem_id: canonical.digest(str(row["context"]))[:16] if row.get("context") else problem_id
            for problem_id, row in self._rows_by_id().items()
        }
        return by_id if max(Counter(by_id.values()).values(), default=0) > 1 else {}

    def levels(self) -> Mapping[str, str]:
        """Return by id "0-4k", "4-8k" or "8k+" words; empty if the rows have no length."""
        lengths = {problem_id: row.get("length") for problem_id, row in self._rows_by_id().items()}
        if not self.lm_eval.startswith(LONGBENCH):
            return {}
        by_id = {problem_id: _length_level(length) for problem_id, length in lengths.items() if isinstance(length, int)}
        return by_id if len(by_id) == len(lengths) else {}

    def redrawn(self, seed: int) -> "LmEvalTask":
        """Return the task itself: published problems are not drawn."""
        return self

    def content_digest(self, problem_id: str) -> str:
        """Return the digest of a row's content, which is the same under every id, for every task that reads it
        and in a file: of its CONTENT_FIELDS, or of everything but its id if it has none.
        """
        row = self._find_row(problem_id)
        if texts := [str(row[name]) for name in CONTENT_FIELDS if row.get(name)]:
            return file_rows.digest_text(*texts)
        content = {name: value for name, value in row.items() if name not in IDS}
        return canonical.digest({"row": json.dumps(content, sort_keys=True)})

    def recipe(self) -> str:
        """As `Task.recipe`: a published problem is identified by its published id, a numbered line by its file."""
        data = self.digest() if self._read_rows().are_numbered else ""
        return canonical.digest({"family": "lm_eval", "data": data})

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of, except lm-eval itself."""
        longest = None if self.longest is None else self.longest._asdict()
        parts = {"family": "lm_eval", "task": self.lm_eval, "data": self.digest(), "longest": longest}
        return canonical.digest(parts)

    def digest(self) -> str:
        """Return the SHA-256 of the data file."""
        return closure.sha256_hex(file_rows.read_file(self.data, MAX_BYTES))

    def _find_row(self, problem_id: str) -> Row:
        rows = self._rows_by_id()
        if problem_id not in rows:
            raise BadInput(
                f"problem {problem_id!r}: is not in this task, whose ids start at {next(iter(rows), 'nothing')}"
            )
        return rows[problem_id]

    def _rows_by_id(self) -> Mapping[str, Row]:
        return self._read_rows().by_id

    def _read_rows(self) -> Rows:
        return _load_rows(self.lm_eval, self.data, file_rows.file_identity(self.data))


def split_question(text: str, prompt: str, context: str) -> tuple[str, str]:
    """Split `text`, a possibly cut `prompt`, into the part before the question and the question, which
    follows `context` from the next line on. Joined with a line feed they are the text again.

    A prompt that does not contain its context exactly once, or continues on the same line, has no separate question.
    """
    _, match, rest = prompt.partition(context) if context else (prompt, "", "")
    if not match or context in rest or not text.endswith(rest):
        return text, ""
    blank = len(rest) - len(rest.lstrip())
    line = rest.rfind("\n", 0, blank)
    if line < 0 or not rest[line + 1 :].strip():
        return text, ""
    question = rest[line + 1 :]
    return text[: len(text) - len(question) - 1], question


def keeps_question(text: str, prompt: str, row: Row) -> bool:
    """Whether `text`, cut from `prompt`, contains the question: everything after the context, and each other
    field of the row that is part of the question. If only one such field exists, it is the question itself.
    """
    fields = {name: str(row[name]) for name in QUESTION_FIELDS if row.get(name)}
    context = str(row.get("context") or "")
    if not context and len(fields) > 1:  # BABILong names its context `input`
        context = fields.pop(max(fields, key=lambda name: len(fields[name])))
    rest = prompt.rpartition(context)[2] if context and context in prompt else ""
    return text.endswith(rest) and all(
        question in text for name, question in fields.items() if question in prompt and question != context
    )


def _length_level(words: int) -> str:
    return "0-4k" if words < SHORT_WORDS else "4-8k" if words < LONG_WORDS else "8k+"


@lru_cache(maxsize=16)  # read once per process, and again if its identity changed
def _load_rows(task: str, path: Path, identity: str) -> Rows:
    data = file_rows.read_file(path, MAX_BYTES)
    rows: list[Row] = []
    first_lines: dict[str, int] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            row = strict_json.parse(line)
        except strict_json.JsonFault as fault:
            raise BadInput(f"{path}: line {number}: is not JSON ({fault}); write one object on each line") from None
        if not isinstance(row, dict):
            raise BadInput(f"{path}: line {number}: is not a JSON object; write one object on each line")
        for message in _find_faults(task, row, rows[0] if rows else row):
            raise BadInput(f"{path}: line {number}: {message}")
        if (first := first_lines.setdefault(_content_key(task, row), number)) != number:
            raise BadInput(
                f"{path}: line {number}: asks the same as line {first}; leave one of them out, since "
                "otherwise one could be for development and the other held out"
            )
        rows.append(row)
    row_ids = _find_ids(rows)
    ids = row_ids or [f"{number:04d}" for number in range(len(rows))]
    by_id = {f"{task}/{row_id}": row for row_id, row in zip(ids, rows, strict=True)}
    return Rows(MappingProxyType(by_id), are_numbered=row_ids is None)


def _find_faults(task: str, row: Row, first: Row) -> Iterator[str]:
    """Yield faults of a row that lm-eval would accept: fields of some rows alone, values that LongBench misreads."""
    for name in (*first, *row):
        if (name in first) != (name in row):
            which = "missing, although line 1 has it" if name in first else "line 1 does not have it"
            yield f"{name}: {which}; give every row the same fields, with null where there is no value"
    if not task.startswith(LONGBENCH):
        return
    subset = task.removeprefix(LONGBENCH)
    question_field = "question" if "question" in row else "input"
    for name in (question_field, "context"):
        if not isinstance(row.get(name), str):
            yield f"{name}: is not text; write the rows as LongBench publishes them"
    answers = row.get("answers")
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        yield 'answers: is not a list of texts; write ["..."], as LongBench publishes them'
    if not row.get("context"):
        yield "context: is empty; write the rows as LongBench publishes them"
    classes = row.get("all_classes")
    if subset.removesuffix("_e") in CHOSEN_FROM and not (isinstance(classes, list) and classes):
        yield "all_classes: is not a list of the classes; write it as LongBench publishes it"
    dataset_name = row.get("dataset", subset)
    if str(dataset_name).removesuffix("_e") != subset.removesuffix("_e"):
        yield f"dataset: {dataset_name!a}, but {task} consists of problems from {subset}; name the file of that subset"


def _content_key(task: str, row: Row) -> str:
    """Return what distinguishes two problems, whatever their ids."""
    if task.startswith(LONGBENCH):
        return canonical.digest([row["context"], row.get("question", row.get("input"))])
    content = {name: value for name, value in row.items() if name not in IDS}
    return closure.sha256_hex(json.dumps(content, sort_keys=True).encode())


def _find_ids(rows: list[Row]) -> list[str] | None:
    for field in IDS:
        values = [str(row.get(field, "")) for row in rows]
        if len(set(values)) == len(rows) and all(ID.fullmatch(value) for value in values):
            return values
    return None
