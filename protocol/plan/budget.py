"""A budget: slots per KV head and layer, written as an integer, as a share of the prompt, as a share of the
mean slots of the full cache at the end of an answer, or in bytes. For a budget in bytes, the number of slots
depends on the form in which an arm stores them.
"""

import math
import re
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from analysis.rules.rule import UNITS
from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import Fault, Kind
from protocol.formats.value_faults import format_toml
from protocol.formats.vocabulary import BYTES_OF, OF_FULL

DECIMALS = 6  # decimal places of a share
MOST = 2**24  # slots
STEP = Decimal("1.03")  # from a budget to its neighbour: more than arms that match may differ
TEXT = re.compile(rf"0\.(?=[0-9]*[1-9])[0-9]{{1,{DECIMALS}}}{OF_FULL}")
BYTES = re.compile(rf"([1-9][0-9]{{0,15}}) ({'|'.join(UNITS)})")
AS_MANY = re.compile(rf"{BYTES_OF}([1-9][0-9]{{0,7}})")
AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(bytes|[kmg]i?b|b)\b", re.IGNORECASE)
NUMBER = re.compile(r"([0-9]*\.?[0-9]+)\s*(%?)")
THOUSANDS = re.compile(r"([0-9]{1,4}) *k( *(tokens|slots))?", re.IGNORECASE)
RATIO = re.compile(r"([0-9]+\.?[0-9]*) *x|([0-9]+) *: *1", re.IGNORECASE)


class Slot(NamedTuple):
    """The size of a slot of one arm in one model."""

    heads: int  # layers times KV heads
    computed: int  # bytes of the key and value of one head in one layer, as the model computes them
    stored: int  # the same as the arm stores them
    recent: int = 0  # bytes of one head in one layer that the arm takes however many slots there are

    def as_many(self, computed: int) -> int:
        """Return how many stored slots fit into the bytes of so many slots as computed, rounded down."""
        return computed * self.computed // self.stored

    def that_fit(self, head_bytes: int) -> int:
        """Return the slots of a head of so many bytes in one layer; 0 or less if it has no room for any."""
        return (head_bytes - self.recent) // self.stored


class Budget(NamedTuple):
    """Slots per KV head and layer, given in exactly one of five ways: a share of the tokens of the compressed
    prompt, an integer, a share of the mean use of the full cache, bytes of the keys and values of one lane in
    all layers and heads, or the bytes of a number of slots stored as computed.
    """

    share: Decimal | None
    slots: int | None
    of_full: Decimal | None = None
    bytes: int | None = None
    bytes_of: int | None = None

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots)
        if self.of_full is not None:
            return f"{self.of_full.normalize():f}{OF_FULL}"
        if self.bytes_of is not None:
            return f"{BYTES_OF}{self.bytes_of}"
        if self.bytes is not None:
            unit = next(unit for unit in reversed(list(UNITS)) if not self.bytes % UNITS[unit])
            return f"{self.bytes // UNITS[unit]} {unit}"
        assert self.share is not None
        return f"{self.share.normalize():f}"

    @property
    def in_bytes(self) -> bool:
        """Whether the number of slots depends on how an arm stores them."""
        return self.bytes is not None or self.bytes_of is not None

    @property
    def kind(self) -> str:
        """The field that is set. Budgets of one kind can be ordered without measurements."""
        return next(name for name, value in self._asdict().items() if value is not None)

    def next_above(self) -> "Budget":
        """Return the neighbour to register beside this budget: 3 % more, and at least one unit more."""
        value: Any = getattr(self, self.kind)
        above: Any = max(value + 1, math.ceil(value * STEP))
        if isinstance(value, Decimal):
            unit = Decimal(10) ** -DECIMALS
            above = min((value * STEP).quantize(unit, ROUND_CEILING), 1 - unit)
        return self._replace(**{self.kind: above})

    def count_slots(self, tokens: int, use: Fraction | None = None, slot: Slot | None = None) -> int:
        """Return slots for a prompt of `tokens`: ceil(share x tokens) (CrystalCache, Eq. 30), in decimals, or
        ceil(share x use), or floor((bytes - those stored apart) / bytes of a slot). use: mean slots of the full
        cache for this model and task (`FullUse`). slot: the slot size of the arm in this model.
        """
        if self.slots is not None:
            return self.slots
        if self.in_bytes:
            assert slot is not None, "the bytes of a slot are not given"
            if self.bytes_of is not None:
                return slot.that_fit(self.bytes_of * slot.computed)
            assert self.bytes is not None
            return slot.that_fit(self.bytes // slot.heads)
        if self.of_full is not None:
            assert use is not None, "the full cache has not been measured"
            return slots_of_full_share(self.of_full, use)
        assert self.share is not None
        return math.ceil(self.share * tokens)


def slots_of_full_share(share: Decimal, use: Fraction) -> int:
    """Return ceil(share x use), exactly (Crystal-KV, Section 6.2 and Table I: 10 % of 9,350 is 935)."""
    return math.ceil(Fraction(share) * use)


class BudgetKind(Kind):
    """The kind of a budget in protocol.toml."""

    expected = (
        "a share of the prompt above 0 and below 1, such as 0.3; a whole number of slots; a share of the "
        'full cache\'s mean use, such as "0.1 of full"; bytes of a lane, such as "48 KiB"; or the bytes of a '
        'number of slots, such as "bytes of 64"'
    )

    def accepts(self, value: Any) -> bool:
        try:
            self.read(value, "")
        except Fault:
            return False
        return True

    def to_json(self, value: Budget) -> str:
        return str(value)

    def read(self, value: Any, at: str) -> Budget:
        if isinstance(value, str):
            return _parse_text(value, at)
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST:
                raise Fault(f"{at}: {value} slots; write 1 to {MOST}, or a share above 0 and below 1, such as 0.3")
            return Budget(None, value)
        if not isinstance(value, Decimal):
            raise Fault(
                f"{at}: write a number, a share such as 0.3 or whole slots such as 128, not {format_toml(value)}"
            )
        if not (value.is_finite() and 0 < value < 1):
            raise Fault(
                f"{at}: a share of the prompt lies above 0 and below 1, and is not {value}; {_explain_share(value)}"
            )
        if value != round(value, DECIMALS):
            raise Fault(f"{at}: {value} has more than {DECIMALS} decimals; write fewer")
        return Budget(value, None)


def parse_budget(text: str) -> Budget:
    """Return the budget that a lock has as this text."""
    is_number = text.replace(".", "", 1).isdecimal()
    return BudgetKind().read((Decimal if "." in text else int)(text) if is_number else text, "budgets")


def parse_bytes(text: str) -> Budget | None:
    """Parse a budget in bytes; None if the text is no such budget."""
    if (match := AS_MANY.fullmatch(text)) and (slots := int(match[1])) <= MOST:
        return Budget(None, None, bytes_of=slots)
    if (size_match := BYTES.fullmatch(text)) and (size := int(size_match[1]) * UNITS[size_match[2]]) <= MAX_INTEGER:
        return Budget(None, None, bytes=size)
    return None


def _parse_text(text: str, at: str) -> Budget:
    if TEXT.fullmatch(text):
        return Budget(None, None, Decimal(text.removesuffix(OF_FULL)))
    if (budget := parse_bytes(text)) is not None:
        return budget
    raise Fault(f"{at}: {_explain_text(text)}")


def _explain_text(text: str) -> str:
    """Explain why a text is no budget, and suggest one."""
    quoted = repr(text if len(text) <= 40 else f"{text[:37]}...")
    if text.lower().startswith(BYTES_OF.strip()):
        return (
            f'{quoted} is not a budget; write "{BYTES_OF}" with a whole number of slots from 1 to {MOST}, such as '
            f'"{BYTES_OF}64"'
        )
    if amount := AMOUNT.search(text[:40]):
        return _explain_bytes(quoted, Decimal(amount[1]), amount[2])
    if not (match := NUMBER.search(text[:40])):
        return f'{quoted} is not a budget; write a number without quotes, such as 0.3 or 128, or "0.1{OF_FULL}"'
    if thousands := THOUSANDS.fullmatch(text):
        thousand_slots = int(thousands[1])
        return (
            f"{quoted} is not a budget; write a whole number of slots, {1024 * thousand_slots} or "
            f"{1000 * thousand_slots}"
        )
    if (ratio := RATIO.fullmatch(text)) and (times := Decimal(ratio[1] or ratio[2])) > 1:
        retained = f"{round(1 / times, 4).normalize():f}"
        return f"{quoted} is not a budget; write the share of the prompt that is kept: {retained}"
    number = Decimal(match[1]) / (100 if match[2] else 1)
    if match[2] and 0 < number < 1 and number == round(number, DECIMALS) and "full" not in text.lower():
        share = f"{number.normalize():f}"
        return f'{quoted} is not a budget; write {share} (of the prompt), or "{share}{OF_FULL}" (of the full cache)'
    if "full" not in text.lower() and not match[2]:
        return f'{quoted} is text; write {match[1]} without quotes, or a share of the full cache, "0.1{OF_FULL}"'
    if not 0 < number < 1:
        return f'{quoted}: a share of the full cache lies above 0 and below 1; write e.g. "0.1{OF_FULL}"'
    if number != round(number, DECIMALS):
        return f"{quoted} has more than {DECIMALS} decimals; write fewer"
    return f'{quoted} is not a budget; write "{number.normalize():f}{OF_FULL}"'


def _explain_share(value: Decimal) -> str:
    """Suggest what to write for a number that is no share."""
    if not value.is_finite():
        return "write one, such as 0.3"
    if value == 1:
        return 'for the whole cache, write an arm with the policy "full", which needs no budget'
    if value > 1 and value == value.to_integral_value():
        percent = f"{(value / 100).normalize():f} for {value:f} percent, or " if value < 100 else ""
        return f"write {percent}{int(value)} for this number of slots, without a decimal point"
    return "whole slots are written without a decimal point"


def _explain_bytes(quoted: str, number: Decimal, unit: str) -> str:
    """Explain a misspelled number of bytes; units of 1,000 and fractions of a byte get no suggestion."""
    meant = "B" if unit.lower() in ("b", "bytes") else f"{unit[0].upper()}iB"
    size = number * UNITS[meant]
    if 1 <= size <= MAX_INTEGER and size == int(size):
        return (
            f'{quoted} is not a budget; write "{Budget(None, None, bytes=int(size))}" (a whole number, in units '
            "of 1,024)"
        )
    return f'{quoted} is not a budget; write a whole number of {", ".join(UNITS)}, at least 1 B, such as "48 KiB"'
