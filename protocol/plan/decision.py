"""The table [decision] of protocol.toml: the primary question and the rule that answers it."""

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any

from analysis.rules import RULES
from analysis.stats.methods import METHODS, SPENDING
from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import (
    Choice,
    ExtendedTable,
    Field,
    Integer,
    ListOf,
    declaration,
    declare,
    optional,
    table_of,
)
from protocol.formats.registry import loader
from protocol.formats.vocabulary import ISO_CACHE
from protocol.plan import rule_fields
from protocol.plan.field_kinds import Number, VisibleText

ARMS = ListOf(VisibleText(), 1)
MAX_LOOKS, MAX_PROBLEMS = 12, 1_000_000
DRAWN = tuple(name for name, method in METHODS.items() if method.draws)


@declaration(kw_only=True)
class Decision:
    """The primary question, the rule that answers it and everything that the rule may depend on.

    rule_settings: the fields that only this rule has, by name: see protocol.plan.rule_fields.
    """

    rule: str = declare(rule_fields.RuleName(), "The rule that gives the verdict.", "superior")
    subject: str = declare(VisibleText(), "The arm about which the study asks.", "crystal")
    against: tuple[str, ...] = declare(ARMS, "The arms with which it is compared.", ["snapkv", "streaming"])
    alpha: Decimal = declare(Number("0.0001", "0.2"), "Chance of a false finding, for the whole family.", 0.05)
    method: str = declare(
        Choice(*METHODS, corrections=loader("protocol.plan.aliases:METHODS")),
        "How the accuracies of two arms are compared.",
        "sign-flip",
    )
    draws: int | None = optional(
        Integer(1000, 10_000_000),
        "Number of random draws of the method for each contrast.",
        20000,
        only_if=("method", DRAWN),
    )
    seed: int | None = optional(Integer(0, MAX_INTEGER), "Seed of these draws.", 7, only_if=("method", DRAWN))
    cache_tolerance: Decimal = declare(
        Number("0", "0.5"),
        (
            "Share by which the subject's mean memory may exceed that of its comparator. A share above 0.02 "
            "is refused, except in replications of a shipped study without a gate."
        ),
        0.02,
    )
    missing: str = declare(
        Choice("inconclusive", "wrong", noun="value"),
        (
            'How a registered lane without a grade counts: "inconclusive" makes the verdict INCONCLUSIVE; '
            '"wrong" counts the lane as not correct, and the verdict must be the same whatever such lanes '
            "would have been."
        ),
        "inconclusive",
    )
    beside: tuple[str, ...] | None = optional(
        ARMS,
        "Arms with which the subject is also compared, outside the rule and its family.",
        ["h2o"],
        if_absent="none",
    )
    memory: str | None = optional(
        Choice("slots", "bytes", "total", "reads", noun="value"),
        (
            "The kind of memory that must be equal in both arms, and in which an excess is charged: mean "
            '"slots" per KV head and layer; mean "bytes" of their keys and values; "total", which adds the bytes '
            'of the policy\'s state; or "reads", the mean slots that a new token reads, however many are stored. '
            "The report also gives the share of problems on which two arms hold the same memory, and the accuracy "
            "interpolated to the subject's memory where they do not match."
        ),
        "slots",
        if_absent='refused, except in replications of a shipped study without a gate, where it is "slots"',
    )
    unmatched: str | None = optional(
        Choice("void", ISO_CACHE, noun="value"),
        (
            'How a contrast counts if the subject holds more than `cache_tolerance` allows: "void" counts it '
            'as neither won nor lost; with "iso-cache" the subject must exceed the comparator\'s measurement '
            "at the next budget with as much memory."
        ),
        ISO_CACHE,
        if_absent="void",
    )
    looks: tuple[int, ...] | None = optional(
        ListOf(Integer(2, MAX_PROBLEMS), 2, MAX_LOOKS),
        "Held-out problems of each task after which a judge looks at the records and may stop the study; the last "
        "number is all of them.",
        [200, 400, 800],
        if_absent="the study is judged once, at the end",
    )
    spending: str | None = optional(
        Choice(*SPENDING, noun="function"),
        (
            'How the looks spend alpha (Lan and DeMets): "obrien-fleming" spends little at first, "pocock" '
            "about evenly. The method betting needs none: its p is valid at every look."
        ),
        "obrien-fleming",
        if_absent="no looks, or the method betting",
    )
    rule_settings: dict[str, Any] = field(default_factory=dict)


def _make_decision(**values: Any) -> Decision:
    rule_settings = {name: values.pop(name, None) for name in rule_fields.fields_of_rule(values["rule"])}
    return Decision(**values, rule_settings=rule_settings)


def _rule_fields(values: Mapping[str, Any]) -> dict[str, Field]:
    """Return the fields that only the rule of a table has; none if its rule is unknown."""
    rule = values.get("rule")
    return rule_fields.fields_of_rule(rule) if isinstance(rule, str) and rule in RULES else {}


DECISION = ExtendedTable(
    table_of(Decision).fields,
    constructor=_make_decision,
    attributes=lambda decision: vars(decision) | decision.rule_settings,
    corrections=loader("protocol.plan.aliases:DECISION"),
    further_of=_rule_fields,
    all_further=rule_fields.all_rule_fields,
)
