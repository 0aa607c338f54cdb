"""The lanes of one phase as the lock plans them: which there are, in the order in which they run, and how."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.evidence.invariants.vocabulary import Vocabulary
from protocol.formats import looks
from protocol.formats.citations import CITES
from protocol.formats.refusals import Tampered
from protocol.formats.vocabulary import READS

AGAIN_SUFFIX = " (again)"  # suffix of the arm that a probe runs a second time
MAX_PROBLEMS = 1_000_000  # problems, over all models and tasks
FULL = "full"  # the budget of the full cache
NEVER = "never"  # `fires` of an arm without eviction steps
OF_FULL_SUFFIX = " of full"  # suffix of a budget that is a share of what the full cache holds
IN_BYTES = re.compile(r"[0-9]+ (?:B|[KMG]iB)|bytes of [0-9]+")  # in bytes: the arm decides the slots
QUEST_SETTINGS = {"state.page", "state.dense_layers"}  # of a policy whose state reads pages (policies.quest)
SLOT_BYTES_FIELD = "slot_bytes"  # field of a lock with the bytes of a slot
QUANTUM = 16  # slots as computed, of whose bytes the allocation of a head is a multiple
ITEM_BYTES = {"float32": 4, "bfloat16": 2}  # bytes of a number


class Cell(NamedTuple):
    budget: str
    arm: str
    seed: int


class Task(NamedTuple):
    query_outside: bool  # the question is fed after the compression
    max_new_tokens: int


class Arm(NamedTuple):
    """What an arm promises of its eviction steps, as the lock says; see its field `promises`."""

    fires: str
    interval: int  # decode steps between eviction steps; 0: none while decoding
    grants_budget: bool
    leaves_at_most: bool
    leaves_exactly: bool
    may_leave_less: bool = False
    parked_caches: int = 0
    is_press: bool = False
    extra_prompt: str = ""
    page: int | None = None  # slots of a page, where new tokens read some pages of what is held

    @property
    def is_plain(self) -> bool:
        """Whether the lock determines when eviction steps fire, and that each is granted the budget."""
        return self.fires != "own" and self.grants_budget


class ArmSlots(NamedTuple):
    """The slots of an arm in a model, as the lock gives them. slots: for each budget in bytes."""

    heads: int  # layers times KV heads
    computed_bytes: int  # bytes of a slot of one head in one layer, as computed by the model
    stored_bytes: int  # the same in the form that the arm stores
    slots: Mapping[str, int]
    interval: int | None  # of cells with such a budget; None: the interval of the arm
    recent_bytes: int = 0  # of one head in one layer, besides its slots

    def round_up(self, slots: int) -> int:
        """Return the slots that are allocated to a head that needs so many: as many as fit into the bytes of
        the next multiple of QUANTUM slots as computed.
        """
        quantum_bytes = QUANTUM * self.computed_bytes
        return -(-slots * self.stored_bytes // quantum_bytes) * quantum_bytes // self.stored_bytes


class Windows(NamedTuple):
    """The sliding layers of a model, as the lock gives them."""

    evictable: int
    sliding: int
    window: int

    def count_slots(self, heads: int, tokens: int) -> int:
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
    """One phase of a study. lanes: how many decode at once, by model. has_batches, has_machines, has_grants:
    whether records say who decoded together, what ran them, and what each eviction step was granted: all but some of
    version 1 do.
    think_only: whether evictions happen only while a lane thinks. has_outcome: whether lanes that evict are fed the
    full cache's text and say how they differ. compares_reads: whether arms are compared by the slots that new tokens
    read, which then stand in every record.
    """

    registration: str
    phase: str
    units: tuple[UnitPlan, ...]
    tasks: Mapping[str, Task]
    arms: Mapping[str, Arm]
    lanes: Mapping[str, int]
    max_prompt_tokens: int | None  # a problem with more prompt tokens is excluded
    first_event: int
    has_batches: bool
    has_machines: bool
    has_grants: bool
    is_sampled: bool
    device: str
    think_only: bool
    has_outcome: bool
    compares_reads: bool
    vocabularies: Mapping[str, Vocabulary]
    full_share_slots: Mapping[tuple[str, str, str], int]  # slots, by model, task and share of the full cache's use
    full_cache_slots: Mapping[
        tuple[str, str, str], int
    ]  # slots that the full cache held when the lock was made, by model, task and problem
    arm_slots: Mapping[tuple[str, str], ArmSlots]  # by model and arm; empty for a lock without slot_bytes
    window_layers: Mapping[str, Windows]  # by model with sliding layers

    @property
    def depends_on_batches(self) -> bool:
        """Whether records say who decoded together: the lock gives no number of lanes where nothing depends on it."""
        return self.has_batches and bool(self.lanes)

    def arm(self, model: str, cell: Cell) -> Arm:
        """Return how a cell's arm evicts in a model: where its budget is in bytes, its interval is too."""
        arm, slots = self.arms[cell.arm], self.arm_slots.get((model, cell.arm))
        if slots is None or slots.interval is None or not IN_BYTES.fullmatch(cell.budget):
            return arm
        return arm._replace(interval=slots.interval)


def derive_plan(
    content: Mapping[str, Any],
    digest: str,
    phase: str,
    winner: str | None = None,
    vocabularies: Mapping[str, Vocabulary] = MappingProxyType({}),
) -> Plan:
    """Derive the plan of "probe" or "confirm" from the lock with the digest `digest`. winner: the candidate
    that a sweep's selection names. vocabularies: facts about tokenizers, by model. Raises Tampered for a lock
    without the necessary fields.
    """
    try:
        return _derive_plan(content, digest, phase, winner)._replace(vocabularies=vocabularies)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise Tampered(f"lock.json: does not say which lanes run ({type(problem).__name__})") from None


def budget_slots(plan: Plan, cell: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """Return the slots per KV head and layer of a record's cell: a share of the prompt is rounded up, a share
    of the full cache's use and a budget in bytes have the slots that the lock gives, and an arm that never evicts none.
    """
    budget: str = cell["budget"]
    if budget == FULL or plan.arms[cell["arm"]].fires == NEVER:
        return None
    if budget.endswith(OF_FULL_SUFFIX):
        return plan.full_share_slots[cell["model"], cell["task"], budget]
    if IN_BYTES.fullmatch(budget):
        return plan.arm_slots[cell["model"], cell["arm"]].slots[budget]
    return math.ceil(Decimal(budget) * prompt_tokens) if "." in budget else int(budget)


def _derive_plan(content: Mapping[str, Any], digest: str, phase: str, winner: str | None) -> Plan:
    registered, batch = content["protocol"]["content"], content["batch"]
    records = content.get("records", {"batches": True, "grants": True})
    generation = registered["generation"]
    problems_per_unit = generation.get("problems_per_batch", 1)
    ids = {task: item["dev" if phase == "probe" else "confirm"] for task, item in content["items"].items()}
    grid_cells: dict[tuple[str, str], list[Cell]] = {}
    cited = content.get(CITES, {}) if phase == "confirm" else ()
    for model, task, *cell in content["grid"]:
        if cell[1] not in cited:
            grid_cells.setdefault((model, task), []).append(Cell(*cell))
    if any(not isinstance(item, str) for unit_cells in ids.values() for item in unit_cells):
        raise TypeError("an id that is not text")
    if {task for _, task in grid_cells} - {task["name"] for task in registered["tasks"]}:
        raise ValueError("a grid with tasks that are not in it")
    if sum(len(ids[task]) for _, task in grid_cells) > MAX_PROBLEMS:
        raise ValueError("more problems than any study has")
    units = []
    blocks = len(looks.read_looks(content)) or 1 if phase == "confirm" else 1
    for block, ((model, task), cells) in itertools.product(range(1, blocks + 1), grid_cells.items()):
        unit_cells = tuple(_probe_cells(registered, cells)) if phase == "probe" else tuple(cells)
        problems = sorted(ids[task])
        if blocks > 1:
            numbers = looks.number_problems(content, task)
            problems = [problem for problem in problems if numbers[problem] == block]
        units += [
            UnitPlan(model, task, tuple(problems[start : start + problems_per_unit]), unit_cells)
            for start in range(0, len(problems), problems_per_unit)
        ]
    bases = _locked_arm_names(registered, units, winner)
    return Plan(
        registration=digest,
        phase=phase,
        units=tuple(units),
        tasks={
            task["name"]: Task(task["query"] == "outside", _check_integer(task["max_new_tokens"], 1))
            for task in registered["tasks"]
        },
        arms={name: _derive_arm(content, base) for name, base in bases.items()},
        lanes={model: _check_integer(lanes, 1) for model, lanes in batch["lanes"].items()},
        max_prompt_tokens=_check_integer(registered["exclude"]["prompt_tokens_above"])
        if "exclude" in registered
        else None,
        first_event=_check_integer(batch["first_event"]),
        has_batches=records["batches"],
        has_machines="records" not in content,  # some records of version 1 do not name theirs
        has_grants=records["grants"],
        is_sampled=Decimal(generation["temperature"]) > 0,
        device=generation.get("device", "cpu"),
        think_only=generation.get("think_only") is True,
        has_outcome="outcome" in registered,
        compares_reads=registered["decision"].get("memory") == READS,
        vocabularies={},
        full_share_slots=dict(_full_share_slots(content)),
        full_cache_slots=dict(_full_cache_slots(content)),
        arm_slots=dict(_derive_arm_slots(content, units, bases)),
        window_layers={
            model: Windows(*(_check_integer(layers[name], 1) for name in Windows._fields))
            for model, layers in content["layers"].items()
        },
    )


def _full_share_slots(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the slots of every cell whose budget is a share of the full cache's use."""
    for model, task, budget, _, _ in content["grid"]:
        if budget.endswith(OF_FULL_SUFFIX):
            slots = content["full_use"][model][task]["slots"][budget]
            yield (model, task, budget), _check_integer(slots, 1)


def _full_cache_slots(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for model, tasks in content["full_use"].items():
        for task, use in tasks.items():
            yield from (((model, task, problem), _check_integer(slots, 1)) for problem, slots in use["held"].items())


def _probe_cells(registered: Mapping[str, Any], cells: list[Cell]) -> Iterator[Cell]:
    """Yield the cells that a probe runs, given the confirmed `cells`: all of them and the first comparator a
    second time or, with a sweep, its candidates and its baseline twice, with the seeds of the sweep.
    """
    sweep = registered.get("sweep")
    if sweep is None:
        yield from cells
        comparator = registered["decision"]["against"][0]
        yield from (cell._replace(arm=comparator + AGAIN_SUFFIX) for cell in cells if cell.arm == comparator)
        return
    budgets: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.budget not in registered.get("neighbours", ()):
            budgets.setdefault(cell.arm, {})[cell.budget] = None
    subject_budgets, baseline = budgets[sweep["name"]], sweep["baseline"]
    for arm in (*sweep["candidates"], baseline, baseline + AGAIN_SUFFIX):
        arm_budgets = (
            budgets.get(baseline, subject_budgets) if arm.removesuffix(AGAIN_SUFFIX) == baseline else subject_budgets
        )
        yield from (Cell(budget, arm, seed) for budget in arm_budgets for seed in sweep["seeds"])


def _locked_arm_names(registered: Mapping[str, Any], units: Sequence[UnitPlan], winner: str | None) -> dict[str, str]:
    """Return, by the name of an arm in a cell, the name of that arm in the lock."""
    sweep = registered.get("sweep") or {}
    bases = {}
    for name in {cell.arm for unit in units for cell in unit.cells}:
        base = name.removesuffix(AGAIN_SUFFIX) if name.endswith(AGAIN_SUFFIX) else name
        is_subject = base == sweep.get("name")
        bases[name] = (winner or sweep["candidates"][0]) if is_subject else base
    return bases


def _derive_arm(content: Mapping[str, Any], base: str) -> Arm:
    promises = content["promises"][base]
    interval = 0 if promises["interval"] is None else _check_integer(promises["interval"], 1)
    named = {name: promises[name] for name in Arm._fields if name not in ("interval", "extra_prompt", "page")}
    settings = content.get("policies", {}).get(base) or {}
    page = int(settings["state.page"]) if settings.keys() >= QUEST_SETTINGS else None
    return Arm(interval=interval, extra_prompt=content["asked"].get(base, ""), page=page, **named)


def _derive_arm_slots(
    content: Mapping[str, Any], units: Sequence[UnitPlan], bases: Mapping[str, str]
) -> Iterator[tuple[tuple[str, str], ArmSlots]]:
    """Yield the slots of every arm of every model, if the lock has them. Raises LookupError if a cell lacks its own."""
    if not content[SLOT_BYTES_FIELD]:
        if any(IN_BYTES.fullmatch(cell.budget) for unit in units for cell in unit.cells):
            raise LookupError(SLOT_BYTES_FIELD)
        return
    item_bytes = ITEM_BYTES[content["protocol"]["content"]["generation"]["dtype"]]
    cell_budgets: dict[tuple[str, str], set[str]] = {}
    for unit in units:
        for cell in unit.cells:
            cell_budgets.setdefault((unit.model, cell.arm), set()).add(cell.budget)
    for (model, arm), budgets in cell_budgets.items():
        model_slots = content[SLOT_BYTES_FIELD][model]
        arm_slots, evicts = model_slots["arms"][bases[arm]], content["promises"][bases[arm]]["fires"] != NEVER
        yield (
            (model, arm),
            ArmSlots(
                _check_integer(model_slots["heads"], 1),
                2 * _check_integer(model_slots["width"], 1) * item_bytes,
                _check_integer(arm_slots["bytes"], 1),
                {
                    text: _check_integer(arm_slots["slots"][text], 1)
                    for text in budgets
                    if IN_BYTES.fullmatch(text) and evicts
                },
                arm_slots.get("interval"),
                arm_slots.get("recent", 0),
            ),
        )


def _check_integer(value: Any, minimum: int = 0) -> int:
    if type(value) is not int or value < minimum:
        raise ValueError(f"{value!r} is not a whole number of at least {minimum}")
    return value
