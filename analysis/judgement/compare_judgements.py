"""Compare two judgements of the same records: a stored one and the one that today's code computes.

Words, counts, accuracies and memory are determined by the records, whatever code computes them. Interval ends
and p depend on the method, which later versions improved; values from another version of this package agree
if they decide the same and are close. The wording of the grade and of the limits, and fields that only later
versions have, decide nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from analysis.rules.verdict_line import SCREENED
from analysis.rules.verdicts import INCONCLUSIVE

LOW, HIGH = ("low", "low_simultaneous"), ("high", "high_simultaneous")
P_FIELDS = ("p", "p_bootstrap", "p_t", "p_sign_flip", "p_holm", "p_adjusted")
LABEL, LIMITS = "label", "does_not_prove"  # top-level fields whose wording may differ
LATER_FIELDS = ("gate", "memory", "rule_says", "uneven")  # fields that judgements from before gates existed lack
LIMIT_PATH = re.compile(rf"\.{LIMITS}\[[0-9]+\]")
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{6}")
MAX_WIDTH_SHARE = 0.5  # share of the interval's width; the maximum among the shipped studies is 0.42
MAX_P_RATIO = 2.0  # ratio of two p; the maximum among the shipped studies is 1.2
MIN_P = 1e-4  # two p below this count as close
MAX_CHARACTERS = 60  # characters of a value to print
NOTHING = "nothing"


class FieldDifference(NamedTuple):
    """A field in which two judgements differ, e.g. contrasts[3].low, with both values, safe to print."""

    path: str
    written: str
    recomputed: str

    def __str__(self) -> str:
        return f"{self.path} {self.written}, here {self.recomputed}"


class JudgementDifferences(NamedTuple):
    """The differences between two judgements."""

    decisive: list[FieldDifference]  # cannot be explained by another method of computation
    computed: list[FieldDifference]  # interval ends and p that are close enough
    sentences: list[FieldDifference]
    later: list[FieldDifference]  # fields that only today's judgement has

    @property
    def all(self) -> list[FieldDifference]:
        return [*self.decisive, *self.computed, *self.sentences, *self.later]


class _Pair(NamedTuple):
    """Two values of one field. row: the object of today's judgement that contains `recomputed`."""

    path: str
    name: str
    written: Any
    recomputed: Any
    row: Mapping[str, Any]


def find_differences(written: Any, recomputed: Mapping[str, Any]) -> JudgementDifferences:
    """Return the differences between two judgements. written: a parsed judgement, untrusted and of any
    shape. recomputed: today's judgement or selection, after a round trip through JSON.
    """
    differences = JudgementDifferences([], [], [], [])
    levels = [
        level for name in ("alpha", "corrected_alpha") if (level := _parse_decimal(recomputed.get(name))) is not None
    ]
    later_fields = _later_fields(written, recomputed)
    for pair in _differing_pairs("", "", written, recomputed, {}):
        difference = FieldDifference(
            shorten_printable(pair.path.lstrip(".")) or "all of it",
            _format_value(pair.written),
            _format_value(pair.recomputed),
        )
        if pair.path == ".verdict" and "rule_says" in later_fields:
            differences.later.append(difference)
        elif _is_rewording(pair):
            differences.sentences.append(difference)
        elif pair.written is _ABSENT and pair.name in later_fields:
            differences.later.append(difference)
        elif _is_close(pair, levels):
            differences.computed.append(difference)
        else:
            differences.decisive.append(difference)
    return differences


def _is_rewording(pair: _Pair) -> bool:
    """Return whether the values are one grade, or non-empty limits, in different words."""
    if pair.path == f".{LABEL}":
        are_texts = isinstance(pair.written, str) and isinstance(pair.recomputed, str)
        return are_texts and pair.written.split()[:1] == pair.recomputed.split()[:1]
    if pair.path == f".{LIMITS}":
        are_lists = isinstance(pair.written, list) and isinstance(pair.recomputed, list)
        return are_lists and all(map(_is_sentence, pair.written)) and bool(pair.written or not pair.recomputed)
    return bool(LIMIT_PATH.fullmatch(pair.path)) and isinstance(pair.recomputed, str) and _is_sentence(pair.written)


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


class _Absent:
    """Stands for a missing value if only the other judgement has the field."""


_ABSENT = _Absent()


def _differing_pairs(path: str, name: str, written: Any, recomputed: Any, row: Mapping[str, Any]) -> Iterator[_Pair]:
    """Yield every field in which the two differ, as deep as their shapes agree."""
    if isinstance(written, Mapping) and isinstance(recomputed, Mapping):
        for key in sorted({*written, *recomputed}):
            left, right = written.get(key, _ABSENT), recomputed.get(key, _ABSENT)
            yield from _differing_pairs(f"{path}.{key}", key, left, right, recomputed)
    elif isinstance(written, list) and isinstance(recomputed, list) and len(written) == len(recomputed):
        for position, (left, right) in enumerate(zip(written, recomputed, strict=True)):
            yield from _differing_pairs(f"{path}[{position}]", name, left, right, row)
    elif type(written) is not type(recomputed) or written != recomputed:
        yield _Pair(path, name, written, recomputed, row)


def _later_fields(written: Any, recomputed: Mapping[str, Any]) -> set[str]:
    """Return the fields that the stored judgement may lack: none if it has a gate, or if a gate is
    registered. `rule_says` is among them only if today's verdict is SCREENED, which small studies did not
    have earlier, and the rule decided nothing.
    """
    if not isinstance(written, Mapping) or "gate" in written or recomputed.get("gate") is not None:
        return set()
    undecided = written.get("verdict") == INCONCLUSIVE == recomputed.get("rule_says")
    return set(LATER_FIELDS) if undecided and recomputed["verdict"] == SCREENED else set(LATER_FIELDS) - {"rule_says"}


def _is_close(pair: _Pair, levels: list[float]) -> bool:
    """Return whether both are close: ends on one side of zero, or p on one side of every level."""
    left, right = _parse_decimal(pair.written), _parse_decimal(pair.recomputed)
    if left is None or right is None:
        return False
    if pair.name in P_FIELDS:
        small, large = sorted((max(left, MIN_P), max(right, MIN_P)))
        return large <= MAX_P_RATIO * small and all((left <= level) == (right <= level) for level in levels)
    if pair.name not in (*LOW, *HIGH):
        return False
    suffix = pair.name.removeprefix("low").removeprefix("high")
    low, high = (_parse_decimal(pair.row.get(f"{end}{suffix}")) for end in ("low", "high"))
    if low is None or high is None:
        return False
    has_same_sign = (left > 0) == (right > 0) if pair.name in LOW else (left < 0) == (right < 0)
    return has_same_sign and abs(left - right) <= MAX_WIDTH_SHARE * (high - low)


def _parse_decimal(value: Any) -> float | None:
    """Parse a decimal as judgements write it; None for anything else."""
    return float(value) if isinstance(value, str) and DECIMAL.fullmatch(value) else None


def _format_value(value: Any) -> str:
    match value:
        case _Absent():
            return NOTHING
        case list() | Mapping():
            return f"{len(value)} entries"
        case _:
            return shorten_printable(str(value))


def shorten_printable(text: str, most: int = MAX_CHARACTERS) -> str:
    """Shorten text and escape characters that a terminal would interpret."""
    cut = text if len(text) <= most else f"{text[:most]}..."
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in cut)
