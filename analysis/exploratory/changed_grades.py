"""Problems whose lanes are graded differently from the full cache's: candidates for a closer look."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from protocol.formats.vocabulary import FULL

Body: TypeAlias = Mapping[str, Any]  # the body of a record, see docs/records.md


class ChangedProblem(NamedTuple):
    """A problem on which `lost` and `gained` of `lanes` have a lower and a higher grade than the reference;
    and the model, budget and seed at which most of them do.
    """

    problem: str
    task: str
    lost: int
    gained: int
    lanes: int
    model: str
    budget: str
    seed: int


def find_changed_grades(
    bodies: Iterable[Body], content: Mapping[str, Any], is_counted: Callable[[Body], bool] = lambda body: True
) -> list[ChangedProblem]:
    """Return the problems with such lanes, those with the most of them first.

    content: of the protocol in the lock. chosen: whether a lane is counted; any lane may be a reference.
    """
    by_problem: dict[tuple[str, str], list[Body]] = {}
    for body in bodies:
        by_problem.setdefault((body["cell"]["task"], body["problem"]), []).append(body)
    changed = []
    for (task, problem), problem_bodies in by_problem.items():
        lost, gained = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
        lanes, find_reference = 0, reference_finder(content, problem_bodies)
        for body in filter(is_counted, problem_bodies):
            if (reference := find_reference(body)) is body:
                continue
            lanes += 1
            reference_value, value = None if reference is None else reference_score(reference, body), judged_score(body)
            if reference_value is None or value is None or reference_value == value:
                continue
            cell = body["cell"]
            (lost if value < reference_value else gained)[cell["model"], cell["budget"], cell["seed"]] += 1
        if lost or gained:
            ((setting, _),) = (lost + gained).most_common(1)
            changed.append(ChangedProblem(problem, task, lost.total(), gained.total(), lanes, *setting))
    return sorted(
        changed, key=lambda problem_row: (-problem_row.lost - problem_row.gained, problem_row.task, problem_row.problem)
    )


def reference_finder(content: Mapping[str, Any], bodies: Iterable[Body]) -> Callable[[Body], Body | None]:
    """Return a function that finds the reference of a lane.

    The reference is the full cache's lane of the same problem, with the same seed if there is one; without a
    full cache, the first comparator's at the same budget; None without either.
    """
    comparator = _comparator_arm(content)
    full_cache: dict[tuple[Any, ...], Body] = {}
    comparators: dict[tuple[Any, ...], Body] = {}
    for body in bodies:
        cell = body["cell"]
        key = (cell["model"], cell["task"], body["problem"])
        if not evicts(body):
            full_cache.setdefault((*key, cell["seed"]), body)
            full_cache.setdefault(key, body)
        elif cell["arm"] == comparator:
            comparators[*key, cell["budget"], cell["seed"]] = body

    def find_reference(body: Body) -> Body | None:
        cell = body["cell"]
        key = (cell["model"], cell["task"], body["problem"])
        match = full_cache.get((*key, cell["seed"])) or full_cache.get(key)
        return match or comparators.get((*key, cell["budget"], cell["seed"]))

    return find_reference


def reference_name(content: Mapping[str, Any], bodies: Iterable[Body]) -> str:
    """Return the name of the reference that lanes are compared with."""
    return _comparator_arm(content) if all(map(evicts, bodies)) else "the full cache"


def evicts(body: Body) -> bool:
    return bool(body["cell"]["budget"] != FULL)


def _comparator_arm(content: Mapping[str, Any]) -> str:
    """Return the reference arm for studies without a full cache."""
    return str((content.get("sweep") or {}).get("baseline", content["decision"]["against"][0]))


def reference_score(reference: Body, body: Body) -> float | None:
    """Return what the reference of a lane is worth beside it: 1 where the lane was fed the text of the full cache and
    is worth its agreement, since that agrees with itself, whatever it answers.
    """
    return 1.0 if "divergence" in body else judged_score(reference)


def judged_score(body: Mapping[str, Any]) -> float | None:
    """Return the score that a judgement counts for the body of a record: None for a lane without a grade."""
    if body["state"] != "ok" or body["grade"] == "error":
        return None
    return float(body["score"]) if body["grade"] == "scored" else float(body["grade"] == "correct")
