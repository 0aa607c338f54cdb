"""A budget: slots per KV head and layer, written as a share of the prompt or as a whole number."""

import math
from decimal import Decimal
from typing import Any, NamedTuple

from protocol.evidence.bytes.fields import Fault, Kind, Schema

DECIMALS = 6  # of a share
MOST = 2**24  # slots


class Budget(NamedTuple):
    """Slots per KV head and layer: a share of the compressed prompt's tokens, or a whole number of slots."""

    share: Decimal | None
    slots: int | None

    def __str__(self) -> str:
        return str(self.slots) if self.share is None else f"{self.share.normalize():f}"

    def of(self, tokens: int) -> int:
        """Slots for a prompt of `tokens`: ceil(share x tokens) (CrystalCache, Eq. 30), computed in
        decimals.
        """
        if self.share is None:
            assert self.slots is not None
            return self.slots
        return math.ceil(self.share * tokens)


class ABudget(Kind):
    """What may be written as one."""

    words = "a share of the prompt in (0, 1), written with a point, or whole slots"

    def schema(self) -> Schema:
        share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST}, share]}

    def content(self, value: Budget) -> str:
        return str(value)

    def read(self, value: Any, at: str) -> Budget:
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
