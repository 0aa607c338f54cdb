"""The table [[tasks]] of protocol.toml: a built-in task by name, a file of problems, or a task of lm-eval."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from protocol import grading, tasks
from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import (
    Choice,
    Fault,
    Integer,
    ListOf,
    Table,
    declaration,
    declare,
    optional,
    table_of,
)
from protocol.formats.registry import loader
from protocol.plan.field_kinds import NAME, CatalogueName, Number, VisibleText

FILE = VisibleText(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.jsonl", "the name of a file next to protocol.toml, NAME.jsonl")
RESERVED_FILES = ("ledger.jsonl",)  # files of a registration itself
LISTING = "kv-prereg tasks list"
MOST_TOKENS = 1 << 20  # in a prompt of RULER, whose generator runs out of memory with longer ones
# Fields that are allowed only with these ways to name a task.
ONLY_WITH = {
    "grader": ("file",),
    "instruction": ("file",),
    "data": ("lm_eval",),
    "lengths": ("lm_eval",),
    "longest": ("file", "lm_eval"),
    "population": ("file", "lm_eval"),
}


@declaration()
class Longest:
    """The maximum length of a context, in one of two units."""

    words: int | None = optional(
        Integer(2, MAX_INTEGER), "Words, separated by white space.", 20000, if_absent="not counted"
    )
    tokens: int | None = optional(
        Integer(2, MAX_INTEGER), "Tokens, counted by the model's own tokenizer.", if_absent="not counted"
    )


class ExactlyOneTable(Table):
    """A table in which exactly one field is set."""

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, Mapping) and len(value.keys() & self.fields) != 1:
            raise Fault(f"{at}: write either words or tokens")
        return super().read(value, at)


class BuiltinTaskName(CatalogueName):
    """The name of a built-in task."""

    def missing_message(self, name: str, example: Any = None) -> str:
        return f'missing; add name = "needle-256", or another that `{LISTING}` lists; or file, or lm_eval'

    def make_fault(self, value: Any, at: str, words: str = "") -> Fault:
        fault = super().make_fault(value, at, words)
        if isinstance(value, str) and value.endswith(".jsonl"):
            message = f'{at}: {value!r} is a file; write file = "{value}" and a grader instead of name'
            return Fault(message, fault.audit_message)
        advice = '; for your own problems write file = "NAME.jsonl" instead of name'
        return Fault(fault.author_message + (advice if LISTING in fault.author_message else ""), fault.audit_message)


@declaration()
class Task:
    """A frozen set of problems, and how they are put to the model."""

    name: str = declare(
        VisibleText(NAME.pattern, "a name of ASCII letters, digits and . _ + -"),
        "The name of a task of kv-prereg; with `file` or `lm_eval`, a name that you choose for this study.",
        "needle-768",
        if_absent="the name of the file without its ending, or the name of the task of lm-eval",
    )
    query: str = declare(
        Choice("inside", "outside"),
        'Whether the question is "inside" the compressed prompt, or "outside" it, after the compression.',
        "inside",
    )
    max_new_tokens: int = declare(Integer(1, 65536), "The number of new tokens after which a lane is stopped.", 128)
    file: str | None = optional(
        FILE,
        "A file with your own problems, one on each line: see docs/tasks.md.",
        "mine.jsonl",
        if_absent="the task is from kv-prereg or from lm-eval",
    )
    grader: str | None = optional(
        CatalogueName(grading.grader_names, "kv-prereg tasks graders", open=True),
        "The grader for the answers of a file.",
        "contains",
        if_absent="refused with a file; other tasks have their own grader",
    )
    instruction: str | None = optional(
        VisibleText(),
        "With a file: the text at the end of each user message.",
        "Answer with one word.",
        if_absent="none",
    )
    lm_eval: str | None = optional(
        VisibleText(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "the name of a task of the installed lm-eval"),
        "A task of lm-eval.",
        "longbench_qasper",
        if_absent="the task is from kv-prereg or from a file",
    )
    data: str | None = optional(
        FILE,
        "With lm_eval: the file of its problems, in their original schema.",
        "qasper.jsonl",
        if_absent="refused, except for tasks of RULER, whose problems lm-eval generates",
    )
    lengths: tuple[int, ...] | None = optional(
        ListOf(Integer(1, MOST_TOKENS), 1),
        "With a task of RULER: the numbers of tokens in a prompt.",
        [4096],
        if_absent="refused with a task of RULER, which needs the lengths",
    )
    population: str | None = optional(
        VisibleText(),
        "With a file or data: the population from which its problems are a sample, for the first line of the verdict.",
        "questions about court decisions of 2024, two from each",
        if_absent="the verdict is about these problems alone",
    )
    chance: Decimal | None = optional(
        Number("0", "0.95"),
        "The share of answers that guessing gets right when it sees the question but not the context: 0 for "
        "free text, 0.25 for one of four choices.",
        0.25,
        if_absent="the value of a task of kv-prereg; refused with other tasks, except in replications of a shipped "
        "study",
    )
    longest: Longest | None = optional(
        ExactlyOneTable(table_of(Longest).fields, Longest),
        "With a file or data: the longest context; a longer one is cut in its middle.",
        {"words": 20000},
        if_absent="no context is cut",
    )
    dev: int | None = optional(
        Integer(1, MAX_INTEGER),
        "Number of development problems: the first ones by the MD5 of their ids.",
        40,
        if_absent="all of them",
    )
    confirm: int | None = optional(
        Integer(1, MAX_INTEGER),
        "Number of held-out problems: the first ones by the MD5 of their ids, so that a smaller study is "
        "part of a larger one.",
        200,
        if_absent="all of them",
    )


class TaskTable(Table):
    """The table of a task: one of three ways to name it, and the fields allowed with that one."""

    def read(self, value: Any, at: str) -> Any:
        if not isinstance(value, Mapping):
            return super().read(value, at)
        ways = [way for way in ("file", "lm_eval") if way in value]
        if len(ways) == 2:
            raise Fault(f"{at}.lm_eval: cannot be combined with file; a task has only one of them")
        for name, allowed_ways in ONLY_WITH.items():
            if name in value and not {*allowed_ways} & {*ways}:
                raise Fault(f"{at}.{name}: is allowed only with {' or '.join(allowed_ways)}; leave it out")
        if not ways:
            return self._builtin_table().read(value, at)
        if ways == ["file"] and "grader" not in value:
            raise Fault(f"{at}.grader: missing; write what grades the answers, {_list_graders()}")
        if "lm_eval" in ways and ("data" in value) == ("lengths" in value):
            raise Fault(f"{at}.data: write either the file of its problems or, for RULER, lengths")
        if "lengths" in value and "longest" in value:
            raise Fault(
                f"{at}.longest: cannot be combined with lengths, which already give the length of a prompt; leave "
                "it out"
            )
        for name in ("file", "lm_eval", "data"):
            if name in value:
                self.fields[name].kind.read(value[name], f"{at}.{name}")
            if str(value.get(name, "")).lower() in RESERVED_FILES:
                raise Fault(
                    f"{at}.{name}: {value[name]} is the name of a file that kv-prereg writes here; rename yours"
                )
        task = super().read({"name": _default_name(value), **value}, at)
        for twice in sorted({length for length in task.lengths or () if task.lengths.count(length) > 1}):
            raise Fault(f"{at}.lengths: {twice} occurs twice; name each length once")
        if task.name.lower() in tasks.names():
            raise Fault(f"{at}.name: {task.name!r} is the name of an existing task; write another")
        return task

    @property
    def required(self) -> tuple[str, ...]:
        return ("name", *super().required)

    def _builtin_table(self) -> Table:
        """Return the table for a task without a file: its name is that of a built-in task."""
        kind = BuiltinTaskName(tasks.names, LISTING, noun="task", corrections=loader("protocol.plan.aliases:TASKS"))
        name_field = self.fields["name"]._replace(kind=kind, if_absent=None)
        return Table(
            {**self.fields, "name": name_field}, self.constructor, self.attributes, corrections=self.corrections
        )


def task_chance(task: Task) -> Decimal | None:
    """Return the share of answers of a task that a guess gets right; None where its author has to state it."""
    builtin = tasks.builtin_chance(task.name)
    return task.chance if builtin is None or task.chance is not None else Decimal(builtin)


def _default_name(value: Mapping[str, Any]) -> Any:
    return str(value["file"]).removesuffix(".jsonl") if "file" in value else value["lm_eval"]


def _list_graders() -> str:
    return f"one of {', '.join(grading.grader_names())}"


TASK = TaskTable(table_of(Task).fields, constructor=Task, corrections=loader("protocol.plan.aliases:TASK"))
