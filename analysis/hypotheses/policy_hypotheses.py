"""Tables of what every policy was to show: the policy it starts from, and the component in which it differs.

The facts stand in the file of each policy; a test compares each with the difference of the two values, and
checks that no policy of the catalogue is left out.
"""

from collections.abc import Mapping
from types import MappingProxyType

from analysis.hypotheses.paper_table import QUOTED_GATES
from protocol.formats.policy_facts import PolicyFacts, read_policy_facts

FAMILY_OF_COMPONENT: Mapping[str, str] = MappingProxyType(
    {
        "state": "state",
        "routing": "routing",
        "cadence": "cadence",
        "decoding": "decoding",
        "scoring": "scoring",
        "selection": "scoring",
    }
)
"""Component -> family of intervention (Sun and Harn, Figure 1), in the order of the paper's Table 1.

Their scoring decides which tokens are retained under a fixed budget, so it is two components here: scores,
and the selection that reads them.
"""

ROOT = "1d"
"""The policy that the paper compares every gate with: TriAttention's global mode."""

TRIATTENTION_MODES = (ROOT, "1d-per-layer", "1d-per-head")
"""TriAttention's three modes. They differ in both scoring and routing, so that none is a gate of another."""

HYPOTHESES: Mapping[str, PolicyFacts] = read_policy_facts()


def family_of(name: str) -> str:
    """Return the family of intervention; empty for a policy without a parent and for an alias of its parent."""
    return FAMILY_OF_COMPONENT.get(HYPOTHESES[name].component, "")


def list_ancestors(name: str) -> list[str]:
    """Return the parent of a policy, the parent of that, and so on."""
    names: list[str] = []
    while parent := HYPOTHESES[names[-1] if names else name].parent:
        names.append(parent)
    return names


def gate_comparators(name: str) -> list[str]:
    """Return the comparators of a gate: its ancestors that differ from it only in its own family."""
    comparators: list[str] = []
    current = name
    while (row := HYPOTHESES[current]).parent and (not row.component or family_of(current) == family_of(name)):
        comparators.append(current := row.parent)
    return comparators


def list_gates() -> list[str]:
    """Return the policies that start from a mode of TriAttention to be better, each once, in the order of
    Table 1; those that it does not have follow in their family, first the ones that start from ROOT.
    """
    families = list(dict.fromkeys(FAMILY_OF_COMPONENT.values()))
    in_table = [name for gate in QUOTED_GATES for name in gate.policies]
    gates = [
        name
        for name, facts in HYPOTHESES.items()
        if facts.component and not facts.is_control and {*list_ancestors(name)} & {*TRIATTENTION_MODES}
    ]

    def place(name: str) -> tuple[int, int, bool]:
        in_order = in_table.index(name) if name in in_table else len(in_table)
        return families.index(family_of(name)), in_order, HYPOTHESES[name].parent != ROOT

    return sorted(gates, key=place)
