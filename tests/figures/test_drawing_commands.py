"""What holds for every command that draws or prints: forest, study, report, settings_map and table."""

import json
import subprocess
import sys
from collections import Counter

import judgements
import pytest
import reports

from figures import forest, report, settings_map, study, table
from protocol.formats.vocabulary import RERUN_SUFFIX

COMMANDS = {"forest": forest, "study": study, "report": report, "settings_map": settings_map, "table": table}


def python(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=reports.ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.soak
def test_a_clean_process_writes_the_same_bytes(quickstart, tmp_path):
    there = reports.copied(tmp_path / quickstart.parent.name / "quickstart")
    done = python("-m", "figures.report", there)
    assert (done.returncode, done.stdout) == (0, f"{there / 'report.html'}\n"), done.stderr
    for path in [quickstart / "report.html", *(quickstart / "figures").iterdir()]:
        assert (there / path.relative_to(quickstart)).read_bytes() == path.read_bytes()


def test_importing_the_commands_loads_neither_torch_nor_a_display():
    absent = ("torch", "transformers", "policies", "matplotlib.pyplot")
    modules = ", ".join(f"figures.{name}" for name in COMMANDS)
    done = python("-c", f"import sys, {modules}; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert not loaded & set(absent)
    of_protocol = {name for name in loaded if name.startswith("protocol.") and name.count(".") == 1}
    read = {f"protocol.{name}" for name in ("formats", "instruments", "evidence", "lock")}
    assert (of_protocol, done.stderr) == (read, "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("content", ["no folder", "a file", None, "", "[]", "{}", '{"judged"', '{"judged": 1}'])
def test_a_place_without_a_verdict_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys, name, content):
    folder = tmp_path / "study"
    if content == "a file":
        folder.write_text("{}")
    elif content != "no folder":
        folder.mkdir()
        if content is not None:
            (folder / "verdict.json").write_text(content)
    before = sorted(tmp_path.rglob("*"))
    assert COMMANDS[name].main([str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(("NoVerdict: ", "RecordError: "))
    assert str(folder) in printed.err
    assert printed.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["study", "report", "settings_map"])
@pytest.mark.parametrize("absent", ["lock.json", "records/shard-0.jsonl"])
def test_a_verdict_without_its_records_is_refused_in_one_line(tmp_path, capsys, name, absent):
    folder = reports.copied(tmp_path / "study")
    (folder / absent).unlink()
    assert COMMANDS[name].main([str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("RecordError: ")
    assert printed.err.count("\n") == 1
    assert not (folder / "figures").exists()


def test_the_forest_alone_needs_the_verdict_alone_and_prints_the_files_that_it_drew(tmp_path, capsys):
    assert forest.main([str(judgements.write(tmp_path, judgements.judgement()))]) == 0
    drawn = [tmp_path / "figures" / name for name in ("forest.svg", "forest.png")]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in drawn]
    before = svg, png = [path.read_bytes() for path in drawn]
    assert len(svg) > 10_000
    assert png.startswith(b"\x89PNG")
    forest.draw(tmp_path)
    assert [path.read_bytes() for path in drawn] == before


def test_the_table_of_a_folder_is_that_of_its_verdict(tmp_path, capsys):
    judged = judgements.judgement()
    assert table.main([str(judgements.write(tmp_path, judged))]) == 0
    assert capsys.readouterr().out == f"{table.verdict_table(judged)}\n"


@pytest.fixture
def drawn(monkeypatch):
    """What the heat map would draw: its judgement, its grid, and the answers of its cells by arm."""
    made = []

    def write(folder, drawing, judged, lock, of, panels):
        sums = {arm: sum(panel.cells[place].n_matching for panel in panels) for place, arm in of.arms.items()}
        made.append((judged, of, sums))
        return (folder / f"{drawing.__name__}.svg",)

    monkeypatch.setattr(settings_map.page, "write_drawing", write)
    return made


def correct(folder, shards) -> Counter:
    lines = (folder / shards / "shard-0.jsonl").read_text().splitlines()
    bodies = [json.loads(line)["body"] for line in lines]
    return Counter(body["cell"]["arm"] for body in bodies if body["grade"] == "correct")


def test_the_heat_map_is_of_held_out_problems_once_judged_and_of_development_problems_before(tmp_path, capsys, drawn):
    folder = reports.gridded(tmp_path / "study")
    assert settings_map.main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'figures' / 'settings_map.svg'}\n"
    (folder / "verdict.json").unlink()
    assert settings_map.main([str(folder), "--rows", "scoring.y"]) == 0
    (judged, by_x, held_out), (none, by_y, developed) = drawn
    assert judged["verdict"] == "INCONCLUSIVE"
    assert none is None
    assert (by_x.rows, by_y.rows) == ("scoring.x", "scoring.y")
    for sums, shards in ((held_out, "records"), (developed, "probe")):
        counted = correct(folder, shards)
        assert sums == {arm: counted[arm] for arm in sums}
    assert any(arm.endswith(RERUN_SUFFIX) for arm in correct(folder, "probe")), "which is no cell"


def test_a_heat_map_reads_no_held_out_record_before_the_verdict(tmp_path, drawn):
    folder = reports.gridded(tmp_path / "study")
    (folder / "verdict.json").unlink()
    (folder / "records" / "shard-0.jsonl").write_text("not a record")
    assert settings_map.main([str(folder)]) == 0


def test_what_forms_no_grid_is_refused_in_one_line_and_nothing_is_drawn(tmp_path, capsys, drawn):
    folder = reports.gridded(tmp_path / "study")
    assert settings_map.main([str(folder), "--columns", "scoring.z"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "NoGrid: scoring.z: no arm has this setting; choose a setting from the policies in the lock\n"
    assert (printed.out, drawn) == ("", [])
