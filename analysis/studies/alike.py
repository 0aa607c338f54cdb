"""Compare two judgements of the same records: a stored one and the one that today's code computes.

Words, counts, accuracies and memory are determined by the records, whatever code computes them. Interval ends
and p depend on the method, which later versions improved; values from another version of this package agree
if they decide the same and are close. The wording of the grade and of the limits, and fields that only later
versions have, decide nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from analysis.output.headline import SCREENED
from analysis.rules.verdicts import INCONCLUSIVE

__all__ = ["Apart", "Unlike", "plain", "unlike"]

LOW, HIGH = ("low", "low_simultaneous"), ("high", "high_simultaneous")
CHANCES = ("p", "p_bootstrap", "p_t", "p_sign_flip", "p_holm", "p_adjusted")
LABEL, LIMITS = "label", "does_not_prove"  # top-level fields whose wording may differ
LATER = ("gate", "memory", "rule_says", "uneven")  # fields that judgements from before gates existed lack
LIMIT = re.compile(rf"\.{LIMITS}\[[0-9]+\]")
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{6}")
NEAR = 0.5  # share of the interval's width; the maximum among the shipped studies is 0.42
RATIO = 2.0  # ratio of two p; the maximum among the shipped studies is 1.2
SMALL = 1e-4  # two p below this count as close
LONGEST = 60  # characters of a value to print
NOTHING = "nothing"


class Unlike(NamedTuple):
    """A field in which two judgements differ, e.g. contrasts[3].low, with both values, safe to print."""

    path: str
    written: str
    here: str

    def __str__(self) -> str:
        return f"{self.path} {self.written}, here {self.here}"


class Apart(NamedTuple):
    """The differences between two judgements."""

    decisive: list[Unlike]  # cannot be explained by another method of computation
    computed: list[Unlike]  # interval ends and p that are close enough
    sentences: list[Unlike]
    later: list[Unlike]  # fields that only today's judgement has

    @property
    def all(self) -> list[Unlike]:
        return [*self.decisive, *self.computed, *self.sentences, *self.later]


class _Pair(NamedTuple):
    """Two values of one field. row: the object of today's judgement that contains `recomputed`."""

    path: str
    name: str
    written: Any
    here: Any
    row: Mapping[str, Any]


def unlike(written: Any, here: Mapping[str, Any]) -> Apart:
    """Return the differences between two judgements. written: a parsed judgement, untrusted and of any
    shape. recomputed: today's judgement or selection, after a round trip through JSON.
    """
    found = Apart([], [], [], [])
    levels = [
        level for name in ("alpha", "corrected_alpha") if (level := _number(here.get(name))) is not None
    ]
    later = _later(written, here)
    for pair in _pairs("", "", written, here, {}):
        shown = Unlike(plain(pair.path.lstrip(".")) or "all of it", _shown(pair.written), _shown(pair.here))
        if pair.path == ".verdict" and "rule_says" in later:
            found.later.append(shown)
        elif _said(pair):
            found.sentences.append(shown)
        elif pair.written is _ABSENT and pair.name in later:
            found.later.append(shown)
        elif _near(pair, levels):
            found.computed.append(shown)
        else:
            found.decisive.append(shown)
    return found


def _said(pair: _Pair) -> bool:
    """Return whether the values are one grade, or non-empty limits, in different words."""
    if pair.path == f".{LABEL}":
        both = isinstance(pair.written, str) and isinstance(pair.here, str)
        return both and pair.written.split()[:1] == pair.here.split()[:1]
    if pair.path == f".{LIMITS}":
        listed = isinstance(pair.written, list) and isinstance(pair.here, list)
        return listed and all(map(_sentence, pair.written)) and bool(pair.written or not pair.here)
    return bool(LIMIT.fullmatch(pair.path)) and isinstance(pair.here, str) and _sentence(pair.written)


def _sentence(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


class _Absent:
    """Stands for a missing value if only the other judgement has the field."""


_ABSENT = _Absent()


def _pairs(path: str, name: str, written: Any, here: Any, row: Mapping[str, Any]) -> Iterator[_Pair]:
    """Yield every field in which the two differ, as deep as their shapes agree."""
    if isinstance(written, Mapping) and isinstance(here, Mapping):
        for key in sorted({*written, *here}):
            one, other = written.get(key, _ABSENT), here.get(key, _ABSENT)
            yield from _pairs(f"{path}.{key}", key, one, other, here)
    elif isinstance(written, list) and isinstance(here, list) and len(written) == len(here):
        for place, (one, other) in enumerate(zip(written, here, strict=True)):
            yield from _pairs(f"{path}[{place}]", name, one, other, row)
    elif type(written) is not type(here) or written != here:
        yield _Pair(path, name, written, here, row)


def _later(written: Any, here: Mapping[str, Any]) -> set[str]:
    """Return the fields that the stored judgement may lack: none if it has a gate, or if a gate is
    registered. `rule_says` is among them only if today's verdict is SCREENED, which small studies did not
    have earlier, and the rule decided nothing.
    """
    if not isinstance(written, Mapping) or "gate" in written or here.get("gate") is not None:
        return set()
    undecided = written.get("verdict") == INCONCLUSIVE == here.get("rule_says")
    return set(LATER) if undecided and here["verdict"] == SCREENED else set(LATER) - {"rule_says"}


def _near(pair: _Pair, levels: list[float]) -> bool:
    """Return whether both are close: ends on one side of zero, or p on one side of every level."""
    one, other = _number(pair.written), _number(pair.here)
    if one is None or other is None:
        return False
    if pair.name in CHANCES:
        small, large = sorted((max(one, SMALL), max(other, SMALL)))
        return large <= RATIO * small and all((one <= level) == (other <= level) for level in levels)
    if pair.name not in (*LOW, *HIGH):
        return False
    suffix = pair.name.removeprefix("low").removeprefix("high")
    low, high = (_number(pair.row.get(f"{end}{suffix}")) for end in ("low", "high"))
    if low is None or high is None:
        return False
    same = (one > 0) == (other > 0) if pair.name in LOW else (one < 0) == (other < 0)
    return same and abs(one - other) <= NEAR * (high - low)


def _number(value: Any) -> float | None:
    """Parse a decimal as judgements write it; None for anything else."""
    return float(value) if isinstance(value, str) and DECIMAL.fullmatch(value) else None


def _shown(value: Any) -> str:
    match value:
        case _Absent():
            return NOTHING
        case list() | Mapping():
            return f"{len(value)} entries"
        case _:
            return plain(str(value))


def plain(text: str, most: int = LONGEST) -> str:
    """Shorten text and escape characters that a terminal would interpret."""
    cut = text if len(text) <= most else f"{text[:most]}..."
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)
