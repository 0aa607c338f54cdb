"""The fields of [decision] that only some rules have, from the declarations in `analysis.rules`."""

from typing import Any

from analysis.rules import RULES, rule
from protocol.formats.fields import Choice, Fault, Field, Integer, Kind, ListOf
from protocol.plan.field_kinds import Number, VisibleText


class RuleName(Choice):
    """The name of a rule. All rules are loaded for the fix of a name that is none, as each has its aliases."""

    def __init__(self) -> None:
        super().__init__(*RULES)

    def make_fault(self, value: Any, path: str, expected: str = "") -> Fault:
        aliases = {alias: name for rule in RULES.values() for alias, name in rule.aliases.items()}
        return Choice(*RULES, corrections=lambda: aliases).make_fault(value, path, expected)


def fields_of_rule(name: str) -> dict[str, Field]:
    """Return the fields that only this rule has."""
    return {
        declaration.name: Field(_field_kind(declaration), declaration.meaning, declaration.example, declaration.without)
        for declaration in RULES[name].fields
    }


def all_rule_fields() -> dict[str, Field]:
    """Return the fields of all rules, each with the rules that have it."""
    fields_by_rule = {name: fields_of_rule(name) for name in RULES}
    all_fields = {name: field for fields in fields_by_rule.values() for name, field in fields.items()}
    return {
        name: field._replace(only_if=("rule", tuple(rule for rule, fields in fields_by_rule.items() if name in fields)))
        for name, field in all_fields.items()
    }


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
    raise ValueError(
        f"{declaration.name}: a rule declares a field of the kind {declaration.kind!r}, which does not exist"
    )
