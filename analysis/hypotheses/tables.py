"""The catalogue of verdicts as rows of text, for the page in docs and the index of the reports."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from analysis.hypotheses import families, paper
from analysis.hypotheses.declared import DECLARED, gates, surface
from analysis.hypotheses.outcomes import Against, Record, canonical, compared

__all__ = [
    "ATTEMPTS",
    "FAMILIES",
    "METHODS",
    "MODES",
    "QUOTED",
    "REGISTERED",
    "SAID",
    "attempts",
    "families_of",
    "methods",
    "quoted",
    "registered",
    "unjudged",
]

FAMILIES = ("family", "here", "attempts", "failed", "survived", "undecided", "not tested")
ATTEMPTS = (
    "gate",
    "family",
    "starts from",
    "differs in",
    "hypothesis",
    "here",
    "died of",
    "the paper says",
)
METHODS = ("policy", "starts from", "differs in", "hypothesis", "studies that compared it")
REGISTERED = (
    "when",
    "study",
    "policy",
    "as",
    "compared with",
    "memory",
    "cells",
    "better",
    "worse",
    "unmatched",
    "n",
    "models",
    "the study's verdict",
    "failure modes that it shows",
)
QUOTED = ("family", "gate", "hypothesis tested", "verdict", "failure mode", "the policies here")
SAID: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gates": (
            "A gate is a policy that starts from a mode of TriAttention, such as 1d, and is to be better by "
            "one component: state, routing, cadence, decoding or scoring. Scoring is two components here: "
            "scores, and the selection that reads them.",
        ),
        "families": (
            "The rule is the paper's: a family is closed when every attempt in it has failed, since one "
            "failed attempt is not its family's failure. When an attempt has failed is ours, and stricter "
            "than the paper's “Killed”, which a gate that is not better gets, too.",
            "An attempt failed in a registered study that decides (CONFIRMED or REFUTED, and its full cache "
            "passed the gate), with two models or more and 200 problems or more in each contrast, where on "
            "each model it is worse than what it starts from in some cell, and better in none, at matched "
            "memory. It survived where it is better in some cell and worse in none. All else is undecided: a "
            "screening, an uninformative or inconclusive study, a replication of another and a study of one "
            "model close nothing.",
            "What it starts from is its parent, the parent of that and so on, as far as all differ in the "
            "gate's own family alone: static_route and 1d differ in their scores, too. Nor does an arm tell "
            "of an attempt that ran with other settings, that kept the slots of what it starts from or, of a "
            "state, that was compared at equal slots and not bytes. Not tested: the rule of no study "
            "compares it with any of these or 1d; what is compared beside a rule decides nothing.",
        ),
        "attempts": (
            "Here: what became of the gate in the registrations below, and of which failure modes it died. "
            "The last column quotes Table 1 of the paper, and is nothing that was found here.",
        ),
        "registered": (
            "A row for each policy that a registered contrast compares, by the time of the verdict as the "
            "ledger has it. A cell is a contrast: a model, task, budget and comparator. Better and worse are "
            "the policy's of the row, at the level that the rule corrects to, where memory (slots, bytes or, "
            "with the state that a policy keeps, the total) matched or, against the full cache, was saved. "
            "The verdict is the study's, which is about its subject. Files are read and not verified: "
            "`kv-prereg audit` does that.",
        ),
    }
)
"""The explanation of each table."""
MODES = tuple(paper.MODES.items())
MANY = 3  # names in a cell, at most


def families_of(records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each family of intervention, in the paper's order."""
    rows = []
    for family in families.families(records):
        words = list(family.attempts.values())
        said = (families.FAILED, families.SURVIVED, families.UNDECIDED, families.NOT_TESTED)
        rows.append([family.name, family.standing, str(len(words)), *(str(words.count(one)) for one in said)])
    return rows


def attempts(records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each gate."""
    found, rows = families.fates(records), []
    for name in gates():
        row, theirs = DECLARED[name], paper.said(name)
        quoted = "" if theirs is None else f"{theirs.verdict}: {theirs.mode}"
        died = ", ".join(families.died_of(name, records))
        whose = [name, surface(name), row.parent, row.component, row.hypothesis]
        here = ": ".join(filter(None, (found[name], "; ".join(families.why(name, records)))))
        rows.append([*whose, here, died, quoted])
    return rows


def methods(names: Iterable[str], records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each of these policies that is no gate."""
    own, rows = set(gates()), []
    for name in names:
        if name in own:
            continue
        row = DECLARED[name]
        component = row.component or ("nothing" if row.parent else "")
        rows.append(
            [name, row.parent, component, row.hypothesis, ", ".join(_studies(name, records)) or "none"]
        )
    return rows


def registered(records: Iterable[Record]) -> list[list[str]]:
    """Return a row for each policy in each study that compared it, oldest study first."""
    return [_registered(record) for record in compared(records)]


def unjudged(records: Iterable[Record]) -> list[str]:
    """Return a sentence for each registration without a verdict."""
    studies = {record.study for record in records if not record.study.judged}
    return [f"{one.name} ({one.when}): {one.said}." for one in sorted(studies, key=lambda one: one.order)]


def quoted() -> list[list[str]]:
    """Return Table 1 of the paper."""
    return [[*one[:-1], ", ".join(one.ours)] for one in paper.SAID]


def _registered(record: Record) -> list[str]:
    sizes = [size for one in record.against for size in one.problems]
    models = dict.fromkeys(model for one in record.against for model in one.models)
    counts = (_count(record.against, name) for name in ("cells", "better", "worse", "unmatched"))
    return [
        record.study.when,
        record.study.name,
        record.arm or record.policy,
        record.role,
        _names([one.policy for one in record.against]),
        record.study.memory,
        *counts,
        str(min(sizes)) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}",
        ", ".join(models),
        record.study.said,
        "; ".join(record.notes),
    ]


def _count(against: Iterable[Against], name: str) -> str:
    counts = (getattr(one, name) for one in against)
    return str(sum(one if isinstance(one, int) else len(one) for one in counts))


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= MANY else f"{len(names)} policies"


def _studies(name: str, records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(one.study.name for one in compared(records) if one.policy == canonical(name)))
