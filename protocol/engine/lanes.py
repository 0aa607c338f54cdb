"""What goes into a run of the engine and what comes out of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from transformers import PreTrainedModel

from policies import Policy


class Model(Protocol):
    """The part of a loaded model that the engine uses; the engine never sees text."""

    @property
    def name(self) -> str: ...
    @property
    def network(self) -> PreTrainedModel: ...
    @property
    def stop_ids(self) -> frozenset[int]: ...
    @property
    def sentence_ends(self) -> frozenset[int]: ...


class Prompt(NamedTuple):
    """Slots are evicted after `context`; the tokens of `query`, if any, are fed then and never evicted."""

    context: tuple[int, ...]
    query: tuple[int, ...]


class Lane(NamedTuple):
    """One sequence to decode. budget: slots per KV head per layer, None for a policy that never evicts."""

    key: str
    policy: Policy
    budget: int | None
    seed: int


class Outcome(NamedTuple):
    """What one lane left behind. Slots are summed over layers and KV heads, bytes over its keys and values.

    held, allocated: entry 0 after the event, then one entry after every forward of the lane: the query's, if
        there is one, and one a new token fed (all of them but the last of a lane that stops by length).
    events: (step, slots before, slots after); the event after the context has step 0.
    state_bytes: per-slot memory of the policy, carried while decoding.
    """

    token_ids: tuple[int, ...]  # new tokens, stop token excluded
    stop: str  # "eos" | "length"
    held: tuple[int, ...]
    allocated: tuple[int, ...]
    state_bytes: int
    events: tuple[tuple[int, int, int], ...]


class LaneFailure(NamedTuple):
    """A lane whose policy refused its prompt or its budget; the other lanes go on."""

    reason: str


class Run(NamedTuple):
    """Outcomes in the order of the lanes. Prefill seconds include the signals and the events of all lanes."""

    outcomes: tuple[Outcome | LaneFailure, ...]
    prefill_seconds: float
    decode_seconds: float
