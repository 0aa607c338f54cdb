"""The bytes that a state of own code takes: counted by hand, whatever its classes say."""

import array
import hashlib
import io
import sys
from dataclasses import dataclass
from datetime import timedelta, timezone
from typing import NamedTuple

import numpy as np
import pytest
import torch

from protocol.engine.own_state import Keeps, count_reachable_bytes

THOUSAND = torch.zeros(1000)  # 4,000 bytes


class Shown(NamedTuple):
    numbers: torch.Tensor


@dataclass
class Held:
    value: object

    def retain(self, retained):
        return self


class Small(list):
    def __sizeof__(self):
        return 0


def with_attribute():
    tensor = torch.zeros(1)
    tensor.hidden = THOUSAND
    return tensor


def with_stored_attribute():
    tensor = torch.zeros(1)
    tensor.untyped_storage().hidden = [1] * 1000
    return tensor


class Named(str):
    def split(self, *arguments):
        raise AssertionError("a method of own code runs")


@pytest.mark.parametrize(
    ("state", "hidden"),
    [
        (THOUSAND, 4000),
        (Shown(THOUSAND[:1]), 4000),
        ((THOUSAND[:1], THOUSAND[1:2]), 4000),
        (Held([1] * 1000), 8000),
        (Small([1] * 1000), 8000),
        (np.zeros(1000)[:1], 8000),
        (Held(Held(THOUSAND).retain), 4000),
        ([1] * 1000, 8000),
        (([1] * 1000).append, 8000),
        ({"a" * 1000: 0}, 1000),
        (-(1 << 8000), 1000),
        (with_attribute(), 4004),
        (torch.Generator(), 5000),
        (array.array("d", [0] * 1000), 8000),
        (io.BytesIO(bytes(1000)), 1000),
        (io.StringIO("a" * 1000), 1000),
        (np.zeros(1, np.dtype("f4", metadata={"a": [1] * 1000})), 8004),
        (timezone(timedelta(0), "a" * 1000), 1000),
        (with_stored_attribute(), 8004),
        (Held(Held), 0),
        (None, 0),
    ],
)
def test_what_a_state_leads_to_is_counted_once(state, hidden):
    """Python's own objects add at most a kilobyte."""
    assert hidden <= count_reachable_bytes("the state", state) <= hidden + 1000


@pytest.mark.parametrize(
    "state",
    [
        lambda: THOUSAND,
        staticmethod(lambda: THOUSAND),
        type("Made", (), {"value": THOUSAND})(),
        type(sys)("torch"),
        (each for each in (1, 2)),
        iter([1, 2]),
        hashlib.sha256(),
        THOUSAND.untyped_storage(),
        torch.zeros(1, requires_grad=True) * 2,
        THOUSAND.to_sparse(),
        torch.from_numpy(np.zeros(1000)[:1]),
        torch.zeros(1, device="meta"),
        type("Made", (), {"__qualname__": Named("Made"), "value": THOUSAND})(),
        memoryview(bytes(1000)),
    ],
    ids=lambda state: type(state).__name__,
)
def test_what_cannot_be_counted_is_refused(state):
    with pytest.raises(Keeps, match=r"^stores a"):
        count_reachable_bytes("the state", Held(state))
