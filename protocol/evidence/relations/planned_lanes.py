"""What a lock says of the lanes of one phase: which there are, in the order in which they run, and how."""

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.evidence.refusals import Tampered
from protocol.evidence.relations.vocabulary import Words

__all__ = ["AGAIN", "FULL", "Arm", "Cell", "Plan", "Task", "UnitPlan", "plan_of", "slots_of"]

AGAIN = " (again)"  # ends the name of the arm that a probe runs a second time
MOST = 1_000_000  # problems, over all models and tasks
FULL = "full"  # the budget of an arm that never evicts
OF_FULL = " of full"  # ends a budget that is a share of what the full cache holds
PRESS = "protocol.presses.pressed.AsThePress()"  # in the place of a press' selection
PLAIN = "policies.cadence.Cadence()"
BLOCKS = "policies.blockwise.Blockwise()"  # plain once the prompt is read
EPISODES = "policies.epicache.Episodic()"  # one that fills a cache for each episode and parks all but one
EVERY = "policies.thinkv.Whenever()"  # a cadence that looks at no budget
# Selections that leave exactly what an event was granted, and those that leave at most that.
EXACT = (
    *(f"policies.selection.{name}()" for name in ("TopK", "Chunks", "Diverse")),
    *(f"policies.signatures.Diverse{name}()" for name in ("Each", "ByLayer", "ByHead", "Scheduled")),
)
AT_MOST = (
    "policies.crystal.dissolution.BranchDissolution()",
    "policies.crystal.tiers.TieredDissolution()",
    "policies.thinkv.WithinSegments()",
)
# Routings that take the budget as a bound: an event may leave less, also where all that is held would fit.
BOUNDING = (
    "policies.crystal_kv.Utilised()",
    "policies.thinkv.SegmentsPerHead()",
    "policies.thinkv.SegmentsShared()",
)


class Cell(NamedTuple):
    budget: str
    arm: str
    seed: int


class Task(NamedTuple):
    outside: bool  # the question is fed after the compression
    max_new_tokens: int


class Arm(NamedTuple):
    """How an arm evicts, as far as its lock tells; None where it does not.

    plain: an event fires by `interval` (0: none while decoding) and `slack` and is granted the registered
    budget. most: whether it leaves at most what it is granted; exact: whether it leaves all of that. every:
    whether it fires every `interval` steps, whatever is held. bounds: whether its routing may leave less than
    it is granted, whatever there is to keep. press: whether it is a press, which leaves what it leaves.
    parks: the most caches that it holds beside the one that answers.
    """

    plain: bool | None
    interval: int | None
    slack: bool
    most: bool | None
    exact: bool | None
    every: bool = False
    bounds: bool = False
    press: bool = False
    parks: int = 0
    asks: str = ""


class UnitPlan(NamedTuple):
    """Some problems with all their lanes, which run together and are recorded with one write."""

    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class Plan(NamedTuple):
    """One phase of a study. lanes: how many decode at once, by model. batched, granting: whether its records
    are of 2026-11-21 or later, which say who decoded together, and of 2026-11-22 or later. thinking: whether
    events fire only while a lane thinks.
    """

    registration: str
    phase: str
    units: tuple[UnitPlan, ...]
    tasks: Mapping[str, Task]
    arms: Mapping[str, Arm]
    lanes: Mapping[str, int]
    longest: int | None  # prompt tokens, above which a problem is excluded
    first_event: int
    batched: bool
    granting: bool
    sampled: bool
    thinking: bool
    words: Mapping[str, Words]
    of_full: Mapping[tuple[str, str, str], int]  # slots, by model, task and share of the full cache's use
    used: Mapping[
        tuple[str, str, str], int
    ]  # slots that locking found it to hold, by model, task and problem


def plan_of(
    content: Mapping[str, Any],
    digest: str,
    phase: str,
    winner: str | None = None,
    words: Mapping[str, Words] = MappingProxyType({}),
) -> Plan:
    """What the lock of `digest` says of "probe" or "confirm". winner: the candidate that a sweep's selection
    names. words: what is known of tokenizers, by model. Raises Tampered for a lock that says too little.
    """
    try:
        return _plan(content, digest, phase, winner)._replace(words=words)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise Tampered(f"lock.json: does not say which lanes run ({type(problem).__name__})") from None


def slots_of(plan: Plan, cell: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """Slots per KV head and layer of a record's cell: a share of the prompt is rounded up, a share of the
    full cache's use has the slots that the lock says, and "full" has none.
    """
    budget: str = cell["budget"]
    if budget == FULL:
        return None
    if budget.endswith(OF_FULL):
        return plan.of_full[cell["model"], cell["task"], budget]
    return math.ceil(Decimal(budget) * prompt_tokens) if "." in budget else int(budget)


def _plan(content: Mapping[str, Any], digest: str, phase: str, winner: str | None) -> Plan:
    registered, batch = content["protocol"]["content"], content.get("batch", {})
    generation = registered["generation"]
    together = generation.get("problems_per_batch", 1)
    ids = {task: item["dev" if phase == "probe" else "confirm"] for task, item in content["items"].items()}
    confirmed: dict[tuple[str, str], list[Cell]] = {}
    for model, task, *cell in content["grid"]:
        confirmed.setdefault((model, task), []).append(Cell(*cell))
    if any(not isinstance(item, str) for own in ids.values() for item in own):
        raise TypeError("an id that is no text")
    if {task for _, task in confirmed} - {task["name"] for task in registered["tasks"]}:
        raise ValueError("a grid of other tasks")
    if sum(len(ids[task]) for _, task in confirmed) > MOST:
        raise ValueError("more problems than a study has")
    units = []
    for (model, task), cells in confirmed.items():
        own = tuple(_probed(registered, cells)) if phase == "probe" else tuple(cells)
        problems = sorted(ids[task])
        units += [
            UnitPlan(model, task, tuple(problems[at : at + together]), own)
            for at in range(0, len(problems), together)
        ]
    return Plan(
        registration=digest,
        phase=phase,
        units=tuple(units),
        tasks={
            task["name"]: Task(task["query"] == "outside", _whole(task["max_new_tokens"], 1))
            for task in registered["tasks"]
        },
        arms=_arms(content, {cell.arm for unit in units for cell in unit.cells}, winner),
        lanes={model: _whole(lanes, 1) for model, lanes in batch.get("lanes", {}).items()},
        longest=_whole(registered["exclude"]["prompt_tokens_above"]) if "exclude" in registered else None,
        first_event=_whole(batch.get("first_event", 0)),
        batched="batch" in content,
        granting="first_event" in batch,
        sampled=Decimal(generation["temperature"]) > 0,
        thinking=generation.get("think_only") is True,
        words={},
        of_full=dict(_of_full(content)),
        used=dict(_used(content)),
    )


def _of_full(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """The slots of every cell whose budget is a share of the full cache's use."""
    for model, task, budget, _, _ in content["grid"]:
        if budget.endswith(OF_FULL):
            slots = content["full_use"][model][task]["slots"][budget]
            yield (model, task, budget), _whole(slots, 1)


def _used(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for model, tasks in content.get("full_use", {}).items():
        for task, one in tasks.items():
            yield from (((model, task, problem), _whole(held, 1)) for problem, held in one["held"].items())


def _probed(registered: Mapping[str, Any], cells: list[Cell]) -> Iterator[Cell]:
    """The cells of a probe where those of `cells` are confirmed: all of them and the first comparator again
    or, with a sweep, its candidates and its baseline twice, with its seeds.
    """
    sweep = registered.get("sweep")
    if sweep is None:
        yield from cells
        first = registered["decision"]["against"][0]
        yield from (cell._replace(arm=first + AGAIN) for cell in cells if cell.arm == first)
        return
    budgets: dict[str, dict[str, None]] = {}
    for cell in cells:
        budgets.setdefault(cell.arm, {})[cell.budget] = None
    chosen, base = budgets[sweep["name"]], sweep["baseline"]
    for arm in (*sweep["candidates"], base, base + AGAIN):
        own = budgets.get(base, chosen) if arm.removesuffix(AGAIN) == base else chosen
        yield from (Cell(budget, arm, seed) for budget in own for seed in sweep["seeds"])


def _arms(content: Mapping[str, Any], names: set[str], winner: str | None) -> dict[str, Arm]:
    registered = content["protocol"]["content"]
    sweep = registered.get("sweep") or {}
    arms = {}
    for name in names:
        base = name.removesuffix(AGAIN) if name.endswith(AGAIN) else name
        if base == sweep.get("name"):
            base = winner or sweep["candidates"][0]
        if "policies" in content:
            asks = content.get("asked", {}).get(base, "")
            arms[name] = _as_locked(content["policies"][base])._replace(asks=asks)
        else:
            arms[name] = _as_registered(registered["generation"], registered["arms"][base]["policy"])
    return arms


def _as_locked(settings: Mapping[str, str]) -> Arm:
    interval = 0 if settings["cadence.interval"] == "None" else _whole(int(settings["cadence.interval"]))
    selection, bounds = settings["selection"], settings.get("routing") in BOUNDING
    parks = _whole(int(settings["cadence.episodes"]), 1) - 1 if settings["cadence"] == EPISODES else 0
    exact, most = selection in EXACT and not bounds, selection in (*EXACT, *AT_MOST)
    return Arm(
        settings["cadence"] in (PLAIN, BLOCKS, EVERY),
        interval,
        settings["cadence.slack"] == "True",
        most or None,
        exact or None,
        settings["cadence"] == EVERY,
        bounds,
        selection == PRESS,
        parks,
    )


def _as_registered(generation: Mapping[str, Any], policy: str) -> Arm:
    """Of a lock of before 2026-11-22, which does not hold the settings of policies. Those of then had one
    interval, the registered one, and none left more than it was granted.
    """
    plain = None if policy.startswith("schedule-") else True
    slack = generation.get("cadence", "slack") == "slack"
    return Arm(plain, _whole(generation.get("interval", 0)), slack, True, None)


def _whole(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is no whole number from {least}")
    return value
