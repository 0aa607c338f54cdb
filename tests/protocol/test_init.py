"""A study is begun by one command: what it writes can be registered, and nothing that is there is touched."""

import contextlib
import importlib
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import studies
from looped import looped

import splits
from protocol import init
from protocol import init as command
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.lock import lock
from protocol.preflight import feasibility, frozen_problems
from protocol.tasks import registry
from protocol.workspace.planned_study import PlannedStudy, read_protocol

MOST_LINES, MOST_COLUMNS = (
    {"paper": 51, "sequential": 44},
    120,
)  # of the others 41; a paper's has a sweep and a branch table
SELF_EXPLAINING = ("title", "question")
ENOUGH = 200  # held-out problems, below which a verdict is SCREENED

each_template = looped("like", init.TEMPLATES)


def run(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command.main([*map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


@each_template
def test_a_template_is_short_and_each_field_says_what_it_means(like):
    lines = init.read_template(like).splitlines()
    assert len(lines) <= MOST_LINES.get(like, 42)
    assert max(map(len, lines)) <= MOST_COLUMNS
    assert lines[0].startswith("# ")
    fields = [line for line in lines if re.match(r"[\w-]+ = ", line)]
    silent = [line for line in fields if "  # " not in line and not line.startswith(SELF_EXPLAINING)]
    assert len(fields) > 20
    assert silent == []


def test_every_template_that_is_installed_is_offered_and_no_other():
    folder = studies.ROOT / "protocol" / "command" / "templates"
    assert {path.stem for path in folder.glob("*.toml")} == {*init.TEMPLATES}


def test_templates_go_into_the_package_that_is_installed():
    project = tomllib.loads((studies.ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["protocol"]
    shipped = {path for pattern in patterns for path in (studies.ROOT / "protocol").glob(pattern)}
    assert {*(studies.ROOT / "protocol").rglob("*.toml")} <= shipped
    assert {path.stem for path in shipped if path.parent.name == "templates"} == {*init.TEMPLATES}


@pytest.mark.parametrize(
    "like", ["reasoning", *(pytest.param(like, marks=pytest.mark.soak) for like in ("paper", "retrieval", "lossless"))]
)
def test_a_template_passes_the_checks_of_registering(tmp_path, like):
    folder = init.create_registration(tmp_path / "study", like).paths[0].parent
    planned = PlannedStudy(read_protocol(folder)[1], files.cache_home(), folder=folder)
    items = frozen_problems.freeze_items(planned)
    assert min(len(item["confirm"]) for item in items.values()) >= ENOUGH
    checks = feasibility.check_feasibility(planned, items).checks
    assert {*checks["rule"]["verdicts"].values()} >= {"CONFIRMED", "REFUTED", "INCONCLUSIVE"}


def test_quick_is_registered_as_it_is_and_opens_what_no_study_has_opened(tmp_path):
    folder = tmp_path / "registrations" / "001-mine"
    assert run(folder)[0] == 0
    done = studies.ran(0, "register", folder)
    content = lock.read(folder).content
    assert len(content["items"]["chain-7"]["confirm"]) == ENOUGH
    assert content["opened"] == []
    assert content["protocol"]["content"]["randomness"] == {"source": "local"}
    assert Registration(folder).protocol["models"] == ["chain-qwen2"]
    assert "opened before" not in done.stdout


@each_template
def test_held_out_problems_are_drawn_after_the_lock_wherever_a_task_can_generate(tmp_path, like):
    protocol = tomllib.loads(init.read_template(like))
    generated = [
        "draw" in task if "file" in task else registry.is_generated(registry.get(task["name"]))
        for task in protocol["tasks"]
    ]
    assert all(generated)
    for task in protocol["tasks"]:
        assert "draw" in task or task.get("confirm", ENOUGH) <= len(splits.load(task["name"]).confirm)
    assert protocol.get("randomness", {}) == ({"source": "local"} if generated else {})
    said = "held-out problems: drawn by confirm after the lock, so nobody has seen them"
    assert (said in run("--like", like, tmp_path / "new")[1]) == bool(generated)


@each_template
def test_what_is_written_is_told_with_the_next_three_commands(tmp_path, monkeypatch, like):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("--like", like)
    assert (status, err) == (0, "")
    written = sorted(Path("registrations/001-mine").iterdir())
    assert all(f"wrote {path}: " in out for path in written)
    steps = re.findall(r"^  (kv-prereg (\w+) registrations/001-mine)  ", out, re.MULTILINE)
    probe = ["probe"] * (like == "paper")
    rehearse = ["rehearse"] * (like != "outside")  # nothing here decodes it
    assert [name for _, name in steps] == [*rehearse, "register", *probe, "confirm"]
    assert all(callable(importlib.import_module(f"protocol.{name}").main) for _, name in steps)
    second = json.loads(run("--like", like, "--json")[1])
    assert second["folder"] == "registrations/002-mine"
    assert second["next"] == [step.replace("001", "002") for step, _ in steps]
    assert sorted(second["written"]) == [f"registrations/002-mine/{path.name}" for path in written]


@looped(
    ("shelf", "expected"),
    [
        ([], "001-mine"),
        (["001-mine", "alpha-chain"], "002-mine"),
        (["041-theirs", "002-mine", "x"], "042-mine"),
        (["1-first"], "002-mine"),
        (["999-last"], "1000-mine"),
    ],
)
def test_the_next_number_is_above_every_one_that_is_taken(tmp_path, shelf, expected):
    for name in shelf:
        (tmp_path / name).mkdir()
    assert init.next_free_folder(tmp_path).name == expected


@pytest.mark.parametrize("there", ["protocol.toml", "lock.json", "claim.json"])
def test_nothing_that_is_there_is_touched(tmp_path, there):
    (tmp_path / there).write_text("mine")
    with studies.unchanged(tmp_path):
        status, out, err = run(tmp_path)
        assert (status, out) == (2, "")
        assert err == f"BadInput: {tmp_path / there} exists already and is never overwritten; name another folder\n"


@pytest.mark.parametrize("name", ["file", "protocol.toml"])
def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("text")
    status, _, err = run(tmp_path / name)
    assert status == 2
    fix = "name the folder for protocol.toml"
    assert err == f"BadInput: {tmp_path / name} is not a folder; {fix}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_folder_of_all_studies_does_not_become_one(tmp_path):
    assert run(tmp_path / "001-mine")[0] == 0
    status, _, err = run(tmp_path)
    assert status == 2
    assert err == f"BadInput: {tmp_path} contains studies; name a new folder in it, such as {tmp_path / '002-mine'}\n"


def test_a_path_with_a_space_can_be_typed_as_it_is_told(tmp_path):
    out = run(tmp_path / "my study")[1]
    assert f"kv-prereg register '{tmp_path / 'my study'}'" in out


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        ("quik", "did you mean 'quick'?"),
        ("mmlu", "write one of paper, quick, reasoning, retrieval, lossless, sequential, outside"),
    ],
)
def test_an_unknown_template_is_answered_with_those_that_there_are(tmp_path, typed, fix):
    status, out, err = run(tmp_path / "new", "--like", typed)
    assert (status, out) == (2, "")
    assert err == f"BadInput: --like: unknown template '{typed}'; {fix}\n"
    assert not (tmp_path / "new").exists()


def test_the_list_says_what_each_template_is_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run("--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [*init.TEMPLATES]
    assert not any(tmp_path.iterdir())


def test_it_needs_no_torch_and_no_statistics(tmp_path):
    code = f"{studies.BLOCK_TORCH}\nfrom protocol import init\nstatus = init.main([{str(tmp_path / 'new')!r}])\n"
    code += "assert not {'scipy', 'numpy', 'pandas', 'matplotlib'} & {*sys.modules}\nsys.exit(status)"
    done = subprocess.run([sys.executable, "-c", code], cwd=studies.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "protocol.toml").exists()


@pytest.mark.soak
def test_the_papers_protocol_goes_from_init_to_its_verdict(tmp_path):
    """Sweep, branch table, the published method and a sound one, two models, three seeds: only problems are fewer."""
    folder = tmp_path / "registrations" / "001-mine"
    assert run(folder, "--like", "paper")[0] == 0
    studies.edit(folder / "protocol.toml", 'name = "chain" ', 'dev = 4\nconfirm = 12\nname = "chain" ')
    for name, expected in (("register", 0), ("probe", 0), ("confirm", 11), ("audit", 0)):
        done = studies.here(name, folder)
        assert done.returncode == expected, f"{name}: {done.stdout}{done.stderr}"
    judged = Registration(folder).verdict.content["judged"]
    assert judged["verdict"] == "SCREENED"
    assert judged["selected"]["arm"] in {"1d_div-0.5", "1d_div-1.0", "1d_div-1.5"}
    assert [(row["budget"], row["n"]) for row in judged["contrasts"]] == 2 * [("96", 12), ("128", 12)]
    assert "A SOUND METHOD SAYS" in " ".join(qualifier["word"] for qualifier in judged["qualifiers"])
    assert len(judged["beside"]["contrasts"]) == 4
