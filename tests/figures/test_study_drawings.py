import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawing_checks
import pytest
import reports
import studies
from matplotlib.figure import Figure

from analysis.judgement.study_files import read_study
from figures import study
from figures.drawing import page
from figures.plots.accuracy import accuracy, arm_accuracy
from figures.plots.divergence import divergence, read_divergences
from figures.plots.needle import needle, needle_cells

SHIPPED = [reports.SHIPPED / name for name in ("quickstart", "retrieval")]
# Of two budgets; a study of one has no curve.
WITH_A_NEEDLE = ["forest", "accuracy", "budget_curve", "needle"]
LONG = reports.SHIPPED / "crystal-long"


@pytest.fixture
def named(monkeypatch):
    """Which drawings a study gets, without drawing them."""
    monkeypatch.setattr(page, "write_drawing", lambda folder, drawing, *data: (Path(drawing.__name__),))
    return lambda folder: [path.name for path in study.draw(folder)]


def test_a_study_of_baselines_with_a_needle_gets_forest_accuracy_and_needle(quickstart):
    names = [f"{name}.{kind}" for name in WITH_A_NEEDLE for kind in ("svg", "png")]
    assert sorted(path.name for path in (quickstart / "figures").iterdir()) == sorted(names)


def test_a_drawing_names_its_producer_and_no_date(quickstart):
    for path in (quickstart / "figures").iterdir():
        assert not re.search(rb"<dc:date>|Matplotlib v\d", path.read_bytes())
        assert b"kv-prereg figures " in path.read_bytes()


def test_the_command_prints_the_files_that_it_drew(quickstart, capsys, named):
    assert study.main([str(quickstart)]) == 0
    assert capsys.readouterr().out.splitlines() == WITH_A_NEEDLE


def test_a_study_that_is_compressed_while_decoding_gets_trajectories_and_the_collapse_of_answers(tmp_path, monkeypatch):
    """The same bytes each time. The other drawings are not made here: a clean process makes them of quickstart."""
    write = page.write_drawing

    def write_own(folder: Path, drawing: Callable[..., Figure], *data: Any) -> tuple[Path, ...]:
        return write(folder, drawing, *data) if drawing.__name__ in ("trajectories", "collapse") else ()

    monkeypatch.setattr(page, "write_drawing", write_own)
    one, other = (reports.copied(tmp_path / name, LONG.name) for name in ("one", "other"))
    drawn = [path.name for path in study.draw(one)]
    kinds = [f"{name}.{kind}" for name in ("trajectories", "collapse") for kind in ("svg", "png")]
    assert drawn == [*kinds, "collapse.md"]
    study.draw(other)
    for name in drawn:
        assert (one / "figures" / name).read_bytes() == (other / "figures" / name).read_bytes()


def test_a_study_whose_side_files_were_not_kept_gets_neither(tmp_path, named):
    folder = reports.copied(tmp_path / "study", LONG.name)
    shutil.rmtree(folder / "records" / "trajectories")
    assert named(folder) == ["forest", "accuracy", "ablation"]


def test_a_study_whose_problems_have_levels_gets_a_line_over_them(tmp_path, named):
    folder = reports.copied(tmp_path / "study")
    for name in ("lock.json", "records/shard-0.jsonl"):
        text = (folder / name).read_text()
        (folder / name).write_text(re.sub(r'"needle/768/(0[.]?\d*|1)/(\d+)"', r'"chain/12/\1-\2"', text))
    reports.rewrite(folder)
    assert named(folder) == ["forest", "accuracy", "budget_curve", "levels"]


def test_a_study_of_variants_gets_bars_too_and_one_without_a_needle_no_heat_map(tmp_path, named):
    folder = reports.copied(tmp_path / "study")
    arms = {"snapkv": "crystal-a", "h2o": "crystal-b", "streaming": "crystal-c", "random": "crystal-d"}
    reports.rename(folder, arms | {"needle/768": "other/768"})
    assert named(folder) == ["forest", "accuracy", "budget_curve", "ablation"]


def test_a_study_whose_arms_form_a_grid_gets_a_heat_map_after_its_curves(tmp_path, named):
    folder = reports.gridded(tmp_path / "study")
    assert named(folder) == ["forest", "accuracy", "budget_curve", "settings_map", "needle", "ablation"]


@pytest.mark.soak
def test_the_witness_stands_in_every_drawing(tmp_path, monkeypatch):
    word, said = "ANCHORED (lock by ots block 900000)", {}

    def drawn(folder: Path, drawing: Callable[..., Figure], *data: Any, name: str = "", **_: Any) -> tuple[()]:
        folder.mkdir(exist_ok=True)
        said[name or drawing.__name__] = drawing_checks.said(drawing(*data))
        return ()

    monkeypatch.setattr(page, "write_drawing", drawn)
    for name in ("quickstart", "crystal-long", "alpha-chain"):
        drawings = study.draw(reports.copied(tmp_path / name, name), word)
    others = {"cost_curve", "levels", "ablation", "trajectories", "collapse"}
    assert set(said) == {*WITH_A_NEEDLE, *others}
    assert [name for name, text in said.items() if word not in text] == []
    (text,) = drawings
    assert word in text.read_text()


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_accuracies_are_the_judged_ones(folder):
    judged, lanes = page.read_judged(folder), read_study(folder).lanes
    by_arm = lanes.groupby(["model", "task", "budget", "arm"])
    for arm in judged["arms"]:
        found = arm_accuracy(by_arm.get_group(tuple(arm[name] for name in ("model", "task", "budget", "arm"))))
        assert f"{found.mean:.6f}" == arm["accuracy"]
        assert found.problems == arm["n"]
        assert found.low <= found.mean <= found.high


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_the_cells_of_a_heat_map_are_the_lines_of_the_shard_counted_by_hand(folder):
    counts: dict[tuple[str, ...], list[bool]] = {}
    for line in studies.shard_text(folder).splitlines():
        body = json.loads(line)["body"]
        family, length, depth, _ = body["problem"].split("/")
        if family == "needle":
            cell = body["cell"]
            key = (cell["model"], cell["budget"], cell["arm"], cell["task"], length, depth)
            counts.setdefault(key, []).append(body["grade"] == "correct")
    read = read_study(folder)
    found = {(*one[:4], str(one.length), one.depth): one for one in needle_cells(read.lock, read.lanes)}
    assert found.keys() == counts.keys()
    for key, grades in counts.items():
        assert found[key].problems == len(grades)
        assert found[key].accuracy == pytest.approx(sum(grades) / len(grades))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_every_text_of_a_shipped_study_lies_on_the_page_and_on_no_other(folder):
    judged, read = page.read_judged(folder), read_study(folder)
    for drawing, data in ((accuracy, read.lanes), (needle, needle_cells(read.lock, read.lanes))):
        drawing_checks.drawn(drawing, judged, data)


def test_divergence_is_the_mean_of_all_lanes_that_are_so_long(tmp_path):
    """Two lanes of one arm in bins of two positions, counted by hand."""
    folder, cells = tmp_path / "study", [["m", "t", budget, arm, 0] for budget, arm in (("full", "full"), ("8", "a"))]
    (folder / "records").mkdir(parents=True)
    longest, million = 22, 1_000_000
    lanes = {
        "p": {"agrees": "0" + 21 * "1", "nats": [3 * million, *21 * [0]]},
        "q": {"agrees": "010", "nats": [million, 0, 2 * million]},
    }
    bodies = [
        {"phase": "confirm", "cell": dict(zip(("model", "task", "budget", "arm"), cell, strict=False)), "problem": name}
        | ({"divergence": lanes[name]} if cell[3] == "a" else {})
        for cell in cells
        for name in lanes
    ]
    lines = [json.dumps({"body": body}) for body in bodies]
    (folder / "records" / "shard-0.jsonl").write_text("\n".join(lines) + "\n")
    lock = {"protocol": {"content": {"outcome": {"kind": "agreement"}}}, "grid": cells}
    (found,) = read_divergences(folder, lock)
    assert (found.cell, found.arm) == (("m", "t", "8"), "a")
    assert found.positions.tolist() == [1.5 + 2 * number for number in range(longest // 2)]
    assert found.differs.tolist() == [2 / 4, 1 / 3, *9 * [0]]
    assert found.nats.tolist() == [4 / 4, 2 / 3, *9 * [0]]
    figure = divergence(page.read_judged(reports.copied(tmp_path / "judged")), [found])
    lines = {line.get_gid(): line for axes in figure.axes for line in axes.get_lines()}
    assert lines["differs-m/t/8/a"].get_ydata()[0] == 50
    assert lines["nats-m/t/8/a"].get_ydata()[0] == 1
    del lock["protocol"]["content"]["outcome"]
    assert read_divergences(folder, lock) == []
