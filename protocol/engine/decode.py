"""Run problems under many policies: feed each prompt once, decode its lanes in one batch with others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from policies import (
    AttentionSignal,
    CacheSignal,
    Calibrated,
    ExtraPromptSignal,
    FedSignal,
    HiddenSignal,
    NormalisedRows,
    OutputSignal,
    Policy,
    Verbatim,
)
from policies.epicache import EpisodeScoring, Episodic
from protocol.engine.attention.kernels import Attention, choose_attention
from protocol.engine.batch import Batch
from protocol.engine.batch_rows import BatchRow
from protocol.engine.blockwise import fork_lanes
from protocol.engine.max_concurrent import max_concurrent_for
from protocol.engine.native.network import NativeNetwork, obstacle_to_native
from protocol.engine.observation import observe_forward
from protocol.engine.output_projection import check_projection
from protocol.engine.prefill import check_model
from protocol.engine.prefill_fan_out import ForkedRequest
from protocol.engine.rotation import check_rotation, depends_on_company
from protocol.engine.run_types import (
    FIRST_EVENT,
    Answers,
    Architecture,
    Lane,
    LaneFailure,
    Model,
    Outcome,
    Progress,
    Request,
    Run,
)
from protocol.engine.storage_formats import build_storage_formats
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import evictable, layers_of
from protocol.layers.unsupported import PRESS_REASON
from protocol.presses.pressed import Pressed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def run(
    model: Model,
    requests: Sequence[Request],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_concurrent: int | None = None,
    prefill_chunk: int | None = None,
    first_event: int = FIRST_EVENT,
    marks: Collection[int] = (),
    attention: Attention | str | None = None,
    kernel: str | None = None,
    follows_full: bool = False,
    report: Callable[[Progress], object] = lambda doing: None,
) -> Run:
    """Decode every lane of every request; return one outcome or failure for each lane, in their order.

    A context is fed once, in chunks of `prefill_chunk` tokens (None: one chunk), and not again for the requests right
    after it that have the same one. Each lane keeps the slots that its policy selects, then reads the query and its new
    tokens at their absolute positions. At most `max_concurrent` lanes decode at once (None: as many as fit in half of
    the free memory). A lane that stops is replaced by the next one in the order of the requests; a prompt is fed when
    its first lane is admitted. The batch composition is therefore a function of the arguments alone. In another batch
    composition a lane computes the same values up to the rounding of the dtype, and draws the same noise. `attention`
    is a registered name, None for the default of `attention.kernels.choose_attention`, or an Attention. With the kernel
    "native" no value of a lane depends on the batch composition; None and "eager" are the network's own forward.

    No eviction occurs before `first_event` new tokens have been fed: with 1 the first token of the answer is
    chosen over the whole query, with 0 the query may be evicted from before it. The eviction after the
    context is not affected. After a lane has fed a token of `marks`, its thinking is over: no more evictions
    occur, and it gets room for all tokens that it may still generate. Above temperature 0, `top_p` restricts
    the tokens to the `sampling.nucleus`. Logits without a finite maximum, and non-finite keys or values of a
    context, fail their lanes at every policy and temperature. `report` receives the progress before every
    prompt, after the last prompt that was admitted, and after every step.

    follows_full: a lane is fed the tokens of the lane of the full cache of its request and seed, and its
    `divergences` say how its own choices differ. All lanes decode at once then.

    Raises BadInput for no requests, an empty context, no lanes, a count below one, a negative temperature or
    first event, a top_p outside (0, 1], a budget that does not fit its policy (a number is needed if it
    evicts, None if it never does), an interval for a policy whose signals cannot be measured while decoding,
    a policy that needs missing statistics of the model, or an output projection or a rotary embedding that
    the model lacks, a state that the model or a press cannot store, positions beyond the model's maximum for
    an extra prompt of a policy, and a model that cannot be evicted from (`layers.unsupported`).
    """
    check_model(model)
    if kernel not in (None, "eager", "native"):
        raise BadInput(f'kernel: {kernel!r} given; write "eager" or "native"')
    if kernel == "native":
        for lane in (lane for request in requests for lane in request.lanes):
            refuse_native(model.name, model.network.config, lane.policy, f"lane {lane.key}")
    check_requests(model, requests, max_new_tokens, temperature, top_p, max_concurrent, prefill_chunk, first_event)
    storage_formats = build_storage_formats(model, requests)
    if follows_full:
        refuse_without_leader(requests)
        max_concurrent = sum(len(request.lanes) for request in requests)
    if max_concurrent is None:
        max_concurrent = max_concurrent_for(model.network, requests, max_new_tokens, first_event, marks)
    requests = [request._replace() for request in requests]  # a request that occurs twice becomes two
    outcomes: list[list[Outcome | LaneFailure | None]] = [[None] * len(request.lanes) for request in requests]
    seconds = [0.0] * len(requests)
    request_index = {id(request): index for index, request in enumerate(requests)}
    n_ended, lanes = 0, sum(len(request.lanes) for request in requests)

    def record_outcome(row: BatchRow, outcome: Outcome | LaneFailure) -> None:
        nonlocal n_ended
        n_ended += 1
        outcomes[request_index[id(row.request)]][row.number] = outcome

    start = perf_counter()
    if not isinstance(attention, Attention):
        attention = choose_attention(model.network, attention)
    native = None
    if kernel == "native":
        native = NativeNetwork(model.network, max(request.prompt.tokens for request in requests) + max_new_tokens)
    batch = Batch(
        model,
        max_new_tokens,
        temperature,
        top_p,
        first_event,
        frozenset(marks),
        storage_formats,
        record_outcome,
        attention,
        native,
        follows_full=follows_full,
    )
    forked, fed_context, n_prefilled = None, None, 0
    with observe_forward(model.network, observed_layers(model, requests)), torch.no_grad():
        while True:
            n_before = n_prefilled
            while len(batch.rows) < max_concurrent and (forked is not None or n_prefilled < len(requests)):
                if forked is None:
                    report(Progress("prefilling", n_ended, lanes, batch.forwards))
                    forked = fork_lanes(
                        model,
                        requests[n_prefilled],
                        prefill_chunk,
                        storage_formats,
                        native=native,
                        previous=fed_context,
                    )
                    has_same_next = n_prefilled + 1 < len(requests) and (
                        requests[n_prefilled + 1].prompt.context == requests[n_prefilled].prompt.context
                    )
                    fed_context = forked.fed_context if has_same_next else None
                    forked = forked._replace(fed_context=None)  # else its signals would outlive its last lane
                    seconds[n_prefilled] = forked.seconds
                    for index, failure in forked.failures.items():
                        outcomes[n_prefilled][index] = failure
                        n_ended += 1
                    n_prefilled += 1
                admit_waiting(batch, forked, max_concurrent)
                if not forked.waiting:
                    forked = None  # frees the keys and values before the lanes decode
            if not batch.rows:
                break
            if n_prefilled > n_before:
                report(Progress("prefilled", n_ended, lanes, batch.forwards))
            batch.step()
            report(Progress("decoding", n_ended, lanes, batch.forwards))
    answers = (
        Answers(tuple(outcome for outcome in lane_outcomes if outcome is not None), prefill_seconds)
        for lane_outcomes, prefill_seconds in zip(outcomes, seconds, strict=True)
    )
    elapsed = perf_counter() - start
    return Run(tuple(answers), max_concurrent, batch.forwards, batch.peak_bytes, batch.event_seconds, elapsed)


def admit_waiting(batch: Batch, forked: ForkedRequest, max_concurrent: int) -> None:
    """Move waiting lanes of one problem to the free places of the batch."""
    free = max_concurrent - len(batch.rows)
    lanes = [forked.waiting.popleft() for _ in range(min(free, len(forked.waiting)))]
    if lanes:
        batch.join(forked, lanes)


def check_requests(
    model: Model,
    requests: Sequence[Request],
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    max_concurrent: int | None,
    prefill_chunk: int | None,
    first_event: int,
) -> None:
    if not requests:
        raise BadInput("requests: is empty; give at least one problem")
    if max_new_tokens < 1:
        raise BadInput(f"max_new_tokens: {max_new_tokens} given; at least 1 is needed")
    if not temperature >= 0:
        raise BadInput(f"temperature: {temperature} given; use 0 for the likeliest token, or a larger number to sample")
    if not 0 < top_p <= 1:
        raise BadInput(f"top_p: {top_p} given; write a number above 0 and at most 1 (1 samples from all tokens)")
    if first_event < 0:
        raise BadInput(f"first_event: {first_event} given; use 1 (after the first token), or 0 (right after the query)")
    for name, count in (("max_concurrent", max_concurrent), ("prefill_chunk", prefill_chunk)):
        if count is not None and count < 1:
            raise BadInput(f"{name}: {count} given; at least 1 is needed")
    for request in requests:
        if not request.prompt.context:
            raise BadInput(f"prompt.context of {request.problem}: is empty; give at least one token")
        if not request.lanes:
            raise BadInput(f"lanes of {request.problem}: is empty; give at least one lane")
        for lane in request.lanes:
            check_lane(lane)
            if isinstance(lane.policy, Pressed) and layers_of(model.network.config).window is not None:
                raise BadInput(f"policy of lane {lane.key}: is a press, which {PRESS_REASON}; choose another policy")
            refuse_uncalibrated(model, lane)
            refuse_sinks(model, lane.policy, f"lane {lane.key}")
            check_projection(model, lane.policy)
            check_rotation(model, lane.policy, f"lane {lane.key}")
    tokens = max(request.prompt.tokens for request in requests) + max_new_tokens
    if depends_on_company(model.network, tokens):
        raise BadInput(
            f"model {model.name}: its rotary angles depend on the longest text of a batch, here {tokens} "
            "tokens; shorten the prompts, or choose another model"
        )


def refuse_without_leader(requests: Sequence[Request]) -> None:
    """Raise BadInput for a lane whose request has no lane of the full cache with its seed."""
    for request in requests:
        seeds = {lane.seed for lane in request.lanes if lane.policy.is_full}
        for lane in request.lanes:
            if lane.seed not in seeds:
                raise BadInput(
                    f"lane {lane.key}: is fed the full cache's text, but {request.problem} has no full-cache "
                    "lane; add one"
                )


def refuse_sinks(model: Architecture, policy: Policy, owner: str) -> None:
    """Raise BadInput for a policy that needs attention rows that sum to 1, if the model has attention sinks.

    owner: the arm or lane of the policy.
    """
    blocks: Any = getattr(model.network.base_model, "layers", ())
    evictable_layers = layers_of(model.network.config).evictable if len(blocks) else ()
    if all(getattr(getattr(blocks[layer], "self_attn", None), "sinks", None) is None for layer in evictable_layers):
        return
    parts = (policy.scoring, policy.selection, policy.routing, *policy.needs)
    if unsupported := next((part for part in parts if isinstance(part, NormalisedRows)), None):
        raise BadInput(
            f"policy of {owner}: {type(unsupported).__name__} assumes that attention weights of a query sum "
            f"to 1, but with the attention sinks of model {model.name} they sum to less; choose another "
            "policy or model"
        )


def refuse_native(model: str, config: PreTrainedConfig, policy: Policy, owner: str) -> None:
    """Raise BadInput for a model, or a policy of this arm or lane, that the native kernel does not support."""
    obstacle = obstacle_to_native(config)
    owner = f"model {model}" if obstacle else owner
    if isinstance(policy, Pressed):
        obstacle = obstacle or "a policy of kv-prereg, but this is a press"
    if type(policy.state) is not Verbatim:
        obstacle = (
            obstacle
            or f"slots that are stored as computed and all read, but {type(policy.state).__name__} changes that"
        )
    if obstacle:
        raise BadInput(f'generation.kernel: "native" needs {obstacle} ({owner}); write "eager", or leave kernel out')


def refuse_uncalibrated(model: Model, lane: Lane) -> None:
    for name, kind in ((signal.name, signal.kind) for signal in lane.policy.calibrated):
        if not isinstance(model.statistics.get(name), kind):
            raise BadInput(
                f"statistics of model {model.name}: lane {lane.key} needs {name!r}, which have not been "
                f"measured; run: kv-prereg calibrate {model.name} {name} --task <task>"
            )


def check_lane(lane: Lane) -> None:
    policy = lane.policy
    for signal in policy.needs:
        kinds = (ExtraPromptSignal, AttentionSignal, CacheSignal, Calibrated, FedSignal, HiddenSignal, OutputSignal)
        if not isinstance(signal, kinds):
            raise BadInput(
                f"policy of lane {lane.key}: {type(signal).__name__} is not a signal that the engine can "
                "measure; give it all attributes that policies/contract.py requires of one kind of signal"
            )
    if isinstance(policy.cadence, Episodic) and not isinstance(policy.scoring, EpisodeScoring):
        raise BadInput(
            f"cadence of lane {lane.key}: Episodic scores slots with a prompt for each episode, which "
            f"{type(policy.scoring).__name__} does not support; choose PatchedPrompt, or the cadence Blockwise"
        )
    if policy.evicts == (lane.budget is None):
        fix = "give a number of slots" if policy.evicts else "None is only for a policy that never evicts"
        raise BadInput(f"budget of lane {lane.key}: {lane.budget} given; {fix}")
    if policy.cadence.interval is not None and policy.prefill_only_signals:
        raise BadInput(
            f"interval of lane {lane.key}: {type(policy.prefill_only_signals[0]).__name__} cannot be measured while "
            "decoding; leave the interval out or choose another policy"
        )
    if policy.cadence.in_blocks and policy.prefill_only_signals:
        raise BadInput(
            f"blocks of lane {lane.key}: {type(policy.prefill_only_signals[0]).__name__} cannot be measured "
            "block by block; choose a cadence without blocks or another policy"
        )


def observed_layers(model: Model, requests: Sequence[Request]) -> set[int]:
    """Return the layers whose output some policy reads. Raises BadInput for a layer that does not exist."""
    layers = set[int]()
    for signal in {signal for request in requests for lane in request.lanes for signal in lane.policy.needs}:
        if isinstance(signal, HiddenSignal):
            try:
                layers.update(signal.layers_in(evictable(model.network.config)))
            except ValueError as refusal:
                raise BadInput(f"model {model.name}: {refusal}") from None
    return layers
