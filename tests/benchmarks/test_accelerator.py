"""What waits for an accelerator runs here on tiny shapes, part by part, through the same functions."""

import pytest
import torch

from benchmarks import accelerator, at_work
from benchmarks.accelerator import PARTS

# Scripts with tests of their own run here in the time of `make soak`.
QUICK = ("freed", "throughput", "company", "competitors", "choices")


@pytest.mark.parametrize("name", QUICK)
def test_a_part_makes_its_table_on_tiny_shapes(name):
    table = accelerator.measured(name, tiny=True)
    assert "random-tiny, float32 on cpu" in table
    assert table.count("\n| ") >= 3, table
    if name == "company":
        assert table.count("| equal |") == 3, "two equal runs of a lane say the same"
    if name == "throughput":
        rows = [line.split("|")[1:] for line in table.splitlines() if line.startswith(("| all", "| 48"))]
        assert all(int(row[2]) == 4 and int(row[3]) == 0 for row in rows), "as many as are tried"


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in PARTS if name not in QUICK])
def test_every_other_part_makes_its_table_too(name):
    assert "| --- |" in accelerator.measured(name, tiny=True)


def test_a_part_that_fails_stops_no_other_and_is_tried_again(tmp_path, capsys):
    called = []

    def run(name, tiny, seconds):
        called.append(name)
        if name == "signals" and called.count(name) == 1:
            raise RuntimeError("CUDA error:\n an illegal memory access")
        return f"| {name} |"

    assert accelerator.ran(["sweep", "signals", "crystal"], tmp_path, True, 500.0, run) == 1
    said = capsys.readouterr()
    assert "| signals | failed |" in said.out
    assert "CUDA error: an illegal memory access" in said.out
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.md", "crystal.md"}
    assert accelerator.ran(["sweep", "signals", "crystal"], tmp_path, True, 500.0, run) == 0
    assert called == ["sweep", "signals", "crystal", "signals"], "what was measured is not measured again"


def test_no_part_begins_that_could_not_end(tmp_path, capsys):
    assert accelerator.ran(["sweep", "signals"], tmp_path, True, accelerator.LEAST - 1, None) == 2
    assert "failed or left: sweep signals" in capsys.readouterr().err


def test_without_an_accelerator_the_command_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        accelerator.main(["--part", "sweep"])
    assert "--tiny tries every part on the CPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("memory", "fits", "found", "short"),
    [
        (40, 40, 40, 0),  # one more try, of 44, is too many
        (60, 40, 44, 0),  # arithmetic was too careful, by what one more try shows
        (40, 44, 39, 1),  # 44 is too many, 39 is not
        (0, 3, 0, 3),  # 3, 2, 1
        (900, 900, 512, 0),
    ],
)
def test_the_most_lanes_are_tried_around_what_arithmetic_says(memory, fits, found, short):
    def act(lanes):
        if lanes > memory:
            raise torch.OutOfMemoryError("out of memory")

    assert at_work.most(fits, act) == (found, short)
