"""Budgets in bytes: an arm gets the slots that fit into them, as it stores them."""

import pytest
from finished_study import promise
from studies import PROTOCOL, parse

from analysis.rules.smallest_lossless import _descending, _describe_budget
from policies import Cadence
from protocol.evidence.invariants.planned_lanes import IN_BYTES, ArmSlots
from protocol.formats.record_fields import BODY
from protocol.plan import grid, slot_bytes
from protocol.plan.budget import Slot
from protocol.plan.slot_bytes import Widths

TEXT = PROTOCOL.format(model="/nowhere")
AS_COMPUTED = Slot(4, 256, 256)  # two layers of two heads, 32 numbers of 4 bytes in a key and in a value
CODED = Slot(4, 256, 160)  # values of 8 numbers: 128 + 32
WEIGHED = Slot(4, 256, 260)  # with a number of tokens


def budgets(*written):
    return parse(TEXT.replace("[0.8]", f"[{', '.join(written)}]")).budgets


@pytest.mark.parametrize(
    ("written", "slots"),
    [
        ("bytes of 64", (64, 102, 63)),  # 16,384 / 256, / 160 = 102.4, / 260 = 63.01
        ("bytes of 1", (1, 1, 0)),
        ("64 KiB", (64, 102, 63)),
        ("1023 B", (0, 1, 0)),  # one slot takes 1,024, 640 or 1,040 bytes over all heads
        ("1 MiB", (1024, 1638, 1008)),
    ],
)
def test_as_many_whole_slots_as_fit(written, slots):
    (budget,) = budgets(f'"{written}"')
    assert tuple(budget.count_slots(7, None, slot) for slot in (AS_COMPUTED, CODED, WEIGHED)) == slots


def test_each_amount_has_one_name_and_is_locked_by_it():
    protocol = parse(TEXT.replace("[0.8]", '["2048 KiB", "1536 B", "bytes of 64", 128]'))
    names = ["2 MiB", "1536 B", "bytes of 64", "128"]
    assert [str(budget) for budget in protocol.budgets] == protocol.content()["budgets"] == names
    assert [budget.kind for budget in protocol.budgets] == ["bytes", "bytes", "bytes_of", "slots"]
    assert list(slot_bytes.parse_byte_budgets(names)) == names[:3]
    assert [IN_BYTES.fullmatch(name) is not None for name in (*names, "0.1 of full", "full")] == [
        *(3 * [True]),
        *(3 * [False]),
    ]
    cell = BODY.fields["cell"].kind.fields["budget"].kind
    assert all(cell.accepts(name) for name in names)
    assert not cell.accepts("2 MB")


def test_they_are_put_in_order_by_their_size():
    assert _descending({"48 KiB", "1 MiB", "65536 B"}) == ["1 MiB", "65536 B", "48 KiB"]
    assert _descending({"bytes of 96", "bytes of 128"}) == ["bytes of 128", "bytes of 96"]
    assert _describe_budget("48 KiB") == "a budget of 48 KiB"
    assert _describe_budget("bytes of 64") == "as many bytes as 64 slots as computed"


@pytest.mark.parametrize(("slot", "interval"), [(AS_COMPUTED, 16), (CODED, 25), (WEIGHED, 15), (Slot(4, 256, 9999), 1)])
def test_the_room_between_events_is_in_bytes_too(slot, interval):
    """16 x 256 = 4,096 bytes of a head: 25.6 slots of 160 and 15.75 of 260; never less than one."""
    protocol = parse(TEXT.replace("[0.8]", '["bytes of 64", 64]').replace("threads = 1", "threads = 1\ninterval = 16"))
    arms = [grid.Cell("m", "t", budget, "random", 0) for budget in ("bytes of 64", "64")]
    assert [grid.policy_of(protocol, cell, slot).cadence for cell in arms] == [
        Cadence(interval=interval),
        Cadence(interval=16),
    ]


SETTINGS = promise("slack", interval=16)
CODER = SETTINGS | {"stores_as_computed": False}
FULL = promise("never")
PLAIN = {"bytes": 256, "slots": {"bytes of 64": 64, "96 KiB": 96}, "interval": 16}
LOCK = {
    "protocol": {
        "content": {"budgets": ["bytes of 64", "96 KiB", "32"], "models": ["m"], "generation": {"dtype": "float32"}}
    },
    "promises": {"1d": SETTINGS, "coded": CODER, "full": FULL},
    "slot_bytes": {
        "m": {
            "heads": 4,
            "width": 32,
            "arms": {
                "1d": PLAIN,
                "coded": {"bytes": 160, "slots": {"bytes of 64": 102, "96 KiB": 153}, "interval": 25},
                "full": {"bytes": 256},
            },
        }
    },
}


def test_a_lock_has_the_slots_and_the_interval_of_each_arm():
    written = LOCK["protocol"]["content"]["budgets"]
    for bytes_of in (
        {"coded": {"bytes": 160}},
        {"1d": {"bytes": 1}, "coded": {"bytes": 160}, "full": {"bytes": 1}},
    ):  # as computed is no other number
        found = slot_bytes.lock_entry(Widths(4, 32), "float32", bytes_of, written, LOCK["promises"])
        assert found == LOCK["slot_bytes"]["m"]


def test_an_arm_that_codes_is_told_without_a_budget_in_bytes():
    found = slot_bytes.lock_entry(Widths(4, 32), "float32", {"coded": {"bytes": 160}}, ["32"], LOCK["promises"])
    assert found["arms"] == {"1d": {"bytes": 256}, "coded": {"bytes": 160}, "full": {"bytes": 256}}
    assert slot_bytes.is_needed(["32"], LOCK["promises"])
    assert not slot_bytes.is_needed(["32", "0.5"], {"1d": SETTINGS, "full": FULL})
    assert slot_bytes.is_needed(["96 KiB"], {"1d": SETTINGS})
    assert slot_bytes.is_needed(["32"], {"1d": SETTINGS}, "total")  # bytes held and those of the state are added
    assert not slot_bytes.is_needed(["32"], {"1d": SETTINGS}, "bytes")


@pytest.mark.parametrize(
    ("stored", "needed", "capacity"),
    [
        (ArmSlots(4, 256, 256, {}, None), 80, 80),
        (ArmSlots(4, 256, 256, {}, None), 81, 96),
        (ArmSlots(4, 256, 160, {}, None), 127, 128),  # 20,320 bytes of a head, in 80 slots as computed
        (ArmSlots(4, 256, 192, {}, None), 106, 106),  # 20,352 of 20,480
        (ArmSlots(4, 256, 260, {}, None), 78, 78),  # 20,280 of 20,480
        (ArmSlots(4, 256, 260, {}, None), 79, 94),  # 20,540: 96 as computed, 24,576
    ],
)
def test_a_room_is_rounded_to_the_bytes_of_sixteen_slots_as_computed(stored, needed, capacity):
    from protocol.engine.slots import round_capacity
    from protocol.engine.storage_formats import SlotSizes

    assert stored.round_up(needed) == capacity
    assert round_capacity(needed, SlotSizes(stored.computed_bytes, stored.stored_bytes)) == capacity
