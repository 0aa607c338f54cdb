"""What goes into a run of the engine and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from policies import Mark, Policy

if TYPE_CHECKING:  # its modules take seconds to import, and registering needs none of them
    from transformers import PreTrainedModel


class Architecture(Protocol):
    """What is known of a model without its weights."""

    @property
    def name(self) -> str: ...
    @property
    def network(self) -> PreTrainedModel: ...


class Model(Architecture, Protocol):
    """The part of a loaded model that the engine uses; the engine never sees text."""

    @property
    def stop_ids(self) -> frozenset[int]: ...
    @property
    def sentence_ends(self) -> frozenset[int]: ...
    @property
    def statistics(self) -> Mapping[str, Any]:
        """What was calibrated, by name."""
        ...

    def lines(self, token_ids: Sequence[int], mark: Mark) -> tuple[range, ...]:
        """The tokens of every stretch of this text that is marked so, oldest first; asked of an answer where
        a policy looks for marks, and of nothing else.
        """
        ...


FIRST_EVENT = 1
"""New tokens fed before which no event fires, unless a number is given: the answer has begun by then."""


class Prompt(NamedTuple):
    """The first event comes after `context`; the tokens of `query`, if any, are fed then.

    A policy without events while decoding never evicts the query; one with such events treats its slots
    like all others, from `first_event` on. The last `written` tokens, of the query and the context before it,
    are the answer's, and to a policy not the prompt's: a text goes on where it was cut. Steps count from the
    cut.
    """

    context: tuple[int, ...]
    query: tuple[int, ...]
    written: int = 0

    @property
    def tokens(self) -> int:
        """All that is fed before the first new token."""
        return len(self.context) + len(self.query)

    @property
    def asked(self) -> int:
        """Tokens of the prompt, to policies."""
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


class Outcome(NamedTuple):
    """What one lane left behind. Slots are summed over layers of full attention and KV heads, bytes over the
    keys and values of all layers.

    held, allocated: entry 0 after the event, then one entry after every forward of the lane: the query's, if
        there is one, and one a new token fed (all of them but the last of a lane that stops by length); an
        event after a forward is counted in its entry.
    state_bytes: the most that its policy's memory took, beside the slots.
    events: (step, slots before, slots after); the event after the context has step 0, a later one the number
        of new tokens fed.
    granted: slots per KV head and layer that the cadence let each of these events leave.
    joined: forwards of the batch before the lane's first, so that who decoded beside whom can be told.
    window_bytes: of each entry of `allocated`, what the sliding layers take: the same with every policy.
    seconds: from joining the batch to leaving it, on the clock, in company.
    """

    token_ids: tuple[int, ...]  # new tokens, stop token excluded
    stop: str  # "eos" | "length"
    held: tuple[int, ...]
    allocated: tuple[int, ...]
    state_bytes: int
    events: tuple[tuple[int, int, int], ...]
    granted: tuple[int, ...]
    joined: int
    window_bytes: int
    seconds: float


class LaneFailure(NamedTuple):
    """A lane whose policy refused its prompt or its budget, or whose model computed what is not finite; the
    other lanes go on.
    """

    reason: str


class Doing(NamedTuple):
    """What a run does now, for whoever watches. "prefilled": the free places were given away. done: lanes
    that have ended. steps: forwards of the batch.
    """

    what: Literal["prefilling", "prefilled", "decoding"]
    done: int
    lanes: int
    steps: int


class Answers(NamedTuple):
    """What became of one request. Outcomes are in the order of its lanes.

    prefill_seconds: the forward of the context with all signals, and the first event of every lane.
    """

    outcomes: tuple[Outcome | LaneFailure, ...]
    prefill_seconds: float


class Run(NamedTuple):
    """Answers in the order of the requests, and what all lanes shared.

    max_concurrent: lanes that could decode at once. forwards: of the batch. peak_bytes: the most that the
    slot cache took, for all lanes and the places that were free. event_seconds: spent on events after the
    first of each lane, and on looking for them. seconds: of everything.
    """

    answers: tuple[Answers, ...]
    max_concurrent: int
    forwards: int
    peak_bytes: int
    event_seconds: float
    seconds: float
