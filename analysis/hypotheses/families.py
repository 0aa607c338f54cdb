"""The family rule: a family of interventions is closed when every attempt in it has failed, and not before.

The rule is the paper's (section 3.2, family-level bundling). The definition of a failed attempt is ours, and
stricter than its "Killed", which a gate that is not better gets too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from analysis.hypotheses.declared import ROOT, SURFACES, ancestors, gates, held_against, surface
from analysis.hypotheses.outcomes import FEW, SLOTS, Record, canonical

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
    "tells",
    "why",
]

SURVIVED, FAILED, UNDECIDED, NOT_TESTED = "survived", "failed", "undecided", "not tested"
OPEN, CLOSED = "open", "closed"
STATE = "state"


class Family(NamedTuple):
    name: str
    standing: str
    """Open, closed, or not tested: no registered contrast compares an attempt with `1d` or its ancestors."""
    attempts: Mapping[str, str]
    """Gate -> its verdict."""


def fate(name: str, records: Iterable[Record]) -> str:
    """Return the verdict on a gate, by its registered contrasts with the policies that it starts from.

    It failed if a study that decides (its rule confirmed or refuted) has two models or more and 200 problems
    in every contrast, and on each model it is worse in some cell and better in none. It survived if it is
    better in some and worse in none. If studies disagree, and in all other cases, it is undecided.
    """
    own = list(_kindred(name, records))
    if not own:
        return NOT_TESTED
    said = {_in_a_study(name, record) for record in own} - {UNDECIDED}
    return said.pop() if len(said) == 1 else UNDECIDED


def why(name: str, records: Iterable[Record]) -> list[str]:
    """Return why no study that compared a gate says anything about it; empty if one may."""
    reasons = [tells(name, one) for one in _kindred(name, records)]
    return list(dict.fromkeys(reasons)) if all(reasons) else []


def fates(records: Sequence[Record]) -> dict[str, str]:
    """Return the verdict on every gate."""
    return {name: fate(name, records) for name in gates()}


def died_of(name: str, records: Iterable[Record]) -> list[str]:
    """Return the failure modes of the studies in which a gate failed; empty unless it failed."""
    own = list(_kindred(name, records))
    if fate(name, own) != FAILED:
        return []
    where = [one for one in own if _in_a_study(name, one) == FAILED]
    return list(dict.fromkeys(mode for one in where for mode in one.modes))


def families(records: Sequence[Record]) -> list[Family]:
    found = fates(records)
    return [_family(name, found) for name in dict.fromkeys(SURFACES.values())]


def _family(name: str, found: Mapping[str, str]) -> Family:
    attempts = {gate: said for gate, said in found.items() if surface(gate) == name}
    words = set(attempts.values())
    standing = CLOSED if words == {FAILED} else NOT_TESTED if words <= {NOT_TESTED} else OPEN
    return Family(name, standing, attempts)


def _kindred(name: str, records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records of the gate in studies that compare it with `1d` or another ancestor."""
    kin = {ROOT, *map(canonical, ancestors(name))}
    for record in records:
        if record.policy == canonical(name) and any(one.policy in kin for one in record.against):
            yield record


def tells(name: str, record: Record) -> str:
    """Return why a study says nothing about a gate that it compared; empty if it may.

    A comparator that differs from the gate in more than its own component, or other settings, make another
    experiment. So does an arm that retained the same slots as its ancestor. A state is to free memory, so
    that a comparison at equal slots does not test it.
    """
    if record.changed:
        return "run with other settings"
    if not {one.policy for one in record.against} & set(map(canonical, held_against(name))):
        return "compared with what differs in more than its component"
    if set(record.alike) & {ROOT, *map(canonical, ancestors(name))}:
        return "kept the slots of what it starts from"
    if surface(name) == STATE and record.study.memory == SLOTS:
        return "compared at equal slots, not bytes"
    return ""


def _in_a_study(name: str, record: Record) -> str:
    if not record.study.decides or tells(name, record):
        return UNDECIDED
    parents = set(map(canonical, held_against(name)))
    against = [one for one in record.against if one.policy in parents]
    models = {model for one in against for model in one.models}
    better = {model for one in against for model in one.better}
    worse = {model for one in against for model in one.worse}
    if len(models) < 2 or min(one.problems[0] for one in against) < FEW:
        return UNDECIDED
    if worse == models and not better:
        return FAILED
    return SURVIVED if better and not worse else UNDECIDED
