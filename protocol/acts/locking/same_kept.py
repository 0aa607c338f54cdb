"""Find arms that retain the same slots: two such arms are one experiment, whose contrasts would count twice.

Arms that retain the same slots but store them differently, coded or merged, are two experiments.

`find_same_slots` runs the arms on development problems and records every policy's evictions. Small models run
as they are; a larger one is replaced by a random network of its architecture. Policies that are equal by
construction retain the same slots there too; those that agree only on the real model are not detected.
`find_alike_arms` compares what a probe recorded, where texts and memory stand for the slots.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
import transformers
from torch import Tensor

from policies import Policy, State, View
from policies.catalogue import CATALOGUE
from policies.policy import Event
from policies.watched import watched
from protocol import engine
from protocol.evidence.refusals import BadInput
from protocol.evidence.run.records import Record
from protocol.locked.planned import Planned
from protocol.models import load, sources
from protocol.models.load import LoadedModel
from protocol.models.made_up import made_up
from protocol.plan import grid
from protocol.plan.design import AGAIN, Design, Task
from protocol.tasks import door, prompting
from protocol.tasks.problem import Problem

__all__ = ["Alike", "alike", "same_kept"]

# Two arms count as one if both drop this share of the slots that either drops. Arms
# that order units alike and differ within the one unit that the budget cuts share 0.98; of the catalogue's
# other pairs, on SmolLM2-135M and on random networks, none shares more than 0.96.
SHARED = 0.97
LANES = 0.95  # arms are alike if this share of recorded lanes has the same text and memory
LIGHT = 64 * 2**20  # bytes of the files of a model that loads and runs in a moment
SHORT = 1024  # prompt tokens for a random network, unless twice the smallest budget is more
NEW = 256  # for arms that evict while decoding
ITSELF, MADE_UP = "itself", "a random network of its architecture"
OTHERS = "nothing: the random network of another model stands for it"
# Errors of an architecture that has no small form. A warning is no reason to refuse a study.
UNMAKEABLE = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)
# Over all tasks, at least one of each: a random network distinguishes policies less well.
PROBLEMS: Mapping[str, int] = MappingProxyType({ITSELF: 2, MADE_UP: 4, OTHERS: 0})

Place: TypeAlias = tuple[str, ...]  # model, task, problem, budget


class Lost(NamedTuple):
    """The slots that a lane dropped.

    dropped: after each eviction, bool [layer, kv_head, token], the tokens without a slot. state: the state in
    which retained slots are stored; None if they are stored as computed, whatever the policy could have done.
    """

    dropped: list[Tensor]
    state: State | None


Dropped: TypeAlias = Lost | None  # None: the lane failed


class Alike(NamedTuple):
    """Two arms that recorded lanes hardly distinguish. same: lanes with the same text and the same memory."""

    arms: tuple[str, str]
    same: int
    lanes: int


@dataclass(frozen=True)
class Notes:
    """Records what the lane of a policy has dropped after each eviction, once that is anything, and the
    evictions in which slots were merged.
    """

    policy: Policy
    dropped: list[Tensor] = field(default_factory=list)
    merged: list[int] = field(default_factory=list)

    def note(self, view: View, budget: int, event: Event) -> None:
        if event.merging is not None and (event.merging.into.ge(0) & ~event.kept).any():
            self.merged.append(len(view.token_ids))
        lost = _lost(view, event.kept)
        if lost.any():
            self.dropped.append(lost)


def same_kept(planned: Planned, items: Mapping[str, Any]) -> dict[str, Any]:
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
        return _found(planned, items)
    finally:
        torch.set_num_threads(threads)


def _found(planned: Planned, items: Mapping[str, Any]) -> dict[str, Any]:
    protocol, known = planned.protocol, planned.tasks
    by_arm: dict[str, dict[Place, Dropped]] = {
        arm.name: {} for arm in protocol.arms if protocol.policy(arm.name).evicts
    }
    on: dict[str, str] = {}
    for source in protocol.models:
        on[source] = _runs(planned, source, set(on.values()))
        if on[source] == OTHERS:
            continue
        try:
            model = _opened(planned, source, on[source])
        except UNMAKEABLE as why:
            on[source] = f"nothing: no random network of its architecture can be made ({why})"
            continue
        counter = prompting.counter(model.tokenizer)
        count = max(1, PROBLEMS[on[source]] // len(protocol.tasks))
        for task in protocol.tasks:
            for problem in items[task.name]["dev"][:count]:
                built = door.build(known[task.name], task.name, problem, counter)
                dropped = _watched(planned, source, model, task, built, short=on[source] == MADE_UP)
                for (arm, budget), lost in dropped.items():
                    by_arm[arm][source, task.name, problem, budget] = lost
    ran = {arm: lanes for arm, lanes in by_arm.items() if lanes}
    found = []
    for one, other in itertools.combinations(ran, 2):
        shares = _shares(ran[one], ran[other]) if _slots_tell(protocol, one, other) else {}
        if shares and sum(shares.values()) / len(shares) >= SHARED:
            share = sum(shares.values()) / len(shares)
            count = len({place[1:3] for place in shares})
            found.append({"arms": [one, other], "shared": f"{share:.3f}", "problems": count})
    return {"pairs": found, "on": on, "left_out": [arm for arm in by_arm if arm not in ran]}


def alike(recorded: Iterable[Record]) -> list[Alike]:
    """Return the arms whose lanes nearly all have the same text and the same memory at every eviction, in
    lanes where either dropped anything. Records do not name slots: on easy problems other slots may give the
    same.
    """
    by_arm: dict[str, dict[Place, tuple[str, ...]]] = defaultdict(dict)
    for body in (record["body"] for record in recorded):
        cell, cache = body["cell"], body["cache"]
        if cache is None or cell["arm"].endswith(AGAIN):
            continue
        if any(before > after for _, before, after in cache["events"]):
            place = (cell["model"], cell["task"], body["problem"], cell["budget"], str(cell["seed"]))
            by_arm[cell["arm"]][place] = (body["text"], str(cache["events"]), cache["mean"])
    found = []
    for one, other in itertools.combinations(by_arm, 2):
        first, second = by_arm[one], by_arm[other]
        lanes = first.keys() | second.keys()
        same = sum(first.get(lane) == second.get(lane) for lane in lanes)
        if same >= LANES * len(lanes):
            found.append(Alike((one, other), same, len(lanes)))
    return found


def _slots_tell(protocol: Design, one: str, other: str) -> bool:
    """Whether two arms with the same slots are one experiment: not if a slot stores other values of a token,
    as with a codec or means, or if the extra prompts differ.
    """
    states = [protocol.policy(arm).state for arm in (one, other)]
    return states[0] == states[1] and protocol.asks(one) == protocol.asks(other)


def _shares(first: Mapping[Place, Dropped], second: Mapping[Place, Dropped]) -> dict[Place, float]:
    """Return, for every lane in which either of two arms dropped anything, the share of it that both dropped.
    """
    both = {place: (first[place], second[place]) for place in first.keys() & second.keys()}
    return {
        place: _share(one, other)
        for place, (one, other) in both.items()
        if (one and one.dropped) or (other and other.dropped)
    }


def _share(one: Dropped, other: Dropped) -> float:
    """Return the smallest share over the evictions; 0 if the evictions or the states differ, or one lane
    failed.
    """
    if one is None or other is None or one.state != other.state:
        return 0.0
    pairs = list(zip(one.dropped, other.dropped, strict=False))
    if len(one.dropped) != len(other.dropped) or any(a.shape != b.shape for a, b in pairs):
        return 0.0
    return min(float((a & b).sum() / (a | b).sum()) for a, b in pairs)


def _lost(view: View, kept: Tensor) -> Tensor:
    """Return, by token seen, bool [layer, kv_head, token]: not retained now, or dropped before."""
    seen = len(view.token_ids)
    positions = view.positions.expand(kept.shape)
    lost = torch.ones(*kept.shape[:2], seen + 1, dtype=torch.bool, device=kept.device)
    lost.scatter_(-1, torch.where(kept, positions, seen), False)
    return lost[..., :seen].cpu()


def _runs(planned: Planned, source: str, before: set[str]) -> str:
    """Return what runs for a model. networks: what runs for other models."""
    files = sources.files(source, planned.home).values()
    if sum(path.stat().st_size for path in files) <= LIGHT:
        return ITSELF
    return OTHERS if MADE_UP in before else MADE_UP


def _opened(planned: Planned, source: str, runs: str) -> LoadedModel:
    """Raises BadInput for a model that cannot be read, UNBUILDABLE errors if no random network can be built.
    """
    if runs == MADE_UP:
        return made_up(source, planned.home)
    generation = planned.protocol.generation
    return load.load(source, planned.home, dtype=generation.dtype, device=generation.device)


def _watched(
    planned: Planned, source: str, model: LoadedModel, task: Task, built: Problem, *, short: bool
) -> dict[tuple[str, str], Dropped]:
    """Return what one lane dropped, by arm and budget, for the evicting arms whose statistics the model has.
    """
    protocol, use = planned.protocol, planned.use(source, task.name)
    asked: dict[str, dict[tuple[str, str], engine.Lane]] = {}
    notes, prompts = {}, {}
    for arm, budget in itertools.product(protocol.arms, protocol.budgets):
        if arm.press is not None:
            continue  # its slots have no token numbers
        slot, place = planned.slot(source, arm.name), (arm.name, str(budget))
        cell = grid.Cell(source, task.name, str(budget), arm.name, protocol.seeds[0])
        policy = grid.policy_of(protocol, cell, slot)
        if not policy.evicts or {each.name for each in policy.calibrated} - model.statistics.keys():
            continue
        asks = protocol.asks(arm.name)
        if asks not in prompts:
            context, query = prompting.render(built, model.tokenizer, task.query, asks)
            if short:
                least = [
                    budget.of(0, use, planned.slot(source, each.name))
                    for budget, each in itertools.product(protocol.budgets, protocol.arms)
                    if budget.share is None
                ]
                context = context[: max(SHORT, 2 * min(least, default=0))]
            prompts[asks] = engine.Prompt(tuple(context), tuple(query))
        own = notes[place] = Notes(policy)
        held = budget.of(len(prompts[asks].context), use, slot)
        asked.setdefault(asks, {})[place] = engine.Lane(
            "/".join(place), watched(policy, own.note), held, protocol.seeds[0]
        )
    if not asked:
        return {}
    requests = [engine.Request(built.id, prompts[asks], tuple(own.values())) for asks, own in asked.items()]
    until = max(_until_an_event(one.lanes, len(one.prompt.context)) for one in requests)
    new = min(until, NEW, task.max_new_tokens)
    ran = engine.run(model, requests, max_new_tokens=new, max_concurrent=len(notes))
    lanes = {place: lane for own in asked.values() for place, lane in own.items()}
    outcomes = [outcome for answers in ran.answers for outcome in answers.outcomes]
    more = new < task.max_new_tokens
    _refuse_broken(protocol, lanes, outcomes)
    return {
        place: _lost_by(model, notes[place]) if _told(lane, outcome, more=more) else None
        for (place, lane), outcome in zip(lanes.items(), outcomes, strict=True)
    }


def _lost_by(model: LoadedModel, notes: Notes) -> Lost:
    state = notes.policy.state
    codes = state.codec(model.statistics) is not None
    return Lost(notes.dropped, state if codes or notes.merged else None)


def _refuse_broken(
    protocol: Design,
    lanes: Mapping[tuple[str, str], engine.Lane],
    outcomes: Sequence[engine.Outcome | engine.LaneFailure],
) -> None:
    """Raise BadInput for a plugin policy that fails at every budget: it would fail on each problem, and
    nothing would be compared.
    """
    failed: dict[str, list[str]] = defaultdict(list)
    for (arm, _), outcome in zip(lanes, outcomes, strict=True):
        if isinstance(outcome, engine.LaneFailure):
            failed[arm].append(outcome.reason)
    for arm, reasons in failed.items():
        if (
            len(reasons) == sum(name == arm for name, _ in lanes)
            and protocol.arm(arm).policy not in CATALOGUE
        ):
            raise BadInput(f"arms.{arm}.policy: fails at every budget: {reasons[0]}; mend it")


def _told(lane: engine.Lane, outcome: engine.Outcome | engine.LaneFailure, *, more: bool) -> bool:
    """Whether what a lane dropped distinguishes its policy from others: not if it failed, nor if it was cut
    before its first eviction while decoding. has_more: whether the study decodes more tokens than were
    decoded here.
    """
    if isinstance(outcome, engine.LaneFailure):
        return False
    waits = lane.policy.cadence.interval is not None and len(outcome.events) == 1
    return not (waits and more and outcome.stop == "length")


def _until_an_event(lanes: Sequence[engine.Lane], tokens: int) -> int:
    """Return the new tokens after which each of these lanes has evicted while decoding; 1 if none does."""
    after = [1]
    for lane in lanes:
        if (interval := lane.policy.cadence.interval) is not None:
            after.append(interval + max(0, (lane.budget or 0) - tokens) + 1)
    return max(after)
