"""Problems whose lanes are graded differently from the full cache's: candidates for a closer look."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from analysis.explored.one_problem import worth
from analysis.rules.rule import FULL

__all__ = ["Body", "Differing", "beside", "differing", "evicts", "references"]

Body: TypeAlias = Mapping[str, Any]  # the body of a record, see docs/records.md


class Differing(NamedTuple):
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


def differing(
    bodies: Iterable[Body], content: Mapping[str, Any], chosen: Callable[[Body], bool] = lambda body: True
) -> list[Differing]:
    """Return the problems with such lanes, those with the most of them first.

    content: of the protocol in the lock. chosen: whether a lane is counted; any lane may be a reference.
    """
    by_problem: dict[tuple[str, str], list[Body]] = {}
    for body in bodies:
        by_problem.setdefault((body["cell"]["task"], body["problem"]), []).append(body)
    found = []
    for (task, problem), own in by_problem.items():
        lost, gained = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
        lanes, find = 0, references(content, own)
        for body in filter(chosen, own):
            if (reference := find(body)) is body:
                continue
            lanes += 1
            before, now = None if reference is None else worth(reference), worth(body)
            if before is None or now is None or before == now:
                continue
            cell = body["cell"]
            (lost if now < before else gained)[cell["model"], cell["budget"], cell["seed"]] += 1
        if lost or gained:
            ((place, _),) = (lost + gained).most_common(1)
            found.append(Differing(problem, task, lost.total(), gained.total(), lanes, *place))
    return sorted(found, key=lambda one: (-one.lost - one.gained, one.task, one.problem))


def references(content: Mapping[str, Any], bodies: Iterable[Body]) -> Callable[[Body], Body | None]:
    """Return a function that finds the reference of a lane.

    The reference is the full cache's lane of the same problem, with the same seed if there is one; without a
    full cache, the first comparator's at the same budget; None without either.
    """
    comparator = _comparator(content)
    whole: dict[tuple[Any, ...], Body] = {}
    compared: dict[tuple[Any, ...], Body] = {}
    for body in bodies:
        cell = body["cell"]
        place = (cell["model"], cell["task"], body["problem"])
        if not evicts(body):
            whole.setdefault((*place, cell["seed"]), body)
            whole.setdefault(place, body)
        elif cell["arm"] == comparator:
            compared[*place, cell["budget"], cell["seed"]] = body

    def find(body: Body) -> Body | None:
        cell = body["cell"]
        place = (cell["model"], cell["task"], body["problem"])
        found = whole.get((*place, cell["seed"])) or whole.get(place)
        return found or compared.get((*place, cell["budget"], cell["seed"]))

    return find


def beside(content: Mapping[str, Any], bodies: Iterable[Body]) -> str:
    """Return the name of the reference that lanes are compared with."""
    return _comparator(content) if all(map(evicts, bodies)) else "the full cache"


def evicts(body: Body) -> bool:
    return bool(body["cell"]["budget"] != FULL)


def _comparator(content: Mapping[str, Any]) -> str:
    """Return the reference arm for studies without a full cache."""
    return str((content.get("sweep") or {}).get("baseline", content["decision"]["against"][0]))
