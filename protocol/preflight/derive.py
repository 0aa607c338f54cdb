"""The lock of a study: what follows from its design, from the promises of its arms and from what was observed.

Registering derives it, the check before a claim derives it again, and so does an audit, each with the inputs
that it can get. Needs no torch.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.rules import RULES
from analysis.stats.methods import resampling_problems
from protocol.evidence import ledger
from protocol.formats import canonical
from protocol.formats.citations import CITES
from protocol.formats.json_text import format_decimal
from protocol.lock import lock
from protocol.lock.judging_version import choose_judging
from protocol.lock.promises import AS_COMPUTED
from protocol.plan import full_use, grid, slot_bytes
from protocol.plan.design import Design
from protocol.plan.slot_bytes import Widths
from protocol.plan.task import task_chance

Promises = Mapping[str, Mapping[str, Any]]
"""The field `promises` of a lock: what each arm's policy declares of its eviction steps."""

OBSERVED = ("kind", "version", "name", "release", "parent", "amends", "opened", "git", "signer")
OBSERVED_CONTENT = ("data", "environment", "sources", "bundle")
NOT_DECODED: Mapping[str, Any] = {
    **{name: {} for name in ("layers", "policies", "promises", "asked", "full_use", "slot_bytes", "weights")},
    "batch": {"lanes": {}, "first_event": 0},
}
"""The fields about decoding in the lock of a study that another harness runs."""
SIMULATED = ("rule", "decision_errors", "same_kept", "golds", "scored")


def derive_lock(design: Design, promises: Promises, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the lock of a design, as a lock is read.

    promises: of every arm. inputs: a lock, or as much of one as does not follow: what `OBSERVED` and
    `OBSERVED_CONTENT` name; the digest of the protocol; settings of policies; items of tasks; lanes by model,
    with the first event of a study that does not take it from the design; slots that the full cache held; widths
    of models and bytes of slots; weights; the environment; and the checks that read problems or simulate.
    """
    decision = design.decision
    rule, tests = RULES[decision.rule].source, len(design.contrast_models())
    items = {task.name: inputs["items"].get(task.name) for task in design.tasks}
    sizes = {str(len(resampling_problems(item))) for item in items.values() if item is not None}
    checks = inputs["checks"]
    judging = choose_judging(inputs["parent"], inputs["protocol"]["sha256"], design.content())
    content = {
        **{name: inputs[name] for name in (*OBSERVED, *OBSERVED_CONTENT)},
        **({CITES: inputs[CITES]} if inputs.get(CITES) else {}),
        "judging": judging,
        "chance": {} if judging == 1 or design.outcome else _chances(design),
        "ledger": ledger.head_of([]),
        "protocol": {"sha256": inputs["protocol"]["sha256"], "content": design.content()},
        "grid": [list(cell) for cell in grid.cells(design, full_caches(design, promises, inputs.get("policies", {})))],
        "items": items,
        **(_decoding_fields(design, promises, inputs) if design.decodes else NOT_DECODED),
        "rule": {"name": decision.rule, "source": rule, "sha256": inputs["sources"].get(rule)},
        "checks": {
            **{name: checks[name] for name in SIMULATED},
            "tests": tests,
            "corrected_alpha": f"{float(decision.alpha) / tests:.6f}",
            "problems": {size: checks["problems"].get(size) for size in sizes},
        },
    }
    derived: dict[str, Any] = canonical.loads(canonical.dumps(content), lock.NAME)
    return derived


def _decoding_fields(design: Design, promises: Promises, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields about policies, models and how lanes are decoded."""
    generation, batch, environment = design.generation, inputs["batch"], inputs["environment"]
    fixed_torch = {"threads": generation.threads} | ({"device": "cpu"} if generation.device == "cpu" else {})
    return {
        "layers": inputs["layers"],
        "policies": {arm.name: inputs["policies"].get(arm.name) for arm in design.arms},
        "promises": {arm.name: promises[arm.name] for arm in design.arms},
        "asked": {arm.name: inputs["asked"][arm.name] for arm in design.arms if arm.name in inputs["asked"]},
        "batch": {
            "lanes": _lanes(design, batch["lanes"]),
            "first_event": batch.get("first_event", generation.steps_before_eviction),
        },
        "full_use": dict(_full_use(design, inputs["full_use"])),
        "slot_bytes": dict(_slot_bytes(design, promises, inputs["slot_bytes"])),
        "weights": {model: inputs["weights"].get(model) for model in design.models},
        "environment": environment | {"torch": environment["torch"] | fixed_torch},
    }


def _lanes(design: Design, chosen: Mapping[str, int]) -> dict[str, int | None]:
    """Return how many lanes decode at once, by model; none where no number depends on it. Some studies that ship have
    registered it all the same. chosen: by the memory that was free.
    """
    if design.generation.is_batch_invariant and not chosen:
        return {}
    return {model: design.generation.lanes_per_batch or chosen.get(model) for model in design.models}


def _chances(design: Design) -> dict[str, str | None]:
    """Return the field `chance`: what a guess gets right of each task whose author or catalogue states it."""
    stated = {task.name: task_chance(task) for task in design.tasks}
    return {name: format_decimal(chance) for name, chance in stated.items() if chance is not None}


def full_caches(design: Design, promises: Promises, settings: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a predicate of (design, arm), whether the arm is a full cache: it promises never to evict, and its state
    is the one as computed. settings: of policies, by arm; some locks of version 1 have none.
    """
    states = {arm: (settings.get(arm) or {}).get("state", AS_COMPUTED) for arm in promises}
    full = {arm for arm, state in states.items() if promises[arm]["fires"] == "never" and state == AS_COMPUTED}
    return lambda design, arm: arm in full and design.decodes


def _full_use(design: Design, measured: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the field `full_use` by model: means and slots follow from what the full cache held."""
    budgets = [str(budget) for budget in design.all_budgets]
    if not full_use.full_shares(budgets):
        return
    for model in design.models:
        entries = {}
        for task in design.tasks:
            held = measured.get(model, {}).get(task.name, {}).get("held")
            entries[task.name] = full_use.lock_entry(held, budgets) if held else None
        yield model, entries


def _slot_bytes(design: Design, promises: Promises, measured: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the field `slot_bytes` by model: slots and intervals follow from the bytes of a slot."""
    budgets = [str(budget) for budget in design.all_budgets]
    if not slot_bytes.is_needed(budgets, promises, design.decision.memory):
        return
    for model in design.models:
        if (entry := measured.get(model)) is None:
            yield model, None
            continue
        widths = Widths(entry["heads"], entry["width"])
        yield model, slot_bytes.lock_entry(widths, design.generation.dtype, entry["arms"], budgets, promises)
