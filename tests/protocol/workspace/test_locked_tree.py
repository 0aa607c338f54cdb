"""What runs is what was locked: unpacked, compiled afresh, deaf to edits, and gone at the end."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
import studies

from protocol import confirm, replicate
from protocol import confirm as command
from protocol.evidence import records
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Drifted, Tampered
from protocol.lock import closure, installed_files, lock
from protocol.run import runner
from protocol.workspace import drift, locked_tree, run_inputs
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import open_study, refuse_drift

TWO_WORKERS = {**studies.ONE_TASK, "threads = 1": "threads = 1\nworkers = 2"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A working tree of its own, with a registered study and the model that it names."""
    return studies.copy_tree(tmp_path_factory.mktemp("working") / "tree")


@pytest.fixture(scope="module")
def registered(tree, tiny_model):
    model = shutil.copytree(tiny_model, tree / "model")
    folder = studies.write(tree / "registrations" / "study", model, TWO_WORKERS)
    studies.ran(0, "register", folder)  # the sources here are those of `tree`
    return folder


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made, here and in the processes that a test starts."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def folder(registered, tmp_path):
    return shutil.copytree(registered, tmp_path / "registrations" / "study")


@pytest.fixture
def study(folder, tree, monkeypatch):
    """The study, opened in a process whose working tree is `tree`."""
    monkeypatch.setattr(drift, "ROOT", tree)
    monkeypatch.setattr(locked_tree, "ROOT", tree)
    return open_study(Registration(folder), files.cache_home())


@pytest.fixture
def entered(study, temporary, monkeypatch):
    """What `enter` hands to the system: program, arguments and environment."""
    handed = []
    monkeypatch.setattr(os, "execve", lambda *given: handed.append(given))
    monkeypatch.setattr(sys, "argv", ["confirm", "some/folder", "--json"])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "LD_PRELOAD", "MATPLOTLIBRC"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(locked_tree.imports, "refuse_uncovered", lambda: None)  # tests lie elsewhere
    locked_tree.enter(study.registration, "protocol.confirm")
    return handed[0]


@pytest.mark.parametrize("is_derived", [False, True])
def test_a_tree_says_whether_its_lock_was_derived_by_the_process_that_unpacked_it(
    study, temporary, monkeypatch, is_derived
):
    handed = []
    monkeypatch.setattr(os, "execve", lambda *given: handed.append(given))
    monkeypatch.setattr(locked_tree.imports, "refuse_uncovered", lambda: None)  # tests lie elsewhere
    locked_tree.enter(study.registration, "protocol.replicate", is_derived=is_derived)
    assert not locked_tree.was_derived()  # this process has unpacked it, and runs the working tree
    unpacked = Path(handed[0][2]["PYTHONPATH"])
    monkeypatch.setattr(locked_tree, "ROOT", unpacked)
    monkeypatch.setattr(sys, "pycache_prefix", str(unpacked / locked_tree.BYTECODE))
    assert locked_tree.is_unpacked()
    assert locked_tree.was_derived() is is_derived


def left(place):
    """The trees that are left. torch makes a folder for what it compiles, which is nothing."""
    return list(place.glob("kv-prereg-*"))


def break_sources(tree):
    """Nothing of this working tree can be imported any more. Returns what undoes it."""
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    for path in before:
        path.write_text("raise SystemExit('the working tree was run')\n")
    return lambda: [path.write_bytes(data) for path, data in before.items()]


@pytest.mark.soak
def test_edits_made_after_the_start_are_not_run(folder, tree, temporary):
    """The run waits for the ledger with its claim written, before it starts its workers. Then every file of
    the working tree is broken: workers, judge and drawings come from elsewhere or nothing comes.
    """
    with (folder / "ledger.jsonl").open("r+b") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "protocol.confirm", str(folder)]
        process = subprocess.Popen(
            command, cwd=tree, env=studies.plain(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and not (folder / "claim.json").exists():
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()
        (place,) = temporary.glob("kv-prereg-*")
        assert place.stat().st_mode & 0o777 == 0o700
        mend = break_sources(tree)
    try:
        _, said = process.communicate()
    finally:
        mend()
    assert process.returncode in (10, 11), said
    assert (folder / "figures" / "forest.svg").exists()
    assert left(temporary) == []
    assert studies.command("audit", folder, tree=tree).returncode == 0


def test_the_tree_is_the_locked_one_and_holds_the_lock(entered, study):
    _, _, environment = entered
    place = Path(environment["PYTHONPATH"])
    assert closure.sources(place) == study.lock.content["sources"]
    assert lock.read(place) == study.lock
    weights = "protocol/embedded/chain-llama/model.safetensors"
    assert (place / weights).read_bytes() == (studies.ROOT / weights).read_bytes()


def test_what_pip_compiled_does_not_come_along(study, temporary, tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    for name in ("chain-llama/model.safetensors", "__pycache__/__init__.cpython-311.pyc"):
        path = installed / "protocol" / "embedded" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"of the installation")
    monkeypatch.setattr(locked_tree, "ROOT", installed)
    place = locked_tree._unpack(study.registration)
    assert (place / "protocol/embedded/chain-llama/model.safetensors").read_bytes() == b"of the installation"
    assert not list(place.rglob("*.pyc"))


def test_the_same_command_goes_on_there_with_fresh_bytecode_alone(entered):
    program, arguments, environment = entered
    assert program == sys.executable
    assert arguments == [sys.executable, "-P", "-m", "protocol.confirm", "some/folder", "--json"]
    assert environment["PYTHONPYCACHEPREFIX"] == f"{environment['PYTHONPATH']}/bytecode"
    assert not Path(environment["PYTHONPYCACHEPREFIX"]).exists()
    python = {name for name in environment if name.startswith("PYTHON")}
    assert python == {"PYTHONPATH", "PYTHONPYCACHEPREFIX"}
    assert environment["OMP_NUM_THREADS"] == "1"
    assert "/elsewhere" not in environment.values()


def test_within_its_tree_a_command_goes_on_and_within_another_it_stops(entered, study, monkeypatch):
    place = Path(entered[2]["PYTHONPATH"])
    monkeypatch.setattr(locked_tree, "ROOT", place)
    monkeypatch.setattr(sys, "pycache_prefix", entered[2]["PYTHONPYCACHEPREFIX"])
    monkeypatch.setattr(os, "execve", lambda *given: pytest.fail("started once more"))
    assert locked_tree.locked_digest() == study.lock.digest
    locked_tree.enter(study.registration, "protocol.confirm")
    other = Registration.with_lock(study.folder, lock.Lock(study.lock.content, "0" * 64))
    with pytest.raises(Tampered, match="its lock changed while its tree was unpacked"):
        locked_tree.enter(other, "protocol.confirm")
    assert locked_tree.run(lambda argv=None, *, enter: 5) == 5
    assert not place.exists()


def test_a_lock_beside_the_sources_does_not_make_a_working_tree_the_locked_one(study, tree, temporary):
    shutil.copyfile(study.folder / "lock.json", tree / "lock.json")
    try:
        assert locked_tree.locked_digest() is None
        locked_tree.run(lambda argv=None, *, enter: 0)
        assert (tree / "protocol" / "confirm.py").exists()
    finally:
        (tree / "lock.json").unlink()


def test_an_altered_bundle_is_refused_and_leaves_nothing(study, temporary, monkeypatch):
    monkeypatch.setattr(os, "execve", lambda *given: pytest.fail("was run"))
    monkeypatch.setattr(locked_tree.imports, "refuse_uncovered", lambda: None)
    path = study.folder / "sources.zip"
    with zipfile.ZipFile(path) as bundle:
        largest = max(bundle.infolist(), key=lambda member: member.compress_size)
    data = bytearray(path.read_bytes())
    data[largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2] ^= 1  # of what it holds
    path.write_bytes(data)
    with pytest.raises(Tampered, match=r"sources\.zip"):
        locked_tree.enter(study.registration, "protocol.confirm")
    assert left(temporary) == []


def test_an_edited_working_tree_is_refused_before_anything_is_unpacked(study, tree, temporary, monkeypatch):
    monkeypatch.setattr(os, "execve", lambda *given: pytest.fail("was run"))
    monkeypatch.setattr(locked_tree.imports, "refuse_uncovered", lambda: None)
    path = tree / "figures" / "forest.py"
    code = path.read_bytes()
    try:
        for change in (lambda: path.write_bytes(code + b"1\n"), path.unlink):
            change()
            with pytest.raises(Drifted, match=r"figures/forest\.py: (changed|missing)"):
                locked_tree.enter(study.registration, "protocol.confirm")
    finally:
        path.write_bytes(code)
    assert left(temporary) == []


def test_a_new_file_in_the_working_tree_stops_nobody_and_is_not_run(study, tree, temporary, monkeypatch):
    """Nor is it in the tree that runs. What runs where it is, called from Python, is refused by it."""
    handed = []
    monkeypatch.setattr(os, "execve", lambda *given: handed.append(given))
    monkeypatch.setattr(locked_tree.imports, "refuse_uncovered", lambda: None)
    new = tree / "policies" / "mine.py"
    new.write_text("raise SystemExit('was run')\n")
    try:
        locked_tree.enter(study.registration, "protocol.confirm")
        place = Path(handed[0][2]["PYTHONPATH"])
        assert not (place / "policies" / "mine.py").exists()
        assert run_inputs.list_drift(study.registration, tree, installed_files.environment()) == []
        with pytest.raises(Drifted, match=r"policies/mine\.py: new"):
            refuse_drift(study, with_weights=False)
        refuse_drift(study, with_weights=False, runs_here=False)
    finally:
        new.unlink()


@pytest.fixture
def other_weights(tree):
    weights = tree / "model" / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    yield
    weights.write_bytes(data)


def test_what_is_refused_within_its_tree_removes_the_tree(
    entered, study, other_weights, same_environment, temporary, monkeypatch, capsys
):
    place = Path(entered[2]["PYTHONPATH"])
    with studies.unchanged(study.folder):
        monkeypatch.setattr(locked_tree, "ROOT", place)
        monkeypatch.setattr(sys, "pycache_prefix", entered[2]["PYTHONPYCACHEPREFIX"])
        monkeypatch.setattr(sys, "argv", ["confirm", str(study.folder), "--json"])
        status, said = locked_tree.run(command.main), capsys.readouterr()
        assert status == 3, said
        assert "model.safetensors: changed" in said.err
        assert studies.json.loads(said.out)["refused"] == "Drifted"
        assert left(temporary) == []


@pytest.mark.soak
def test_what_is_refused_in_the_tree_leaves_no_tree(folder, tree, other_weights, temporary):
    """The same as it is typed, which compiles everything anew."""
    with studies.unchanged(folder):
        done = studies.command("confirm", folder, "--json", tree=tree)
        assert done.returncode == 3, done.stderr
        assert "model.safetensors: changed" in done.stderr
        assert studies.json.loads(done.stdout)["refused"] == "Drifted"
        assert left(temporary) == []


def test_what_drifts_while_it_runs_is_found_half_way_and_nothing_is_sealed(tiny_model, tmp_path, monkeypatch):
    """Of 12 problems with 4 lanes each, 6 are recorded when the environment is looked at again."""
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK)
    assert studies.here("register", folder).returncode == 0
    surroundings = open_study(Registration(folder), files.cache_home()).planned.environment()
    edited = surroundings | {"altered": {"torch/nn/functional.py": "0" * 64}}
    answers = iter([surroundings, edited])
    monkeypatch.setattr(PlannedStudy, "environment", lambda planned: next(answers))
    assert "environment/altered/torch/nn/functional.py: new" in studies.ran(3, "confirm", folder).stderr
    assert len(records.read_records(folder / records.FOLDERS["confirm"])) == 6 * 4
    assert not (folder / "seal.json").exists()
    monkeypatch.setattr(PlannedStudy, "environment", lambda planned: surroundings)
    assert studies.here("confirm", folder).returncode in (10, 11)


def test_a_replication_that_is_refused_leaves_no_folder(study, tmp_path, monkeypatch):
    def refuse(folder, home, parent, **_):
        assert (folder / "protocol.toml").exists()
        raise BadInput("model: not here")

    monkeypatch.setattr(replicate.register, "register", refuse)
    with studies.unchanged(tmp_path), pytest.raises(BadInput, match="model: not here"):
        replicate.register_child(study, is_fresh=False)
    assert not (tmp_path / "replications").exists()


def test_drift_can_be_told_without_torch_and_names_what_changed(registered, tree, tmp_path):
    """In a process in which torch cannot be imported: one line for each change, and none for anything else."""
    code = studies.BLOCK_TORCH + (
        "from pathlib import Path\n"
        "from protocol.workspace import run_inputs\n"
        "from protocol.lock import installed_files\n"
        "from protocol.evidence.registration import Registration\n"
        "held = Registration(Path(sys.argv[1]))\n"
        "for line in run_inputs.list_drift(held, Path(sys.argv[2]), installed_files.environment()): print(line)\n"
    )

    weights, streaming = tree / "model" / "model.safetensors", tree / "policies" / "streaming.py"
    source = streaming.read_bytes()
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    streaming.write_bytes(source + b"1\n")
    try:
        command = [sys.executable, "-c", code, str(registered), str(tmp_path)]
        done = subprocess.run(command, cwd=tree, env=studies.plain(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "policies/streaming.py: changed",
            f"path:{tree}/model/model.safetensors: changed",
        ]
    finally:
        weights.write_bytes(data)
        streaming.write_bytes(source)


def test_the_half_way_check_comes_once():
    checks, seen = [], []

    def at(done):
        nothing = dict.fromkeys(runner.Progress._fields, 0)
        return runner.Progress(**nothing | {"lanes": done, "all_lanes": 5})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(confirm, "refuse_drift", lambda *given, **how: checks.append(len(seen)))
        report = confirm._check_drift_halfway(None, seen.append)
        for done in (1, 2, 3, 4, 5):
            report(at(done))
    assert checks == [3]


def test_a_reader_is_told_how_many_locked_sources_are_not_those_installed_here(registered):
    content = studies.content(registered / "lock.json")
    assert drift.summarize_packages(content) == "all match the files installed here"
    edited = {"policies/h2o.py": "0" * 64, "analysis/gone.py": "1" * 64, "policies/gone.py": "2" * 64}
    said = drift.summarize_packages({**content, "sources": {**content["sources"], **edited}})
    assert (
        said == "3 differ from the files installed here (1 of analysis, 2 of policies), which is normal after later "
        "changes of the project"
    )
