"""The same study under every executor: byte-equal records, whoever is killed, and no worker of other bytes.

Long, and so in `make soak`. Each kind is skipped by name where it is not installed: submitit and ray are
extras, and Slurm comes with the system.
"""

import contextlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import finished_study as toy
import one_node_slurm
import pytest
import studies
import toy_run

from protocol.evidence import claim, seal
from protocol.evidence.registration import Registration
from protocol.lock import lock
from protocol.plan.grid import Cell
from protocol.run import runner
from protocol.run.executors import Job, JobPrompts, RenderedPrompt, spool
from protocol.run.executors.spool import Spool

pytestmark = pytest.mark.soak

SUBMITIT = importlib.util.find_spec("submitit") is not None
RAY = importlib.util.find_spec("ray") is not None
KINDS = {
    "local": ["--workers", "2"],
    "devices": ["--devices", "cpu,cpu"],
    "submitit-debug": ["--executor", "slurm", "--slurm", "cluster=debug"],
    "submitit-local": ["--executor", "slurm", "--workers", "2", "--slurm", "cluster=local"],
    "slurm": ["--executor", "slurm", "--workers", "2"],
    "ray": ["--executor", "ray", "--workers", "2"],
}
BATCHES = {**studies.ONE_TASK, "threads = 1": "threads = 1\nproblems_per_batch = 1"}
KILLS = 50  # over all executors


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return studies.copy_tree(tmp_path_factory.mktemp("working") / "tree")


@pytest.fixture(scope="module")
def locked(tree, tiny_model):
    """A study of many batches, in a working tree of its own that tests may edit."""
    model = shutil.copytree(tiny_model, tree / "model")
    folder = studies.write(tree / "registrations" / "study", model, BATCHES)
    done = studies.command("register", folder, tree=tree)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def alone(locked, tree, tmp_path_factory):
    """Bodies in their order and the outcome, of one process."""
    folder = copy(locked, tmp_path_factory.mktemp("alone"))
    done = studies.command("confirm", folder, tree=tree)
    assert done.returncode in (10, 11), done.stderr
    return outcome(folder)


@pytest.fixture(scope="module")
def environment():
    """Of the commands; with a Slurm where there is one."""
    with contextlib.ExitStack() as held:
        own = studies.plain()
        if not one_node_slurm.MISSING:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
            own |= {"SLURM_CONF": str(held.enter_context(one_node_slurm.cluster(folder)))}
        yield own


def skipped(kind):
    if kind.startswith("submitit") and not SUBMITIT:
        pytest.skip("submitit is not installed")
    if kind == "slurm" and (one_node_slurm.MISSING or not SUBMITIT):
        pytest.skip(f"{', '.join(one_node_slurm.MISSING) or 'submitit'} is not installed")
    if kind == "ray" and not RAY:
        pytest.skip("ray is not installed")


def copy(study, to):
    return shutil.copytree(study, to / "registrations" / "study")


def outcome(folder):
    lines = (folder / "records" / "shard-0.jsonl").read_bytes().splitlines()
    bodies = [json.dumps(json.loads(line)["body"], sort_keys=True) for line in lines]
    assert len(set(bodies)) == len(bodies)
    return bodies, studies.content(folder / "seal.json")["outcome"]


def typed(folder, kind, tree):
    return [sys.executable, "-m", "protocol.confirm", str(folder), *KINDS[kind]]


def confirmed(folder, kind, tree, environment):
    return subprocess.run(
        typed(folder, kind, tree), cwd=tree, env=environment, capture_output=True, text=True, timeout=900
    )


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_those_of_one_process(kind, locked, tree, alone, environment, tmp_path):
    skipped(kind)
    folder = copy(locked, tmp_path)
    done = confirmed(folder, kind, tree, environment)
    assert done.returncode in (10, 11), done.stderr
    assert outcome(folder) == alone
    assert not (folder / "spool").exists()
    assert studies.command("audit", folder, tree=tree).returncode == 0
    costs = json.loads((folder / "records" / "shard-0.jsonl").read_text().splitlines()[0])["costs"]
    assert costs["executor"] == (KINDS[kind][1] if "--executor" in KINDS[kind] else "local")
    assert (costs["host"], costs["device"]) == (os.uname().nodename, "cpu")


@contextlib.contextmanager
def changed(path):
    """One byte of the file is another one inside. Written beside and renamed: it may be a hard link."""
    data = path.read_bytes()
    place = len(data) // 2
    try:
        put(path, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        yield
    finally:
        put(path, data)


def put(path, data):
    beside = path.with_name(f"{path.name}.beside")
    beside.write_bytes(data)
    beside.replace(path)


def edited(what, tree):
    """Where a byte is changed. An installed file that nothing here imports, of a package that is locked."""
    installed = Path(importlib.util.find_spec("shtab").submodule_search_locations[0]) / "__init__.py"
    weights = tree / "model" / "model.safetensors"
    return {"weight": weights, "installed file": installed}.get(what, tree / "policies" / "snapkv.py")


@pytest.mark.parametrize("what", ["source", "weight", "installed file", None])
def test_a_worker_alone_of_one_other_byte_runs_nothing(what, locked, tree, tmp_path):
    """As each executor starts it, with nobody to drive it; the one that is as locked takes the job."""
    folder = copy(locked, tmp_path)
    held = lock.read(folder)
    own = Spool.for_phase(folder, held.digest, "probe")
    own.prepare()
    ((model, task, *_), *_) = held.content["grid"]
    cells = tuple(Cell(*cell) for cell in held.content["grid"])
    job = Job(model, task, (held.content["items"][task]["dev"][0],), cells)
    prompts = JobPrompts((RenderedPrompt(job.problems[0], "", (1, 2, 3, 4) * 16, (), "0" * 64),), {0: 0})
    name = own.job_name(job, prompts)
    own.enqueue(0, name, job, prompts)
    own.driver.write_text(json.dumps({"session": "a test", "beat": 1}))
    command = [sys.executable, "-P", "-m", "protocol.run.executors.worker", str(folder)]
    command += ["--lock", held.digest, "--phase", "probe", "--session", "a test", "--slot", "0"]
    command += ["--executor", "slurm"]
    environment = studies.plain() | {"PYTHONPATH": str(tree)}
    with contextlib.ExitStack() as undone:
        if what:
            undone.enter_context(changed(edited(what, tree)))
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not own.result_names():
            time.sleep(0.1)
        own.driver.write_text(json.dumps({"session": "over", "beat": 2}))
        said = process.communicate(timeout=600)[1]
    if what is None:
        assert process.returncode == 0, said
        assert own.result_names() == {name}
        assert own.read_result(name, job).where["executor"] == "slurm"
        return
    assert process.returncode == 3, said
    assert re.search(r"^Drifted: study: .*: (changed|new) since the lock", said, re.MULTILINE), said
    ((refused),) = own.workers.glob("*.refused")
    assert json.loads(refused.read_bytes())["refused"] == "Drifted"
    assert not own.result_names()


@pytest.mark.parametrize("what", ["source", "weight", "installed file"])
@pytest.mark.parametrize("kind", ["submitit-local", "slurm", "ray"])
def test_a_worker_of_one_other_byte_runs_nothing(what, kind, locked, tree, environment, tmp_path):
    """Changed once the driver has proven its own, as on another machine: when its spool is there."""
    skipped(kind)
    folder = copy(locked, tmp_path)
    process = subprocess.Popen(typed(folder, kind, tree), cwd=tree, env=environment, stderr=subprocess.PIPE, text=True)
    with contextlib.ExitStack() as undone:
        shared = folder / "spool"
        while process.poll() is None and not list(shared.glob("*/tree/policies/snapkv.py")):
            time.sleep(0.01)
        (source,) = shared.glob("*/tree/policies/snapkv.py")
        undone.enter_context(changed(source if what == "source" else edited(what, tree)))
        said = process.communicate(timeout=900)[1]
    assert process.returncode == 3, said
    assert re.search(r"^Drifted: worker on .*: (changed|new|missing)", said, re.MULTILINE), said
    assert (folder / "records" / "shard-0.jsonl").read_bytes() == b""
    assert not list(shared.glob("*/done/*"))


def toy_study(folder):
    items = {"toy": {"manifest": "0" * 64, "dev": ["p0", "p1"], "confirm": toy_run.PROBLEMS}}
    toy.locked(folder, items=items)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The toy study's bodies and outcome, recorded by one process."""
    folder = toy_study(tmp_path_factory.mktemp("undisturbed") / "study")
    held = lock.read(folder)
    with claim.exclusive_run(Registration(folder)):
        attempt = claim.take(Registration.with_lock(folder, held))
        units, keeper = toy_run.JOBS, toy_run.Keeper()
        about = {"phase": "confirm", "registration": held.digest, "attempt": attempt}

        def execute(jobs):
            return (keeper.grade(job, toy_run.produced(job)) for job in jobs)

        runner.record_units(folder, units, execute, report=lambda event: None, **about)
        seal.write(Registration.with_lock(folder, held))
    return outcome(folder)


def children(pid):
    with contextlib.suppress(FileNotFoundError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def victim(draw, driver, folder, kind):
    """Mostly a worker, sometimes the driver: its process, or None where this driver has no worker yet."""
    announced = [spool.read_json(path) for path in folder.glob("spool/*/driver.json")]
    workers = [int(path.stem.rpartition("-")[2]) for path in folder.glob("spool/*/workers/[0-9]*.json")]
    if kind == "local":  # it announces nobody: its children, of which one only tracks resources
        workers = children(driver.pid)
        if len(workers) <= toy_run.WORKERS or draw.random() < 0.8:
            return None
    elif not workers or [said and said.get("pid") for said in announced] != [driver.pid]:
        return None
    return driver.pid if draw.random() < 0.25 else draw.choice(workers)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "devices"])
def test_kills_at_random_moments_change_nothing(kind, undisturbed, environment, tmp_path):
    skipped(kind)
    draw, killed, attempts, told = random.Random(f"kills of {kind}"), 0, 0, []
    folder = toy_study(tmp_path / "study")
    most = KILLS // 4 + 1
    command = [sys.executable, toy_run.__file__, str(folder), kind]
    while not (folder / "seal.json").exists():
        attempts += 1
        assert attempts < 60, told
        with (tmp_path / f"said-{attempts}").open("w+") as said:  # workers outlive a killed driver
            process = subprocess.Popen(
                command,
                env=environment | {"PYTHONPATH": f"{studies.ROOT}{os.pathsep}{studies.ROOT / 'tests'}"},
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            while killed < most and process.poll() is None:
                time.sleep(draw.uniform(0, 1))
                if (chosen := victim(draw, process, folder, kind)) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chosen, signal.SIGKILL)
                        killed += 1
            process.wait(600)
            said.seek(0)
            told.append((process.returncode, said.read().strip().splitlines()[-1:]))
    print(kind, "killed", killed, "attempts", attempts, told)
    assert killed == most, "the study is too short to be killed so often; lengthen it"
    assert [status for status, _ in told if status > 0] == [] or kind == "local"
    assert outcome(folder) == undisturbed
    assert not (folder / "spool").exists()
