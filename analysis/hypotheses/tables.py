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
            "A gate is a policy that starts from a mode of TriAttention, such as 1d, and is to be better by "
            "one component: state, routing, cadence, decoding or scoring. Scoring is two components here: "
            "scores, and the selection that reads them.",
        ),
        "families": (
            "The rule is the paper's: a family is closed when every attempt in it has failed, since one "
            "failed attempt is not its family's failure. When an attempt has failed is ours, and stricter "
            "than the paper's “Killed”, which a gate that is not better gets, too.",
            "An attempt failed in a registered study that decides (CONFIRMED or REFUTED, and its full cache passed the "
            "gate), with two models or more and 200 problems or more in each contrast, where on each model it is worse "
            "than what it starts from in some cell, and better in none, at matched memory. It survived where it is "
            "better in some cell and worse in none. All else is undecided: a screening, an uninformative or "
            "inconclusive study, a replication of another and a study of one model close nothing.",
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
            "A row for each policy that a registered contrast compares, by the time of the verdict as the ledger has "
            "it. A cell is a contrast: a model, task, budget and comparator. Better and worse are the policy's of the "
            "row, at the level that the rule corrects to, where memory (slots, bytes or, with the state that a policy "
            "keeps, the total) matched or, against the full cache, was saved. The verdict is the study's, which is "
            "about its subject. Files are read and not verified: `kv-prereg audit` does that.",
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
