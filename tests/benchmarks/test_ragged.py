"""The benchmark of heads of unequal length: its parts run on a few slots; pages hold what rows held."""

import pytest
import torch
from varlen_by_loops import varlen_by_loops

from benchmarks import ragged
from benchmarks.ragged import MISSING, PADDED, TINY, Setting, Shape
from benchmarks.setting import random_llama
from protocol.engine.attention.kernels import Attention

WHERE = Setting("tiny", "cpu", "float32", 1)
LOOPS = Attention(varlen_by_loops)
LONG = Shape(lanes=2, kv_heads=3, group=2, width=8, mean=300, room=5)


@pytest.mark.parametrize("shape", [TINY, LONG], ids=["tiny", "several pages"])
def test_rows_variable_lengths_and_pages_attend_alike(shape):
    lanes = range(shape.lanes)
    padded = ragged.stepping(shape, WHERE, PADDED, lanes)()
    for path in (ragged.stepping, ragged.paging):
        torch.testing.assert_close(path(shape, WHERE, LOOPS, lanes)(), padded, rtol=1e-4, atol=1e-5)


def test_a_lane_draws_the_same_slots_in_any_company():
    alone, among = (ragged.stepping(TINY, WHERE, LOOPS, range(lanes))() for lanes in (1, 3))
    torch.testing.assert_close(among[0], alone[0])


def test_pages_take_whole_pages_of_what_each_head_holds():
    rows = [line.split("|") for line in ragged.pages(LONG).splitlines()[2:]]
    held, rooms, pages = ([float(cell) for cell in row[2:4]] for row in rows)
    counts = torch.stack([ragged.counts_of(LONG, lane) for lane in range(2)]).tolist()
    assert counts[0][0] + counts[0][1] == counts[1][0] + counts[1][1] == 600
    assert (held, rooms) == ([300, 305], [305, 305])
    for found, new in zip(pages, (0, 5), strict=True):
        taken = [256 * -(-int(count + new) // 256) for lane in counts for count in lane]
        assert found == round(sum(taken) / len(taken))


def test_the_tables_say_what_was_not_run():
    assert ragged.kernel_of(WHERE) is PADDED
    assert ragged.paths(TINY, WHERE, PADDED, 1).count(MISSING) == 2
    assert MISSING not in ragged.paths(TINY, WHERE, LOOPS, 1)


def test_company_is_told_bit_by_bit(monkeypatch):
    config = ragged_config()
    monkeypatch.setattr(ragged, "COMPANY", (1, 2, 3))
    subject = random_llama(config, WHERE)
    said = ragged.company(subject, LOOPS, 96, 3)
    assert said.count("equal") + said.count("differ") == 2 * 4
    one, other = [torch.zeros(2), torch.zeros(2)], [torch.zeros(2), torch.ones(2)]
    assert ragged.first_difference(one, one) == "equal, 2 forwards"
    assert ragged.first_difference(one, other) == "differ from step 1"


def ragged_config():
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
