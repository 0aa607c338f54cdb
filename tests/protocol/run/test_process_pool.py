"""Batches that run side by side: the same records, in the same order, and no process left behind."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import studies
from toy_run import CELLS, Keeper, produced

from protocol.evidence import records
from protocol.formats.refusals import BadInput, Drifted, Refusal, Tampered
from protocol.plan import grid, toml_reader
from protocol.run import runner
from protocol.run.executors import Decoder, Job, local, process_pool
from protocol.run.executors.settings import Settings
from protocol.workspace.planned_study import PlannedStudy
from splits import load

WORKERS = """
import sys
from pathlib import Path
from protocol.workspace.planned_study import PlannedStudy
from protocol.plan import toml_reader
from protocol.run.executors import process_pool

if __name__ == "__main__":
    protocol = toml_reader.parse(Path(sys.argv[1]).read_bytes(), "p")
    with process_pool.open_executor(PlannedStudy(protocol, Path(".")), {}):
        print("ready", flush=True)
        sys.stdin.read()
"""


def protocol(folder, tiny_model, workers):
    studies.write(folder, tiny_model, {"threads = 1": f"threads = 1\nworkers = {workers}"})
    return toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml")


def jobs(protocol, count):
    problems = {task.name: load(task.name).dev[:count] for task in protocol.tasks}
    return [Job(*unit) for unit in runner.split_into_units(grid.cells(protocol), problems)]


def bodies(protocol, work, home):
    with process_pool.open_executor(PlannedStudy(protocol, home), {}) as execute:
        return [
            ([body for body, _ in one.records.values()], list(one.records), one.trajectories)
            for one in execute(iter(work))
        ]


@pytest.mark.usefixtures("forked_workers")
def test_two_processes_record_what_one_does_in_the_same_order(tiny_model, tmp_path):
    alone, shared = (protocol(tmp_path / str(count), tiny_model, count) for count in (1, 2))
    work = jobs(alone, 3)
    assert len(work) == 6
    assert bodies(alone, work, tmp_path) == bodies(shared, work, tmp_path)
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("forked_workers")
def test_each_device_has_a_process_and_costs_say_which_ran_a_lane(tiny_model, tmp_path):
    """Of a protocol that names no processes."""
    registered = protocol(tmp_path / "study", tiny_model, 1)
    work = jobs(registered, 1)
    with process_pool.open_executor(
        PlannedStudy(registered, tmp_path), {}, settings=Settings(devices=("cpu", "cpu"))
    ) as execute:
        assert len(multiprocessing.active_children()) == 2
        done = list(execute(iter(work)))
    here = {"executor": "local", "host": os.uname().nodename, "device": "cpu"}
    assert [one.where for one in done] == [here] * len(work)
    with process_pool.open_executor(PlannedStudy(registered, tmp_path), {}) as execute:
        assert not multiprocessing.active_children()
        assert [one.where for one in execute(iter(work[:1]))] == [here]


def test_a_process_sees_its_own_device_before_it_imports_anything(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    ask = [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"]
    for device, seen in {"cuda:0": "4", "cuda:1": "5"}.items():
        with process_pool._set_environment(process_pool._device_environment(device)):
            assert subprocess.check_output(ask, text=True) == f"{seen}\n"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"


@pytest.mark.usefixtures("forked_workers")
def test_a_process_of_other_bytes_runs_nothing(tiny_model, tmp_path):
    registered = protocol(tmp_path / "study", tiny_model, 2)
    work = jobs(registered, 1)
    with (
        pytest.raises(Drifted, match=r"study: policies/snapkv\.py: changed"),
        process_pool.open_executor(PlannedStudy(registered, tmp_path), {}, study=Other()) as execute,
    ):
        list(execute(iter(work)))


class Other:
    """A study whose lock these bytes are not: anything that is asked of it says so."""

    @property
    def lock(self):
        raise Drifted("study: policies/snapkv.py: changed")


@pytest.mark.usefixtures("forked_workers")
def test_what_a_process_refuses_is_refused_here(tiny_model, tmp_path):
    registered = protocol(tmp_path / "study", tiny_model, 2)
    (job,) = jobs(registered, 1)[:1]
    with (
        pytest.raises(BadInput, match="problem 'nowhere': is not in this task"),
        process_pool.open_executor(PlannedStudy(registered, tmp_path), {}) as execute,
    ):
        list(execute([job._replace(problems=("nowhere",))]))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("forked_workers")
def test_a_job_that_fails_is_named(tiny_model, tmp_path):
    registered = protocol(tmp_path / "study", tiny_model, 2)
    job = jobs(registered, 1)[0]
    cells = (job.cells[-1]._replace(budget="much"),)
    with (
        pytest.raises(Refusal, match=r"a batch failed: KeyError\('much'\)"),
        process_pool.open_executor(PlannedStudy(registered, tmp_path), {}) as execute,
    ):
        list(execute([job._replace(cells=cells)]))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("forked_workers")
def test_a_killed_process_is_a_refusal(tiny_model, tmp_path):
    registered = protocol(tmp_path / "study", tiny_model, 2)
    with process_pool.open_executor(PlannedStudy(registered, tmp_path), {}) as execute:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        with pytest.raises(Refusal, match="was killed"):
            list(execute(jobs(registered, 1)))
    assert not multiprocessing.active_children()


TOY_JOBS = [Job("tiny", "toy", (f"p{number}",), CELLS) for number in range(7)]


@pytest.fixture
def deal_to_threads(monkeypatch):
    """Return a function that deals jobs to threads in place of processes. shares: of each, by how many results wait for
    one check.
    """

    def deal(*shares, execute=produced, check=lambda: None):
        ours, decoders = [], []
        for share in shares:
            count = itertools.count(1)
            is_due = lambda count=count, share=share: next(count) % share == 0  # noqa: E731
            decoders.append(Decoder(lambda job, prompts: execute(job), is_due, check))
        monkeypatch.setattr(local, "make_decoder", lambda planned, lanes: decoders[lanes["number"]])
        monkeypatch.setattr(process_pool, "_machine_fields", lambda planned, device: {"executor": "local"})
        for number in range(len(shares)):
            near, far = multiprocessing.Pipe()
            ours.append(near)
            ending.append(near)

            def serve(far=far, number=number):
                with far:
                    process_pool.serve_jobs(far, None, {"number": number})

            threading.Thread(target=serve, daemon=True).start()
        return lambda jobs: process_pool.deal_jobs(ours, Keeper(), jobs)

    ending = []
    yield deal
    for near in ending:
        near.close()


def record_toy(folder, execute):
    how = {"phase": "confirm", "registration": "a" * 64, "attempt": 1, "report": lambda told: None}
    runner.record_units(folder, TOY_JOBS, execute, **how)


def shard(folder):
    return (folder / "records" / "shard-0.jsonl").read_bytes()


@pytest.mark.parametrize("shares", [(1,), (3,), (100,), (1, 100), (100, 2), (2, 3, 1)])
def test_results_that_wait_for_a_check_are_recorded_in_the_order_of_the_jobs(shares, deal_to_threads, tmp_path):
    record_toy(tmp_path / "alone", deal_to_threads(1))
    record_toy(tmp_path / "shared", deal_to_threads(*shares))
    assert shard(tmp_path / "shared") == shard(tmp_path / "alone")


def test_what_waited_in_a_process_that_was_killed_is_decoded_again(deal_to_threads, tmp_path):
    decoded = []

    def execute(job):
        decoded.extend(job.problems)
        if len(decoded) == 5:
            raise EOFError  # as of a killed process, which says nothing
        return produced(job)

    with pytest.raises(Refusal, match="was killed"):
        record_toy(tmp_path / "study", deal_to_threads(3, execute=execute))
    assert decoded == ["p0", "p1", "p2", "p3", "p4"]
    record_toy(tmp_path / "study", deal_to_threads(3, execute=execute))
    assert decoded[5:] == ["p3", "p4", "p5", "p6"]
    record_toy(tmp_path / "alone", deal_to_threads(1))
    assert shard(tmp_path / "study") == shard(tmp_path / "alone")


def test_large_jobs_and_large_results_do_not_wait_for_each_other(monkeypatch):
    """A process sends its result before it reads the next job, and both are more than a socket takes."""
    near, far = multiprocessing.Pipe()
    large = "x" * (1 << 22)

    def serve():
        with contextlib.suppress(EOFError, OSError):
            while True:
                far.recv()
                far.send([large])

    monkeypatch.setattr(Keeper, "render", lambda self, job: large)
    monkeypatch.setattr(Keeper, "grade", lambda self, job, result: len(result))
    threading.Thread(target=serve, daemon=True).start()
    results = []
    dealing = threading.Thread(
        target=lambda: results.extend(process_pool.deal_jobs([near], Keeper(), TOY_JOBS)), daemon=True
    )
    dealing.start()
    dealing.join(60)
    near.close()
    assert results == [1 << 22] * len(TOY_JOBS)


def test_nothing_is_recorded_that_waited_for_a_check_that_fails(deal_to_threads, tmp_path):
    decoded = []

    def check():
        if len(decoded) > 4:
            raise Tampered("policy mine: its code changed torch.hidden")

    def execute(job):
        decoded.extend(job.problems)
        return produced(job)

    with pytest.raises(Tampered, match=r"changed torch\.hidden"):
        record_toy(tmp_path / "study", deal_to_threads(3, execute=execute, check=check))
    recorded = [record["body"]["problem"] for record in records.read_records(tmp_path / "study" / "records")]
    assert dict.fromkeys(recorded) == dict.fromkeys(["p0", "p1", "p2"])


@pytest.mark.soak
def test_processes_end_with_a_parent_that_was_killed(tiny_model, tmp_path):
    protocol(tmp_path / "study", tiny_model, 2)
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    command = [sys.executable, script, tmp_path / "study" / "protocol.toml"]
    environment = {**os.environ, "PYTHONPATH": str(studies.ROOT)}
    parent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    with parent:
        assert parent.stdout.readline() == b"ready\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
