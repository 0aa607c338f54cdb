"""Which tokens a lane retained, observed while it decodes; records say only how many slots the cache had."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from policies import Policy, View
from policies.epicache import Episodic
from policies.observer import observe as watching
from policies.policy import Eviction
from protocol.presses.pressed import Pressed

__all__ = ["Retention", "decode_tokens", "record_retention", "unobservable_reason"]

CONTEXT_TOKENS = 8  # tokens decoded before a token, since its text may depend on them
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # decoded from a part of a character


class Retention(NamedTuple):
    """An eviction: the tokens in the context by then and, for each, the share of (layer, KV head) pairs that
    retain its slot.

    merged: whether evicted slots were merged into others.
    """

    token_ids: tuple[int, ...]
    shares: tuple[float, ...]
    merged: bool


def record_retention(policy: Policy, notes: list[Retention]) -> Policy:
    """Return the policy wrapped so that each eviction is appended to `notes`; unwrapped if
    `unobservable_reason` gives a reason.
    """

    def append_retention(view: View, budget: int, eviction: Eviction) -> None:
        layers, heads, _ = eviction.retained.shape
        positions = view.positions.expand(eviction.retained.shape)[eviction.retained]
        counts = torch.bincount(positions, minlength=len(view.token_ids)).tolist()
        merging = eviction.merging
        has_merged = merging is not None and bool((merging.targets.ge(0) & ~eviction.retained).any())
        shares = tuple(count / (layers * heads) for count in counts)
        notes.append(Retention(tuple(view.token_ids.tolist()), shares, has_merged))

    return policy if unobservable_reason(policy) or not policy.evicts else watching(policy, append_retention)


def unobservable_reason(policy: Policy) -> str:
    """Return why evictions of this policy cannot be observed; empty if they can."""
    if isinstance(policy, Pressed):
        return "a press leaves slots without saying of which tokens they are"
    if isinstance(policy.cadence, Episodic):
        return "it fills a cache for each episode, and an event does not say which of them answers"
    return ""


def decode_tokens(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token, so that joined they are the text of all. A character that several tokens
    make up belongs to the last of them.
    """
    pieces, start = [], 0
    for index in range(len(token_ids)):
        prefix = tokenizer.decode(token_ids[max(0, start - CONTEXT_TOKENS) : start], skip_special_tokens=False)
        text = tokenizer.decode(token_ids[max(0, start - CONTEXT_TOKENS) : index + 1], skip_special_tokens=False)
        if text.endswith(REPLACEMENT) and index + 1 < len(token_ids):
            pieces.append("")
            continue
        pieces.append(text[len(prefix) :])
        start = index + 1
    return pieces
