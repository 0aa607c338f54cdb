"""The protocol of a study that another harness runs: the fields of its protocol.toml, and their values.

It has no models of ours, no policies, no budgets and no generation: the arms are names, each with the command that
makes its outputs, as text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from protocol import tasks
from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import (
    Choice,
    Field,
    Integer,
    ListOf,
    Plain,
    Table,
    declaration,
    declare,
    optional,
    table_of,
)
from protocol.formats.registry import loader
from protocol.formats.runners import RUNNERS, TABLE
from protocol.formats.vocabulary import AS_RUN, FULL
from protocol.plan.decision import DECISION
from protocol.plan.design import Design, Randomness
from protocol.plan.field_kinds import NAME, Number, TableArray, TablesByName, VisibleLine, VisibleText
from protocol.plan.task import FILE, RESERVED_FILES

TRUE = Plain(lambda value: value is True, {"const": True}, "true, or leave it out")
RULES = ("superior", "non_inferior", "equivalent")  # the rules that are not about budgets
MEMORY_FIELDS = ("cache_tolerance", "memory", "unmatched")  # of [decision]


@declaration()
class RunnerTable:
    """Who decodes, and what is read of its files."""

    kind: str = declare(Choice(*RUNNERS), "Another harness decodes.", "outside")
    metric: str | None = optional(
        VisibleText(), "The score to read from files with several scores.", "exact_match", if_absent="the only one"
    )
    filter: str | None = optional(
        VisibleText(),
        "The filter of lm-eval to read from files with several filters.",
        "strict-match",
        if_absent="the only one",
    )


@declaration()
class OutsideTask:
    """A pool of problems, by their ids in the outputs."""

    name: str = declare(VisibleText(NAME.pattern, "a name"), "The name of the task in the study.", "gsm8k-lm")
    file: str = declare(
        FILE, "The pool of problems: a file with one JSON object a line, each with an id.", "pool.jsonl"
    )
    chance: Decimal = declare(Number("0", "0.95"), "The share of answers that guessing gets right.", 0)
    draw: int | None = optional(
        Integer(1, MAX_INTEGER),
        "How many problems are drawn from the pool when the study is claimed; needs [randomness].",
        400,
        if_absent="all problems of the pool, known beforehand",
    )
    called: str | None = optional(
        VisibleText(), "The name of the task in the files.", "gsm8k", if_absent="the name in the study"
    )
    scores: bool | None = optional(
        TRUE, "Answers have scores from 0 to 1.", True, if_absent="answers are right or wrong"
    )
    population: str | None = optional(
        VisibleText(),
        "The population that the pool is a sample of.",
        if_absent="the verdict is about these problems alone",
    )


@declaration()
class OutsideArm:
    """A way to run the model, by name."""

    name: str
    command: str = declare(
        VisibleText(), "The command that makes its outputs, as text; kv-prereg does not run it.", "lm_eval ..."
    )


@dataclass(frozen=True)
class OutsideDesign(Design):
    """A registered design whose outputs another harness makes. Its only budget is `AS_RUN`."""

    runner: RunnerTable | None = None

    @property
    def decodes(self) -> bool:
        return False

    def is_full(self, name: str) -> bool:
        return False  # no cache is known

    def promises(self) -> dict[str, dict[str, Any]]:
        return {}

    def content(self) -> dict[str, Any]:
        return {**DESIGN.to_json(self), "budgets": [AS_RUN], "generation": {}}

    def own_faults(self) -> Iterator[str]:
        """Yield the faults that only such a protocol can have."""
        names = [arm.name for arm in self.arms]
        if FULL in names:
            yield (
                f"arms.{FULL}: this name is reserved for a full cache that kv-prereg decodes; write another "
                "name, such as baseline"
            )
        if self.decision.rule not in RULES:
            yield (
                f"decision.rule: {self.decision.rule} needs budgets or measured memory, which outputs of another "
                f"harness do not have; write {', '.join(RULES)}"
            )
        if len(self.models) > 1:
            yield "models: a study with [runner] has one model; register a study for each other model"
        table: OutsideTask
        for number, table in enumerate(self.tasks):  # type: ignore[assignment]  # of the table below
            if table.name in tasks.TASKS:
                yield (
                    f"tasks[{number}].name: {table.name!r} is the name of a task of kv-prereg; write another "
                    f'name, and called = "{table.name}"'
                )
            if table.file in RESERVED_FILES:
                yield (
                    f"tasks[{number}].file: {table.file} is the name of a file that kv-prereg writes here; rename yours"
                )
            if table.draw is not None and self.randomness is None:
                yield f'tasks[{number}].draw: needs a late value; add [randomness] with source = "local"'
        if self.randomness is not None and all(table.draw is None for table in self.tasks):  # type: ignore[attr-defined]
            yield "randomness: draws nothing, since no task has draw; add draw = ..., or leave [randomness] out"
        for twice in sorted({name for name in self.called if self.called.count(name) > 1}):
            yield f"tasks: two of them have the name {twice!r} in the files; merge them into one task"

    @property
    def called(self) -> list[str]:
        """What the files call each task."""
        return [table.called or table.name for table in self.tasks]  # type: ignore[attr-defined]


def _make_design(**values: Any) -> OutsideDesign:
    return OutsideDesign(**values, budgets=(AS_RUN,), generation=None)  # type: ignore[arg-type]


def _make_decision(**values: Any) -> Any:
    return DECISION.constructor(**values, cache_tolerance=None)


_FIELDS: Mapping[str, Field] = table_of(Design).fields
DESIGN = Table(
    {
        **{name: _FIELDS[name] for name in ("title", "question")},
        "models": Field(
            ListOf(VisibleLine(), 1),
            "The model, by the name that the output files give it, if they give one.",
            ["Qwen/Qwen3-0.6B"],
        ),
        "seeds": Field(
            _FIELDS["seeds"].kind, "The numbers of a problem's repetitions in the files: 0, or the epochs.", [0]
        ),
        TABLE: Field(table_of(RunnerTable), "Who decodes."),
        "tasks": Field(TableArray(table_of(OutsideTask), 1), "The tasks."),
        "arms": Field(TablesByName(table_of(OutsideArm), "arm"), "The ways to run the model."),
        "decision": Field(
            replace(
                DECISION,
                fields={name: field for name, field in DECISION.fields.items() if name not in MEMORY_FIELDS},
                constructor=_make_decision,
            ),
            "The question, and the rule that answers it.",
        ),
        "randomness": Field(table_of(Randomness), "A value made after the lock.", if_absent="no problem is drawn"),
    },
    constructor=_make_design,
    corrections=loader("protocol.plan.aliases:DESIGN"),
)
