"""What holds for every command that draws or prints: forest, study, report and table."""

import subprocess
import sys

import judgements
import pytest
import reports

from figures import forest, report, study, table

COMMANDS = {"forest": forest, "study": study, "report": report, "table": table}


def python(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=reports.ROOT, capture_output=True, text=True, timeout=300)


def test_a_clean_process_writes_the_same_bytes(quickstart, tmp_path):
    there = reports.copied(tmp_path / quickstart.parent.name / "quickstart")
    done = python("-m", "figures.report", there)
    assert (done.returncode, done.stdout) == (0, f"{there / 'report.html'}\n"), done.stderr
    for path in [quickstart / "report.html", *(quickstart / "figures").iterdir()]:
        assert (there / path.relative_to(quickstart)).read_bytes() == path.read_bytes()


def test_importing_the_commands_loads_neither_torch_nor_a_display():
    absent = ("torch", "transformers", "protocol", "policies", "matplotlib.pyplot")
    modules = ", ".join(f"figures.{name}" for name in COMMANDS)
    done = python("-c", f"import sys, {modules}; print([name for name in {absent} if name in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "content", ["no folder", "a file", None, "", "[]", "{}", '{"judged"', '{"judged": 1}']
)
def test_a_place_without_a_verdict_is_refused_in_one_line_and_nothing_is_written(
    tmp_path, capsys, name, content
):
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


@pytest.mark.parametrize("name", ["study", "report"])
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
