"""The table [gate] of protocol.toml: what the full cache must reach on held-out problems for a verdict.

`analysis.rules.full_cache_gate` checks answers against it.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, NamedTuple

from protocol.formats.fields import Field, table_of
from protocol.plan.field_kinds import Number, TableArray, VisibleText

# The bounds exclude a gate that everything passes.
ACCURACY, TRUNCATED = Number("0.05", "1"), Number("0", "0.5")


class GateException(NamedTuple):
    """Other thresholds for one model and task, or a published accuracy that the full cache must reproduce."""

    model: Annotated[str, Field(VisibleText(), "The model.", "chain-qwen2")]
    task: Annotated[str, Field(VisibleText(), "The task.", "chain")]
    accuracy: Annotated[
        Decimal | None, Field(ACCURACY, "As in [gate], here alone.", 0.9, if_absent="that of [gate]")
    ] = None
    truncated: Annotated[
        Decimal | None, Field(TRUNCATED, "As in [gate], here alone.", 0.05, if_absent="that of [gate]")
    ] = None
    published: Annotated[
        Decimal | None,
        Field(
            ACCURACY,
            "The accuracy that a paper prints for its full cache, which the measured one must reproduce.",
            0.503,
            if_absent="none",
        ),
    ] = None
    margin: Annotated[
        Decimal | None,
        Field(
            Number("0.001", "0.1"),
            "Accuracy points by which the measured one may differ from it, to either side.",
            0.03,
            if_absent="none; it stands with `published`",
        ),
    ] = None


@dataclass(frozen=True)
class Gate:
    """The thresholds for all models and tasks, with exceptions."""

    accuracy: Annotated[
        Decimal, Field(ACCURACY, "The least share of the lanes that the full cache must answer correctly.", 0.5)
    ]
    truncated: Annotated[
        Decimal,
        Field(TRUNCATED, "The largest share of its lanes that `max_new_tokens` may cut before a correct answer.", 0.1),
    ]
    places: Annotated[
        tuple[GateException, ...],
        Field(
            TableArray(table_of(GateException), 1),
            "Exceptions, each for one model and task.",
            if_absent="no exceptions",
        ),
    ] = ()
