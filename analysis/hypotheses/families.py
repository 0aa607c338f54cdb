"""The family rule: a family of interventions is closed when every attempt in it has failed, and not before.

That rule is the paper's (section 3.2, family-level bundling). When an attempt has failed is ours, and
stricter than its "Killed", which a gate that is not better gets too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.hypotheses.declared import ROOT, SURFACES, ancestors, gates, surface
from analysis.hypotheses.outcomes import FEW, Against, Record, canonical

__all__ = [
    "CLOSED",
    "FAILED",
    "NOT_TESTED",
    "OPEN",
    "SURVIVED",
    "UNDECIDED",
    "Family",
    "died_of",
    "families",
    "fate",
    "fates",
]

SURVIVED, FAILED, UNDECIDED, NOT_TESTED = "survived", "failed", "undecided", "not tested"
OPEN, CLOSED = "open", "closed"


class Family(NamedTuple):
    name: str
    standing: str
    """Open, closed, or not tested: no registered contrast compares an attempt with `1d` or its parents."""
    attempts: Mapping[str, str]
    """Gate -> its fate."""


def fate(name: str, records: Iterable[Record]) -> str:
    """What became of a gate, by its registered contrasts with `1d` and the policies that it starts from.

    It failed in a study that decides (its rule confirmed or refuted), has two models or more and 200 problems
    in every contrast, where on each model it is worse in some cell and better in none. It survived where it
    is better in some and worse in none. Where studies disagree, and everywhere else, it is undecided.
    """
    parents = {ROOT, *map(canonical, ancestors(name))}
    own = [record for record in records if record.policy == canonical(name)]
    told = [[one for one in record.against if one.policy in parents] for record in own]
    if not any(told):
        return NOT_TESTED
    said = {
        _in_a_study(against) if record.study.decides else UNDECIDED
        for record, against in zip(own, told, strict=True)
        if against
    } - {UNDECIDED}
    return said.pop() if len(said) == 1 else UNDECIDED


def fates(records: Sequence[Record]) -> dict[str, str]:
    """Of every gate."""
    return {name: fate(name, records) for name in gates()}


def died_of(name: str, records: Iterable[Record]) -> list[str]:
    """The failure modes that deciding studies show of a gate; nothing unless it failed."""
    own = [record for record in records if record.policy == canonical(name)]
    if fate(name, own) != FAILED:
        return []
    return list(dict.fromkeys(mode for one in own if one.study.decides for mode in one.modes))


def families(records: Sequence[Record]) -> list[Family]:
    found = fates(records)
    return [_family(name, found) for name in dict.fromkeys(SURFACES.values())]


def _family(name: str, found: Mapping[str, str]) -> Family:
    attempts = {gate: said for gate, said in found.items() if surface(gate) == name}
    words = set(attempts.values())
    standing = CLOSED if words == {FAILED} else NOT_TESTED if words <= {NOT_TESTED} else OPEN
    return Family(name, standing, attempts)


def _in_a_study(against: Sequence[Against]) -> str:
    models = {model for one in against for model in one.models}
    better = {model for one in against for model in one.better}
    worse = {model for one in against for model in one.worse}
    if len(models) < 2 or min(one.problems[0] for one in against) < FEW:
        return UNDECIDED
    if worse == models and not better:
        return FAILED
    return SURVIVED if better and not worse else UNDECIDED
