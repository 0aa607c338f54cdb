"""Which tokens a lane kept, seen while it decodes: records say how many slots were held, and not which."""

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

BEFORE = 8  # tokens that are read before one whose text is asked for: what joins it to them is in the text
UNREAD = "\N{REPLACEMENT CHARACTER}"  # a part of a character


class Noted(NamedTuple):
    """An event: every token seen by then, and of each the share of (layer, KV head) pairs with its slot.

    merged: whether slots that were not kept go on in others.
    """

    token_ids: tuple[int, ...]
    shares: tuple[float, ...]
    merged: bool


def watched(policy: Policy, notes: list[Noted]) -> Policy:
    """The policy with its events added to `notes`; as it is where `unseen` says why."""

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
    """Why its events are not seen; empty where they are."""
    if isinstance(policy, Pressed):
        return "a press leaves slots without saying of which tokens they are"
    if isinstance(policy.cadence, Episodic):
        return "it fills a cache for each episode, and an event does not say which of them answers"
    return ""


def texts(words: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """The text of each token, which together are the text of all of them; of a character that several tokens
    make, the last of these has it.
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
