"""Proxies by which policies are chosen before they run, compared with the resulting accuracy. Exploratory.

"Pre-RoPE Q/K attention surrogates, oracle-keep capture rates, and mean-V cosine similarities all failed to
predict matched-memory task accuracy" (Sun and others, "Minimal-Intervention KV Retention", section 3.2, about
their own gates, without numbers). Here each proxy is measured at the first eviction of an arm that drops
anything, on development problems, along the text that the full cache generates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

import policies
import splits
from analysis.stats import ranks
from policies import Policy, Rescores, View
from policies.policy import Event
from policies.signals import AttentionSums
from policies.watched import watched
from protocol import engine
from protocol.acts import probe
from protocol.engine import prefill
from protocol.engine.observation import observed
from protocol.evidence.run.registration import VERDICT, Registration
from protocol.locked.study import Study
from protocol.models.load import LoadedModel, load
from protocol.plan import grid
from protocol.plan.design import AGAIN, Task
from protocol.plan.grid import FULL
from protocol.tasks import door, prompting

__all__ = [
    "DEVELOPMENT",
    "HELD_OUT",
    "PROXIES",
    "Proxies",
    "accuracies",
    "agreement",
    "captured",
    "correlated",
    "cosine",
    "measured",
    "oracle",
    "overlap",
    "rows",
]

DEVELOPMENT, HELD_OUT = "development", "held out"


class Proxies(NamedTuple):
    """The proxies of one arm on one problem, or their means over problems; NaN where a proxy is undefined."""

    agreement: float
    """Spearman's rho of the arm's scores and the attention that its slots receive afterwards. The scores of
    `1d` and its gates are those of mean pre-RoPE queries.
    """
    overlap: float
    """Share of the retained slots that are among the equally many that receive the most attention afterwards.
    """
    captured: float
    """Share of the attention to the slots at the eviction that goes to retained ones."""
    best: float
    """The same share for the slots that receive most: what an oracle would capture."""
    cosine: float
    """Cosine similarity of the mean value of dropped slots and that of retained ones."""


PROXIES = ("agreement", "overlap", "captured", "cosine")
"""The proxies that are compared with accuracy, arm by arm."""

Place = tuple[str, str, str, str]  # model, task, budget, arm


class First(NamedTuple):
    """The first eviction of a lane that dropped anything; all tokens seen had a slot before it."""

    token_ids: tuple[int, ...]
    kept: Tensor
    """bool [layer, kv_head, t]."""
    scores: Tensor
    """[layer | 1, kv_head | 1, t]."""


def noting(policy: Policy, first: list[First]) -> Policy:
    """Return the policy with an observer that appends its first eviction that drops anything to `evictions`.
    """

    def note(view: View, budget: int, event: Event) -> None:
        if not first and not event.kept.all():
            seen = view._replace(budget=budget)
            scores = policy.scoring.score(seen)
            if isinstance(policy.routing, Rescores):
                scores = policy.routing.rescored(seen, scores)
            first.append(First(tuple(view.token_ids.tolist()), event.kept, scores.slots))

    return watched(policy, note)


def agreement(scores: Tensor, received: Tensor) -> float:
    """scores [layer | 1, kv_head | 1, t], received [layer, kv_head, t]: return the mean of Spearman's rho
    over layers and heads. Where these share a score, their received attention is added up first.
    """
    for axis in (0, 1):
        if scores.shape[axis] == 1:
            received = received.sum(axis, keepdim=True)
    rows = zip(scores.flatten(0, 1), received.flatten(0, 1), strict=True)
    return mean(ranks.spearman(one.double().numpy(), other.double().numpy()) for one, other in rows)


def oracle(kept: Tensor, received: Tensor) -> Tensor:
    """Return bool [layer, kv_head, t]: in each head the slots that receive most, as many as are retained; of
    equal ones the earlier.
    """
    order = received.argsort(dim=-1, descending=True, stable=True)
    places = torch.empty_like(order).scatter_(-1, order, torch.arange(order.shape[-1]).expand_as(order))
    return places < kept.sum(-1, keepdim=True)


def overlap(kept: Tensor, received: Tensor) -> float:
    """retained bool, received [layer, kv_head, t]: return the mean overlap over heads."""
    return float(((kept & oracle(kept, received)).sum(-1) / kept.sum(-1)).double().mean())


def captured(kept: Tensor, received: Tensor) -> float:
    """retained bool, received [layer, kv_head, t]: return the mean over heads of the share that retained
    slots receive.
    """
    return float(((received * kept).sum(-1) / received.sum(-1)).double().mean())


def cosine(kept: Tensor, values: Tensor) -> float:
    """retained bool [layer, kv_head, t], values [layer, kv_head, t, d]: return the mean over heads that drop
    a slot.
    """
    of = [
        torch.cosine_similarity(head[~own].double().mean(0), head[own].double().mean(0), dim=0)
        for own, head in zip(kept.flatten(0, 1), values.flatten(0, 1), strict=True)
        if not own.all()
    ]
    return mean(map(float, of))


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    there = [value for value in values if not math.isnan(value)]
    return fmean(there) if there else math.nan


def measured(study: Study, limit: int) -> dict[Place, list[Proxies]]:
    """Return, for each arm of a cell, one entry for each of `limit` development problems of a task, those
    with the smallest MD5, in which it dropped anything before the full cache's text ended. Left out are arms
    that never evict, presses, arms whose statistics a model lacks, and arms that merge slots, since a merged
    token is neither retained nor dropped.
    """
    transformers.utils.logging.disable_progress_bar()
    protocol, generation = study.protocol, study.protocol.generation
    torch.set_num_threads(generation.threads)
    found: dict[Place, list[Proxies]] = {}
    for source in protocol.models:
        model = load(source, study.planned.home, dtype=generation.dtype, device=generation.device)
        for task in protocol.tasks:
            for problem in splits.first(study.development()[task.name], limit):
                for (budget, arm), told in _of_problem(study, model, source, task, problem).items():
                    found.setdefault((source, task.name, budget, arm), []).append(told)
    return found


def _of_problem(
    study: Study, model: LoadedModel, source: str, task: Task, problem: str
) -> dict[tuple[str, str], Proxies]:
    """Measure one problem, by budget and arm. Arms with the same extra prompt use one text of the full cache.
    """
    protocol, planned = study.protocol, study.planned
    counter = prompting.counter(model.tokenizer)
    built = door.build(planned.tasks[task.name], task.name, problem, counter)
    found: dict[tuple[str, str], Proxies] = {}
    for asks in dict.fromkeys(protocol.asks(arm.name) for arm in protocol.arms):
        context, query = prompting.render(built, model.tokenizer, task.query, asks)
        prompt = engine.Prompt(tuple(context), tuple(query))
        if protocol.excludes(len(prompt.context)):
            continue
        noted = list(_noted(study, model, source, task, asks, prompt))
        lanes = tuple(one.lane for one in noted)
        text = _run(study, model, task, engine.Request(built.id, prompt, lanes))
        events = {one.place: one.first[0] for one in noted if one.first}
        found |= _along(model, text, events, protocol.generation.prefill_chunk)
    return found


class Noted(NamedTuple):
    """A lane whose policy is observed, and the evictions that the observer recorded."""

    place: tuple[str, str]  # budget, arm
    lane: engine.Lane
    first: list[First]


def _noted(
    study: Study, model: LoadedModel, source: str, task: Task, asks: str, prompt: engine.Prompt
) -> Iterator[Noted]:
    """Yield a lane for each budget of each arm that has this extra prompt, evicts and can run."""
    protocol, planned = study.protocol, study.planned
    for arm, budget in itertools.product(protocol.arms, protocol.budgets):
        if arm.press is not None or protocol.asks(arm.name) != asks:
            continue
        slot = planned.slot(source, arm.name)
        cell = grid.Cell(source, task.name, str(budget), arm.name, protocol.seeds[0])
        policy = grid.policy_of(protocol, cell, slot)
        if (
            not policy.evicts
            or policy.state.merges
            or {each.name for each in policy.calibrated} - model.statistics.keys()
        ):
            continue
        first: list[First] = []
        slots = budget.of(len(prompt.context), planned.use(source, task.name), slot)
        place = str(budget), arm.name
        lane = engine.Lane("/".join(place), noting(policy, first), slots, protocol.seeds[0])
        yield Noted(place, lane, first)


def _run(study: Study, model: LoadedModel, task: Task, request: engine.Request) -> tuple[int, ...]:
    """Return prompt and answer of the full cache, which decodes together with the lanes of the request; empty
    if it fails.
    """
    generation = study.protocol.generation
    whole = engine.Lane(FULL, policies.get(FULL), None, study.protocol.seeds[0])
    ran = engine.run(
        model,
        [request._replace(lanes=(whole, *request.lanes))],
        max_new_tokens=task.max_new_tokens,
        temperature=float(generation.temperature),
        top_p=float(1 if generation.top_p is None else generation.top_p),
        prefill_chunk=generation.prefill_chunk,
        first_event=generation.waits,
        marks=(model.answer_marks if generation.think_only else None) or (),
        attention=generation.attention,
    )
    outcome = ran.answers[0].outcomes[0]
    if isinstance(outcome, engine.LaneFailure):
        return ()
    return (*request.prompt.context, *request.prompt.query, *outcome.token_ids)


def _along(
    model: LoadedModel, text: tuple[int, ...], events: Mapping[tuple[str, str], First], chunk: int | None
) -> dict[tuple[str, str], Proxies]:
    """Measure the evictions at which the text was still that of the full cache and had not ended."""
    at = {place: len(first.token_ids) for place, first in events.items()}
    on = {
        place: first
        for place, first in events.items()
        if at[place] < len(text) and first.token_ids == text[: at[place]]
    }
    later = {seen: AttentionSums(window=len(text) - seen) for seen in sorted({at[place] for place in on})}
    if not later:
        return {}
    with torch.inference_mode(), observed(model.network):
        fed = prefill.feed(model, text, later.values(), chunk=chunk)
    values, heads = torch.stack(fed.values).float().cpu(), len(fed.keys[0])
    found = {}
    for place, first in on.items():
        seen, kept = at[place], first.kept.cpu()
        sums = torch.stack(fed.signals[later[seen]]).double().cpu()[..., :seen]
        received = sums.view(len(sums), heads, -1, seen).sum(2)
        found[place] = Proxies(
            agreement(first.scores.double().cpu(), received),
            overlap(kept, received),
            captured(kept, received),
            captured(oracle(kept, received), received),
            cosine(kept, values[:, :, :seen]),
        )
    return found


def accuracies(registration: Registration) -> tuple[str, dict[Place, float]]:
    """Return the split and the accuracy of each arm of a cell: the judged one on held-out problems if there
    is a verdict, else that of the probe on development problems. For a sweep it is the winner's, under the
    name of the candidate. Empty if there is neither.
    """
    if registration.has(VERDICT):
        judged = registration.verdict.content["judged"]
        own = {
            (one["model"], one["task"], one["budget"], one["arm"]): one["accuracy"] for one in judged["arms"]
        }
        if (chosen := judged.get("selected")) is not None:
            named = registration.registered["sweep"]["name"]
            own = {
                (*place, chosen["arm"] if arm == named else arm): value
                for (*place, arm), value in own.items()
            }
        return HELD_OUT, {place: float(value) for place, value in own.items() if value is not None}
    rows = probe.summary(registration.probed) if registration.probed else []
    return DEVELOPMENT, {
        (row["model"], row["task"], row["budget"], row["arm"]): float(row["correct"]) / row["lanes"]
        for row in rows
        if row["lanes"] and not row["arm"].endswith(AGAIN)
    }


def rows(found: Mapping[Place, Sequence[Proxies]], accuracy: Mapping[Place, float]) -> list[dict[str, Any]]:
    """Return one row for each arm, cell by cell: means over problems, and the accuracy, if there is one."""
    listed, cells = [], [*dict.fromkeys(place[:3] for place in found)]
    for place, each in sorted(found.items(), key=lambda one: cells.index(one[0][:3])):
        means = {name: mean(getattr(one, name) for one in each) for name in Proxies._fields}
        listed.append(
            dict(zip(("model", "task", "budget", "arm"), place, strict=True))
            | {"problems": len(each), "accuracy": accuracy.get(place)}
            | {name: None if math.isnan(value) else value for name, value in means.items()}
        )
    return listed


def correlated(listed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each cell and proxy, Spearman's rho with accuracy over the arms that have both, and its 95
    % limits; None if arms are too few or all alike.
    """
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in listed:
        cells.setdefault((row["model"], row["task"], row["budget"]), []).append(row)
    told = []
    for cell, own in cells.items():
        for name in PROXIES:
            pairs = [
                (row[name], row["accuracy"])
                for row in own
                if row[name] is not None and row["accuracy"] is not None
            ]
            one, other = ([pair[side] for pair in pairs] for side in (0, 1))
            ranked = ranks.rank_correlation(one, other)
            limits = {"rho": None, "low": None, "high": None} if ranked is None else ranked._asdict()
            told.append(
                dict(zip(("model", "task", "budget"), cell, strict=True))
                | {"proxy": name, **limits, "n": len(pairs)}
            )
    return told
