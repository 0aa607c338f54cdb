"""The family rule: a family of interventions is closed when every attempt in it has failed, and not before.

The rule is the paper's (section 3.2, family-level bundling). The definition of a failed attempt is ours, and
stricter than its "Killed", which a gate that is not better gets too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from analysis.hypotheses.policy_hypotheses import (
    FAMILY_OF_COMPONENT,
    ROOT,
    family_of,
    gate_comparators,
    list_ancestors,
    list_gates,
)
from analysis.hypotheses.study_outcomes import FEW, SLOTS, PolicyRecord, canonical_name

SURVIVED, FAILED, UNDECIDED, NOT_TESTED = "survived", "failed", "undecided", "not tested"
OPEN, CLOSED = "open", "closed"
STATE = "state"


class Family(NamedTuple):
    name: str
    status: str
    """Open, closed, or not tested: no registered contrast compares an attempt with `1d` or its ancestors."""
    attempts: Mapping[str, str]
    """Gate -> its verdict."""


def judge_gate(name: str, records: Iterable[PolicyRecord]) -> str:
    """Return the verdict on a gate, by its registered contrasts with the policies that it starts from.

    It failed if a study that decides (its rule confirmed or refuted) has two models or more and 200 problems
    in every contrast, and on each model it is worse in some cell and better in none. It survived if it is
    better in some and worse in none. If studies disagree, and in all other cases, it is undecided.
    """
    related = list(_related_records(name, records))
    if not related:
        return NOT_TESTED
    verdicts = {_judge_in_study(name, record) for record in related} - {UNDECIDED}
    return verdicts.pop() if len(verdicts) == 1 else UNDECIDED


def uninformative_reasons(name: str, records: Iterable[PolicyRecord]) -> list[str]:
    """Return why no study that compared a gate says anything about it; empty if one may."""
    reasons = [exclusion_reason(name, record) for record in _related_records(name, records)]
    return list(dict.fromkeys(reasons)) if all(reasons) else []


def judge_gates(records: Sequence[PolicyRecord]) -> dict[str, str]:
    """Return the verdict on every gate."""
    return {name: judge_gate(name, records) for name in list_gates()}


def failure_modes(name: str, records: Iterable[PolicyRecord]) -> list[str]:
    """Return the failure modes of the studies in which a gate failed; empty unless it failed."""
    related = list(_related_records(name, records))
    if judge_gate(name, related) != FAILED:
        return []
    failing = [record for record in related if _judge_in_study(name, record) == FAILED]
    return list(dict.fromkeys(mode for record in failing for mode in record.modes))


def judge_families(records: Sequence[PolicyRecord]) -> list[Family]:
    verdicts = judge_gates(records)
    return [_judge_family(name, verdicts) for name in dict.fromkeys(FAMILY_OF_COMPONENT.values())]


def _judge_family(name: str, verdicts: Mapping[str, str]) -> Family:
    attempts = {gate: verdict for gate, verdict in verdicts.items() if family_of(gate) == name}
    distinct = set(attempts.values())
    status = CLOSED if distinct == {FAILED} else NOT_TESTED if distinct <= {NOT_TESTED} else OPEN
    return Family(name, status, attempts)


def _related_records(name: str, records: Iterable[PolicyRecord]) -> Iterator[PolicyRecord]:
    """Yield the records of the gate in studies that compare it with `1d` or another ancestor."""
    kin = {ROOT, *map(canonical_name, list_ancestors(name))}
    for record in records:
        if record.policy == canonical_name(name) and any(comparison.policy in kin for comparison in record.comparisons):
            yield record


def exclusion_reason(name: str, record: PolicyRecord) -> str:
    """Return why a study says nothing about a gate that it compared; empty if it may.

    A comparator that differs from the gate in more than its own component, or other settings, make another
    experiment. So does an arm that retained the same slots as its ancestor. A state is to free memory, so
    that a comparison at equal slots does not test it.
    """
    if record.changed:
        return "run with other settings"
    if not {comparison.policy for comparison in record.comparisons} & set(map(canonical_name, gate_comparators(name))):
        return "compared only with policies that differ in more than its component"
    if set(record.alike) & {ROOT, *map(canonical_name, list_ancestors(name))}:
        return "kept the same slots as its parent or an ancestor"
    if family_of(name) == STATE and record.study.memory == SLOTS:
        return "compared at equal slots, not bytes"
    return ""


def _judge_in_study(name: str, record: PolicyRecord) -> str:
    if not record.study.decides or exclusion_reason(name, record):
        return UNDECIDED
    parents = set(map(canonical_name, gate_comparators(name)))
    against = [comparison for comparison in record.comparisons if comparison.policy in parents]
    models = {model for comparison in against for model in comparison.models}
    better = {model for comparison in against for model in comparison.better}
    worse = {model for comparison in against for model in comparison.worse}
    if len(models) < 2 or min(comparison.problems[0] for comparison in against) < FEW:
        return UNDECIDED
    if worse == models and not better:
        return FAILED
    return SURVIVED if better and not worse else UNDECIDED
