"""Compare a redecoded lane with its record: where the two differ, and whether rounding can explain it.

Rounding differs between machines and changes a lane only where it is close to a tie: two tokens, or two
slots, whose scores agree to the last digits. This is tested by decoding with weights perturbed by a few
roundings, each time also in the opposite direction, because a near-tie flips under one of the two signs. A
lane that does not change has no near-tie there.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["Difference", "Settled", "difference", "settle"]

Body = Mapping[str, Any]

FIXED = ("prompt", "prompt_tokens", "slots")  # do not depend on weights
ENDED = ("state", "text", "tokens", "thought", "stop")
HELD = ("mean", "peak", "prefill_end", "state_bytes", "events", "granted")
ALLOCATED = ("mean_bytes", "peak_bytes")  # depends on how the engine rounds up allocations
GRADED = ("answer", "grade", "score", "grade_second", "score_second")
UNTIMED = ("timeout", "error")  # grades that also occur on a busy machine
TOKEN = 16  # characters: two lanes that part at one token may share the beginning of its text
AROUND = 24  # characters shown of a text, from shortly before the position


class Difference(NamedTuple):
    """The first field, by its path in the body, in which two bodies of one lane differ.

    position: number of characters of text that the two lanes share. may_be_rounding: whether rounding can be
    the reason.
    """

    field: str
    recorded: Any
    decoded: Any
    place: int
    rounds: bool

    def __str__(self) -> str:
        if self.field != "text":
            return f"{self.field}: recorded {_shown(self.recorded)}, decoded {_shown(self.decoded)}"
        start = max(0, self.place - AROUND // 4)
        recorded, decoded = (_shown(text[start:]) for text in (self.recorded, self.decoded))
        return f"text: parts at character {self.place}: recorded {recorded}, decoded {decoded}"


class Settled(NamedTuple):
    """same: the lane reproduced its record. shaken: it did so with perturbed weights. edge: it differs where
    perturbed weights differ as well. beyond: rounding does not explain the difference.
    """

    word: Literal["same", "shaken", "edge", "beyond"]
    found: Difference | None = None


def difference(recorded: Body, decoded: Body, *, allocated: bool) -> Difference | None:
    """Return the first difference, or None. compare_bytes: whether to compare allocated bytes, which another
    engine may round differently.
    """
    for name in FIXED:
        if recorded[name] != decoded[name]:
            return Difference(name, recorded[name], decoded[name], 0, rounds=False)
    place = _shared(recorded["text"], decoded["text"]) if recorded["state"] == decoded["state"] else 0
    for name in ENDED:
        if recorded.get(name) != decoded.get(name):
            return Difference(name, recorded.get(name), decoded.get(name), place, rounds=True)
    before, now = recorded["cache"] or {}, decoded["cache"] or {}
    for name in HELD + (ALLOCATED if allocated else ()):
        if name in before and before[name] != now.get(name):
            return Difference(f"cache.{name}", before[name], now.get(name), place, rounds=True)
    if {recorded["grade"], decoded["grade"]}.isdisjoint(UNTIMED):
        for name in GRADED:
            if name in recorded and recorded[name] != decoded.get(name):
                return Difference(name, recorded[name], decoded.get(name), place, rounds=False)
    return None


def settle(recorded: Body, decoded: Body, shaken: Iterable[Body], *, allocated: bool) -> Settled:
    """Classify a redecoded lane. decoded: with the model's weights. perturbed_bodies: with perturbed weights;
    consumed only as far as needed.
    """
    found = difference(recorded, decoded, allocated=allocated)
    if found is None:
        return Settled("same")
    if not found.rounds:
        return Settled("beyond", found)
    moved = False
    for other in shaken:
        if difference(recorded, other, allocated=allocated) is None:
            return Settled("shaken", found)
        parted = difference(decoded, other, allocated=allocated)
        moved |= parted is not None and parted.place <= found.place + TOKEN
    return Settled("edge" if moved else "beyond", found)


def _shared(one: str, other: str) -> int:
    """Count the characters of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _shown(value: Any) -> str:
    """Return a short ASCII form without control characters: the text comes from an untrusted folder."""
    whole = ascii(value)
    return whole if len(whole) <= 2 * AROUND else f"{whole[: 2 * AROUND]}..."
