import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import looking
import pytest

from analysis.studies.study_files import read
from figures import study
from figures.canvas import page
from figures.plots.accuracy import accuracy, solved
from figures.plots.needle import needle, placed

ROOT = Path(__file__).parents[3]
SHIPPED = [ROOT / "registrations" / name for name in ("quickstart", "retrieval")]


def copied(source: Path, target: Path) -> Path:
    """What a drawing reads, and nothing else of a registration."""
    (target / "records").mkdir(parents=True)
    for name in ("lock.json", "verdict.json", "records/shard-0.jsonl"):
        shutil.copy(source / name, target / name)
    return target


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory) -> Path:
    return copied(SHIPPED[0], tmp_path_factory.mktemp("drawn") / "quickstart")


def test_a_study_of_baselines_with_a_needle_gets_forest_accuracy_and_needle(quickstart):
    drawn = study.draw(quickstart)
    names = ["forest", "accuracy", "needle"]
    assert [path.name for path in drawn] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
    assert sorted(drawn) == sorted((quickstart / "figures").iterdir())


def test_a_study_that_is_compressed_while_decoding_gets_trajectories_and_the_collapse_of_answers(
    tmp_path,
):
    source = ROOT / "registrations" / "crystal-long"
    folder = copied(source, tmp_path / "study")
    shutil.copytree(source / "records" / "trajectories", folder / "records" / "trajectories")
    drawn = [path.name for path in study.draw(folder)]
    kinds = [f"{name}.{kind}" for name in ("trajectories", "collapse") for kind in ("svg", "png")]
    assert drawn[-5:] == [*kinds, "collapse.md"]


def test_a_study_whose_problems_have_levels_gets_a_line_over_them(tmp_path):
    folder = copied(SHIPPED[0], tmp_path / "study")
    for name in ("lock.json", "records/shard-0.jsonl"):
        text = (folder / name).read_text()
        (folder / name).write_text(re.sub(r'"needle/768/(0[.]?\d*|1)/(\d+)"', r'"chain/12/\1-\2"', text))
    cite(folder)
    assert [path.stem for path in study.draw(folder)[::2]] == ["forest", "accuracy", "levels"]


def test_a_clean_process_draws_the_same_bytes(quickstart, tmp_path):
    here = study.draw(quickstart)
    there = copied(SHIPPED[0], tmp_path / "quickstart")
    command = [sys.executable, "-m", "figures.study", str(there)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(there / "figures" / path.name) for path in here]
    for path in here:
        assert (there / "figures" / path.name).read_bytes() == path.read_bytes()
        assert b"<dc:date>" not in path.read_bytes()


def test_a_study_of_variants_gets_bars_too_and_one_without_a_needle_no_heat_map(tmp_path):
    folder = copied(SHIPPED[0], tmp_path / "study")
    rename(
        folder, {"snapkv": "crystal-a", "h2o": "crystal-b", "streaming": "crystal-c", "random": "crystal-d"}
    )
    rename(folder, {"needle/768": "other/768"})
    assert [path.stem for path in study.draw(folder)[::2]] == ["forest", "accuracy", "ablation"]


def rename(folder: Path, names: dict[str, str]) -> None:
    """Another study of the same form."""
    for path in (folder / "lock.json", folder / "records" / "shard-0.jsonl", folder / "verdict.json"):
        text = path.read_text()
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old}/', f'"{new}/')
        path.write_text(text)
    cite(folder)


def cite(folder: Path) -> None:
    """Let the records cite the lock as it is now."""
    lock, shard = folder / "lock.json", folder / "records" / "shard-0.jsonl"
    digest = hashlib.sha256(lock.read_bytes().removesuffix(b"\n")).hexdigest()
    shard.write_text(
        re.sub(r'"registration":"[0-9a-f]{64}"', f'"registration":"{digest}"', shard.read_text())
    )


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_accuracies_are_the_judged_ones(folder):
    judged, lanes = page.judged(folder), read(folder).lanes
    by_arm = lanes.groupby(["model", "task", "budget", "arm"])
    for one in judged["arms"]:
        found = solved(by_arm.get_group(tuple(one[name] for name in ("model", "task", "budget", "arm"))))
        assert f"{found.mean:.6f}" == one["accuracy"]
        assert found.problems == one["n"]
        assert found.low <= found.mean <= found.high


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_the_cells_of_a_heat_map_are_the_lines_of_the_shard_counted_by_hand(folder):
    counts: dict[tuple[str, ...], list[bool]] = {}
    for line in (folder / "records" / "shard-0.jsonl").read_text().splitlines():
        body = json.loads(line)["body"]
        family, length, depth, _ = body["problem"].split("/")
        if family == "needle":
            cell = body["cell"]
            key = (cell["model"], cell["budget"], cell["arm"], cell["task"], length, depth)
            counts.setdefault(key, []).append(body["grade"] == "correct")
    found = {(*one[:4], str(one.length), one.depth): one for one in placed(read(folder).lanes)}
    assert found.keys() == counts.keys()
    for key, grades in counts.items():
        assert found[key].problems == len(grades)
        assert found[key].accuracy == pytest.approx(sum(grades) / len(grades))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_every_text_of_a_shipped_study_lies_on_the_page_and_on_no_other(folder):
    judged, lanes = page.judged(folder), read(folder).lanes
    for drawing, data in ((accuracy, lanes), (needle, placed(lanes))):
        figure = looking.drawn(drawing, judged, data)
        assert looking.off_the_page(figure) == []
        assert looking.overlapping(figure) == []


@pytest.mark.parametrize(
    ("absent", "named"),
    [("verdict.json", "NoVerdict"), ("lock.json", "RecordError"), ("records/shard-0.jsonl", "RecordError")],
)
def test_a_folder_without_verdict_or_records_is_refused_in_one_line(tmp_path, capsys, absent, named):
    folder = copied(SHIPPED[0], tmp_path / "study")
    (folder / absent).unlink()
    assert study.main([str(folder)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"{named}: ")
    assert said.err.count("\n") == 1
    assert not (folder / "figures").exists()


def test_importing_the_drawings_loads_neither_torch_nor_a_display():
    code = "import sys, figures.study; print([m for m in ('torch', "
    code += "'transformers', 'protocol', 'policies', 'matplotlib.pyplot') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
