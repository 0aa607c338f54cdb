"""The last queries of several lanes lie side by side, and each lane has what it would note alone."""

from dataclasses import replace

import pytest
import torch

from protocol.engine.batch_rows import RecentQueries
from protocol.engine.device_numbers import DeviceNumbers
from protocol.engine.lane_memory import Memory

LAYERS, HEADS, DIM = 2, 3, 4


class Lane:
    """What `Recent` reads of a row."""

    def __init__(self, seen):
        self.n_fed = seen


def memory(width):
    positions = torch.zeros(LAYERS, 1, 1, dtype=torch.int64)
    return Memory(positions, 0, 1.0, 0, recent=torch.zeros(LAYERS, HEADS, width, DIM))


@pytest.mark.parametrize("new", [1, 3, 7])  # of a width of 5: one token, some, more than are kept
def test_lanes_that_come_and_go_keep_what_each_would_note_alone(new):
    source = torch.Generator().manual_seed(new)
    lanes = [Lane(3 * number) for number in range(10)]
    together, alone = {}, {}
    recent = RecentQueries(memory(5).recent)
    # Places are made, freed, used again and given back; a lane that has left does not come back.
    for members in ([0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 5, 2, 3, 4], [2, 3], [3, 6, 7, 8], [8], [8, 9]):
        for lane in (lanes[number] for number in members):
            if lane not in together:
                together[lane] = memory(5)
                together[lane].recent += lane.n_fed  # of the prefill
                alone[lane] = replace(together[lane], recent=together[lane].recent.clone())
        present = {lanes[number]: together[lanes[number]] for number in members}
        recent.assign(present)
        assert len(members) <= len(recent.stacked) <= max(5, 2 * len(members))
        for _ in range(4):
            # Lanes of the pool that keep other widths, or none, are passed over.
            owners = [Lane(7), *present] if new == 3 else list(present)
            drawn = torch.randn(LAYERS, len(owners), HEADS, new, DIM, generator=source)
            recent.add(owners, drawn, DeviceNumbers(torch.device("cpu")))
            queries = drawn[:, len(owners) - len(members) :]
            for place, lane in enumerate(present):
                lane.n_fed += new
                alone[lane].add_queries(queries[:, place], lane.n_fed)
        for lane, own in present.items():
            assert torch.equal(own.recent, alone[lane].recent)
            assert own.recent.untyped_storage().data_ptr() == recent.stacked.untyped_storage().data_ptr()
            assert own.bytes() == alone[lane].bytes()
