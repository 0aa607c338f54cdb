"""Which arms keep the same slots: two that do are one experiment, whose contrasts are counted twice.

Arms that keep the same slots and store them otherwise, coded or merged, are two.

`same_kept` runs the arms on development problems, every policy watched. Models that load in a moment run as
they are; in place of a larger one a random network of its architecture reads the prompts. Policies that are
one by construction keep the same slots there too; those that agree only on the real model are not seen.
`alike` looks at what a probe recorded, where texts and memory stand for the slots.
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

# Of the slots that either of two arms dropped, the share dropped by both, from which they count as one. Arms
# that order units alike and differ within the one unit that the budget cuts share 0.98; of the catalogue's
# other pairs, on SmolLM2-135M and on random networks, none shares more than 0.96.
SHARED = 0.97
LANES = 0.95  # share of recorded lanes with the same text and memory, from which arms are alike
LIGHT = 64 * 2**20  # bytes of a model's files that load and run in a moment
SHORT = 1024  # tokens of a prompt that a random network reads, or twice the smallest budget
NEW = 256  # tokens decoded at most, for arms with events while decoding
ITSELF, MADE_UP = "itself", "a random network of its architecture"
OTHERS = "nothing: the random network of another model stands for it"
# What an architecture provokes that has no small form. A warning is no reason to refuse a study.
UNMAKEABLE = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)
# Over all tasks, one of each at least: a random network tells policies apart less well.
PROBLEMS: Mapping[str, int] = MappingProxyType({ITSELF: 2, MADE_UP: 4, OTHERS: 0})

Place: TypeAlias = tuple[str, ...]  # model, task, problem and budget of a lane


class Lost(NamedTuple):
    """What a lane did with its slots.

    dropped: after each event, bool [layer, kv_head, token], what no slot stands at. state: in which those
    that are left are stored; None where as computed, whatever the policy could have done.
    """

    dropped: list[Tensor]
    state: State | None


Dropped: TypeAlias = Lost | None  # None of a lane that failed


class Alike(NamedTuple):
    """Two arms that recorded lanes hardly tell apart. same: lanes with one text and one memory."""

    arms: tuple[str, str]
    same: int
    lanes: int


@dataclass(frozen=True)
class Notes:
    """What the lane of a policy has lost after each event, once that is anything, and the events at which
    slots were merged.
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
    """The field `checks.same_kept` of a lock, from the first development problems of each task, at every
    budget: `pairs` of arms that keep the same slots, with the share of what they drop that they drop both and
    the number of problems; `on`, what ran for each model; `left_out`, the arms that could not run, since they
    need statistics of a model that did not, or are presses. Of arms whose slots store something else, or that
    ask something else, the slots do not tell: they are no pair.

    It runs on as many threads as are registered, so that it finds the same when it is asked again.
    """
    transformers.utils.logging.disable_progress_bar()  # one display at a time: ours
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
    """Arms whose lanes nearly all have the same text and held the same memory at every event, where either
    dropped anything. Records do not name slots: on easy problems other slots may give the same.
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
    """Whether arms that keep the same slots are one: not where a slot stores something else of a token, as
    with a codec or means, or the model is asked something else.
    """
    states = [protocol.policy(arm).state for arm in (one, other)]
    return states[0] == states[1] and protocol.asks(one) == protocol.asks(other)


def _shares(first: Mapping[Place, Dropped], second: Mapping[Place, Dropped]) -> dict[Place, float]:
    """Of every lane in which either of two arms dropped anything: the share of it that both did."""
    both = {place: (first[place], second[place]) for place in first.keys() & second.keys()}
    return {
        place: _share(one, other)
        for place, (one, other) in both.items()
        if (one and one.dropped) or (other and other.dropped)
    }


def _share(one: Dropped, other: Dropped) -> float:
    """The least over their events; 0 where they have other events, store what is left otherwise, or one
    failed.
    """
    if one is None or other is None or one.state != other.state:
        return 0.0
    pairs = list(zip(one.dropped, other.dropped, strict=False))
    if len(one.dropped) != len(other.dropped) or any(a.shape != b.shape for a, b in pairs):
        return 0.0
    return min(float((a & b).sum() / (a | b).sum()) for a, b in pairs)


def _lost(view: View, kept: Tensor) -> Tensor:
    """By token seen, bool [layer, kv_head, token]: not kept now, or dropped before."""
    seen = len(view.token_ids)
    positions = view.positions.expand(kept.shape)
    lost = torch.ones(*kept.shape[:2], seen + 1, dtype=torch.bool, device=kept.device)
    lost.scatter_(-1, torch.where(kept, positions, seen), False)
    return lost[..., :seen].cpu()


def _runs(planned: Planned, source: str, before: set[str]) -> str:
    """What runs for a model. before: what ran for others."""
    files = sources.files(source, planned.home).values()
    if sum(path.stat().st_size for path in files) <= LIGHT:
        return ITSELF
    return OTHERS if MADE_UP in before else MADE_UP


def _opened(planned: Planned, source: str, runs: str) -> LoadedModel:
    """Raises BadInput for a model that cannot be read, one of UNMAKEABLE for one that cannot be made up."""
    if runs == MADE_UP:
        return made_up(source, planned.home)
    generation = planned.protocol.generation
    return load.load(source, planned.home, dtype=generation.dtype, device=generation.device)


def _watched(
    planned: Planned, source: str, model: LoadedModel, task: Task, built: Problem, *, short: bool
) -> dict[tuple[str, str], Dropped]:
    """By arm and budget, of the evicting arms whose statistics the model has: what one lane dropped."""
    protocol, use = planned.protocol, planned.use(source, task.name)
    asked: dict[str, dict[tuple[str, str], engine.Lane]] = {}
    notes, prompts = {}, {}
    for arm, budget in itertools.product(protocol.arms, protocol.budgets):
        if arm.press is not None:
            continue  # what it leaves has no numbers
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
    """Raises BadInput for a policy of another distribution that fails at every budget: it would at each
    problem, and nothing would be compared.
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
    """Whether what a lane dropped tells its policy from others: not where it failed, nor where it was cut
    before its first event while decoding. more: whether the study goes on after the tokens decoded here.
    """
    if isinstance(outcome, engine.LaneFailure):
        return False
    waits = lane.policy.cadence.interval is not None and len(outcome.events) == 1
    return not (waits and more and outcome.stop == "length")


def _until_an_event(lanes: Sequence[engine.Lane], tokens: int) -> int:
    """New tokens after which each of these lanes has had an event while decoding; 1 where none has any."""
    after = [1]
    for lane in lanes:
        if (interval := lane.policy.cadence.interval) is not None:
            after.append(interval + max(0, (lane.budget or 0) - tokens) + 1)
    return max(after)
