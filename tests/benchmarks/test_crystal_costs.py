"""What benchmarks.crystal rests on: a NumPy reading that is the paper's, equal edges, parts that add up."""

from importlib import import_module

import numpy as np
import pytest
import torch

from benchmarks import crystal, report
from benchmarks.pairs import Times
from benchmarks.plain_edges import of_chunk
from policies.crystal.coattention import CoAttention


@pytest.mark.parametrize("sort", ["quicksort", "stable"])
def test_the_plain_reading_is_that_of_the_paper(sort):
    """Rows 2 and 3 of four tokens, chunks of two, two heads of which one is twice the mean."""
    mean = np.array([[0.02, 0.3, 0.68, 0.0], [0.021, 0.5, 0.0, 0.479]])
    found = of_chunk(np.stack([2 * mean, 0 * mean]), CoAttention(chunk=2), sort)
    assert found.mass.tolist() == pytest.approx([1.36, 0.958])
    within, across = found.edges
    assert len(within[0]) == 0, "the rows are orthogonal within the chunk"
    assert sorted(zip(*(part.tolist() for part in across[:2]), strict=True)) == [(0, 3), (1, 2), (1, 3)]
    assert sorted(across[2].tolist()) == pytest.approx([0.021, 0.3, 0.5])


def test_rows_alike_are_neighbours_of_each_other_in_the_plain_reading():
    (i, j, weight), *_ = of_chunk(np.array([[[1.0, 0], [1.0, 0]]]), CoAttention(chunk=2), "stable").edges
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert weight.tolist() == pytest.approx([1.0, 1.0])


def test_blocks_and_the_plain_reading_find_the_same_edges_of_synthetic_attention():
    drawn = crystal.synthetic(300, torch.device("cpu"))
    wide = drawn._replace(**{name: getattr(drawn, name).double() for name in ("queries", "keys", "values")})
    settings = CoAttention(chunk=128)
    ours, plain = (crystal.streamed(wide, settings, "cpu")[1], crystal.materialised(wide, settings, "stable")[1])
    assert crystal.apart(ours, plain, 300) == 0
    assert 0 < int((ours.i // 128 == ours.j // 128).sum()) < len(ours.i), "edges of both kinds"
    fewer = crystal.materialised(wide, CoAttention(chunk=128, intra_k=7), "stable")[1]
    assert crystal.apart(ours, fewer, 300) == len(ours.i) - len(fewer.i) > 0


def test_the_parts_of_a_figure_are_medians_and_the_first_layer_counts_by_what_observing_adds():
    medians = {"forward": 10.0, "first layer": 0.25, "first layer observed": 0.5, "trunks": 0.1}
    medians |= {"impact": 0.2, "graph": 0.3, "eviction": 0.4}
    times = Times({name: (0.0, value, 99.0) for name, value in medians.items()})
    row = crystal.seconds_of(1024, times)
    assert row == {
        "tokens": 1024,
        "forward": 10.0,
        "salience_and_edges": 0.25,
        "trunks": 0.1,
        "impact": 0.2,
        "graph": 0.3,
        "eviction": 0.4,
    }
    *_, after, beyond = crystal.prefill_table({1024: times}).splitlines()
    assert "1.0000 (10.00 %)" in after
    assert "missed by 9.0 %" in after
    assert "1.2500 (12.50 %)" in beyond
    assert "missed by 2.5 %" in beyond


def test_what_crystal_adds_may_grow_no_faster_than_the_forward():
    def times(scale, beyond):
        names = ("first layer observed", "trunks", "impact", "graph", "eviction")
        parts = dict.fromkeys(names, (0.01 * beyond,)) | {"first layer": (0.0,)}
        return Times(parts | {"forward": (1.0 * scale,)})

    for beyond, verdict in ((2, "met"), (8, "missed by 1.00")):
        shown = crystal.prefill_table({1024: times(1, 1), 2048: times(4, beyond)})
        assert shown.endswith(f"at most 2.00: {verdict} |")


def test_growth_is_the_slope_between_logarithms():
    assert report.exponent([1024, 2048, 4096], [1.0, 4.0, 16.0]) == pytest.approx(2)
    assert report.exponent([1024], [1.0]) is None
    assert report.exponent([1024, 2048], [0.0, 1.0]) is None


def test_the_script_answers_help(capsys):
    with pytest.raises(SystemExit) as done:
        import_module("benchmarks.crystal").main(["--help"])
    assert done.value.code == 0
    assert "python -m benchmarks.crystal" in capsys.readouterr().out
