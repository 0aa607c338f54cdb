import json

import drawing_checks
import pytest
from matplotlib.colors import to_rgb

from benchmarks.drawings import prefill

PARTS = ["forward", "salience_and_edges", "trunks", "impact", "graph", "eviction"]
# Overheads by hand: 0.1 + 0.02 + 0.01 + 0.03 + 0.04 = 0.2 of 2; 0.6 of 8.
ROWS = [
    {"tokens": 4096, **dict(zip(PARTS, (8.0, 0.5, 0.04, 0.01, 0.02, 0.03), strict=True))},
    {"tokens": 1024, **dict(zip(PARTS, (2.0, 0.1, 0.02, 0.01, 0.03, 0.04), strict=True))},
]
HELD = {"model": "tiny", "rows": ROWS}


def written(folder, held):
    path = folder / "prefill.json"
    path.write_text(held if isinstance(held, str) else json.dumps(held))
    return path


def test_overhead_is_everything_beyond_the_forward_over_the_forward():
    assert prefill.overhead(ROWS[1]) == pytest.approx(0.1)
    assert prefill.overhead(ROWS[0]) == pytest.approx(0.075)


def test_bars_are_the_seconds_stacked_in_the_order_of_the_parts():
    found = drawing_checks.by_gid(drawing_checks.drawn(prefill.prefill, HELD))
    for row in ROWS:
        base = 0.0
        for part in PARTS:
            (bar,) = found[f"seconds-{part}-{row['tokens']}"]
            assert (bar.get_y(), bar.get_height()) == pytest.approx((base, row[part]))
            base += row[part]


def test_the_right_panel_shows_the_same_parts_as_shares_of_the_forward():
    found = drawing_checks.by_gid(drawing_checks.drawn(prefill.prefill, HELD))
    assert not [gid for gid in found if gid.startswith("share-forward")]
    assert found["share-salience_and_edges-1024"][0].get_height() == pytest.approx(5)
    (last,) = found["share-eviction-1024"]
    assert last.get_y() + last.get_height() == pytest.approx(10)


def test_bars_stand_by_length_and_the_overhead_is_printed_above_each():
    figure = drawing_checks.drawn(prefill.prefill, HELD)
    for axes, tops in zip(figure.axes, ((2.2, 8.6), (10, 7.5)), strict=True):
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1,024", "4,096"]
        assert [text.get_text() for text in axes.texts] == ["+10.0 %", "+7.5 %"]
        assert [text.xy for text in axes.texts] == [(0, pytest.approx(tops[0])), (1, pytest.approx(tops[1]))]


def test_no_two_parts_share_colour_or_hatch_with_equal_grey():
    looks = [
        (0.2126 * r + 0.7152 * g + 0.0722 * b, hatch)
        for (r, g, b), hatch in ((to_rgb(colour), hatch) for colour, hatch in prefill.PARTS.values())
    ]
    for i, (grey, hatch) in enumerate(looks):
        for other, pattern in looks[:i]:
            assert hatch != pattern or abs(grey - other) > 0.2


@pytest.mark.parametrize("count", [1, 4, 9])
def test_every_text_lies_on_the_page_and_on_no_other(count):
    rows = [ROWS[0] | {"tokens": 1024 * 2**i} for i in range(count)]
    figure = drawing_checks.drawn(prefill.prefill, {"model": "a model", "rows": rows})
    assert drawing_checks.off_the_page(figure) == []
    assert drawing_checks.overlapping(figure) == []


def test_two_drawings_are_the_same_bytes(tmp_path):
    source = written(tmp_path, HELD)
    one, two = (prefill.draw(source, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in one] == ["prefill.svg", "prefill.png"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.parametrize(
    ("held", "named"),
    [
        (None, "missing"),
        ("{", "not JSON"),
        ([], "model"),
        ({"rows": ROWS}, "model: None is not a text"),
        ({"model": "m", "rows": []}, "rows: [] is not a list of at least one row"),
        ({"model": "m", "rows": [3]}, "rows[0].tokens"),
        ({"model": "m", "rows": [ROWS[0], ROWS[1] | {"graph": None}]}, "rows[1].graph: None"),
        ({"model": "m", "rows": [ROWS[0] | {"graph": True}]}, "rows[0].graph: True"),
        ({"model": "m", "rows": [ROWS[0] | {"trunks": -0.1}]}, "rows[0].trunks: -0.1"),
        ({"model": "m", "rows": [ROWS[0] | {"impact": float("nan")}]}, "rows[0].impact: nan"),
        ({"model": "m", "rows": [ROWS[0] | {"forward": 0}]}, "rows[0].forward: 0 is not a positive"),
        ({"model": "m", "rows": [ROWS[0] | {"tokens": 0}]}, "rows[0].tokens: 0"),
        ({"model": "m", "rows": [ROWS[0], ROWS[0]]}, "rows[1]: a second row of tokens 4096"),
    ],
)
def test_measurements_that_cannot_be_drawn_are_refused_in_one_line(tmp_path, capsys, held, named):
    source = tmp_path / "none.json" if held is None else written(tmp_path, held)
    assert prefill.main([str(source), str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("BadMeasurements: ")
    assert named in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_files_that_it_drew(tmp_path, capsys):
    assert prefill.main([str(written(tmp_path, HELD)), str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ("prefill.svg", "prefill.png")]
