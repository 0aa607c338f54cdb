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
from policies import Policy, RescoringRouting, View
from policies.observer import observe
from policies.policy import Eviction
from policies.signals import AttentionSums
from protocol import engine
from protocol.engine import prefill
from protocol.engine.observation import observe_forward
from protocol.evidence.registration import VERDICT, Registration
from protocol.formats.vocabulary import FULL, RERUN_SUFFIX
from protocol.models.load import LoadedModel, load
from protocol.plan import grid
from protocol.plan.task import Task
from protocol.preflight import development_results
from protocol.tasks import held_out_guard, prompting
from protocol.workspace.study import Study

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
    """Share of the attention, at the eviction, that goes to slots that are retained."""
    best: float
    """The same share for the slots that receive most: what an oracle would capture."""
    cosine: float
    """Cosine similarity of the mean value of dropped slots and that of retained ones."""


PROXIES = ("agreement", "overlap", "captured", "cosine")
"""The proxies that are compared with accuracy, arm by arm."""

CellKey = tuple[str, str, str, str]  # model, task, budget, arm


class FirstEviction(NamedTuple):
    """The first eviction of a lane that dropped anything; all tokens seen had a slot before it."""

    token_ids: tuple[int, ...]
    retained: Tensor
    """bool [layer, kv_head, t]."""
    scores: Tensor
    """[layer | 1, kv_head | 1, t]."""


def record_first_eviction(policy: Policy, evictions: list[FirstEviction]) -> Policy:
    """Return the policy with an observer that appends its first eviction that drops anything to `evictions`."""

    def record(view: View, budget: int, event: Eviction) -> None:
        if not evictions and not event.retained.all():
            budgeted_view = view._replace(budget=budget)
            scores = policy.scoring.score(budgeted_view)
            if isinstance(policy.routing, RescoringRouting):
                scores = policy.routing.rescore(budgeted_view, scores)
            evictions.append(FirstEviction(tuple(view.token_ids.tolist()), event.retained, scores.slots))

    return observe(policy, record)


def agreement(scores: Tensor, received: Tensor) -> float:
    """scores [layer | 1, kv_head | 1, t], received [layer, kv_head, t]: return the mean of Spearman's rho
    over layers and heads. Where these share a score, their received attention is added up first.
    """
    for axis in (0, 1):
        if scores.shape[axis] == 1:
            received = received.sum(axis, keepdim=True)
    rows = zip(scores.flatten(0, 1), received.flatten(0, 1), strict=True)
    return finite_mean(
        ranks.spearman(score_row.double().numpy(), received_row.double().numpy()) for score_row, received_row in rows
    )


def select_oracle(retained: Tensor, received: Tensor) -> Tensor:
    """Return bool [layer, kv_head, t]: in each head as many as are retained, of those that receive most."""
    order = received.argsort(dim=-1, descending=True, stable=True)
    ranks_of_slots = torch.empty_like(order).scatter_(-1, order, torch.arange(order.shape[-1]).expand_as(order))
    return ranks_of_slots < retained.sum(-1, keepdim=True)


def overlap(retained: Tensor, received: Tensor) -> float:
    """retained bool, received [layer, kv_head, t]: return the mean overlap over heads."""
    return float(((retained & select_oracle(retained, received)).sum(-1) / retained.sum(-1)).double().mean())


def captured_share(retained: Tensor, received: Tensor) -> float:
    """retained bool, received [layer, kv_head, t]: return the share that retained slots receive, mean over heads."""
    return float(((received * retained).sum(-1) / received.sum(-1)).double().mean())


def value_cosine(retained: Tensor, values: Tensor) -> float:
    """retained bool [layer, kv_head, t], values [layer, kv_head, t, d]: return the mean over heads that drop a slot."""
    similarities = [
        torch.cosine_similarity(head[~mask].double().mean(0), head[mask].double().mean(0), dim=0)
        for mask, head in zip(retained.flatten(0, 1), values.flatten(0, 1), strict=True)
        if not mask.all()
    ]
    return finite_mean(map(float, similarities))


def finite_mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    numbers = [value for value in values if not math.isnan(value)]
    return fmean(numbers) if numbers else math.nan


def measure_proxies(study: Study, limit: int) -> dict[CellKey, list[Proxies]]:
    """Return, for each arm of a cell, one entry for each of `limit` development problems of a task, those
    with the smallest MD5, in which it dropped anything before the full cache's text ended. Left out are arms
    that never evict, presses, arms whose statistics a model lacks, and arms that merge slots, since a merged
    token is neither retained nor dropped.
    """
    transformers.utils.logging.disable_progress_bar()
    protocol, generation = study.protocol, study.protocol.generation
    torch.set_num_threads(generation.threads)
    proxies: dict[CellKey, list[Proxies]] = {}
    for model_name in protocol.models:
        model = load(model_name, study.planned.home, dtype=generation.dtype, device=generation.device)
        for task in protocol.tasks:
            for problem in splits.subsample(study.development()[task.name], limit):
                for (budget, arm), values in _measure_problem(study, model, model_name, task, problem).items():
                    proxies.setdefault((model_name, task.name, budget, arm), []).append(values)
    return proxies


def _measure_problem(
    study: Study, model: LoadedModel, model_name: str, task: Task, problem: str
) -> dict[tuple[str, str], Proxies]:
    """Measure one problem, by budget and arm. Arms with the same extra prompt use one text of the full cache."""
    protocol, planned = study.protocol, study.planned
    counter = prompting.counter(model.tokenizer)
    problem_text = held_out_guard.build(planned.tasks[task.name], task.name, problem, counter)
    proxies: dict[tuple[str, str], Proxies] = {}
    for extra_prompt in dict.fromkeys(protocol.extra_prompt(arm.name) for arm in protocol.arms):
        context, query = prompting.render(problem_text, model.tokenizer, task.query, extra_prompt)
        prompt = engine.Prompt(tuple(context), tuple(query))
        if protocol.exclusion_reason(len(prompt.context)):
            continue
        watched_lanes = list(_watched_lanes(study, model, model_name, task, extra_prompt, prompt))
        lanes = tuple(watched_lane.lane for watched_lane in watched_lanes)
        text = _decode_full_cache(study, model, task, engine.Request(problem_text.id, prompt, lanes))
        events = {
            watched_lane.key: watched_lane.evictions[0] for watched_lane in watched_lanes if watched_lane.evictions
        }
        proxies |= _measure_evictions(model, text, events, protocol.generation.prefill_chunk)
    return proxies


class WatchedLane(NamedTuple):
    """A lane whose policy is observed, and the evictions that the observer recorded."""

    key: tuple[str, str]  # budget, arm
    lane: engine.Lane
    evictions: list[FirstEviction]


def _watched_lanes(
    study: Study, model: LoadedModel, model_name: str, task: Task, extra_prompt: str, prompt: engine.Prompt
) -> Iterator[WatchedLane]:
    """Yield a lane for each budget of each arm that has this extra prompt, evicts and can run."""
    protocol, planned = study.protocol, study.planned
    for arm, budget in itertools.product(protocol.arms, protocol.budgets):
        if arm.press is not None or protocol.extra_prompt(arm.name) != extra_prompt:
            continue
        slot = planned.slot(model_name, arm.name)
        cell = grid.Cell(model_name, task.name, str(budget), arm.name, protocol.seeds[0])
        policy = grid.policy_of(protocol, cell, slot)
        if (
            not policy.evicts
            or policy.state.merges
            or {signal.name for signal in policy.calibrated} - model.statistics.keys()
        ):
            continue
        evictions: list[FirstEviction] = []
        slots = budget.count_slots(len(prompt.context), planned.use(model_name, task.name), slot)
        key = str(budget), arm.name
        lane = engine.Lane("/".join(key), record_first_eviction(policy, evictions), slots, protocol.seeds[0])
        yield WatchedLane(key, lane, evictions)


def _decode_full_cache(study: Study, model: LoadedModel, task: Task, request: engine.Request) -> tuple[int, ...]:
    """Return prompt and answer of the full cache, decoded together with the request's lanes; empty if it fails."""
    generation = study.protocol.generation
    full_lane = engine.Lane(FULL, policies.get(FULL), None, study.protocol.seeds[0])
    result = engine.run(
        model,
        [request._replace(lanes=(full_lane, *request.lanes))],
        max_new_tokens=task.max_new_tokens,
        marks=(model.answer_marks if generation.think_only else None) or (),
        **generation.engine_settings(),
    )
    outcome = result.answers[0].outcomes[0]
    if isinstance(outcome, engine.LaneFailure):
        return ()
    return (*request.prompt.context, *request.prompt.query, *outcome.token_ids)


def _measure_evictions(
    model: LoadedModel, text: tuple[int, ...], events: Mapping[tuple[str, str], FirstEviction], chunk: int | None
) -> dict[tuple[str, str], Proxies]:
    """Measure the evictions at which the text was still that of the full cache and had not ended."""
    lengths = {key: len(first.token_ids) for key, first in events.items()}
    comparable = {
        key: first
        for key, first in events.items()
        if lengths[key] < len(text) and first.token_ids == text[: lengths[key]]
    }
    sums_by_length = {
        length: AttentionSums(window=len(text) - length) for length in sorted({lengths[key] for key in comparable})
    }
    if not sums_by_length:
        return {}
    with torch.inference_mode(), observe_forward(model.network):
        prefilled = prefill.feed(model, text, sums_by_length.values(), chunk=chunk)
    values, heads = torch.stack(prefilled.values).float().cpu(), len(prefilled.keys[0])
    proxies = {}
    for key, first in comparable.items():
        length, retained = lengths[key], first.retained.cpu()
        sums = torch.stack(prefilled.signals[sums_by_length[length]]).double().cpu()[..., :length]
        received = sums.view(len(sums), heads, -1, length).sum(2)
        proxies[key] = Proxies(
            agreement(first.scores.double().cpu(), received),
            overlap(retained, received),
            captured_share(retained, received),
            captured_share(select_oracle(retained, received), received),
            value_cosine(retained, values[:, :, :length]),
        )
    return proxies


def read_accuracies(registration: Registration) -> tuple[str, dict[CellKey, float]]:
    """Return the split and the accuracy of each arm of a cell: the judged one on held-out problems if there
    is a verdict, else that of the probe on development problems. For a sweep it is the winner's, under the
    name of the candidate. Empty if there is neither.
    """
    if registration.has(VERDICT):
        judged = registration.verdict.content["judged"]
        accuracy_by_cell = {
            (entry["model"], entry["task"], entry["budget"], entry["arm"]): entry["accuracy"]
            for entry in judged["arms"]
        }
        if (selected := judged.get("selected")) is not None:
            subject = registration.protocol["sweep"]["name"]
            accuracy_by_cell = {
                (*cell, selected["arm"] if arm == subject else arm): value
                for (*cell, arm), value in accuracy_by_cell.items()
            }
        return HELD_OUT, {cell: float(value) for cell, value in accuracy_by_cell.items() if value is not None}
    rows = development_results.summarize_cells(registration.probe_records) if registration.probe_records else []
    return DEVELOPMENT, {
        (row["model"], row["task"], row["budget"], row["arm"]): float(row["correct"]) / row["lanes"]
        for row in rows
        if row["lanes"] and not row["arm"].endswith(RERUN_SUFFIX)
    }


def mean_rows(proxies: Mapping[CellKey, Sequence[Proxies]], accuracy: Mapping[CellKey, float]) -> list[dict[str, Any]]:
    """Return one row for each arm, cell by cell: means over problems, and the accuracy, if there is one."""
    table, cells = [], [*dict.fromkeys(key[:3] for key in proxies)]
    for key, entries in sorted(proxies.items(), key=lambda entry: cells.index(entry[0][:3])):
        means = {name: finite_mean(getattr(entry, name) for entry in entries) for name in Proxies._fields}
        table.append(
            dict(zip(("model", "task", "budget", "arm"), key, strict=True))
            | {"problems": len(entries), "accuracy": accuracy.get(key)}
            | {name: None if math.isnan(value) else value for name, value in means.items()}
        )
    return table


def correlate_with_accuracy(table: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each cell and proxy, Spearman's rho with accuracy over the arms that have both, and its 95
    % limits; None if arms are too few or all alike.
    """
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in table:
        cells.setdefault((row["model"], row["task"], row["budget"]), []).append(row)
    correlations = []
    for cell, cell_rows in cells.items():
        for name in PROXIES:
            pairs = [
                (row[name], row["accuracy"])
                for row in cell_rows
                if row[name] is not None and row["accuracy"] is not None
            ]
            proxy_values, accuracy_values = ([pair[side] for pair in pairs] for side in (0, 1))
            ranked = ranks.rank_correlation(proxy_values, accuracy_values)
            limits = {"rho": None, "low": None, "high": None} if ranked is None else ranked._asdict()
            correlations.append(
                dict(zip(("model", "task", "budget"), cell, strict=True)) | {"proxy": name, **limits, "n": len(pairs)}
            )
    return correlations
