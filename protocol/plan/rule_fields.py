"""The fields of [decision] that only some rules have, from the declarations in `analysis.rules`."""

from collections.abc import Mapping
from types import MappingProxyType

from analysis.rules import RULES, rule
from protocol.formats.fields import Field, Integer, Kind, ListOf
from protocol.plan.field_kinds import Number, VisibleText

__all__ = ["ALIASES", "FIELDS_BY_RULE", "all_rule_fields"]


def _field_kind(declaration: rule.Field) -> Kind:
    match declaration.kind:
        case "whole":
            return Integer(int(declaration.low), int(declaration.high))
        case "decimal":
            return Number(str(declaration.low), str(declaration.high))
        case "model":
            return VisibleText()
        case "arms":
            return ListOf(VisibleText(), 1)
    raise ValueError(f"{declaration.name}: a rule asks for a {declaration.kind!r}, which is no kind of field")


FIELDS_BY_RULE: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        name: {
            declaration.name: Field(
                _field_kind(declaration), declaration.meaning, declaration.example, declaration.without
            )
            for declaration in registered_rule.fields
        }
        for name, registered_rule in RULES.items()
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: name for registered_rule in RULES.values() for alias, name in registered_rule.aliases.items()}
)


def all_rule_fields() -> dict[str, Field]:
    """Return the fields of all rules, each with the rules that have it."""
    all_fields = {name: field for by_name in FIELDS_BY_RULE.values() for name, field in by_name.items()}
    return {
        name: field._replace(
            only_if=("rule", tuple(rule for rule, by_name in FIELDS_BY_RULE.items() if name in by_name))
        )
        for name, field in all_fields.items()
    }
