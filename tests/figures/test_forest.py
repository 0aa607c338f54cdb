import re
import subprocess
import sys
from pathlib import Path

import judgements
import pytest
from matplotlib.colors import same_color

from figures import forest
from figures.canvas import numbers


def drawn(judged: dict) -> dict[str, list]:
    """Lines of the axes by gid."""
    (axes,) = forest.forest(judged).axes
    found: dict[str, list] = {}
    for line in axes.get_lines():
        found.setdefault(line.get_gid(), []).append(line)
    return found


def texts(judged: dict) -> list[str]:
    figure = forest.forest(judged)
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts]]


JUDGED = judgements.judgement()
SNAPKV, H2O, RANDOM, LACACHE, STREAMING = range(5)


# ---------------------------------------------------------------- what is drawn is what was judged


@pytest.mark.parametrize("judged", [JUDGED, judgements.sixteen()], ids=["five", "sixteen"])
def test_drawn_points_and_nominal_intervals_are_the_judged_ones(judged):
    lines = drawn(judged)
    for index, one in enumerate(judged["contrasts"]):
        if one["difference"] is None:
            assert f"point-{index}" not in lines
            continue
        (point,), (nominal,) = lines[f"point-{index}"], lines[f"nominal-{index}"]
        assert point.get_xdata()[0] == pytest.approx(100 * float(one["difference"]))
        assert list(nominal.get_xdata()) == pytest.approx([100 * float(one[end]) for end in ("low", "high")])
        assert point.get_ydata()[0] == nominal.get_ydata()[0] == nominal.get_ydata()[1]


def test_simultaneous_intervals_are_the_judged_ones_where_they_fit():
    lines = drawn(JUDGED)
    for index, name in ((SNAPKV, "snapkv"), (H2O, "h2o"), (RANDOM, "random")):
        expected = [100 * float(end) for end in judgements.FIVE[name][3:5]]
        if index == SNAPKV:
            expected[1] = forest.forest(JUDGED).axes[0].get_xlim()[1]  # 23.3 lies beyond the axis
        assert list(lines[f"simultaneous-{index}"][0].get_xdata()) == pytest.approx(expected), name


def test_a_clipped_interval_ends_at_the_axis_with_an_arrow_on_that_side():
    left, right = forest.forest(JUDGED).axes[0].get_xlim()
    lines = drawn(JUDGED)
    arrows = {
        gid: [(line.get_marker(), line.get_xdata()[0]) for line in found]
        for gid, found in lines.items()
        if gid.startswith("clipped")
    }
    assert arrows == {
        f"clipped-{SNAPKV}": [(">", pytest.approx(right))],
        f"clipped-{LACACHE}": [("<", pytest.approx(left)), (">", pytest.approx(right))],
    }
    assert list(lines[f"simultaneous-{LACACHE}"][0].get_xdata()) == pytest.approx([left, right])


def test_no_interval_is_clipped_where_all_fit():
    row = judgements.contrast("h2o", *judgements.FIVE["h2o"])
    row |= {"low_simultaneous": "-0.050000", "high_simultaneous": "0.050000"}
    assert not [gid for gid in drawn(judgements.judgement([row])) if gid.startswith("clipped")]


def test_the_axis_shows_zero_and_five_points_on_both_sides():
    row = judgements.contrast("h2o", "0.3", "0.2", "0.4", "0.1", "0.5", "0.0001", True, False, True)
    left, right = forest.forest(judgements.judgement([row])).axes[0].get_xlim()
    assert left <= -5
    assert right >= 40
    (zero,) = drawn(judgements.judgement([row]))["zero"]
    assert set(zero.get_xdata()) == {0}


@pytest.mark.parametrize(
    ("index", "marker", "filled"),
    [(SNAPKV, "D", True), (LACACHE, "D", True), (H2O, "o", False), (RANDOM, "D", False)],
)
def test_only_what_passes_with_matched_memory_is_a_filled_diamond(index, marker, filled):
    (point,) = drawn(JUDGED)[f"point-{index}"]
    assert point.get_marker() == marker
    assert bool(same_color(point.get_markerfacecolor(), "white")) != filled


def test_unmatched_rows_carry_a_dagger_and_rows_without_estimate_say_so():
    axes = forest.forest(JUDGED).axes[0]
    rows = {text.get_text(): text.get_position()[1] for text in axes.texts if "against" in text.get_text()}
    at = [(text.get_text(), text.get_position()[1]) for text in axes.texts]
    assert [y for text, y in at if text == "†"] == [rows["against random"]]
    assert [y for text, y in at if text == "not estimated"] == [rows["against streaming"]]
    assert ("1.250", rows["against random"]) in at


def test_every_row_prints_its_numbers_beside_its_point():
    axes, lines = forest.forest(JUDGED).axes[0], drawn(JUDGED)
    y = lines[f"point-{LACACHE}"][0].get_ydata()[0]
    row = {text.get_text() for text in axes.texts if text.get_position()[1] == y}
    assert row == {
        "against lacache",
        "\N{MINUS SIGN}9.4",
        "[\N{MINUS SIGN}14.6, \N{MINUS SIGN}4.2]",
        "0.0010",
        "96",
        "1.004",
    }


def test_groups_are_headed_by_model_task_and_budget():
    judged = judgements.sixteen()
    heads = [text for text in texts(judged) if " · budget " in text]
    assert len(heads) == 8
    assert heads[0] == "smollm2-135m · needle-512 · budget 0.25"
    assert len(drawn(judged)["zero"]) == 8
    assert sum(text.startswith("against ") for text in texts(judged)) == 16


def test_verdict_label_and_rule_head_the_figure():
    found = texts(JUDGED)
    assert "INCONCLUSIVE, screening-grade, UNANCHORED" in found
    assert any("crystal better in at least 3 of 5 contrasts" in text and "0.01" in text for text in found)
    branch = judgements.judgement(
        rule="branch", branch={"registered": "A", "symmetric": "B"}, verdict="CONFIRMED", at_least=None
    )
    assert "CONFIRMED (branch A; symmetric B), screening-grade, UNANCHORED" in texts(branch)


def test_every_text_lies_on_the_page():
    for judged in (JUDGED, judgements.sixteen()):
        figure = forest.forest(judged)
        figure.canvas.draw()
        page = figure.bbox
        for text in [*figure.texts, *figure.axes[0].texts]:
            box = text.get_window_extent()
            assert page.x0 <= box.x0, text
            assert box.x1 <= page.x1, text
            assert page.y0 <= box.y0, text
            assert box.y1 <= page.y1, text


# ---------------------------------------------------------------- files


def test_two_drawings_of_one_verdict_are_the_same_bytes(tmp_path):
    one, two = (forest.draw(judgements.write(tmp_path / name, JUDGED)) for name in ("a", "b"))
    assert [path.name for path in one] == ["forest.svg", "forest.png"]
    assert one[0].parent == tmp_path / "a" / "figures"
    assert one[0].read_bytes() == two[0].read_bytes()
    assert one[1].read_bytes() == two[1].read_bytes()
    assert forest.draw(tmp_path / "a")[0].read_bytes() == two[0].read_bytes()


def test_the_drawing_names_no_date_and_no_version(tmp_path):
    svg = forest.draw(judgements.write(tmp_path, JUDGED))[0].read_text()
    assert "<dc:date>" not in svg
    assert not re.search(r"Matplotlib v\d", svg)


def test_a_clean_process_draws_the_same_bytes(tmp_path):
    here = forest.draw(judgements.write(tmp_path / "a", JUDGED))
    judgements.write(tmp_path / "b", JUDGED)
    assert command("-m", "figures.forest", tmp_path / "b").returncode == 0
    assert (tmp_path / "b" / "figures" / "forest.svg").read_bytes() == here[0].read_bytes()


def command(*arguments: object) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=root, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"judged"'])
def test_a_folder_without_a_verdict_is_refused_in_one_line(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "verdict.json").write_text(content)
    assert forest.main([str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("NoVerdict: ")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "figures").exists()


def test_the_command_prints_the_files_that_it_drew(tmp_path, capsys):
    assert forest.main([str(judgements.write(tmp_path, JUDGED))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "figures" / name) for name in ("forest.svg", "forest.png")
    ]


def test_importing_figures_loads_neither_torch_nor_a_display():
    code = (
        "import sys, figures.forest, figures.table; print([m for m in ('torch', 'transformers', 'protocol',"
    )
    code += " 'matplotlib.pyplot') if m in sys.modules])"
    done = command("-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("decimal", "printed"),
    [
        ("0.123456", "+12.3"),
        ("-0.041667", "\N{MINUS SIGN}4.2"),
        ("0.000000", "0.0"),
        ("-0.000400", "0.0"),
        ("1.000000", "+100.0"),
    ],
)
def test_differences_are_signed_percentage_points(decimal, printed):
    assert numbers.points(decimal) == printed


@pytest.mark.parametrize(
    ("decimal", "printed"), [("0.000099", "<0.0001"), ("0.0001", "0.0001"), ("1.0", "1.0000")]
)
def test_a_small_p_is_bounded_and_never_printed_as_zero(decimal, printed):
    assert numbers.p_value(decimal) == printed
