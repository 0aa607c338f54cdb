"""What a lock says of slots of unlike size, in words."""

import pytest

from protocol.messages import slot_sizes


def lock(memory, arms):
    return {"protocol": {"content": {"decision": {"memory": memory}}}, "slot_bytes": {"m": {"arms": arms}}}


def said(memory, arms):
    return any(slot.startswith("Budgets are equal slots") for slot in slot_sizes.describe_slots(lock(memory, arms)))


PLAIN, CODED = {"bytes": 256}, {"bytes": 160}


@pytest.mark.parametrize(
    ("memory", "arms", "warned"),
    [
        ("bytes", {"a": PLAIN, "b": CODED}, True),
        ("bytes", {"a": PLAIN, "b": PLAIN}, False),
        ("slots", {"a": PLAIN, "b": CODED}, False),
        ("bytes", {"a": {**PLAIN, "slots": {"1 KiB": 4}}, "b": {**CODED, "slots": {"1 KiB": 6}}}, False),
    ],
)
def test_equal_slots_that_are_matched_in_bytes_are_told(memory, arms, warned):
    assert said(memory, arms) is warned
