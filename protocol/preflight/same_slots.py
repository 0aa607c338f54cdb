"""Find arms that retain the same slots: two such arms are one experiment, whose contrasts would count twice.

Arms that retain the same slots but store them differently, coded or merged, are two experiments.

`find_same_slots` runs the arms on development problems and records every policy's evictions. Small models run
as they are; a larger one is replaced by a random network of its architecture. Policies that are equal by
construction retain the same slots there too; those that agree only on the real model are not detected.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
import transformers
from torch import Tensor

from policies import Policy, State, View
from policies.catalogue import CATALOGUE
from policies.observer import observe
from policies.policy import Eviction
from protocol import engine
from protocol.formats.refusals import BadInput
from protocol.models import load, sources
from protocol.models.load import LoadedModel
from protocol.models.random_network import build_random_model
from protocol.plan import grid
from protocol.plan.design import Design
from protocol.plan.task import Task
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy

# Two arms count as one if both drop this share of the slots that either drops. Arms
# that order units alike and differ within the one unit that the budget cuts share 0.98; of the catalogue's
# other pairs, on SmolLM2-135M and on random networks, none shares more than 0.96.
SHARED_THRESHOLD = 0.97
LIGHT_BYTES = 64 * 2**20  # bytes of the files of a model that loads and runs in a moment
SHORT_PROMPT = 1024  # prompt tokens for a random network, unless twice the smallest budget is more
MAX_NEW_TOKENS = 256  # for arms that evict while decoding
ITSELF, RANDOM_NETWORK = "itself", "a random network of its architecture"
OTHER_NETWORK = "nothing: the random network of another model stands for it"
# Errors of an architecture that has no small form. A warning is no reason to refuse a study.
UNBUILDABLE = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)
# Over all tasks, at least one of each: a random network distinguishes policies less well.
PROBLEM_COUNTS: Mapping[str, int] = MappingProxyType({ITSELF: 2, RANDOM_NETWORK: 4, OTHER_NETWORK: 0})

LaneKey: TypeAlias = tuple[str, ...]  # model, task, problem, budget


class LaneDrops(NamedTuple):
    """The slots that a lane dropped.

    dropped: after each eviction, bool [layer, kv_head, token], the tokens without a slot. state: the state in
    which retained slots are stored; None if they are stored as computed, whatever the policy could have done.
    """

    dropped: list[Tensor]
    state: State | None


OptionalDrops: TypeAlias = LaneDrops | None  # None: the lane failed


@dataclass(frozen=True)
class DropRecorder:
    """Records what a lane has dropped after each eviction, if that is anything, and the evictions that merged."""

    policy: Policy
    dropped: list[Tensor] = field(default_factory=list)
    merged: list[int] = field(default_factory=list)

    def record(self, view: View, budget: int, event: Eviction) -> None:
        if event.merging is not None and (event.merging.targets.ge(0) & ~event.retained).any():
            self.merged.append(len(view.token_ids))
        newly_dropped = _dropped_tokens(view, event.retained)
        if newly_dropped.any():
            self.dropped.append(newly_dropped)


def find_same_slots(planned: PlannedStudy, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `checks.same_kept` of a lock, from the first development problems of each task, at
    every budget: `pairs` of arms that retain the same slots, with the share of dropped slots that both drop
    and the number of problems; `on`, what ran for each model; `left_out`, the arms that could not run because
    they are presses or need statistics of a model that did not run. Arms that store other values or have
    another extra prompt are not compared by their slots and form no pair.

    It runs on the registered number of threads, so that a second run gives the same result.
    """
    transformers.utils.logging.disable_progress_bar()  # our own display is enough
    threads = torch.get_num_threads()
    torch.set_num_threads(planned.protocol.generation.threads)
    try:
        return _compare_arms(planned, items)
    finally:
        torch.set_num_threads(threads)


def _compare_arms(planned: PlannedStudy, items: Mapping[str, Any]) -> dict[str, Any]:
    protocol, tasks_by_name = planned.protocol, planned.tasks
    by_arm: dict[str, dict[LaneKey, OptionalDrops]] = {
        arm.name: {} for arm in protocol.arms if protocol.policy(arm.name).evicts
    }
    networks: dict[str, str] = {}
    for model_name in protocol.models:
        networks[model_name] = _choose_network(planned, model_name, set(networks.values()))
        if networks[model_name] == OTHER_NETWORK:
            continue
        try:
            model = _load_network(planned, model_name, networks[model_name])
        except UNBUILDABLE as error:
            networks[model_name] = f"nothing: no random network of its architecture can be made ({error})"
            continue
        counter = prompting.counter(model.tokenizer)
        count = max(1, PROBLEM_COUNTS[networks[model_name]] // len(protocol.tasks))
        for task in protocol.tasks:
            for problem in items[task.name]["dev"][:count]:
                built = held_out_guard.build(tasks_by_name[task.name], task.name, problem, counter)
                dropped = _run_arms(
                    planned, model_name, model, task, built, is_short=networks[model_name] == RANDOM_NETWORK
                )
                for (arm, budget), lane_drops in dropped.items():
                    by_arm[arm][model_name, task.name, problem, budget] = lane_drops
    compared = {arm: lanes for arm, lanes in by_arm.items() if lanes}
    pairs = []
    for first, second in itertools.combinations(compared, 2):
        shares = (
            _dropped_shares(compared[first], compared[second]) if _are_slots_comparable(protocol, first, second) else {}
        )
        if shares and sum(shares.values()) / len(shares) >= SHARED_THRESHOLD:
            share = sum(shares.values()) / len(shares)
            count = len({key[1:3] for key in shares})
            pairs.append({"arms": [first, second], "shared": f"{share:.3f}", "problems": count})
    return {"pairs": pairs, "on": networks, "left_out": [arm for arm in by_arm if arm not in compared]}


def _are_slots_comparable(protocol: Design, first: str, second: str) -> bool:
    """Whether two arms with the same slots are one experiment: not if a slot stores other values of a token,
    as with a codec or means, or if the extra prompts differ.
    """
    states = [protocol.policy(arm).state for arm in (first, second)]
    return states[0] == states[1] and protocol.extra_prompt(first) == protocol.extra_prompt(second)


def _dropped_shares(
    first: Mapping[LaneKey, OptionalDrops], second: Mapping[LaneKey, OptionalDrops]
) -> dict[LaneKey, float]:
    """Return, for every lane in which either of two arms dropped anything, the share of it that both dropped."""
    pairs = {key: (first[key], second[key]) for key in first.keys() & second.keys()}
    return {
        key: _dropped_share(first_drops, second_drops)
        for key, (first_drops, second_drops) in pairs.items()
        if (first_drops and first_drops.dropped) or (second_drops and second_drops.dropped)
    }


def _dropped_share(first: OptionalDrops, second: OptionalDrops) -> float:
    """Return the smallest share over the evictions; 0 if the evictions or the states differ, or one lane failed."""
    if first is None or second is None or first.state != second.state:
        return 0.0
    pairs = list(zip(first.dropped, second.dropped, strict=False))
    if len(first.dropped) != len(second.dropped) or any(a.shape != b.shape for a, b in pairs):
        return 0.0
    return min(float((a & b).sum() / (a | b).sum()) for a, b in pairs)


def _dropped_tokens(view: View, retained: Tensor) -> Tensor:
    """Return, by token seen, bool [layer, kv_head, token]: not retained now, or dropped before."""
    token_count = len(view.token_ids)
    positions = view.positions.expand(retained.shape)
    dropped = torch.ones(*retained.shape[:2], token_count + 1, dtype=torch.bool, device=retained.device)
    dropped.scatter_(-1, torch.where(retained, positions, token_count), False)
    return dropped[..., :token_count].cpu()


def _choose_network(planned: PlannedStudy, model_name: str, networks: set[str]) -> str:
    """Return what runs for a model. networks: what runs for other models."""
    files = sources.model_files(model_name, planned.home).values()
    if sum(path.stat().st_size for path in files) <= LIGHT_BYTES:
        return ITSELF
    return OTHER_NETWORK if RANDOM_NETWORK in networks else RANDOM_NETWORK


def _load_network(planned: PlannedStudy, model_name: str, network: str) -> LoadedModel:
    """Raises BadInput for a model that cannot be read, UNBUILDABLE errors if no random network can be built."""
    if network == RANDOM_NETWORK:
        return build_random_model(model_name, planned.home)
    generation = planned.protocol.generation
    return load.load(model_name, planned.home, dtype=generation.dtype, device=generation.device)


def _run_arms(
    planned: PlannedStudy, model_name: str, model: LoadedModel, task: Task, problem: Problem, *, is_short: bool
) -> dict[tuple[str, str], OptionalDrops]:
    """Return what one lane dropped, by arm and budget, for the evicting arms whose statistics the model has."""
    protocol, full_use = planned.protocol, planned.use(model_name, task.name)
    lanes_by_prompt: dict[str, dict[tuple[str, str], engine.Lane]] = {}
    recorders, prompts = {}, {}
    for arm, budget in itertools.product(protocol.arms, protocol.budgets):
        if arm.press is not None:
            continue  # its slots have no token numbers
        slot, key = planned.slot(model_name, arm.name), (arm.name, str(budget))
        cell = grid.Cell(model_name, task.name, str(budget), arm.name, protocol.seeds[0])
        policy = grid.policy_of(protocol, cell, slot)
        if not policy.evicts or {entry.name for entry in policy.calibrated} - model.statistics.keys():
            continue
        extra_prompt = protocol.extra_prompt(arm.name)
        if extra_prompt not in prompts:
            context, query = prompting.render(problem, model.tokenizer, task.query, extra_prompt)
            if is_short:
                slot_counts = [
                    budget.count_slots(0, full_use, planned.slot(model_name, entry.name))
                    for budget, entry in itertools.product(protocol.budgets, protocol.arms)
                    if budget.share is None
                ]
                context = context[: max(SHORT_PROMPT, 2 * min(slot_counts, default=0))]
            prompts[extra_prompt] = engine.Prompt(tuple(context), tuple(query))
        recorder = recorders[key] = DropRecorder(policy)
        slots = budget.count_slots(len(prompts[extra_prompt].context), full_use, slot)
        lanes_by_prompt.setdefault(extra_prompt, {})[key] = engine.Lane(
            "/".join(key), observe(policy, recorder.record), slots, protocol.seeds[0]
        )
    if not lanes_by_prompt:
        return {}
    requests = [
        engine.Request(problem.id, prompts[extra_prompt], tuple(recorder.values()))
        for extra_prompt, recorder in lanes_by_prompt.items()
    ]
    last_token = max(_tokens_until_eviction(request.lanes, len(request.prompt.context)) for request in requests)
    new_tokens = min(last_token, MAX_NEW_TOKENS, task.max_new_tokens)
    result = engine.run(model, requests, max_new_tokens=new_tokens, max_concurrent=len(recorders))
    lanes = {key: lane for recorder in lanes_by_prompt.values() for key, lane in recorder.items()}
    outcomes = [outcome for answers in result.answers for outcome in answers.outcomes]
    has_more = new_tokens < task.max_new_tokens
    _refuse_failing_policies(protocol, lanes, outcomes)
    return {
        key: _lane_drops(model, recorders[key]) if _is_informative(lane, outcome, has_more=has_more) else None
        for (key, lane), outcome in zip(lanes.items(), outcomes, strict=True)
    }


def _lane_drops(model: LoadedModel, recorder: DropRecorder) -> LaneDrops:
    state = recorder.policy.state
    is_coded = state.codec(model.statistics) is not None
    return LaneDrops(recorder.dropped, state if is_coded or recorder.merged else None)


def _refuse_failing_policies(
    protocol: Design,
    lanes: Mapping[tuple[str, str], engine.Lane],
    outcomes: Sequence[engine.Outcome | engine.LaneFailure],
) -> None:
    """Raise BadInput for a plugin policy that fails at every budget, so that nothing would be compared."""
    failed: dict[str, list[str]] = defaultdict(list)
    for (arm, _), outcome in zip(lanes, outcomes, strict=True):
        if isinstance(outcome, engine.LaneFailure):
            failed[arm].append(outcome.reason)
    for arm, reasons in failed.items():
        if len(reasons) == sum(name == arm for name, _ in lanes) and protocol.arm(arm).policy not in CATALOGUE:
            raise BadInput(f"arms.{arm}.policy: fails at every budget: {reasons[0]}; correct it")


def _is_informative(lane: engine.Lane, outcome: engine.Outcome | engine.LaneFailure, *, has_more: bool) -> bool:
    """Whether what a lane dropped distinguishes its policy from others: not if it failed, nor if it was cut before its
    first eviction while decoding. has_more: whether the study decodes more tokens than were decoded here.
    """
    if isinstance(outcome, engine.LaneFailure):
        return False
    has_later_events = lane.policy.cadence.interval is not None and len(outcome.events) == 1
    return not (has_later_events and has_more and outcome.stop == "length")


def _tokens_until_eviction(lanes: Sequence[engine.Lane], tokens: int) -> int:
    """Return the new tokens after which each of these lanes has evicted while decoding; 1 if none does."""
    token_counts = [1]
    for lane in lanes:
        if (interval := lane.policy.cadence.interval) is not None:
            token_counts.append(interval + max(0, (lane.budget or 0) - tokens) + 1)
    return max(token_counts)
