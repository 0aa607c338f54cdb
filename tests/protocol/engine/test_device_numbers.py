"""Integers of a device are those of the host, however they got there."""

import numpy as np
import torch
from pretended_cuda import DEVICE, pretended

from protocol.engine.device_numbers import DeviceNumbers, upload


def test_arrays_of_any_shape_go_up_in_one_copy_that_nothing_waits_for():
    arrays = [np.arange(6).reshape(2, 3), np.zeros((0, 4), np.int64), np.array([-1])]
    with pretended() as traffic:
        there = upload(DEVICE, arrays)
        assert [part.device.type for part in there] == ["cuda"] * 3
        assert (traffic.copies, traffic.waits) == (["to"], [])
    for array, part in zip(arrays, there, strict=True):
        assert np.array_equal(part.held.numpy(), array)


def test_numbers_that_stay_or_grow_by_one_are_not_copied_again():
    source = np.random.default_rng(1)
    numbers, known, copies = DeviceNumbers(DEVICE), {}, 0
    with pretended() as traffic:
        for _ in range(300):
            name, growth = ("grown", 1) if source.random() < 0.5 else ("fixed", 0)
            before = known.get(name)
            how = source.integers(4)
            if before is None or how == 0:  # others of another shape
                array = source.integers(-5, 5, (source.integers(0, 3), 2))
            elif how == 1:  # one of them is off
                array = before + growth
                array.flat[-1:] += 1
            else:
                array = before + growth
            copies += before is None or before.size != array.size or bool((before + growth != array).any())
            known[name] = array.copy()
            (there,) = numbers.update(name, [array], growth)
            array += 7  # what the host does with them afterwards does not reach the device
            assert there.tolist() == known[name].tolist()
    assert len(traffic.copies) == copies
    assert 50 < copies < 250
    assert torch.equal(DeviceNumbers(torch.device("cpu")).update("any", [np.arange(3)])[0], torch.arange(3))
