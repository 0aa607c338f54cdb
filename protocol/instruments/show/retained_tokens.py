"""Which tokens a lane retained, observed while it is decoded again; records say only how many slots the cache
had.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from analysis.exploratory import text_difference
from analysis.exploratory.changed_grades import Body
from analysis.exploratory.text_difference import Divergence
from policies import Policy, View
from policies.epicache import Episodic
from policies.observer import observe
from policies.policy import Eviction
from protocol.evidence import records
from protocol.evidence.registration import Registration
from protocol.instruments.show.problem_answers import Piece, RetainedTokens
from protocol.plan.grid import Cell
from protocol.presses.pressed import Pressed
from protocol.recompute import replay
from protocol.run import lane_comparison
from protocol.run.redecode import Decoder

# Fields of a record, and of its `cache`, that must agree if a lane is decoded again.
LANE_FIELDS = ("prompt", "text", "tokens", "stop")
CACHE_FIELDS = ("mean", "peak", "events", "granted")
MERGED_REMARK = "Slots that were not kept were merged into kept ones; a mark shows only the kept slot's own token."
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
    """Return the policy wrapped to append evictions to `notes`; as it is if `unobservable_reason` says why."""

    def append_retention(view: View, budget: int, eviction: Eviction) -> None:
        layers, heads, _ = eviction.retained.shape
        positions = view.positions.expand(eviction.retained.shape)[eviction.retained]
        counts = torch.bincount(positions, minlength=len(view.token_ids)).tolist()
        merging = eviction.merging
        has_merged = merging is not None and bool((merging.targets.ge(0) & ~eviction.retained).any())
        shares = tuple(count / (layers * heads) for count in counts)
        notes.append(Retention(tuple(view.token_ids.tolist()), shares, has_merged))

    return policy if unobservable_reason(policy) or not policy.evicts else observe(policy, append_retention)


def unobservable_reason(policy: Policy) -> str:
    """Return why evictions of this policy cannot be observed; empty if they can."""
    if isinstance(policy, Pressed):
        return "a press does not report which tokens its slots belong to"
    if isinstance(policy.cadence, Episodic):
        return "it fills one cache for each episode, and an event does not record which of them is used for the answer"
    return ""


def decode_tokens(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token, which joined are all of it; a character of several tokens belongs to the last."""
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


def decode_retained(
    study: Registration,
    home: Path,
    lanes: Sequence[Body],
    identity: Path | None,
    event: int | str | None,
    reference_text: str | None,
) -> dict[records.Key, dict[str, Any]]:
    """Decode lanes again and return, for each, `kept` with its retained tokens or `unkept` with a reason.

    event: as in `LaneFilter`. reference_text: the text with which the lanes are compared, if there is one.
    Raises CannotTell if something that decoding needs is missing.
    """
    notes: dict[tuple[Any, ...], list[Retention]] = {}

    def observe_lane(cell: Cell, policy: Policy) -> Policy:
        return record_retention(policy, notes.setdefault(tuple(cell), []))

    decoder = replay.open_decoder(study, home, identity, lanes, observe_lane)
    replay_engine, retained = replay.compare_engine(study), {}
    for body, redecoded in zip(lanes, decoder.decode_batched(lanes), strict=True):
        lane_notes = notes.get(tuple(Cell(**body["cell"])), [])
        parting = (
            None if reference_text is None else text_difference.first_difference(reference_text, redecoded["text"])
        )
        retained[records.body_key(body)] = _retained_at_event(
            decoder, body, redecoded, lane_notes, event, parting, replay_engine
        )
    return retained


def _retained_at_event(
    decoder: Decoder,
    body: Body,
    redecoded: Body,
    notes: Sequence[Retention],
    event: int | str | None,
    parting: Divergence | None,
    replay_engine: replay.Engine,
) -> dict[str, Any]:
    """Return the fields of one lane. parting: where the lane's text diverges from the reference's."""
    cell = body["cell"]
    if reason := unobservable_reason(decoder.designs[body["phase"]].policy(cell["arm"])):
        return {"unkept": reason}
    if redecoded["state"] != "ok" or not notes:
        return {"unkept": f"decoded again, it has no event: {redecoded['reason'] or 'none fired'}"}
    difference = lane_comparison.find_difference(body, redecoded, compare_bytes=False)
    is_same = all(body[name] == redecoded[name] for name in LANE_FIELDS) and all(
        body["cache"][name] == redecoded["cache"][name] for name in CACHE_FIELDS if name in body["cache"]
    )
    context, query = decoder.render_prompt(body)
    prompt, tokenizer = len(context) + len(query), decoder.tokenizer(cell["model"])
    tokens_before = 0
    if isinstance(event, int):
        number = min(event, len(notes))
    elif event is None and parting is not None:
        token_index = _token_index(decode_tokens(tokenizer, notes[-1].token_ids[prompt:]), parting.character)
        tokens_before = sum(len(note.token_ids) - prompt <= token_index for note in notes)
        number = tokens_before or 1  # if there is none, the first, which cannot be the cause
    else:
        number = len(notes)
    note = notes[number - 1]
    token_count = len(note.token_ids)
    answered = decode_tokens(tokenizer, note.token_ids[prompt:])
    texts = decode_tokens(tokenizer, note.token_ids[:prompt]) + answered
    pieces = tuple(Piece(text, share) for text, share in zip(texts, note.shares, strict=True))
    return {
        "kept": RetainedTokens(
            same=is_same,
            said=f"{_replay_text(difference, is_same=is_same)}; {replay_engine}",
            event=number,
            events=len(notes),
            step=max(0, token_count - prompt),
            before=tokens_before > 0,
            pieces=pieces,
            prompt=min(prompt, token_count),
            after=redecoded["text"][len("".join(answered)) :],
            remark=MERGED_REMARK if note.merged else "",
        )
    }


def _token_index(texts: Sequence[str], character: int) -> int:
    """Return how many tokens end before the one that contains a character, or that follows all of these."""
    ends = itertools.accumulate(map(len, texts))
    return sum(end <= character for end in ends)


def _replay_text(difference: lane_comparison.Difference | None, *, is_same: bool) -> str:
    if not is_same:
        return (
            f"decoded again, it DIFFERS from the recorded lane, so these are the tokens that it kept now ({difference})"
        )
    difference_text = "" if difference is None else f" ({difference})"
    return f"decoded again with the same result: text, slots and events are those of the record{difference_text}"
