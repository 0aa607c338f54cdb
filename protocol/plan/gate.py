"""The table [gate] of protocol.toml: what the full cache must reach on held-out problems for a verdict.

`analysis.rules.full_cache_gate` checks answers against it.
"""

from decimal import Decimal

from protocol.formats.fields import declaration, declare, optional, table_of
from protocol.plan.field_kinds import Number, TableArray, VisibleText

# The bounds exclude a gate that everything passes.
ACCURACY, TRUNCATED = Number("0.05", "1"), Number("0", "0.5")


@declaration()
class GateException:
    """Other thresholds for one model and task, or a published accuracy that the full cache must reproduce."""

    model: str = declare(VisibleText(), "The model.", "chain-qwen2")
    task: str = declare(VisibleText(), "The task.", "chain")
    accuracy: Decimal | None = optional(
        ACCURACY, "As in [gate], for this model and task only.", 0.9, if_absent="the value in [gate]"
    )
    truncated: Decimal | None = optional(
        TRUNCATED, "As in [gate], for this model and task only.", 0.05, if_absent="the value in [gate]"
    )
    published: Decimal | None = optional(
        ACCURACY,
        "The accuracy that a paper reports for its full cache; the measured accuracy must reproduce it.",
        0.503,
        if_absent="none",
    )
    margin: Decimal | None = optional(
        Number("0.001", "0.1"),
        "The difference by which the measured accuracy may deviate from it, in either direction.",
        0.03,
        if_absent="there is no `published` either",
    )


@declaration()
class Gate:
    """The thresholds for all models and tasks, with exceptions."""

    accuracy: Decimal = declare(
        ACCURACY, "The least share of the lanes that the full cache must answer correctly.", 0.5
    )
    truncated: Decimal = declare(
        TRUNCATED, "The largest share of its lanes that `max_new_tokens` may cut before a correct answer.", 0.1
    )
    places: tuple[GateException, ...] = optional(
        TableArray(table_of(GateException), 1),
        "Exceptions, each for one model and task.",
        if_absent="no exceptions",
        default=(),
    )
