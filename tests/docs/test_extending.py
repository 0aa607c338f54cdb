"""docs/extending.md is followed in another tree, to the letter, and what it adds works there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studies
import test_layers
from studies import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"^```(python|diff) (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    return {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


def added(text: str, changes: str) -> str:
    """`text` with each line that begins with + after the line above it, which occurs in it once, or in its
    place if that begins with -.
    """
    lines, above = text.splitlines(), " "
    for change in changes.splitlines():
        if change.startswith("+"):
            assert lines.count(above[1:]) == 1, above
            place = lines.index(above[1:])
            lines[place + (not above.startswith("-")) : place + 1] = [change[1:]]
        above = change
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """The packages with everything of the page added."""
    tree = studies.copy_tree(tmp_path_factory.mktemp("tree"))
    (tree / "benchmarks").mkdir()
    for kind, name, text in BLOCKS:
        path = tree / name
        assert path.exists() == (kind == "diff"), name
        path.write_text(text if kind == "python" else added(path.read_text(), text))
    return tree


def run(tree: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_section_lists_the_files_that_its_blocks_touch():
    for heading, section in sections().items():
        listed = re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)
        touched = [name for _, name in re.findall(r"^```(python|diff) (\S+)$", section, re.MULTILINE)]
        assert touched, heading
        assert set(touched) <= set(listed), heading
        for path in set(listed) - set(touched):
            assert "kv-prereg" in section or "python -m" in section or (ROOT / path).exists(), path


def test_the_tree_keeps_to_the_rules_of_its_rooms(tree):
    assert test_layers.violations(tree) == []
    assert test_layers.circles(test_layers.graph(tree)) == []


KEEPS = """
import torch
import policies
from policies.signals import KeyAndValue, Norms

assert "small-values" in policies.names()
norms = torch.tensor([[3.0, 1.0, 2.0, 5.0, 4.0, 6.0]])
view = policies.View(torch.arange(6), 1, 1, frozenset(), 0, {Norms(): (KeyAndValue(-norms, norms),)})
policy = policies.get("small-values", protect=policies.Protect(sinks=1, recent=1))
print(policy.keep(view, 4).nonzero()[:, 2].tolist(), [*policies.diff(policy, policies.get("knorm"))])

from analysis.hypotheses.policy_hypotheses import DECLARED

assert DECLARED.keys() == set(policies.names())
"""


def test_a_policy_is_named_and_keeps_a_set(tree):
    assert run(tree, "-c", KEEPS) == "[0, 1, 2, 5] ['scoring', 'protect']\n"


BUILDS = """
import splits
from protocol import tasks
from protocol.tasks.__main__ import main

main(["freeze", "sums"])
main(["list"])
print(tasks.build("sums", splits.load("sums").dev[0], len))
"""


def test_a_task_is_frozen_listed_and_built(tree):
    out = run(tree, "-c", BUILDS)
    assert re.search(r"^sums  \d+ dev, \d+ confirm$", out, re.MULTILINE)
    first, other, gold = map(int, re.findall(r"(?:number is |gold=')(\d+)", out.splitlines()[-1]))
    assert first + other == gold
    assert (tree / "splits" / "sums.json").exists()


DECIDES = """
import json
import sys
from pathlib import Path

from analysis.rules import RULES
from analysis.simulation import self_test
from analysis.simulation.simulated_studies import Plan
from protocol.plan import grid, reading

text = Path(sys.argv[1], "protocol.toml").read_text()
for old, new in {'"superior"': '"everywhere"', "at_least = 1": "", '"bootstrap"': '"t"'}.items():
    assert text.count(old) == 1, old
    text = text.replace(old, new)
protocol = reading.parse(text.encode(), "protocol.toml")
content, items = protocol.content(), json.loads(Path(sys.argv[1], "lock.json").read_bytes())["items"]
said = self_test.tried(Plan(content, [list(cell) for cell in grid.cells(protocol)], items))
print(*said["verdicts"].values(), len(said["gates"]), RULES[content["decision"]["rule"]].source)
"""


def test_a_rule_is_registered_says_each_verdict_and_notices_its_gates(tree):
    out = run(tree, "-c", DECIDES, ROOT / "registrations" / "crystal-long")
    assert out == "CONFIRMED INCONCLUSIVE REFUTED 5 analysis/rules/everywhere.py\n"


DRAWS = """
import sys
from pathlib import Path

from figures import study
from figures.drawing import page

write, names = page.write, []


def written(target, drawing, *data, **how):  # the toy; of the others the names, which is quicker
    if "name" not in how:  # one is drawn narrow too
        names.append(drawing.__name__)
    return write(target, drawing, *data) if drawing.__name__ == "lengths" else ()


page.write = written
drawn = study.draw(Path(sys.argv[1]))
print(*names, *(path.name for path in drawn))
"""


def test_a_drawing_is_drawn_with_those_that_apply(tree, tmp_path):
    source, folder = ROOT / "registrations" / "quickstart", tmp_path / "quickstart"
    for name in ("lock.json", "verdict.json", "records/shard-0.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, folder / name)
    names = ["forest", "accuracy", "lengths", "budget_curve", "needle"]
    assert run(tree, "-c", DRAWS, folder).split() == [*names, "lengths.svg", "lengths.png"]
    assert (folder / "figures" / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_has_its_help_and_its_manners(tree):
    asked = "import contextlib, sys; from protocol import sizes\n"
    helped = "with contextlib.suppress(SystemExit): sizes.main(['--help'])\n"
    counted = "sys.exit(sizes.main([sys.argv[1], '--json']))"
    out = run(tree, "-c", asked + helped + counted, ROOT / "registrations" / "quickstart")
    assert out.startswith("usage: kv-prereg sizes ")
    assert "Exit status: 0 counted" in out
    seal = json.loads((ROOT / "registrations" / "quickstart" / "seal.json").read_text())
    assert json.loads(out.splitlines()[-1]) == {"lanes": seal["expected"]}
