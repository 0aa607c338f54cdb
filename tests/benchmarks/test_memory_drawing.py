import json

import drawing_checks
import pytest

from benchmarks.drawings import memory

ROWS = [
    {"tokens": 4096, "share": "0.3", "measured_bytes": 1300000},
    {"tokens": 1024, "share": "full", "measured_bytes": 1024000},
    {"tokens": 1024, "share": "0.3", "measured_bytes": 307200},
]
HELD = {"model": "tiny", "bytes_per_token": 1000, "rows": ROWS}


def test_a_line_is_share_times_tokens_times_bytes_of_a_token():
    found = drawing_checks.by_gid(drawing_checks.drawn(memory.memory, HELD))
    for share, factor in (("full", 1.0), ("0.5", 0.5), ("0.3", 0.3)):
        (line,) = found[f"line-{share}"]
        for tokens, height in zip(line.get_xdata(), line.get_ydata(), strict=True):
            assert height == pytest.approx(factor * tokens * 1000)


def test_full_half_and_three_tenths_are_always_drawn_and_other_shares_where_measured():
    lines = {gid for gid in drawing_checks.by_gid(drawing_checks.drawn(memory.memory, HELD)) if gid.startswith("line")}
    assert lines == {"line-full", "line-0.5", "line-0.3"}
    more = HELD | {"rows": [*ROWS, ROWS[0] | {"share": "0.1"}]}
    assert "line-0.1" in drawing_checks.by_gid(drawing_checks.drawn(memory.memory, more))


def test_markers_are_the_measurements():
    found = drawing_checks.by_gid(drawing_checks.drawn(memory.memory, HELD))
    assert "measured-0.5" not in found
    (points,) = found["measured-0.3"]
    assert list(points.get_xdata()) == [1024, 4096]
    assert list(points.get_ydata()) == [307200, 1300000]
    (points,) = found["measured-full"]
    assert list(zip(points.get_xdata(), points.get_ydata(), strict=True)) == [(1024, 1024000)]


def test_no_two_lines_and_no_two_markers_look_alike():
    figure = drawing_checks.drawn(memory.memory, HELD | {"rows": [*ROWS, ROWS[0] | {"share": "0.1"}]})
    lines = figure.axes[0].get_lines()
    dashes = [str(line._dash_pattern) for line in lines if line.get_gid().startswith("line")]
    markers = [line.get_marker() for line in lines if line.get_gid().startswith("measured")]
    assert len(set(dashes)) == len(dashes) == 4
    assert len(set(markers)) == len(markers) == 3


def test_both_axes_are_logarithmic_with_ticks_at_powers_of_two_bytes():
    figure = drawing_checks.drawn(memory.memory, HELD)
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1,024", "4,096"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "256 KiB",
        "512 KiB",
        "1 MiB",
        "2 MiB",
        "4 MiB",
    ]


def test_the_farthest_measurements_from_their_lines_are_said():
    # 1,024,000 / 1,024,000 and 1,300,000 / 1,228,800
    assert "Measured over computed: 1.000 to 1.058" in drawing_checks.said(drawing_checks.drawn(memory.memory, HELD))


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**20, "1 MiB"), (2**34, "16 GiB")]
)
def test_bytes_are_printed_in_their_largest_unit(count, text):
    assert memory.printed(count) == text


def test_every_text_lies_on_the_page_and_on_no_other():
    rows = [ROWS[0] | {"tokens": 1024 * 2**i, "measured_bytes": 10**9} for i in range(8)]
    for held in (HELD, HELD | {"rows": ROWS[:1]}, HELD | {"rows": rows, "model": "a model " * 20}):
        figure = drawing_checks.drawn(memory.memory, held)
        assert drawing_checks.off_the_page(figure) == []
        assert drawing_checks.overlapping(figure) == []


def test_two_drawings_are_the_same_bytes(tmp_path):
    source = tmp_path / "memory.json"
    source.write_text(json.dumps(HELD))
    one, two = (memory.draw(source, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in one] == ["memory.svg", "memory.png"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"bytes_per_token": 0.5}, "bytes_per_token: 0.5"),
        ({"rows": [ROWS[0] | {"share": 0.3}]}, "rows[0].share: 0.3 is not a share"),
        ({"rows": [ROWS[0] | {"share": "1.5"}]}, "rows[0].share: '1.5'"),
        ({"rows": [ROWS[0] | {"share": "0.0"}]}, "rows[0].share: '0.0'"),
        ({"rows": [ROWS[0] | {"measured_bytes": -1}]}, "rows[0].measured_bytes: -1"),
        ({"rows": [ROWS[0], ROWS[0]]}, "rows[1]: a second row of tokens 4096, share 0.3"),
    ],
)
def test_measurements_that_cannot_be_drawn_are_refused_in_one_line(tmp_path, capsys, change, named):
    source = tmp_path / "memory.json"
    source.write_text(json.dumps(HELD | change))
    assert memory.main([str(source), str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert named in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
