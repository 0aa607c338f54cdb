"""All tasks by name, and the tasks of a protocol.

The meaning of a name that a registration cites never changes: a changed task gets a new name.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import splits
from protocol import grading
from protocol.formats.plugins import PluginGroup
from protocol.formats.refusals import BadInput
from protocol.formats.registry import Registry, loader
from protocol.formats.suggestions import suggest
from protocol.grading.grade import Gold
from protocol.tasks.problem import Problem


@runtime_checkable
class Task(Protocol):
    """A frozen set of problems; `splits` says which are held out, protocol.tasks.held_out_guard guards those.

    grader: a name that protocol.grading accepts. gold: the answer of a problem alone. redrawn: the same ids
    with problems drawn from another seed; published problems do not change. recipe: SHA-256 of what
    determines a problem besides its id: two tasks with one recipe have the same problem under the same id.
    source: SHA-256 of everything that the problems are made of. Optional methods: see `clusters`, `levels`,
    `population`, `split_units` and `topics`; and content_digest(problem_id), `file_rows.digest_text` of what a
    problem asks, where that needs no tokenizer. Built-in tasks have `chance` too: the
    share of answers that a guess without the context gets right, as a decimal.
    """

    @property
    def grader(self) -> str: ...

    def ids(self) -> tuple[str, ...]: ...

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem: ...

    def gold(self, problem_id: str) -> Gold: ...

    def redrawn(self, seed: int) -> "Task": ...

    def recipe(self) -> str: ...

    def source(self) -> str: ...


_REQUIRED = ("grader", "ids", "build", "gold", "redrawn", "recipe", "source")  # members of a task


class UnknownTask(BadInput):
    """No task has this name."""


NEEDLE, UNION = "protocol.tasks.needle:Needle", "protocol.tasks.task_union:unite"
ASSOCIATION, MOVED = "protocol.tasks.association:Association", "protocol.tasks.association:MovedAssociation"
TOPICS, CHAIN = "protocol.tasks.topic_retrieval:TopicRetrieval", "protocol.tasks.chain:Chain"
PROGRAMS = "protocol.tasks.programs:Programs"
DEPTHS, DENSITIES = ("0", "0.25", "0.5", "0.75", "1"), ("high", "low")

TASKS = Registry[Task](
    {
        # The first indices with which both splits of so small a task contain every depth.
        "needle-256": loader(NEEDLE, 256, repetitions=4, first=7),
        "association-256": loader(ASSOCIATION, 256, repetitions=10),
        "needle-768": loader(NEEDLE, 768, repetitions=8),
        "association-768": loader(ASSOCIATION, 768, repetitions=22),
        # At least 205 held-out problems each; indices continue after the small ones, so none is in both.
        "needle-768-large": loader(NEEDLE, 768, repetitions=72, first=8),
        "association-768-large": loader(ASSOCIATION, 768, repetitions=205, first=22),
        # The fewest repetitions with at least 200 held-out problems. Above 1,024 tokens CrystalCache makes
        # two chunks.
        "needle-1024": loader(NEEDLE, 1024, repetitions=70),
        "association-1024": loader(ASSOCIATION, 1024, repetitions=165),
        "needle-1536": loader(NEEDLE, 1536, repetitions=69),
        "association-1280": loader(ASSOCIATION, 1280, repetitions=172),
        "recital-448": loader("protocol.tasks.recital:Recital", 448, lines=10, repetitions=347),
        # CrystalCache's lengths and depths (section 4.2), one set as in its tables. 32,768 tokens and the
        # answer are more than Mistral-7B-Instruct-v0.3 has positions: the longest here is 128 shorter.
        "needle-4k-32k": loader(UNION, NEEDLE, (4096, 8192, 16384, 32640), repetitions=17),
        "association-4k-16k": loader(UNION, ASSOCIATION, (4096, 8192, 16384), repetitions=58),
        # The fact at five depths instead of the beginning alone, with the fewest repetitions that hold at
        # least 200 problems back.
        "association-moved-1024": loader(MOVED, 1024, repetitions=34),
        # Two lengths as one set, with at least 200 held-out problems in all; half of 448 tokens still holds
        # the trunks that CrystalCache protects.
        "association-moved-448-640": loader(UNION, MOVED, (448, 640), repetitions=17),
        "association-moved-4k-16k": loader(UNION, MOVED, (4096, 8192, 16384), repetitions=11),
        # A topic of its own for every problem; the lengths, depths and densities of the tasks above.
        **{f"needle-topics-{length}": loader(TOPICS, "needle-topics", (length,)) for length in (256, 448, 768, 1024)},
        **{
            f"association-topics-{length}": loader(TOPICS, "association-topics", (length,), ("0",), DENSITIES)
            for length in (256, 448, 768, 1024)
        },
        "needle-topics-4k-32k": loader(TOPICS, "needle-topics", (4096, 8192, 16384, 32640)),
        "association-topics-4k-16k": loader(TOPICS, "association-topics", (4096, 8192, 16384), ("0",), DENSITIES),
        "association-topics-moved-448": loader(TOPICS, "association-topics-moved", (448,), DEPTHS, DENSITIES),
        "association-topics-moved-4k-16k": loader(
            TOPICS, "association-topics-moved", (4096, 8192, 16384), DEPTHS, DENSITIES
        ),
        # Short chains are more frequent, as a budget of 64 slots can still hold them.
        "chain": loader(CHAIN, (6, 7, 8, 9, 10, 12, 14, 16, 20, 24), repetitions=50, calibration=100),
        # Chains that no study had opened, for the gates: up to 16 steps, from a seed of their own.
        "chain-16": loader(CHAIN, (6, 7, 8, 9, 10, 12, 14, 16), repetitions=45, calibration=0, seed=44),
        # For the templates of `init`, which draw their held-out problems after the lock. Seven steps are answered in 88
        # tokens; if all answers are equally long, arms have equal memory by problem.
        "chain-7": loader(CHAIN, (7,), repetitions=360, calibration=0, seed=46),
        "chain-7-large": loader(CHAIN, (7,), repetitions=1020, calibration=0, seed=47),  # for designs with looks
        "chain-8-16": loader(CHAIN, (8, 10, 12, 14, 16), repetitions=76, calibration=0, seed=46),
        "chain-12-16": loader(CHAIN, (12, 14, 16), repetitions=125, calibration=0, seed=46),
        # For the models that execute straight-line programs: traces of 180 to 550 tokens, of which an answer needs
        # some tenth; and needles, two-hop and three-hop questions in prompts of 150 to 400 tokens.
        "programs": loader(PROGRAMS, "executed", (10, 12, 14, 16, 18), repetitions=76, calibration=40, chance="0.14"),
        # Eight lines alone: short enough to be answered eight times each, and equally long.
        "programs-8": loader(PROGRAMS, "executed", (8,), repetitions=340, calibration=0, chance="0.14"),
        "facts": loader(PROGRAMS, "looked-up", (1, 2, 3), repetitions=125, calibration=40, chance="0.1"),
        # 300 functions of two arguments, whose lines stand in any order; the answer is Python, graded by running it.
        "functions": loader(PROGRAMS, "written", (4, 6, 8, 10, 12), repetitions=60, calibration=20, chance="0"),
        "math500": loader("protocol.tasks.dataset:MATH500"),
        "aime24": loader("protocol.tasks.dataset:AIME24"),
        "gsm8k": loader("protocol.tasks.dataset:GSM8K"),
    }
)


PLUGINS = PluginGroup("kv_prereg.tasks", "task", frozenset(TASKS), BadInput)
"""Each entry point of another distribution names a value that is a Task."""


def get(name: str) -> Task:
    """Return a built-in task or one of another distribution. Raises UnknownTask, which suggests a near name,
    and BadInput for an entry point that is no task.
    """
    points = PLUGINS.points()
    if name in TASKS:
        return TASKS[name]
    if name not in points:
        raise UnknownTask(f"task {name!r}: unknown; {suggest(name, names(), 'kv-prereg tasks list')}")
    task = PLUGINS.load(name)
    if lacking := [member for member in _REQUIRED if not hasattr(task, member)]:
        raise BadInput(
            f"entry point {name} of {PLUGINS.group} must be a task, but has no {lacking[0]}; let it name a task object"
        )
    checked_task: Task = task
    return checked_task


def builtin_chance(name: str) -> str | None:
    """Return the chance of a built-in task; None for another, whose author states it."""
    return getattr(TASKS[name], "chance", None) if name in TASKS else None


def names() -> tuple[str, ...]:
    """Return every name: built-in tasks in order, then those of other distributions, sorted."""
    return (*TASKS, *sorted(PLUGINS.points()))


def task_name(table: Mapping[str, Any]) -> str:
    """Return the name of a task in a study; empty if an edited lock has none."""
    return str(table.get("name", ""))


def make_task(table: Mapping[str, Any], folder: Path | None) -> Task:
    """Return the task that a table `[[tasks]]` of a protocol in `folder` describes, in the form that locks
    have. Raises BadInput for a task that is not available, and for a table of an edited lock.
    """
    if not {"file", "lm_eval"} & table.keys():
        return get(task_name(table))
    try:
        return _make_file_task(table, folder)
    except (KeyError, TypeError) as error:
        raise BadInput(f"tasks: {task_name(table)}: is not a task table: {error}; restore it") from None


def _make_file_task(table: Mapping[str, Any], folder: Path | None) -> Task:
    """Return a task whose problems are in a file next to the protocol or, for RULER, are generated by lm-eval."""
    from protocol.tasks.middle_cut import MaxLength

    name, longest = task_name(table), MaxLength(**table["longest"]) if "longest" in table else None
    if "file" in table and "grader" not in table:
        from protocol.tasks.outside_task import OutsideTask

        path, draw = _file_in_folder(folder, table["file"]), table.get("draw")
        return OutsideTask(name, path, draw, has_scores=table.get("scores", False))
    if "file" in table:
        from protocol.tasks.file_task import FileTask

        grader, instruction = str(table["grader"]), str(table.get("instruction", ""))
        return FileTask(name, _file_in_folder(folder, table["file"]), grader, instruction, longest)
    if "lengths" in table:
        from protocol.tasks.ruler import Ruler

        return Ruler(name, str(table["lm_eval"]), tuple(table["lengths"]))
    from protocol.tasks.lm_eval_task import LmEvalTask

    return LmEvalTask(name, str(table["lm_eval"]), _file_in_folder(folder, table["data"]), longest)


def _file_in_folder(folder: Path | None, file: object) -> Path:
    """Return the path of a file next to a protocol; only a plain name is accepted, also from an edited lock."""
    if folder is None or Path(str(file)).name != file:
        raise BadInput(
            f"tasks: {file!r}: is not the name of a file next to the protocol; put the file there and write its name"
        )
    return folder / str(file)


def make_tasks(tables: Iterable[Mapping[str, Any]], folder: Path | None) -> dict[str, Task]:
    """Return the tasks of a protocol by name. Arguments and errors are those of `make_task`."""
    return {task_name(table): make_task(table, folder) for table in tables}


def task_finder(task_tables: Iterable[Mapping[str, Any]], folder: Path | None) -> Callable[[str], Task]:
    """Return a function that finds a task of a protocol by name and makes no other task. It raises as
    `make_task` does, and UnknownTask for a name that the protocol does not have.
    """
    tables = {task_name(table): table for table in task_tables}
    return lambda name: make_task(tables[name], folder) if name in tables else get(name)


def split_manifest(name: str, task: Task) -> splits.Manifest:
    """Return the split of a task: the frozen manifest, or that of its current ids if none is shipped. Raises
    SplitError if it was altered, or the ids do not make one.
    """
    if name in TASKS:
        return splits.load(name)
    manifest = splits.make_manifest(name, task.ids(), task.source(), split_units(task))
    return manifest._replace(dev=(), confirm=manifest.ids) if is_held_out(task) else manifest


def is_held_out(task: Task) -> bool:
    """Whether all problems of a task are held out: those that another harness asks."""
    return bool(getattr(task, "is_held_out", False))


def gives_scores(task: Task) -> bool:
    """Whether answers may have scores. Raises as `grading.gives_scores` does."""
    return grading.gives_scores(task.grader) if task.grader else bool(getattr(task, "has_scores", False))


def clusters(task: Task) -> Mapping[str, str]:
    """Return by id what a problem shares with others (a template, a document), if the task has `clusters`."""
    return _facts(task, "clusters")


def split_units(task: Task) -> Mapping[str, str]:
    """Return by id what is hashed to split the problems, if the task has `split_units`; else every id is hashed."""
    return _facts(task, "split_units")


def topics(task: Task) -> Mapping[str, str]:
    """Return by id the topic or template that a problem shares with many others, if the task has `topics`.

    Its problems are then a sample of these few topics alone, and not of others.
    """
    return _facts(task, "topics")


def successor(name: str) -> str:
    """Return the task with a topic for every problem whose name is nearest."""
    candidates = [other for other, task in TASKS.items() if hasattr(task, "split_units")]
    return difflib.get_close_matches(name, candidates, n=1, cutoff=0)[0]


def population(task: Task) -> str:
    """Return what the problems of a task are a sample of, as it reads after "200 problems,"; "" if none says."""
    method = getattr(task, "population", None)
    return str(method()) if callable(method) else ""


def levels(task: Task) -> Mapping[str, str]:
    """Return by id how difficult a problem is in its task's terms, if the task has `levels`."""
    return _facts(task, "levels")


def _facts(task: Task, kind: str) -> Mapping[str, str]:
    method = getattr(task, kind, None)
    if not callable(method):  # a field of this name is not about problems
        return {}
    texts: object = method()
    ids = set(task.ids())
    if not isinstance(texts, Mapping):
        raise BadInput(f"tasks: {kind}() returned a {type(texts).__name__}; return a mapping from ids to texts")
    for item, text in texts.items():
        if item not in ids or not isinstance(text, str) or not text:
            raise BadInput(
                f"tasks: {kind}() returned {item!a} and {text!a}; return a mapping from the task's ids to texts"
            )
    return dict(texts)


@runtime_checkable
class ChecksGolds(Task, Protocol):
    """A task of a user's file: its own grader has to accept its answers; its ids mean nothing in another file."""

    def refuse_wrong_golds(self) -> None: ...


@runtime_checkable
class PublishedTask(Task, Protocol):
    """A task of published problems, which may be sealed: see protocol.tasks.dataset."""

    @property
    def sha256(self) -> str: ...

    def is_encrypted(self) -> bool: ...

    def refuse_other_key(self, identity: Path | None) -> None: ...

    def with_identity(self, identity: Path) -> Task: ...


@runtime_checkable
class HasData(Protocol):
    """A task that reads a data file."""

    def digest(self) -> str | dict[str, str]: ...


def is_generated(task: Task) -> bool:
    """Whether another seed gives other problems: published problems, and those of a file, are not drawn."""
    return task.redrawn(1).recipe() != task.redrawn(2).recipe()


def data_digests(tasks: Mapping[str, Task]) -> dict[str, str | dict[str, str]]:
    """Return the SHA-256 of each task's data file, by part if it is sealed. Raises as the tasks' `digest` does."""
    return {name: task.digest() for name, task in tasks.items() if isinstance(task, HasData)}
