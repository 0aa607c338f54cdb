"""The input and output types of an engine run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from policies import Mark, Policy

if TYPE_CHECKING:  # takes seconds to import, and registering does not need it
    from transformers import PreTrainedModel


class Architecture(Protocol):
    """What is known about a model without its weights."""

    @property
    def name(self) -> str: ...
    @property
    def network(self) -> PreTrainedModel: ...


class Model(Architecture, Protocol):
    """The part of a loaded model that the engine uses; the engine never handles text."""

    @property
    def stop_ids(self) -> frozenset[int]: ...
    @property
    def sentence_ends(self) -> frozenset[int]: ...
    @property
    def statistics(self) -> Mapping[str, Any]:
        """Calibrated values, by name."""

    def lines(self, token_ids: Sequence[int], mark: Mark) -> tuple[range, ...]:
        """Return the tokens of every marked stretch of this answer, oldest first, where a policy looks for marks."""


FIRST_EVENT = 1
"""The default number of new tokens fed before the first eviction: the answer has begun by then."""


class Prompt(NamedTuple):
    """A prompt. The first eviction follows `context`; the tokens of `query`, if any, are fed after it.

    A policy that does not evict while decoding never evicts the query; one that does treats its slots like all others,
    from `first_event` on. The last `written` tokens, in the query and the context before it, belong to the answer and
    not to the prompt as policies see it: a text continues where it was cut. Steps of an eviction schedule count from
    the cut, those of the noise from the first of the `written` tokens.
    """

    context: tuple[int, ...]
    query: tuple[int, ...]
    written: int = 0

    @property
    def tokens(self) -> int:
        """The number of tokens fed before the first new one."""
        return len(self.context) + len(self.query)

    @property
    def prompt_tokens(self) -> int:
        """The number of prompt tokens as policies see it."""
        return self.tokens - self.written


class Lane(NamedTuple):
    """One sequence to decode. budget: slots per KV head per layer, None for a policy that never evicts."""

    key: str
    policy: Policy
    budget: int | None
    seed: int


class Request(NamedTuple):
    """One problem: a prompt that is fed once, and the lanes that fork from it."""

    problem: str
    prompt: Prompt
    lanes: tuple[Lane, ...]


class Divergence(NamedTuple):
    """How a lane differs at one position of the text of the lane that it follows.

    agrees: whether its own next token, with the noise of that lane, is the token there; two stop tokens are one.
    nats: KL(followed lane || lane) of the next token, at temperature 1, at most `MAX_NATS`.
    """

    agrees: bool
    nats: float


MAX_NATS = 1000.0


class Outcome(NamedTuple):
    """The result of one lane. Slots are summed over layers of full attention and KV heads; bytes are those of
    the keys and values of all layers.

    slots, allocated: entry 0 after the first eviction, then one entry after every forward pass of the lane:
    that of the query, if there is one, and one for each new token fed (all but the last of a lane that stops
    by length). An eviction after a forward pass is counted in its entry.

    state_bytes: the maximum size of its policy's memory, besides the slots.

    events: (step, slots before, slots after); the eviction after the context has step 0, a later one the
    number of new tokens fed.

    granted: slots per KV head and layer that the schedule granted at each of these events.

    joined: forward passes of the batch before the lane's first, so that the batch composition can be derived.

    window_bytes: the part of each entry of `allocated` in sliding layers, equal for every policy.

    seconds: wall time from joining the batch to leaving it, shared with the other lanes.

    reads: slots that some query read, over all forward passes of new tokens, layers of full attention and KV heads, and
    one for the bounds of each page; None where each pass read all slots that the lane held.

    divergences: of a lane that follows another, one for each new token and one for the stop token, if there is one.
    """

    token_ids: tuple[int, ...]  # new tokens, stop token excluded
    stop: str  # "eos" | "length"
    slots: tuple[int, ...]
    allocated: tuple[int, ...]
    state_bytes: int
    events: tuple[tuple[int, int, int], ...]
    granted: tuple[int, ...]
    joined: int
    window_bytes: int
    seconds: float
    reads: int | None = None
    divergences: tuple[Divergence, ...] = ()


class LaneFailure(NamedTuple):
    """A lane whose policy refused its prompt or budget, or whose model computed non-finite values; others continue."""

    reason: str


class Progress(NamedTuple):
    """phase "prefilled": the free places were filled. done: ended lanes. steps: forward passes of the batch."""

    phase: Literal["prefilling", "prefilled", "decoding"]
    done: int
    lanes: int
    steps: int


class Answers(NamedTuple):
    """The outcomes of one request, in the order of its lanes.

    prefill_seconds: the forward pass of the context with all signals, unless the request before it had the same
    context, and the first eviction of every lane.
    """

    outcomes: tuple[Outcome | LaneFailure, ...]
    prefill_seconds: float


class Run(NamedTuple):
    """Answers in the order of the requests, and figures of the whole batch.

    max_concurrent: lanes that could decode at once. forwards: of the batch. peak_bytes: the maximum size of
    the slot cache, for all lanes and free places. event_seconds: spent on evictions after the first of each
    lane, and on checking for them. seconds: of everything.
    """

    answers: tuple[Answers, ...]
    max_concurrent: int
    forwards: int
    peak_bytes: int
    event_seconds: float
    seconds: float
