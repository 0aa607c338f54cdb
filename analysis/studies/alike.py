"""Whether two judgements of the same records say the same: one that was written down, and today's own.

What records determine has one value, whatever code computes it: words, counts, accuracies, memory. The bounds
of intervals and p depend on how they are computed, which better methods have changed; of another version of
this package they are alike where they decide the same and lie near each other. How a judgement says its grade
and its limits in whole sentences, and what only later versions print, decides nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from analysis.output.headline import SCREENED
from analysis.rules.verdicts import INCONCLUSIVE

__all__ = ["Apart", "Unlike", "plain", "unlike"]

LOW, HIGH = ("low", "low_simultaneous"), ("high", "high_simultaneous")
CHANCES = ("p", "p_bootstrap", "p_t", "p_sign_flip", "p_holm", "p_adjusted")
LABEL, LIMITS = "label", "does_not_prove"  # of the judgement itself, whose sentences may be others
LATER = ("gate", "memory", "rule_says", "uneven")  # that judgements of before there were gates do not have
LIMIT = re.compile(rf"\.{LIMITS}\[[0-9]+\]")
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{6}")
NEAR = 0.5  # of the interval's width; of the studies shipped with this package the farthest is 0.42 away
RATIO = 2.0  # of two p; of those studies the largest is 1.2
SMALL = 1e-4  # two p below it are near each other
LONGEST = 60  # characters of a value that are shown
NOTHING = "nothing"


class Unlike(NamedTuple):
    """A field in which two judgements differ, e.g. contrasts[3].low, and what they say there, to be shown."""

    path: str
    written: str
    here: str

    def __str__(self) -> str:
        return f"{self.path} {self.written}, here {self.here}"


class Apart(NamedTuple):
    """Where two judgements differ."""

    decisive: list[Unlike]  # what cannot be a matter of how it is computed
    computed: list[Unlike]  # bounds and p that are alike enough
    sentences: list[Unlike]
    later: list[Unlike]  # what only today's has

    @property
    def all(self) -> list[Unlike]:
        return [*self.decisive, *self.computed, *self.sentences, *self.later]


class _Pair(NamedTuple):
    """Two values at one place. row: the object of today's judgement that `here` is in."""

    path: str
    name: str
    written: Any
    here: Any
    row: Mapping[str, Any]


def unlike(written: Any, here: Mapping[str, Any]) -> Apart:
    """written: a judgement as it was read, by whomever it was made and of any shape. here: today's own, or
    today's own selection, as JSON gives it back.
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
    """Whether it is the same grade in other words, or other limits of what is proven where both name some."""
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
    """In place of a value where only the other judgement has the field."""


_ABSENT = _Absent()


def _pairs(path: str, name: str, written: Any, here: Any, row: Mapping[str, Any]) -> Iterator[_Pair]:
    """Every place at which the two differ, as deep as both have the same shape."""
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
    """The fields that this judgement need not have: none of one from when there were gates. A gate that was
    registered is none of them; nor is what the rule says, unless SCREENED, which small studies once did not
    have, stands for the word of a rule that decided nothing.
    """
    if not isinstance(written, Mapping) or "gate" in written or here.get("gate") is not None:
        return set()
    undecided = written.get("verdict") == INCONCLUSIVE == here.get("rule_says")
    return set(LATER) if undecided and here["verdict"] == SCREENED else set(LATER) - {"rule_says"}


def _near(pair: _Pair, levels: list[float]) -> bool:
    """Whether both are bounds on the same side of zero, or p on the same side of every level, and near."""
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
    """Of a decimal as judgements write it; None for anything else."""
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
    """Short, and without a character that a terminal would obey."""
    cut = text if len(text) <= most else f"{text[:most]}..."
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)
