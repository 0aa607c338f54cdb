"""A task in a user's file, next to the protocol that names it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from protocol import grading
from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.grading import Gold, Grade, Grader, boxed, contains, exact
from protocol.grading.mathverify import MathVerify
from protocol.lock import closure
from protocol.tasks import file_rows
from protocol.tasks.file_rows import ReadLine, Row, RowFault
from protocol.tasks.middle_cut import MaxLength, cut_middle
from protocol.tasks.problem import Problem

# Graders that accept an answer anywhere in the text, and the function that finds it.
SEARCHING_GRADERS: Mapping[str, Callable[[str, str], Grade]] = MappingProxyType(
    {"exact": exact.grade, "contains": contains.grade, "boxed": boxed.grade, "math": boxed.grade}
)
COMPARES_SPELLINGS = ("exact", "equals", "contains")  # graders that look at letters alone
MAX_GOLDS = 2000  # distinct answers, all pairs of which are compared
NO_ANSWER = "I do not know who or what it is, so I cannot tell you: one or the other of them, no, yes or all of us."


@dataclass(frozen=True)
class FileTask:
    """The problems of the lines of `path`, in their order, as `file_rows` parses them.

    name: as in the protocol. grader: a name that protocol.grading accepts. instruction: the last line of the
    user message: it follows the question, and so comes after the compression if the question does. longest:
    longer contexts are cut in their middle.
    """

    name: str
    path: Path
    grader: str
    instruction: str = ""
    longest: MaxLength | None = None

    def ids(self) -> tuple[str, ...]:
        return tuple(self._load_rows())

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id, and as `file_rows.rows` does."""
        row = self._find_row(problem_id)
        context = cut_middle(row.context, self.longest, count)
        question_parts = [text for text in (row.question, self.instruction) if text]
        if not row.question:  # everything is context and is compressed
            context, question_parts = "\n".join([context, *question_parts]), []
        return Problem(row.id, context, "\n".join(question_parts), row.prefix, row.gold, row.level)

    def gold(self, problem_id: str) -> Gold:
        """Raises as `build` does."""
        return self._find_row(problem_id).gold

    def redrawn(self, seed: int) -> "FileTask":
        """Return the task itself: a file is not drawn."""
        return self

    def clusters(self) -> Mapping[str, str]:
        return {name: row.cluster for name, row in self._load_rows().items() if row.cluster}

    def levels(self) -> Mapping[str, str]:
        return {name: row.level for name, row in self._load_rows().items() if row.level}

    def content_digest(self, problem_id: str) -> str:
        """Return the SHA-256 of the problem's content, which is the same in every file and under every id."""
        return self._find_row(problem_id).content_digest()

    def recipe(self) -> str:
        """As `Task.recipe`, for files no longer available: two file tasks share the problems with equal ids."""
        return canonical.digest({"family": "file"})

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: the file, the instruction and the cut."""
        longest = None if self.longest is None else self.longest._asdict()
        parts = {"family": "file", "file": self.digest(), "instruction": self.instruction, "longest": longest}
        return canonical.digest(parts)

    def digest(self) -> str:
        """Return the SHA-256 of the file. Raises as `file_rows.read_file` does."""
        return closure.sha256_hex(file_rows.read_file(self.path))

    def refuse_wrong_golds(self) -> None:
        """Raise BadInput for an answer that its own grader does not accept; the message does not show it."""
        rows_by_line = dict(enumerate(self._load_rows().values(), start=1))
        for line, message in find_wrong_golds(self.grader, rows_by_line, self.instruction):
            raise BadInput(f"{self.path}: line {line}: {message}")

    def _load_rows(self) -> Mapping[str, Row]:
        return file_rows.load_rows(self.path, reader_of(self.grader))

    def _find_row(self, problem_id: str) -> Row:
        try:
            return self._load_rows()[problem_id]
        except KeyError:
            raise BadInput(f"problem {problem_id!r}: is not in this task, whose ids are in {self.path}") from None


def reader_of(grader: str | None) -> ReadLine:
    """Return what reads a line for a grader: the reader of published formats for programs."""
    if grader != "program":
        return file_rows.read_problem
    read: ReadLine = load_attribute("protocol.tasks.program_rows:read_program")
    return read


def find_wrong_golds(name: str, rows_by_line: Mapping[int, Row], instruction: str = "") -> Iterator[RowFault]:
    """Yield the lines whose gold answer cannot be used with the named grader.

    That is an answer that the grader does not accept for itself, so that every model would be wrong; for an
    external grader, which may need answers in its own form, only one that it cannot grade. And an answer that
    a text without any knowledge matches, so that every model could be right.
    """
    with as_context(grading.get_grader(name)) as grader:
        if name == "program":
            faults = ((line, grader.find_fault(str(row.gold))) for line, row in rows_by_line.items())  # type: ignore[attr-defined]
            yield from (
                RowFault(line, f"its tests: {fault}; correct them or leave the line out")
                for line, fault in faults
                if fault
            )
            return
        for line, row in rows_by_line.items():
            answers = {"answer": row.gold} if isinstance(row.gold, str) else _label_golds(row.gold)
            for field, gold in answers.items():
                if not _accepts_gold(grader, gold, name in grading.GRADERS):
                    fix = "write one that it can compare, or choose another grader"
                    yield RowFault(line, f"{field}: is not graded as right by its own grader, {name}; {fix}")
                    break
                if reason := _easy_reason(name, gold, {**row._asdict(), "instruction": instruction}):
                    yield RowFault(line, f"{field}: {reason}")
                    break


def find_confusable_golds(name: str, rows_by_line: Mapping[int, Row]) -> Iterator[RowFault]:
    """Yield each line whose gold answer is also right, to the named grader, where a model gives another line's, or
    says in common words that it does not know.

    One fault a line, of graders that compare letters. Equal golds are no fault: two questions may have one answer.
    """
    if name not in COMPARES_SPELLINGS:
        return
    golds: dict[str, int] = {}
    for line, row in rows_by_line.items():
        for gold in (row.gold,) if isinstance(row.gold, str) else row.gold:
            golds.setdefault(gold, line)
    grader = grading.get_grader(name)
    letters = {gold: "".join(filter(str.isalnum, gold.casefold())) for gold in [*golds][:MAX_GOLDS]}
    for gold, line in [*golds.items()][:MAX_GOLDS]:
        if grading.grade_safely(grader.grade, gold, NO_ANSWER).worth == 1:
            yield RowFault(
                line, f"answer: {gold!a} is graded as right in the text {NO_ANSWER!a}, which gives no answer"
            )
            continue
        for other, text in letters.items():  # letters first: all graders of all pairs would take minutes
            is_another = golds[other] != line and letters[gold] in text
            if is_another and grading.grade_safely(grader.grade, gold, other).worth == 1:
                yield RowFault(
                    line, f"answer: {gold!a} is also graded as right in {other!a}, the answer of line {golds[other]}"
                )
                break


def _easy_reason(name: str, gold: str, fields: Mapping[str, Any]) -> str | None:
    """Return why a text without knowledge would be right: it repeats its input, or contains the letter.

    Choices do occur in their question, and a grader with scores gives little for repeating it.
    """
    if name not in SEARCHING_GRADERS:
        return None
    if name in ("exact", "contains") and len(gold) == 1 and gold.isascii() and gold.isalpha():
        return (
            f"is a single letter, which almost any text contains, and {name} checks no more than that; choose the "
            "grader choice or equals"
        )
    for field in ("question", "prefix", "instruction"):
        if SEARCHING_GRADERS[name](gold, str(fields[field])).status == "correct":
            fix = "reword one of them, or choose another grader"
            return f"is in the {field}, and {name} counts an answer as right that only repeats it; {fix}"
    return None


def _accepts_gold(grader: Grader, gold: str, is_builtin: bool) -> bool:
    """Whether the answer is right when it is the whole text, or is in a box."""
    if isinstance(grader, MathVerify) and grader.compare(gold, gold) != "same":
        return False
    grades = (grading.grade_safely(grader.grade, gold, text) for text in (rf"\boxed{{{gold}}}", gold))
    return any(grade.worth == 1 if is_builtin else grade.status != "error" for grade in grades)


def _label_golds(golds: tuple[str, ...]) -> dict[str, str]:
    return {f"answers[{index}]": gold for index, gold in enumerate(golds)}


def as_context(grader: Grader) -> AbstractContextManager[Grader]:
    """Return the grader as a context manager, which ends the process of a grader that has one."""
    return grader if isinstance(grader, AbstractContextManager) else nullcontext(grader)
