"""Compare a redecoded lane with its record: where the two differ, and whether rounding can explain it.

Rounding differs between machines and changes a lane only where it is close to a tie: two tokens, or two
slots, whose scores agree to the last digits. This is tested by decoding with weights perturbed by a few
roundings, each time also in the opposite direction, because a near-tie flips under one of the two signs. A
lane that does not change has no near-tie there.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

Body = Mapping[str, Any]

PROMPT_FIELDS = ("prompt", "prompt_tokens", "slots")  # do not depend on weights
ANSWER_FIELDS = ("state", "text", "tokens", "thought", "stop")
CACHE_FIELDS = ("mean", "peak", "prefill_end", "state_bytes", "reads", "events", "granted")
BYTE_FIELDS = ("mean_bytes", "peak_bytes")  # depends on how the engine rounds up allocations
GRADE_FIELDS = ("answer", "grade", "score", "grade_second", "score_second")
LOAD_DEPENDENT_GRADES = ("timeout", "error")  # grades that also occur on a busy machine
NATS_TOLERANCE = 1000  # millionths of a nat, at a position: besides a hundredth of what is recorded
TOKEN_CHARACTERS = 16  # characters: two lanes that part at one token may share the beginning of its text
EXCERPT_CHARACTERS = 24  # characters shown of a text, from shortly before the position


class Difference(NamedTuple):
    """The first field, by its path in the body, in which two bodies of one lane differ.

    position: number of characters of text that the two lanes share. may_be_rounding: whether rounding can be
    the reason.
    """

    field: str
    recorded: Any
    decoded: Any
    position: int
    may_be_rounding: bool

    def __str__(self) -> str:
        if self.field != "text":
            return f"{self.field}: recorded {_excerpt(self.recorded)}, decoded {_excerpt(self.decoded)}"
        start = max(0, self.position - EXCERPT_CHARACTERS // 4)
        recorded, decoded = (_excerpt(text[start:]) for text in (self.recorded, self.decoded))
        return f"text: differs from character {self.position} on: recorded {recorded}, decoded {decoded}"


class Classification(NamedTuple):
    """same: the lane reproduced its record. shaken: it did so with perturbed weights. edge: it differs where
    perturbed weights differ as well. beyond: rounding does not explain the difference.
    """

    word: Literal["same", "shaken", "edge", "beyond"]
    difference: Difference | None = None


def find_difference(recorded: Body, decoded: Body, *, compare_bytes: bool) -> Difference | None:
    """Return the first difference, or None. compare_bytes: of allocated bytes, which another engine may round."""
    for name in PROMPT_FIELDS:
        if recorded[name] != decoded[name]:
            return Difference(name, recorded[name], decoded[name], 0, may_be_rounding=False)
    position = _common_prefix_length(recorded["text"], decoded["text"]) if recorded["state"] == decoded["state"] else 0
    for name in ANSWER_FIELDS:
        if recorded.get(name) != decoded.get(name):
            return Difference(name, recorded.get(name), decoded.get(name), position, may_be_rounding=True)
    recorded_cache, decoded_cache = recorded["cache"] or {}, decoded["cache"] or {}
    for name in CACHE_FIELDS + (BYTE_FIELDS if compare_bytes else ()):
        if name in recorded_cache and recorded_cache[name] != decoded_cache.get(name):
            return Difference(
                f"cache.{name}", recorded_cache[name], decoded_cache.get(name), position, may_be_rounding=True
            )
    if (difference := _divergence_difference(recorded, decoded, position)) is not None:
        return difference
    if {recorded["grade"], decoded["grade"]}.isdisjoint(LOAD_DEPENDENT_GRADES):
        for name in GRADE_FIELDS:
            if name in recorded and recorded[name] != decoded.get(name):
                return Difference(name, recorded[name], decoded.get(name), position, may_be_rounding=False)
    return None


def _divergence_difference(recorded: Body, decoded: Body, position: int) -> Difference | None:
    """Return how a lane with the text of its record differs from it otherwise; `position` is the end of the text."""
    before, now = recorded.get("divergence"), decoded.get("divergence")
    if before is None or now is None:
        return None if before is now else Difference("divergence", before, now, position, may_be_rounding=False)
    if before["agrees"] != now["agrees"]:
        return Difference("divergence.agrees", before["agrees"], now["agrees"], position, may_be_rounding=True)
    if any(abs(a - b) > NATS_TOLERANCE + abs(a) // 100 for a, b in zip(before["nats"], now["nats"], strict=False)):
        return Difference("divergence.nats", before["nats"], now["nats"], position, may_be_rounding=True)
    return None


def classify_lane(
    recorded: Body, decoded: Body, perturbed_bodies: Iterable[Body], *, compare_bytes: bool
) -> Classification:
    """Classify a redecoded lane. perturbed_bodies: decoded with perturbed weights; consumed only as far as needed."""
    difference = find_difference(recorded, decoded, compare_bytes=compare_bytes)
    if difference is None:
        return Classification("same")
    if not difference.may_be_rounding:
        return Classification("beyond", difference)
    is_on_edge = False
    for perturbed_body in perturbed_bodies:
        if find_difference(recorded, perturbed_body, compare_bytes=compare_bytes) is None:
            return Classification("shaken", difference)
        noise_difference = find_difference(decoded, perturbed_body, compare_bytes=compare_bytes)
        is_on_edge |= (
            noise_difference is not None and noise_difference.position <= difference.position + TOKEN_CHARACTERS
        )
    return Classification("edge" if is_on_edge else "beyond", difference)


def _common_prefix_length(first: str, second: str) -> int:
    """Count the characters of the common prefix."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _excerpt(value: Any) -> str:
    """Return a short ASCII form without control characters: the text comes from an untrusted folder."""
    text = ascii(value)
    return text if len(text) <= 2 * EXCERPT_CHARACTERS else f"{text[: 2 * EXCERPT_CHARACTERS]}..."
