"""The catalogue of verdicts as rows of text, for the page in docs and the index of the reports."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from analysis.hypotheses import families, paper_table
from analysis.hypotheses.policy_hypotheses import HYPOTHESES, family_of, list_gates
from analysis.hypotheses.study_outcomes import Comparison, PolicyRecord, canonical_name, select_compared

FAMILIES = ("family", "here", "attempts", "failed", "survived", "undecided", "not tested")
ATTEMPTS = ("gate", "family", "starts from", "differs in", "hypothesis", "here", "died of", "the paper says")
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
EXPLANATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gates": (
            (
                "A gate is a policy that starts from a mode of TriAttention, such as 1d, and tries to improve "
                "on it in one component: state, routing, cadence, decoding or scoring. Scoring is split into "
                "two components here: scores, and the selection that uses them."
            ),
        ),
        "families": (
            (
                "As in the paper, a family is closed when every attempt in it has failed, because one failed "
                "attempt does not refute the family. Our criterion for a failed attempt is stricter than the "
                "paper's “Killed”, which also covers gates that are merely not better."
            ),
            (
                "An attempt has failed if a registered study with a decision (CONFIRMED or REFUTED, and the "
                "full cache passed its gate) has at least two models and at least 200 problems per contrast, "
                "and if on each model the attempt is worse than its starting point in some cell and better in "
                "none, at matched memory. It has survived if it is better in some cell and worse in none. "
                "Everything else is undecided: screenings, uninformative or inconclusive studies, replications "
                "of another study and studies of one model close nothing."
            ),
            (
                "The starting point of a gate is its parent, the parent's parent and so on, as long as they "
                "all differ only in the family of the gate: static_route and 1d, for example, also differ in "
                "their scores. An arm says nothing about an attempt if it ran with other settings, if it kept "
                "the same slots as its starting point, or if it tests a state and was compared at equal slots "
                "instead of bytes. Not tested: no study's rule compares the gate with any of its starting "
                "points or with 1d; a comparison outside the rule decides nothing."
            ),
        ),
        "attempts": (
            (
                "The column “here” says what became of the gate in the registrations below, and “died of” "
                "names its failure modes. The last column quotes Table 1 of the paper; it is not a result of "
                "this project."
            ),
        ),
        "registered": (
            (
                "One row for each policy that a registered contrast compares, sorted by the time of the "
                "verdict in the ledger. A cell is a contrast: a model, task, budget and comparator. Better and "
                "worse refer to the policy of the row, at the corrected level of the rule. Both count only "
                "where memory matched (slots, bytes, or the total with the state that a policy keeps) or, "
                "against the full cache, was saved. The verdict is that of the study and concerns its subject. "
                "The files are read but not verified: `kv-prereg audit` verifies them."
            ),
        ),
    }
)
"""The explanation of each table."""
MODES = tuple(paper_table.FAILURE_MODES.items())
MAX_NAMES = 3  # names in a cell, at most


def family_rows(records: Sequence[PolicyRecord]) -> list[list[str]]:
    """Return a row for each family of intervention, in the paper's order."""
    rows = []
    for family in families.judge_families(records):
        verdicts = list(family.attempts.values())
        order = (families.FAILED, families.SURVIVED, families.UNDECIDED, families.NOT_TESTED)
        rows.append(
            [family.name, family.status, str(len(verdicts)), *(str(verdicts.count(verdict)) for verdict in order)]
        )
    return rows


def attempt_rows(records: Sequence[PolicyRecord]) -> list[list[str]]:
    """Return a row for each gate."""
    verdicts, rows = families.judge_gates(records), []
    for name in list_gates():
        row, paper_gate = HYPOTHESES[name], paper_table.quoted_gate(name)
        quoted = "" if paper_gate is None else f"{paper_gate.verdict}: {paper_gate.mode}"
        modes = ", ".join(families.failure_modes(name, records))
        cells = [name, family_of(name), row.parent, row.component, row.hypothesis]
        outcome = ": ".join(filter(None, (verdicts[name], "; ".join(families.uninformative_reasons(name, records)))))
        rows.append([*cells, outcome, modes, quoted])
    return rows


def method_rows(names: Iterable[str], records: Sequence[PolicyRecord]) -> list[list[str]]:
    """Return a row for each of these policies that is no gate."""
    gate_names, rows = set(list_gates()), []
    for name in names:
        if name in gate_names:
            continue
        row = HYPOTHESES[name]
        component = row.component or ("nothing" if row.parent else "")
        compared = [each for each in select_compared(records) if each.policy == canonical_name(name)]
        studies = ", ".join(dict.fromkeys(each.study.name for each in compared))
        rows.append([name, row.parent, component, row.hypothesis, studies or "none"])
    return rows


def registered_rows(records: Iterable[PolicyRecord]) -> list[list[str]]:
    """Return a row for each policy in each study that compared it, oldest study first."""
    return [_registered_row(record) for record in select_compared(records)]


def unjudged_sentences(records: Iterable[PolicyRecord]) -> list[str]:
    """Return a sentence for each registration without a verdict."""
    studies = {record.study for record in records if not record.study.judged}
    return [
        f"{study.name} ({study.date}): {study.verdict_text}."
        for study in sorted(studies, key=lambda study: study.order)
    ]


def quoted_rows() -> list[list[str]]:
    """Return Table 1 of the paper."""
    return [[*gate[:-1], ", ".join(gate.policies)] for gate in paper_table.QUOTED_GATES]


def _registered_row(record: PolicyRecord) -> list[str]:
    sizes = [size for comparison in record.comparisons for size in comparison.problems]
    models = dict.fromkeys(model for comparison in record.comparisons for model in comparison.models)
    counts = (_count_text(record.comparisons, name) for name in ("cells", "better", "worse", "unmatched"))
    return [
        record.study.date,
        record.study.name,
        record.arm or record.policy,
        record.role,
        _names_text([comparison.policy for comparison in record.comparisons]),
        record.study.memory,
        *counts,
        str(min(sizes)) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}",
        ", ".join(models),
        record.study.verdict_text,
        "; ".join(record.notes),
    ]


def _count_text(comparisons: Iterable[Comparison], name: str) -> str:
    counts = (getattr(value, name) for value in comparisons)
    return str(sum(value if isinstance(value, int) else len(value) for value in counts))


def _names_text(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} policies"
