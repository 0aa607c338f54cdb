"""The lanes of one phase as the lock plans them: which there are, in the order in which they run, and how."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.evidence.refusals import Tampered
from protocol.evidence.relations.vocabulary import Words

__all__ = ["AGAIN", "FULL", "Arm", "Cell", "Plan", "Task", "UnitPlan", "plan_of", "slots_of"]

AGAIN = " (again)"  # suffix of the arm that a probe runs a second time
MOST = 1_000_000  # problems, over all models and tasks
FULL = "full"  # the budget of an arm that never evicts
OF_FULL = " of full"  # suffix of a budget that is a share of what the full cache holds
IN_BYTES = re.compile(r"[0-9]+ (?:B|[KMG]iB)|bytes of [0-9]+")  # in bytes: the arm decides the slots
FIELD = "slot_bytes"  # field of a lock with the bytes of a slot
QUANTUM = 16  # slots as computed: since 2026-11-21 the allocation of a head is a multiple of their bytes
ITEM = {"float32": 4, "bfloat16": 2}  # bytes of a number
PRESS = "protocol.presses.pressed.AsThePress()"  # stands for the selection of a press
PLAIN = "policies.cadence.Cadence()"
BLOCKS = "policies.blockwise.Blockwise()"  # behaves as the plain cadence once the prompt is read
EPISODES = "policies.epicache.Episodic()"  # fills one cache per episode and parks all but one
EVERY = "policies.thinkv.Whenever()"  # evicts periodically, whatever the budget
# Selections that leave exactly the granted slots, and those that leave at most that.
EXACT = (
    *(f"policies.selection.{name}()" for name in ("TopK", "Chunks", "Diverse")),
    *(f"policies.signatures.Diverse{name}()" for name in ("Each", "ByLayer", "ByHead", "Scheduled")),
)
AT_MOST = (
    "policies.crystal.dissolution.BranchDissolution()",
    "policies.crystal.tiers.TieredDissolution()",
    "policies.thinkv.WithinSegments()",
)
# States that leave as many slots as were selected; one that merges may leave fewer.
KEEPING = (
    "policies.state.Verbatim()",
    "policies.subspace.Subspace()",
    *(
        f"policies.syn_mem.{name}()"
        for name in ("PromptSpans", "BoundedSpans", "StaticHybrid", "DynamicHybrid")
    ),
    PRESS,
)
# Routings that take the budget as a bound: an eviction may leave less, even where everything fits.
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
    """How an arm evicts, as far as the lock determines it; None where it does not.

    is_plain: an eviction is triggered by `interval` (0: none while decoding) and `has_slack`, and is granted
    the registered budget. leaves_at_most_grant, leaves_exact_grant: how many slots an eviction leaves.
    is_periodic: it evicts every `interval` steps, whatever the cache size. may_leave_less: its routing may
    leave fewer slots than granted, even if there are more. is_press: it is a press, whose result is not
    determined. parked_caches: the most caches that it stores besides the active one.
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


class Stored(NamedTuple):
    """The slots of an arm in a model, as the lock gives them. slots: for each budget in bytes."""

    heads: int  # layers times KV heads
    computed: int  # bytes of a slot of one head in one layer, as computed by the model
    bytes: int  # the same in the form that the arm stores
    slots: Mapping[str, int]
    interval: int | None  # of cells with such a budget; None: the interval of the arm

    def rounded(self, slots: int) -> int:
        """Return the slots that are allocated to a head that needs so many: as many as fit into the bytes of
        the next multiple of QUANTUM slots as computed.
        """
        whole = QUANTUM * self.computed
        return -(-slots * self.bytes // whole) * whole // self.bytes


class Windows(NamedTuple):
    """The sliding layers of a model, as the lock gives them."""

    evictable: int
    sliding: int
    window: int

    def slots(self, heads: int, tokens: int) -> int:
        """Return the slots in the windows of a lane that may see so many tokens, over all KV heads and
        sliding layers. heads: layers of full attention times KV heads.
        """
        return self.sliding * heads // self.evictable * min(self.window, -(-tokens // QUANTUM) * QUANTUM)


class UnitPlan(NamedTuple):
    """Some problems with all their lanes, which run together and are recorded in one write."""

    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class Plan(NamedTuple):
    """One phase of a study. lanes: how many decode at once, by model. has_batches, has_grants: whether
    records have the fields that were added on 2026-11-21 (who decoded together) and on 2026-11-22 (grants).
    think_only: whether evictions happen only while a lane thinks.
    """

    registration: str
    phase: str
    units: tuple[UnitPlan, ...]
    tasks: Mapping[str, Task]
    arms: Mapping[str, Arm]
    lanes: Mapping[str, int]
    longest: int | None  # a problem with more prompt tokens is excluded
    first_event: int
    batched: bool
    granting: bool
    sampled: bool
    thinking: bool
    words: Mapping[str, Words]
    of_full: Mapping[tuple[str, str, str], int]  # slots, by model, task and share of the full cache's use
    used: Mapping[
        tuple[str, str, str], int
    ]  # slots that the full cache held when the lock was made, by model, task and problem
    stored: Mapping[tuple[str, str], Stored]  # by model and arm; empty for a lock without slot_bytes
    windows: Mapping[str, Windows]  # by model with sliding layers

    def arm(self, model: str, cell: Cell) -> Arm:
        """Return how a cell's arm evicts in a model: where its budget is in bytes, its interval is too."""
        arm, stored = self.arms[cell.arm], self.stored.get((model, cell.arm))
        if stored is None or stored.interval is None or not IN_BYTES.fullmatch(cell.budget):
            return arm
        return arm._replace(interval=stored.interval)


def plan_of(
    content: Mapping[str, Any],
    digest: str,
    phase: str,
    winner: str | None = None,
    words: Mapping[str, Words] = MappingProxyType({}),
) -> Plan:
    """Derive the plan of "probe" or "confirm" from the lock with the digest `digest`. winner: the candidate
    that a sweep's selection names. vocabularies: facts about tokenizers, by model. Raises Tampered for a lock
    without the necessary fields.
    """
    try:
        return _plan(content, digest, phase, winner)._replace(words=words)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise Tampered(f"lock.json: does not say which lanes run ({type(problem).__name__})") from None


def slots_of(plan: Plan, cell: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """Return the slots per KV head and layer of a record's cell: a share of the prompt is rounded up, a share
    of the full cache's use and a budget in bytes have the slots that the lock gives, and "full" has none.
    """
    budget: str = cell["budget"]
    if budget == FULL:
        return None
    if budget.endswith(OF_FULL):
        return plan.of_full[cell["model"], cell["task"], budget]
    if IN_BYTES.fullmatch(budget):
        return plan.stored[cell["model"], cell["arm"]].slots[budget]
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
    bases = _bases(registered, units, winner)
    return Plan(
        registration=digest,
        phase=phase,
        units=tuple(units),
        tasks={
            task["name"]: Task(task["query"] == "outside", _whole(task["max_new_tokens"], 1))
            for task in registered["tasks"]
        },
        arms={name: _arm(content, base) for name, base in bases.items()},
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
        stored=dict(_stored(content, units, bases)),
        windows={
            model: Windows(*(_whole(one[name], 1) for name in Windows._fields))
            for model, one in content.get("layers", {}).items()
        },
    )


def _of_full(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the slots of every cell whose budget is a share of the full cache's use."""
    for model, task, budget, _, _ in content["grid"]:
        if budget.endswith(OF_FULL):
            slots = content["full_use"][model][task]["slots"][budget]
            yield (model, task, budget), _whole(slots, 1)


def _used(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for model, tasks in content.get("full_use", {}).items():
        for task, one in tasks.items():
            yield from (((model, task, problem), _whole(held, 1)) for problem, held in one["held"].items())


def _probed(registered: Mapping[str, Any], cells: list[Cell]) -> Iterator[Cell]:
    """Yield the cells that a probe runs, given the confirmed `cells`: all of them and the first comparator a
    second time or, with a sweep, its candidates and its baseline twice, with the seeds of the sweep.
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


def _bases(registered: Mapping[str, Any], units: Sequence[UnitPlan], winner: str | None) -> dict[str, str]:
    """Return, by the name of an arm in a cell, the name of that arm in the lock."""
    sweep = registered.get("sweep") or {}
    found = {}
    for name in {cell.arm for unit in units for cell in unit.cells}:
        base = name.removesuffix(AGAIN) if name.endswith(AGAIN) else name
        chosen = base == sweep.get("name")
        found[name] = (winner or sweep["candidates"][0]) if chosen else base
    return found


def _arm(content: Mapping[str, Any], base: str) -> Arm:
    if "policies" in content:
        asks = content.get("asked", {}).get(base, "")
        return _as_locked(content["policies"][base])._replace(asks=asks)
    registered = content["protocol"]["content"]
    return _as_registered(registered["generation"], registered["arms"][base]["policy"])


def _stored(
    content: Mapping[str, Any], units: Sequence[UnitPlan], bases: Mapping[str, str]
) -> Iterator[tuple[tuple[str, str], Stored]]:
    """Yield the slots of every arm of every model if the lock has them. Raises LookupError if a cell needs
    them and the lock lacks them.
    """
    if FIELD not in content:
        if any(IN_BYTES.fullmatch(cell.budget) for unit in units for cell in unit.cells):
            raise LookupError(FIELD)
        return
    item = ITEM[content["protocol"]["content"]["generation"]["dtype"]]
    asked: dict[tuple[str, str], set[str]] = {}
    for unit in units:
        for cell in unit.cells:
            asked.setdefault((unit.model, cell.arm), set()).add(cell.budget)
    for (model, arm), budgets in asked.items():
        one = content[FIELD][model]
        own = one["arms"][bases[arm]]
        yield (
            (model, arm),
            Stored(
                _whole(one["heads"], 1),
                2 * _whole(one["width"], 1) * item,
                _whole(own["bytes"], 1),
                {text: _whole(own["slots"][text], 1) for text in budgets if IN_BYTES.fullmatch(text)},
                own.get("interval"),
            ),
        )


def _as_locked(settings: Mapping[str, str]) -> Arm:
    interval = 0 if settings["cadence.interval"] == "None" else _whole(int(settings["cadence.interval"]))
    selection, bounds = settings["selection"], settings.get("routing") in BOUNDING
    parks = _whole(int(settings["cadence.episodes"]), 1) - 1 if settings["cadence"] == EPISODES else 0
    exact = selection in EXACT and settings.get("state", KEEPING[0]) in KEEPING and not bounds
    most = selection in (*EXACT, *AT_MOST)
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
    """Derive an arm from a lock before 2026-11-22, which does not contain the settings of policies. At that
    time all policies used the registered interval, and none left more slots than granted.
    """
    plain = None if policy.startswith("schedule-") else True
    slack = generation.get("cadence", "slack") == "slack"
    return Arm(plain, _whole(generation.get("interval", 0)), slack, True, None)


def _whole(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is no whole number from {least}")
    return value
