"""A budget: slots per KV head and layer, written as a whole number, as a share of the prompt, or as a share
of what the full cache holds on average at the end of an answer.
"""

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from analysis.rules.rule import OF_FULL
from protocol.evidence.bytes.fields import Fault, Kind, Schema

__all__ = ["DECIMALS", "MOST", "ABudget", "Budget", "of_full"]

DECIMALS = 6  # of a share
MOST = 2**24  # slots
TEXT = re.compile(rf"0\.(?=[0-9]*[1-9])[0-9]{{1,{DECIMALS}}}{OF_FULL}")
NUMBER = re.compile(r"([0-9]*\.?[0-9]+)\s*(%?)")


class Budget(NamedTuple):
    """Slots per KV head and layer: a share of the compressed prompt's tokens, a whole number of slots, or a
    share of the full cache's mean use. One of the three.
    """

    share: Decimal | None
    slots: int | None
    of_full: Decimal | None = None

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots)
        if self.of_full is not None:
            return f"{self.of_full.normalize():f}{OF_FULL}"
        assert self.share is not None
        return f"{self.share.normalize():f}"

    @property
    def kind(self) -> str:
        """Budgets of one kind can be put in order before anything is measured."""
        return next(name for name, value in self._asdict().items() if value is not None)

    def of(self, tokens: int, use: Fraction | None = None) -> int:
        """Slots for a prompt of `tokens`: ceil(share x tokens) (CrystalCache, Eq. 30), in decimals, or
        ceil(share x use). use: mean slots of the full cache, as `FullUse` has it of this model and task.
        """
        if self.slots is not None:
            return self.slots
        if self.of_full is not None:
            assert use is not None, "the full cache was not measured"
            return of_full(self.of_full, use)
        assert self.share is not None
        return math.ceil(self.share * tokens)


def of_full(share: Decimal, use: Fraction) -> int:
    """ceil(share x use), exactly (Crystal-KV, Section 6.2 and Table I: 10 % of 9,350 are 935)."""
    return math.ceil(Fraction(share) * use)


class ABudget(Kind):
    """What may be written as one."""

    words = (
        "a share of the prompt in (0, 1), written with a point, whole slots, or a share of the full cache's "
        'mean use, "0.1 of full"'
    )

    def schema(self) -> Schema:
        share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
        text = {"type": "string", "pattern": f"^({TEXT.pattern})$"}
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST}, share, text]}

    def content(self, value: Budget) -> str:
        return str(value)

    def read(self, value: Any, at: str) -> Budget:
        if isinstance(value, str):
            if not TEXT.fullmatch(value):
                raise Fault.of(f"{at}: {_unread(value)}")
            return Budget(None, None, Decimal(value.removesuffix(OF_FULL)))
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST:
                raise Fault.of(f"{at}: {value} slots; write 1 to {MOST}, or a share in (0, 1) with a point")
            return Budget(None, value)
        if not isinstance(value, Decimal):
            raise Fault.of(
                f"{at}: write a number, a share such as 0.3 or whole slots such as 128, not {value!r}"
            )
        if not (value.is_finite() and 0 < value < 1):
            raise Fault.of(
                f"{at}: a share of the prompt lies in (0, 1), not {value}; whole slots have no point"
            )
        if value != round(value, DECIMALS):
            raise Fault.of(f"{at}: {value} has more than {DECIMALS} decimals; write fewer")
        return Budget(value, None)


def _unread(text: str) -> str:
    """What is wrong with a text, and what was perhaps meant."""
    shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
    if not (found := NUMBER.search(text[:40])):
        return f'{shown} is no budget; write "0.1{OF_FULL}", or a number without quotes'
    number = Decimal(found[1]) / (100 if found[2] else 1)
    if "full" not in text.lower() and not found[2]:
        return (
            f'{shown} is text; write {found[1]} without quotes, or a share of the full cache, "0.1{OF_FULL}"'
        )
    if not 0 < number < 1:
        return f'{shown}: a share of the full cache lies in (0, 1); write e.g. "0.1{OF_FULL}"'
    if number != round(number, DECIMALS):
        return f"{shown} has more than {DECIMALS} decimals; write fewer"
    return f'{shown} is no budget; write "{number.normalize():f}{OF_FULL}"'
