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


def run(tree: Path, *arguments: object, status: int = 0, also: Path | str = "") -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=tree,
        env={"PYTHONPATH": f"{tree}:{also}", "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, f"{done.stdout}{done.stderr}"
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

from analysis.hypotheses.policy_hypotheses import HYPOTHESES

assert HYPOTHESES.keys() == set(policies.names())
"""


def test_a_policy_is_named_and_keeps_a_set(tree):
    assert run(tree, "-c", KEEPS) == "[0, 1, 2, 5] ['scoring', 'protect']\n"


PACKS = """
import torch
import policies

state = policies.get("1d", {"state": "bf16"}).state
packed = state.codec({}).keys.encode(torch.tensor([[1.5, -0.1]]))
print(state.slot_bytes(32, 4), packed.tolist(), state.codec({}).keys.decode(packed)[0, 0].item())
"""


def test_a_format_is_the_state_of_any_policy_by_its_name(tree):
    assert run(tree, "-c", PACKS) == "128 [[192, 63, 205, 189]] 1.5\n"  # 0x3fc0, and -0.1 as 0xbdcd


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


PROTOCOL = """
title = "Heavy hitters against the newest tokens"
question = "At equal memory, does H2O keep more answers right than the newest tokens?"
models = ["programs-llama"]
seeds = [0]
budgets = [32]
[[tasks]]
name = "facts"
query = "inside"
max_new_tokens = 32
dev = 4
confirm = 12
[arms]
full = { policy = "full" }
h2o = { policy = "h2o" }
streaming = { policy = "streaming" }
[generation]
temperature = 0
dtype = "float32"
device = "cpu"
threads = 1
[gate]
accuracy = 0.5
truncated = 0.1
[decision]
rule = "everywhere"
subject = "h2o"
reviewer = "B. Reader"
against = ["streaming"]
alpha = 0.05
method = "sign-flip"
draws = 10000
seed = 7
cache_tolerance = 0.02
memory = "slots"
missing = "inconclusive"
"""
# The sentences of the rule, wherever they are printed.
LINE = "h2o better in all 1 contrasts"
MEANING = "CONFIRMED asks that every contrast is better. REFUTED: one is worse."
HYPOTHESIS = "Hypothesis: h2o is more accurate in all 1 contrasts."


# From Python: in an unpacked tree, which has tests of its own, torch and scipy would be compiled too. One process for
# all, since each loads them.
COMMANDS = """
import contextlib, io, json, sys
from importlib import import_module

done = []
for name, *arguments in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = import_module(name).main(arguments)
    done.append([status, *(stream.buffer.getvalue().decode() for stream in (out, err))])
print(json.dumps(done))
"""


def run_commands(tree: Path, *commands: tuple[object, ...]) -> list[tuple[int, str, str]]:
    """Run the main functions of these modules, with these arguments; exit status, output and errors of each."""
    asked = json.dumps([[*map(str, command)] for command in commands])
    return [tuple(done) for done in json.loads(run(tree, "-c", COMMANDS, asked).splitlines()[-1])]


@pytest.fixture(scope="module")
def registered(tree) -> Path:
    folder = tree / "registrations" / "everywhere"
    folder.mkdir(parents=True)
    (folder / "protocol.toml").write_text(PROTOCOL)
    ((status, _, errors),) = run_commands(tree, ("protocol.register", folder))
    assert status == 0, errors
    return folder


@pytest.mark.soak
def test_a_field_reaches_the_lock_its_text_and_the_audit(tree, registered, tmp_path):
    lock = json.loads((registered / "lock.json").read_text())
    assert lock["protocol"]["content"]["decision"]["reviewer"] == "B. Reader"
    edited = shutil.copytree(registered, tmp_path / "everywhere")
    studies.edit(edited / "lock.json", "B. Reader", "C. Reader")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "protocol.toml").write_text(PROTOCOL.replace('reviewer = "B. Reader"', "reviewer = 7"))
    exported, audited, refused = run_commands(
        tree,
        ("protocol.export", registered, "--format", "osf"),
        ("protocol.audit", edited),
        ("protocol.register", tmp_path / "wrong"),
    )
    assert "decision.reviewer = B. Reader" in exported[1]
    assert audited[0] == 3
    assert "lock" in audited[1]
    assert refused[0] == 2
    assert "decision.reviewer" in refused[2]


@pytest.mark.soak
def test_a_rule_is_registered_confirmed_sealed_and_reported(tree, registered):
    folder = registered
    lock = json.loads((folder / "lock.json").read_text())
    assert lock["rule"]["source"] == "analysis/rules/everywhere.py"
    assert sorted(lock["checks"]["rule"]["verdicts"].values()) == ["CONFIRMED", "INCONCLUSIVE", "REFUTED"]
    assert "a win too few" in lock["checks"]["rule"]["gates"]
    ((confirmed, printed, _),) = run_commands(tree, ("protocol.confirm", folder))
    drawn = (folder / "report.html").read_text()
    (_, table, _), (reported, *_), (_, osf, _), (_, predicted, _), (audited, *_) = run_commands(
        tree,
        ("figures.table", folder),
        ("figures.report", folder),
        ("protocol.export", folder, "--format", "osf"),
        ("protocol.export", folder, "--format", "aspredicted"),
        ("protocol.audit", folder),
    )
    assert (confirmed, reported, audited) == (11, 0, 0)
    assert (folder / "seal.json").exists()
    assert "figures/report_page/templates/report.html" in lock["sources"]
    judged = json.loads((folder / "verdict.json").read_text())["judged"]
    assert (judged["verdict"], judged["rule"]) == ("SCREENED", "everywhere")
    page = (folder / "report.html").read_text()
    assert MEANING in page
    for text in (printed, drawn, table, page):
        assert LINE in " ".join(text.split())
    for text in (osf, predicted):
        assert HYPOTHESIS in text
        assert "CONFIRMED: every p is at most 0.05" in text


# Twelve problems only screen; what is said of as many as decide needs no model.
DECIDES = """
import judgements
from figures.report_page.answer import format_answer
from figures.table import verdict_table

for word, difference in (("CONFIRMED", "snapkv"), ("REFUTED", "lacache")):
    rows = [judgements.contrast("h2o", *judgements.FIVE[difference]) | {"n": 240}]
    judged = judgements.judgement(rows, rule="everywhere", at_least=None, verdict=word, label="confirmatory-grade")
    print(format_answer(judged))
    assert "".join(format_answer(judged).split()) in "".join(verdict_table(judged).split())
"""


def test_a_rule_answers_yes_and_no(tree):
    yes, no = run(tree, "-c", DECIDES, also=ROOT / "tests" / "figures").splitlines()
    assert yes.startswith("Yes, as registered")
    assert "crystal was better in all 1 contrasts; the lowest is +12.5 points" in yes
    assert no.startswith("No, not as registered")
    assert "it is not shown that crystal was better in all 1 contrasts" in no


DRAWS = """
import sys
from pathlib import Path

from figures import study
from figures.drawing import page

write, names = page.write_drawing, []


def written(target, drawing, *data):  # the toy; of the others the names, which is quicker
    names.append(drawing.__name__)
    return write(target, drawing, *data) if drawing.__name__ == "lengths" else ()


page.write_drawing = written
drawn = study.draw(Path(sys.argv[1]))
print(*names, *(path.name for path in drawn))
"""


def test_a_drawing_is_drawn_with_those_that_apply(tree, tmp_path):
    source, folder = ROOT / "registrations" / "quickstart", tmp_path / "quickstart"
    for name in ("lock.json", "verdict.json", "records/shard-0.jsonl.xz"):
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
