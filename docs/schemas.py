"""The JSON Schema of each kind of value: what editors complete and other programs check against."""

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from protocol import tasks
from protocol.formats.fields import Choice, Field, Integer, Kind, ListOf, MapOf, OrNull, Plain, Table, Text, TupleOf
from protocol.instruments.anatomy.fields import AnyOf
from protocol.plan import budget, field_kinds
from protocol.plan.task import ONLY_WITH, ExactlyOneTable, TaskTable

Schema = dict[str, Any]


@singledispatch
def make_schema(kind: Kind) -> Schema:
    """Return the schema of the values of a kind."""
    raise TypeError(f"{type(kind).__name__}: has no schema; register one in docs/schemas.py")


@make_schema.register
def _plain(kind: Plain) -> Schema:
    return kind.json


@make_schema.register
def _text(kind: Text) -> Schema:
    return {"type": "string"} | ({"pattern": f"^({kind.pattern})$"} if kind.pattern else {})


@make_schema.register
def _integer(kind: Integer) -> Schema:
    upper_bound = {} if kind.maximum is None else {"maximum": kind.maximum}
    return {"type": "integer", "minimum": kind.minimum, **upper_bound}


@make_schema.register
def _choice(kind: Choice) -> Schema:
    return {"enum": list(kind.options)}


@make_schema.register
def _or_null(kind: OrNull) -> Schema:
    return {"oneOf": [{"type": "null"}, make_schema(kind.kind)]}


@make_schema.register
def _any_of(kind: AnyOf) -> Schema:
    return {"oneOf": [make_schema(each) for each in kind.kinds]}


@make_schema.register
def _list_of(kind: ListOf) -> Schema:
    bounds = {"minItems": kind.min_length or None, "maxItems": kind.max_length}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "array", "items": make_schema(kind.entry_kind), **limits}


@make_schema.register
def _tuple_of(kind: TupleOf) -> Schema:
    bounds = {"minItems": len(kind.kinds), "maxItems": len(kind.kinds)}
    return {"type": "array", "prefixItems": [make_schema(each) for each in kind.kinds], **bounds}


@make_schema.register
def _map_of(kind: MapOf) -> Schema:
    limits = {"minProperties": kind.min_length} if kind.min_length else {}
    return {"type": "object", "additionalProperties": make_schema(kind.entry_kind), **limits}


@make_schema.register
def _table(kind: Table) -> Schema:
    conditions = [
        {
            "if": {"properties": {field.only_if[0]: {"enum": list(field.only_if[1])}}},
            "then": {"required": [name] if field.if_absent is None else []},
            "else": {"properties": {name: False}},
        }
        for name, field in kind.all_fields.items()
        if field.only_if is not None
    ]
    return {
        "type": "object",
        "properties": {name: describe_field(field) for name, field in kind.all_fields.items()},
        "required": list(kind.required),
        "additionalProperties": kind.allow_extra,
    } | ({"allOf": conditions} if conditions else {})


def describe_field(field: Field) -> Schema:
    """Return the schema of a field: with the example, and the default where `if_absent` is a value of the kind."""
    absent_text = f" Left out: {field.if_absent}." if field.if_absent else ""
    value = int(field.if_absent) if field.if_absent and field.if_absent.isdecimal() else field.if_absent
    has_default = isinstance(field.kind, Integer | Choice) and field.kind.accepts(value)
    extras = ({"default": value} if has_default else {}) | (
        {} if field.example is None else {"examples": [field.example]}
    )
    return make_schema(field.kind) | {"description": f"{field.description}{absent_text}", **extras}


@make_schema.register
def _number(kind: field_kinds.Number) -> Schema:
    return {"type": "number", "minimum": float(kind.least), "maximum": float(kind.most)}


@make_schema.register
def _recency(kind: field_kinds.Recency) -> Schema:
    return {"anyOf": [make_schema(form) for form in kind.forms]}


@make_schema.register
def _catalogue_name(kind: field_kinds.CatalogueName) -> Schema:
    return {"anyOf": [_choice(kind), {"type": "string"}]} if kind.open else _choice(kind)


@make_schema.register
def _deferred(kind: field_kinds.DeferredKind) -> Schema:
    return make_schema(kind.kind)


@make_schema.register
def _policy_settings(kind: field_kinds.PolicySettings) -> Schema:
    plain: list[Schema] = [{"type": name} for name in ("number", "string", "boolean")]
    item = {"anyOf": [*plain, {"type": "array", "items": {"anyOf": plain}}]}
    return {"type": "object", "minProperties": 1, "additionalProperties": item}


@make_schema.register
def _setting_grids(kind: field_kinds.SettingGrids) -> Schema:
    values = {"type": "array", "minItems": 1}
    over = {"type": "object", "minProperties": 1, "additionalProperties": values}
    return {"type": "object", "minProperties": 1, "additionalProperties": over}


@make_schema.register
def _tables_by_name(kind: field_kinds.TablesByName) -> Schema:
    names = {"propertyNames": {"pattern": f"^({field_kinds.NAME.pattern})$"}, "minProperties": 1}
    return {"type": "object", "additionalProperties": make_schema(kind.table), **names}


@make_schema.register
def _budget(kind: budget.BudgetKind) -> Schema:
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    forms = "|".join(form.pattern for form in (budget.TEXT, budget.BYTES, budget.AS_MANY))
    text = {"type": "string", "pattern": f"^({forms})$"}
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": budget.MOST}, share, text]}


@make_schema.register
def _exactly_one(kind: ExactlyOneTable) -> Schema:
    return _table(kind) | {"minProperties": 1, "not": {"required": list(kind.fields)}}


@make_schema.register
def _task(kind: TaskTable) -> Schema:
    base, name = _table(kind), kind.fields["name"]
    known = {"anyOf": [{"enum": list(tasks.TASKS)}, make_schema(name.kind)]}
    described = {key: value for key, value in describe_field(name).items() if key not in make_schema(name.kind)}
    alone = [
        {"if": _requires_any(allowed_ways), "then": True, "else": {"properties": {field: False}}}
        for field, allowed_ways in ONLY_WITH.items()
    ]
    graded = {"if": _requires_any(["file"]), "then": {"required": ["grader"], "properties": {"lm_eval": False}}}
    either = [
        {"required": ["data"], "properties": {"lengths": False}},
        {"required": ["lengths"], "properties": {"data": False, "longest": False}},
    ]
    fed = {"if": _requires_any(["lm_eval"]), "then": {"anyOf": either}}
    return base | {
        "properties": {**base["properties"], "name": known | described},
        "required": [field for field in kind.required if field != "name"],
        "anyOf": [{"required": [way]} for way in ("name", "file", "lm_eval")],
        "allOf": [graded, fed, *alone],
    }


def _requires_any(ways: Iterable[str]) -> Schema:
    return {"anyOf": [{"required": [way]} for way in ways]}
