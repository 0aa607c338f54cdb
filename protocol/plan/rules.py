"""What each rule asks for beside the fields that every decision has."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.evidence.bytes.fields import Field, Whole
from protocol.plan.kinds import Number, Written

METHODS = ("bootstrap", "t", "sign-flip", "max-t")
MARGIN = Number("0.001", "0.5")  # accuracy points

_MARGIN = Field(MARGIN, "Accuracy points by which the subject may differ, or be worse.", 0.03)
OF_RULES: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        "superior": {
            "at_least": Field(Whole(1, 10_000), "Contrasts of the family that have to be better.", 4)
        },
        "branch": {
            "primary_model": Field(Written(), "The model on which it has to be better.", "chain-qwen2"),
            "transfer_model": Field(Written(), "The model that it must not harm.", "chain-llama"),
        },
        "equivalent": {"margin": _MARGIN},
        "non_inferior": {"margin": _MARGIN},
    }
)
RULES = tuple(OF_RULES)
LOSSLESS = tuple(rule for rule, own in OF_RULES.items() if "margin" in own)


def fields() -> dict[str, Field]:
    """The fields of all rules, each standing with the rules that ask for it."""
    named = {name: field for own in OF_RULES.values() for name, field in own.items()}
    return {
        name: field._replace(when=("rule", tuple(rule for rule, own in OF_RULES.items() if name in own)))
        for name, field in named.items()
    }
