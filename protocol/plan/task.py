"""The table [[tasks]] of protocol.toml: a built-in task by name, a file of problems, or a task of lm-eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from protocol import grading, tasks
from protocol.evidence.bytes.canonical import LARGEST
from protocol.evidence.bytes.fields import Choice, Fault, Field, ListOf, Schema, Table, Whole, declared
from protocol.plan import known_as
from protocol.plan.kinds import NAME, Named, Written

__all__ = ["TASK", "Longest", "Task"]

FILE = Written(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.jsonl", "the name of a file beside protocol.toml, NAME.jsonl")
TAKEN = ("ledger.jsonl",)  # files of a registration itself
LISTING = "kv-prereg tasks list"
MOST_TOKENS = 1 << 20  # in a prompt of RULER, whose generator runs out of memory with longer ones
# Fields that are allowed only with these ways to name a task.
ONLY_WITH = {
    "grader": ("file",),
    "instruction": ("file",),
    "data": ("lm_eval",),
    "lengths": ("lm_eval",),
    "longest": ("file", "lm_eval"),
}


class Longest(NamedTuple):
    """The maximum length of a context, in one of two units."""

    words: Annotated[
        int | None,
        Field(Whole(2, LARGEST), "Words, as white space parts them.", 20000, without="not counted"),
    ] = None
    tokens: Annotated[
        int | None, Field(Whole(2, LARGEST), "Tokens of the model's own tokenizer.", without="not counted")
    ] = None


class OneUnit(Table):
    """A table in which exactly one field is set."""

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, Mapping) and len(value.keys() & self.fields) != 1:
            raise Fault.of(f"{at}: write words or tokens, and one of them")
        return super().read(value, at)

    def schema(self) -> Schema:
        return super().schema() | {"minProperties": 1, "not": {"required": list(self.fields)}}


class Ours(Named):
    """The name of a built-in task."""

    def missing(self, name: str, example: Any = None) -> str:
        return f'missing; add name = "needle-256", or another that `{LISTING}` lists; or file, or lm_eval'

    def fault(self, value: Any, at: str, words: str = "") -> Fault:
        fault = super().fault(value, at, words)
        if isinstance(value, str) and value.endswith(".jsonl"):
            written = f'{at}: {value!r} is a file; write file = "{value}" and a grader in the place of name'
            return Fault(written, fault.found)
        own = '; problems of your own: file = "NAME.jsonl" in the place of name'
        return Fault(fault.written + (own if LISTING in fault.written else ""), fault.found)


class Task(NamedTuple):
    """A frozen set of problems, and how they are put to the model."""

    name: Annotated[
        str,
        Field(
            Written(NAME.pattern, "a name of ASCII letters, digits and . _ + -"),
            "The task, one of ours; of a file or a task of lm-eval what the study calls it.",
            "needle-768",
            without="the name of the file without its ending, or of the task of lm-eval",
        ),
    ]
    query: Annotated[
        str,
        Field(
            Choice("inside", "outside"),
            'Whether the question stands "inside" the compressed prompt, or comes after the compression.',
            "inside",
        ),
    ]
    max_new_tokens: Annotated[int, Field(Whole(1, 65536), "New tokens after which a lane is stopped.", 128)]
    file: Annotated[
        str | None,
        Field(
            FILE,
            "Problems of your own, one a line: see docs/tasks.md.",
            "mine.jsonl",
            without="the task is one of ours, or of lm-eval",
        ),
    ] = None
    grader: Annotated[
        str | None,
        Field(
            Named(grading.names, "kv-prereg tasks graders", open=True),
            "What grades the answers of a file.",
            "exact",
            without="refused with a file; other tasks have theirs",
        ),
    ] = None
    instruction: Annotated[
        str | None,
        Field(
            Written(),
            "With a file: the last thing of each user message.",
            "Answer with one word.",
            without="none",
        ),
    ] = None
    lm_eval: Annotated[
        str | None,
        Field(
            Written(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "the name of a task of the installed lm-eval"),
            "A task of lm-eval.",
            "longbench_qasper",
            without="the task is one of ours, or a file",
        ),
    ] = None
    data: Annotated[
        str | None,
        Field(
            FILE,
            "With lm_eval: its problems, in their original schema.",
            "qasper.jsonl",
            without="those of RULER, which lm-eval makes",
        ),
    ] = None
    lengths: Annotated[
        tuple[int, ...] | None,
        Field(
            ListOf(Whole(1, MOST_TOKENS), 1),
            "With a task of RULER: tokens of a prompt.",
            [4096],
            without="refused with a task of RULER, which makes its problems",
        ),
    ] = None
    longest: Annotated[
        Longest | None,
        Field(
            OneUnit(declared(Longest).fields, Longest),
            "With a file or data: a longer context is cut in its middle.",
            {"words": 20000},
            without="no context is cut",
        ),
    ] = None
    dev: Annotated[
        int | None,
        Field(
            Whole(1, LARGEST),
            "Development problems: the first by the MD5 of their ids.",
            40,
            without="all of them",
        ),
    ] = None
    confirm: Annotated[
        int | None,
        Field(
            Whole(1, LARGEST),
            "Held-out problems: the first by the MD5 of their ids, so that a smaller study is part of a "
            "larger one.",
            200,
            without="all of them",
        ),
    ] = None


class OneTask(Table):
    """The table of a task: one of three ways to name it, and the fields allowed with that one."""

    def read(self, value: Any, at: str) -> Any:
        if not isinstance(value, Mapping):
            return super().read(value, at)
        ways = [way for way in ("file", "lm_eval") if way in value]
        if len(ways) == 2:
            raise Fault.of(f"{at}.lm_eval: stands beside file; a task is one of both")
        for name, due in ONLY_WITH.items():
            if name in value and not {*due} & {*ways}:
                raise Fault.of(f"{at}.{name}: stands with {' or '.join(due)} alone; leave it out")
        if not ways:
            return self._ours().read(value, at)
        if ways == ["file"] and "grader" not in value:
            raise Fault.of(f"{at}.grader: missing; write what grades the answers, {_some()}")
        if "lm_eval" in ways and ("data" in value) == ("lengths" in value):
            raise Fault.of(f"{at}.data: write the file of its problems or, of RULER, lengths; one of the two")
        if "lengths" in value and "longest" in value:
            raise Fault.of(
                f"{at}.longest: stands beside lengths, which say how long a prompt is; leave it out"
            )
        for name in ("file", "lm_eval", "data"):
            if name in value:
                self.fields[name].kind.read(value[name], f"{at}.{name}")
            if str(value.get(name, "")).lower() in TAKEN:
                raise Fault.of(f"{at}.{name}: {value[name]} is a file of the registration; rename yours")
        named = super().read({"name": _default(value), **value}, at)
        for twice in sorted({each for each in named.lengths or () if named.lengths.count(each) > 1}):
            raise Fault.of(f"{at}.lengths: {twice} stands twice; name each length once")
        if named.name.lower() in tasks.names():
            raise Fault.of(f"{at}.name: {named.name!r} is the name of a task that is there; write another")
        return named

    @property
    def needed(self) -> tuple[str, ...]:
        return ("name", *super().needed)

    def _ours(self) -> Table:
        """Return the table for a task without a file: its name is that of a built-in task."""
        ours = Ours(tasks.names, LISTING, of="task", known_as=lambda: known_as.TASKS)
        own = self.fields["name"]._replace(kind=ours, without=None)
        return Table({**self.fields, "name": own}, self.made, self.parts, meant=self.meant)

    def schema(self) -> Schema:
        whole, name = super().schema(), self.fields["name"]
        known = {"anyOf": [{"enum": list(tasks.TASKS)}, name.kind.schema()]}
        described = {key: value for key, value in name.schema().items() if key not in name.kind.schema()}
        alone = [
            {"if": _any(due), "then": True, "else": {"properties": {name: False}}}
            for name, due in ONLY_WITH.items()
        ]
        graded = {"if": _any(["file"]), "then": {"required": ["grader"], "properties": {"lm_eval": False}}}
        either = [
            {"required": ["data"], "properties": {"lengths": False}},
            {"required": ["lengths"], "properties": {"data": False, "longest": False}},
        ]
        fed = {"if": _any(["lm_eval"]), "then": {"anyOf": either}}
        return whole | {
            "properties": {**whole["properties"], "name": known | described},
            "required": list(super().needed),
            "anyOf": [{"required": [way]} for way in ("name", "file", "lm_eval")],
            "allOf": [graded, fed, *alone],
        }


def _default(value: Mapping[str, Any]) -> Any:
    return str(value["file"]).removesuffix(".jsonl") if "file" in value else value["lm_eval"]


def _any(ways: Iterable[str]) -> Schema:
    return {"anyOf": [{"required": [way]} for way in ways]}


def _some() -> str:
    return f"one of {', '.join(grading.names())}"


TASK = OneTask(declared(Task).fields, made=Task, meant=known_as.TASK)
