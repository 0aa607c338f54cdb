"""The fields of [decision] that only some rules have, from the declarations in `analysis.rules`."""

from collections.abc import Mapping
from types import MappingProxyType

from analysis.rules import RULES, rule
from protocol.evidence.bytes.fields import Field, Kind, ListOf, Whole
from protocol.plan.kinds import Number, Written

__all__ = ["OF_RULES", "fields"]


def _kind(asked: rule.Field) -> Kind:
    match asked.kind:
        case "whole":
            return Whole(int(asked.low), int(asked.high))
        case "decimal":
            return Number(str(asked.low), str(asked.high))
        case "model":
            return Written()
        case "arms":
            return ListOf(Written(), 1)
    raise ValueError(f"{asked.name}: a rule asks for a {asked.kind!r}, which is no kind of field")


OF_RULES: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        name: {
            asked.name: Field(_kind(asked), asked.meaning, asked.example, asked.without)
            for asked in one.fields
        }
        for name, one in RULES.items()
    }
)


def fields() -> dict[str, Field]:
    """Return the fields of all rules, each with the rules that have it."""
    named = {name: field for own in OF_RULES.values() for name, field in own.items()}
    return {
        name: field._replace(when=("rule", tuple(rule for rule, own in OF_RULES.items() if name in own)))
        for name, field in named.items()
    }
