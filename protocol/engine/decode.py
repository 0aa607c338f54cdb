"""Run one prompt under many policies: prefill once, evict, then decode all lanes as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from protocol.engine import sampling
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome, Prompt, Run
from protocol.engine.observation import observed
from protocol.engine.prefill import check, prefill
from protocol.engine.slots import Slots
from protocol.evidence.refusals import BadInput


@dataclass
class Draft:
    """An outcome in the making."""

    token_ids: list[int] = field(default_factory=list)
    stop: str = ""
    held: list[int] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)


def run(
    model: Model,
    prompt: Prompt,
    lanes: Sequence[Lane],
    *,
    problem: str,
    max_new_tokens: int,
    temperature: float = 0.0,
) -> Run:
    """Decode every lane of one prompt; an outcome or a failure a lane, in their order.

    The context is fed once; each lane keeps the slots that its policy chooses, then reads the query and its
    own tokens at their absolute positions. The lanes share the linear layers as one batch, in which a lane
    that has stopped stays until all have, so the batch is a function of the arguments alone. In a batch of
    other lanes the same lane computes the same up to the rounding of the dtype, and draws the same noise.

    Raises BadInput for an empty context, no lanes, less than one new token, a negative temperature, a budget
    that does not fit its policy (a number where it evicts, None where it never does), and a model with
    sliding-window or hybrid layers.
    """
    check(model)
    if not prompt.context:
        raise BadInput("prompt.context: is empty; give at least one token")
    if not lanes:
        raise BadInput("lanes: is empty; give at least one lane")
    if max_new_tokens < 1:
        raise BadInput(f"max_new_tokens: {max_new_tokens} given; at least 1 is needed")
    if not temperature >= 0:
        raise BadInput(f"temperature: {temperature} given; use 0 for the likeliest token, or more")
    for lane in lanes:
        if lane.policy.evicts == (lane.budget is None):
            fix = "give a number of slots" if lane.policy.evicts else "None fits a policy that never evicts"
            raise BadInput(f"budget of lane {lane.key}: {lane.budget} given; {fix}")

    with observed(model.network), torch.no_grad():
        start = perf_counter()
        forked = prefill(model, prompt.context, lanes, problem, room=len(prompt.query) + max_new_tokens)
        middle = perf_counter()
        running = [index for index in range(len(lanes)) if index not in forked.failures]
        seeds = [lanes[index].seed for index in running]

        def choose(logits: Tensor, step: int) -> list[int]:
            return sampling.choose(logits, problem, seeds, step, temperature)

        drafts: list[Draft] = []
        if forked.slots is not None:
            drafts = decode(model, prompt, forked.slots, forked.logits, choose, max_new_tokens)
        end = perf_counter()

    outcomes: dict[int, Outcome | LaneFailure] = dict(forked.failures)
    for index, draft in zip(running, drafts, strict=True):
        events = ((0, forked.before, draft.held[0]),) if lanes[index].policy.evicts else ()
        outcomes[index] = Outcome(
            tuple(draft.token_ids), draft.stop, tuple(draft.held), tuple(draft.allocated), 0, events
        )
    return Run(tuple(outcomes[index] for index in range(len(lanes))), middle - start, end - middle)


def decode(
    model: Model,
    prompt: Prompt,
    slots: Slots,
    logits: Tensor,
    choose: Callable[[Tensor, int], list[int]],
    max_new_tokens: int,
) -> list[Draft]:
    """One draft a lane of `slots`: feed the query to all, then to each its own tokens until all have stopped.

    logits: [vocabulary] after the context. choose: logits [lane, vocabulary] and the step to a token a lane.
    """
    drafts = [Draft() for _ in range(slots.lanes)]
    measure(drafts, slots)
    logits = logits.expand(slots.lanes, -1)
    seen = len(prompt.context)
    if prompt.query:
        logits = feed(model, slots, [prompt.query] * slots.lanes, seen)
        seen += len(prompt.query)
        measure(drafts, slots)
    for step in range(max_new_tokens):
        chosen = choose(logits, step)
        for draft, token in zip(drafts, chosen, strict=True):
            if draft.stop:
                continue
            if token in model.stop_ids:
                draft.stop = "eos"
                continue
            draft.token_ids.append(token)
            if len(draft.token_ids) == max_new_tokens:
                draft.stop = "length"
        if all(draft.stop for draft in drafts):
            break
        logits = feed(model, slots, [(token,) for token in chosen], seen + step)
        measure(drafts, slots)
    return drafts


def feed(model: Model, slots: Slots, token_ids: Sequence[Sequence[int]], seen: int) -> Tensor:
    """Logits [lane, vocabulary] after token_ids [lane, t], the first of which stands at position `seen`."""
    fed = torch.tensor(token_ids, device=model.network.device)
    positions = torch.arange(seen, seen + fed.shape[1], device=fed.device)[None]
    output = model.network(
        input_ids=fed, position_ids=positions, use_cache=False, logits_to_keep=1, passenger=slots
    )
    last: Tensor = output.logits[:, -1]
    return last


def measure(drafts: Sequence[Draft], slots: Slots) -> None:
    """Append what is held and allocated now to the lanes that have not stopped."""
    for draft, held, allocated in zip(drafts, slots.held(), slots.allocated(), strict=True):
        if not draft.stop:
            draft.held.append(held)
            draft.allocated.append(allocated)
