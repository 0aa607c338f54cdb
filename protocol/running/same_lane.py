"""A lane decoded again, held against its record: where the two part, and whether rounding can part them.

Rounding differs from machine to machine, and moves a lane only where it stands on an edge: two tokens, or two
slots, that score the same to the last digits. Whether it does is tried: the lane is decoded with weights that
are shaken by a few roundings, each time also in the opposite direction, since what lies on an edge falls to
another side under one of the two. A lane that stays where it was had no edge there.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["Difference", "Settled", "difference", "settle"]

Body = Mapping[str, Any]

FIXED = ("prompt", "prompt_tokens", "slots")  # no weight is in them
ENDED = ("state", "text", "tokens", "thought", "stop")
HELD = ("mean", "peak", "prefill_end", "state_bytes", "events", "granted")
ALLOCATED = ("mean_bytes", "peak_bytes")  # how places are rounded up is the engine's own affair
GRADED = ("answer", "grade", "score", "grade_second", "score_second")
UNTIMED = ("timeout", "error")  # grades that a busy machine gives, too
TOKEN = 16  # characters: two lanes that part at one token may share the beginning of its text
AROUND = 24  # characters that are shown of a text, from shortly before the place


class Difference(NamedTuple):
    """The first field, by its path in the body, that two bodies of one lane hold otherwise.

    place: characters of text up to which the two are one lane. rounds: whether rounding can be the reason.
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
    """same: it gave its record. shaken: it did so with shaken weights. edge: it parts from it where shaken
    weights part as well. beyond: no rounding explains the difference.
    """

    word: Literal["same", "shaken", "edge", "beyond"]
    found: Difference | None = None


def difference(recorded: Body, decoded: Body, *, allocated: bool) -> Difference | None:
    """allocated: whether bytes of places are compared, which another engine may round up otherwise."""
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
    """decoded: by the weights as they are. shaken: by shaken ones, asked for only as long as needed."""
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
    """Characters that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _shown(value: Any) -> str:
    """Short, and with no character that a terminal acts on: the text is the folder's."""
    whole = ascii(value)
    return whole if len(whole) <= 2 * AROUND else f"{whole[: 2 * AROUND]}..."
