"""The interface to processes and machines: an executor takes jobs (some problems, all their cells) and
returns records.

May import: policies, protocol.plan, protocol.workspace, protocol.engine, protocol.tasks, protocol.models,
protocol.grading, protocol.layers, protocol.formats, protocol.lock, protocol.evidence; numpy, torch, transformers,
submitit, ray.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from protocol.plan.grid import Cell

if TYPE_CHECKING:  # with torch
    from protocol.engine import Progress


class Job(NamedTuple):
    """A unit of work: every cell of one (model, task), for some problems."""

    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class RenderedPrompt(NamedTuple):
    """The tokens of a problem with the extra prompt of some arms, and their digest."""

    problem: str
    extra_prompt: str
    context: tuple[int, ...]
    query: tuple[int, ...]
    digest: str


class JobPrompts(NamedTuple):
    """What decodes a job is given of its problems. seeds: by the registered seed."""

    prompts: tuple[RenderedPrompt, ...]
    seeds: Mapping[int, int]


class JobResult(NamedTuple):
    """The result of a job. records: (cell, problem) -> (body without registration and phase, costs); a worker leaves
    the grades of its texts out.
    trajectories: the content of the one side file that the bodies cite, empty if none does. seconds: run time
    of the job without loading its model. where: the machine that ran it, as cost fields; set by the executor
    that returns the result.
    """

    records: Mapping[tuple[Cell, str], tuple[dict[str, Any], dict[str, Any]]]
    trajectories: tuple[dict[str, Any], ...]
    seconds: float = 0.0
    where: Mapping[str, str] = MappingProxyType({})


class Decoder(NamedTuple):
    """What decodes jobs in a worker.

    check: raises Tampered if code of an arm changed what is not its own. Results count when it has returned after
    them. is_due: returns whether finished results should wait no longer.
    """

    decode: Callable[[Job, JobPrompts], JobResult]
    is_due: Callable[[], bool] = lambda: True
    check: Callable[[], None] = lambda: None


class Loading(NamedTuple):
    """An update: the executor loads this model before its first job."""

    model: str


class PoolStatus(NamedTuple):
    """The status of jobs that several processes run. running: their hosts. pending: workers that have not
    begun. waiting: jobs that no worker has taken; ready: results that wait for an earlier one. refused: the
    reason of the first worker that refused; empty if none did.
    """

    running: tuple[str, ...]
    pending: int
    waiting: int
    ready: int
    refused: str = ""


JobUpdate: TypeAlias = "Loading | Progress | PoolStatus"
"""An update about a job while it runs; it is in no record."""
Execute: TypeAlias = Callable[[Job], JobResult]
Executor: TypeAlias = Callable[[Iterable[Job]], Iterator[JobResult]]
"""Returns results in the order of the jobs. The result of a job does not depend on other jobs."""
