"""Which tokens a lane retained, observed while it decodes; records say only how many slots the cache had."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from policies import Policy, View
from policies.epicache import Episodic
from policies.policy import Event
from policies.watched import watched as watching
from protocol.presses.pressed import Pressed

__all__ = ["Noted", "texts", "unseen", "watched"]

BEFORE = 8  # tokens decoded before a token, since its text may depend on them
UNREAD = "\N{REPLACEMENT CHARACTER}"  # decoded from a part of a character


class Noted(NamedTuple):
    """An eviction: the tokens in the context by then and, for each, the share of (layer, KV head) pairs that
    retain its slot.

    merged: whether evicted slots were merged into others.
    """

    token_ids: tuple[int, ...]
    shares: tuple[float, ...]
    merged: bool


def watched(policy: Policy, notes: list[Noted]) -> Policy:
    """Return the policy wrapped so that each eviction is appended to `notes`; unwrapped if
    `unobservable_reason` gives a reason.
    """

    def note(view: View, budget: int, event: Event) -> None:
        layers, heads, _ = event.kept.shape
        held = view.positions.expand(event.kept.shape)[event.kept]
        counts = torch.bincount(held, minlength=len(view.token_ids)).tolist()
        merging = event.merging
        merged = merging is not None and bool((merging.into.ge(0) & ~event.kept).any())
        shares = tuple(count / (layers * heads) for count in counts)
        notes.append(Noted(tuple(view.token_ids.tolist()), shares, merged))

    return policy if unseen(policy) or not policy.evicts else watching(policy, note)


def unseen(policy: Policy) -> str:
    """Return why evictions of this policy cannot be observed; empty if they can."""
    if isinstance(policy, Pressed):
        return "a press leaves slots without saying of which tokens they are"
    if isinstance(policy.cadence, Episodic):
        return "it fills a cache for each episode, and an event does not say which of them answers"
    return ""


def texts(words: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token, so that joined they are the text of all. A character that several tokens
    make up belongs to the last of them.
    """
    found, start = [], 0
    for at in range(len(token_ids)):
        before = words.decode(token_ids[max(0, start - BEFORE) : start], skip_special_tokens=False)
        whole = words.decode(token_ids[max(0, start - BEFORE) : at + 1], skip_special_tokens=False)
        if whole.endswith(UNREAD) and at + 1 < len(token_ids):
            found.append("")
            continue
        found.append(whole[len(before) :])
        start = at + 1
    return found
