"""Workers that share a folder with their driver: whatever is lost, the outcome is that of one process."""

import errno
import json
import re
import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest
from toy_run import CELLS, Keeper, produced

from protocol.formats import canonical, files
from protocol.formats.refusals import BadInput, Drifted, Refusal, Tampered
from protocol.run import progress, runner
from protocol.run.executors import (
    Decoder,
    Job,
    PoolStatus,
    factory,
    prompt_handover,
    settings,
    spool,
    spool_driver,
    worker,
)
from protocol.run.executors.settings import LOCAL, Settings, device_environment
from protocol.run.executors.spool import DamagedResult, Spool
from protocol.run.executors.spool_driver import WorkerExit

LOCK = "a" * 64
PROBLEMS = [f"p{number}" for number in range(8)]
JOBS = [Job("tiny", "toy", (problem,), CELLS) for problem in PROBLEMS]


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Beats, looks and waits that a test has time for."""
    monkeypatch.setattr(spool, "HEARTBEAT_SECONDS", 0.02)
    for name, seconds in {"POLL_SECONDS": 0.005, "CHECK_SECONDS": 0.02, "EXIT_SECONDS": 2.0}.items():
        monkeypatch.setattr(spool_driver, name, seconds)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.005)


KEEPER = Keeper()


def graded(job):
    """What is recorded of a job."""
    return KEEPER.grade(job, produced(job))


def named(own, job):
    return own.job_name(job, KEEPER.render(job))


def queued(own, number, job):
    own.enqueue(number, named(own, job), job, KEEPER.render(job))


class Threads:
    """Starts a worker as a thread. dies: by slot, how many jobs each of its workers takes with it. waits: whether
    results wait for a check until no job is left.
    """

    def __init__(self, shared, execute=produced, dies=(), refuses=(), silent=(), waits=False, check=lambda: None):
        self.shared, self.execute = shared, execute
        self.is_due, self.check = lambda: not waits, check
        self.dies, self.refuses, self.silent = Counter(dies), refuses, silent
        self.threads, self.why, self.started = {}, {}, Counter()

    def start(self, commands):
        for slot, command in commands.items():
            self.started[slot] += 1
            thread = threading.Thread(target=self.work, args=(slot, command), daemon=True)
            self.threads[slot] = thread
            thread.start()

    def work(self, slot, command):
        session = command[command.index("--session") + 1]
        name = f"{slot}-here-{self.started[slot]}"
        says = {"host": "here", "slot": slot, "session": session, "state": "", "device": "cpu"}
        if slot in self.silent:
            return time.sleep(60)
        if slot in self.refuses:
            said = {**says, "refused": "Drifted", "why": "study: policies/snapkv.py: changed"}
            return files.replace(self.shared.workers / f"{name}.refused", canonical.dumps(said))
        # A worker that nobody stops outlives its test; another test may have forbidden files by then.
        with suppress(PermissionError), spool.keep_heartbeat(self.shared.workers / f"{name}.json", lambda: dict(says)):
            if self.dies[slot] > 0:
                self.dies[slot] -= 1
                while self.shared.take(name) is None:
                    time.sleep(0.005)
                self.why[slot] = "OSError: No space left on device"
                return None
            try:
                decoder = Decoder(lambda job, prompts: self.execute(job), self.is_due, self.check)
                self.serve(self.shared, name, decoder, says, session)
            except (worker.Orphaned, SystemExit):
                return None
            except OSError as full:
                self.why[slot] = f"OSError: {full.strerror}"

    def serve(self, *given):
        worker.serve_jobs(*given)

    def states(self):
        return {
            slot: None if one.is_alive() else WorkerExit(self.why.get(slot, "")) for slot, one in self.threads.items()
        }

    def status_command(self):
        return "squeue --jobs 12"

    def stop(self):
        for slot, thread in self.threads.items():
            if slot not in self.silent:
                thread.join(10)


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    return SimpleNamespace(folder=folder, lock=SimpleNamespace(digest=LOCK), planned=SimpleNamespace(home=tmp_path))


def shared(study, given=None):
    return Spool.for_phase(study.folder, LOCK, "confirm", given)


def driven(study, launcher, count=2, wait=60.0, keeper=KEEPER, sealed=(), report=lambda told: None, chosen=LOCAL):
    return spool_driver.drive_workers(study, chosen, count, launcher, "confirm", wait, keeper, sealed, report)


def shard(folder):
    return (folder / "records" / "shard-0.jsonl").read_bytes()


def record(folder, execute, jobs=JOBS):
    runner.record_units(
        folder,
        jobs,
        execute,
        phase="confirm",
        registration=LOCK,
        attempt=1,
        report=lambda progress: None,
    )


def ran(study, launcher, **how):
    with driven(study, launcher, **how) as execute:
        record(study.folder, execute)
    return shard(study.folder)


@pytest.fixture
def alone(tmp_path):
    """What one process records."""
    record(tmp_path / "alone", lambda jobs: map(graded, jobs))
    return shard(tmp_path / "alone")


def test_workers_record_what_one_process_does_and_leave_no_spool(study, alone):
    assert ran(study, Threads(shared(study)), count=3) == alone
    assert sorted(path.name for path in study.folder.iterdir()) == ["records"]


def test_a_folder_that_all_machines_share_is_used_and_emptied(study, alone, tmp_path):
    elsewhere = tmp_path / "scratch"
    elsewhere.mkdir()
    seen = []

    def execute(job):
        seen.append([path.parent.name for path in elsewhere.glob("*/taken")])
        return produced(job)

    launcher = Threads(shared(study, elsewhere), execute)
    assert ran(study, launcher, chosen=Settings("slurm", spool=elsewhere)) == alone
    assert len(seen[0]) == 1
    assert seen[0][0].startswith(f"confirm-{LOCK[:16]}-")
    assert sorted(path.name for path in study.folder.iterdir()) == ["records"]


def test_a_worker_that_is_lost_has_its_job_given_again(study, alone):
    launcher = Threads(shared(study), dies={0: 2, 1: 1})
    assert ran(study, launcher) == alone
    assert launcher.started == {0: 3, 1: 2}


def decoding(own, decoded):
    """Return what decodes a job when all others are there, so that its worker is not idle before the last."""

    def execute(job):
        while not decoded and len(own.waiting_files()) < len(JOBS) - 1:
            time.sleep(0.005)
        decoded.extend(job.problems)
        return produced(job)

    return execute


def test_results_wait_for_their_check_and_count_after_it(study, alone):
    own, decoded, at_check = shared(study), [], []
    check = lambda: at_check.append((len(decoded), own.result_names()))  # noqa: E731
    assert ran(study, Threads(own, decoding(own, decoded), waits=True, check=check), count=1) == alone
    assert at_check == [(len(JOBS), set())]


def test_what_waited_in_a_worker_that_is_lost_is_decoded_again(study, alone):
    own, decoded = shared(study), []
    decode = decoding(own, decoded)

    def execute(job):
        result = decode(job)
        if decoded == PROBLEMS[:3]:
            raise SystemExit  # of this worker, while two results wait
        return result

    assert ran(study, Threads(own, execute, waits=True), count=1) == alone
    assert Counter(decoded) == Counter([*PROBLEMS, *PROBLEMS[:3]])


@pytest.mark.parametrize("is_stopped_in_the_third", [True, False])
def test_nothing_counts_of_what_waited_for_a_check_that_fails(study, is_stopped_in_the_third):
    own, decoded = shared(study), []
    decode = decoding(own, decoded)

    def execute(job):
        result = decode(job)
        if is_stopped_in_the_third and len(decoded) == 3:
            fail()
        return result

    def fail():
        raise Tampered("policy mine: its code changed torch.hidden")

    check = (lambda: None) if is_stopped_in_the_third else fail
    with pytest.raises(Tampered, match=r"changed torch\.hidden"):
        ran(study, Threads(own, execute, waits=True, check=check), count=1)
    assert len(decoded) >= 3
    assert shard(study.folder) == b""


def test_workers_that_bring_nothing_are_replaced_so_often_and_no_more(study):
    launcher = Threads(shared(study), dies={0: 99, 1: 99})
    with pytest.raises(Refusal, match=r"executor: .*No space left on device; run the command again"):
        ran(study, launcher)
    assert sum(launcher.started.values()) <= 2 + 2 * spool_driver.MAX_LOSSES


def test_a_driver_that_was_killed_asks_for_nothing_again_of_what_is_spooled(study, alone):
    """It committed two results; the workers went on, and spooled all the others."""
    first, again = Counter(), Counter()

    def counted(counts):
        return lambda job: counts.update(job.problems) or produced(job)

    with suppress(InterruptedError), driven(study, Threads(shared(study), counted(first))) as execute:
        results = execute(iter(JOBS))
        record(study.folder, lambda jobs: results, JOBS[:2])
        while len(shared(study).result_names()) < len(JOBS) - 1:  # the second is recorded, and not yet removed
            time.sleep(0.01)
        raise InterruptedError
    assert first == Counter(PROBLEMS)
    assert ran(study, Threads(shared(study), counted(again))) == alone
    assert not again


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-40],
        lambda data: b"",
        lambda data: data.replace(b"7492", b"7493", 1),
        lambda data: data.replace(b"correct", b"wrong", 1).replace(b'"stop":"eos"', b'"stop":"length"', 1),
    ],
)
def test_a_result_that_was_cut_or_edited_is_run_again_and_not_believed(study, alone, damage):
    own, first = shared(study), Counter()
    own.prepare()
    queued(own, 0, JOBS[0])
    own.write_result(own.take("earlier"), produced(JOBS[0]))
    path = own.results / f"{named(own, JOBS[0])}.json"
    path.write_bytes(damage(path.read_bytes()))
    launcher = Threads(own, lambda job: first.update(job.problems) or produced(job))
    assert ran(study, launcher) == alone
    assert first["p0"] == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(b"{}"),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"p5"', b'"p6"')),
        lambda path: path.write_bytes(path.read_bytes().replace(b"[112,53]", b"[112,54]")),  # a token
        lambda path: path.write_bytes(path.read_bytes().replace(b"9223372036854775808", b"1")),  # a seed
    ],
)
def test_a_job_whose_file_was_removed_cut_or_edited_is_asked_for_again_and_not_run_so(
    study, alone, damage, monkeypatch
):
    own, ran_ids = shared(study), []
    launcher = Threads(own, lambda job: ran_ids.append(job.problems) or produced(job))
    ask, left = Spool.enqueue, ["p5"]

    def asking(shared, number, name, job, prompts):
        if job.problems != ("p5",) or not left:
            return ask(shared, number, name, job, prompts)
        left.clear()
        with monkeypatch.context() as only:  # no worker sees the file before it is damaged
            only.setattr(Spool, "waiting_files", lambda self: [])
            ask(shared, number, name, job, prompts)
            damage(shared.jobs / f"{number:08d}-{name}.json")

    monkeypatch.setattr(Spool, "enqueue", asking)
    assert ran(study, launcher) == alone
    assert sorted(ran_ids) == [job.problems for job in JOBS]


def test_two_copies_of_a_study_may_be_given_one_folder(study, tmp_path):
    one, other = study.folder, tmp_path / "copy" / "study"
    places = [Spool.for_phase(folder, LOCK, "confirm", tmp_path).folder for folder in (one, other, one)]
    assert places[0] == places[2] != places[1]


def test_where_the_disk_is_full_workers_are_stopped_all_the_same(study, monkeypatch):
    launcher, replace, stopped = Threads(shared(study)), files.replace, []
    monkeypatch.setattr(launcher, "stop", lambda: stopped.append(1))

    def full(path, data):
        if path.parent.name == "jobs" or path.name == "driver.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace(path, data)

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(OSError, match="No space left on device"):
        ran(study, launcher)
    assert stopped == [1]


def spooled_as(own, job, content):
    """A result of `job` that says `content`, with a digest of its own."""
    whole = {"content": content, "sha256": canonical.digest(content)}
    (own.results / f"{named(own, job)}.json").write_bytes(canonical.dumps(whole))


def test_a_result_of_other_lanes_another_lock_or_another_form_is_damaged_whatever_its_digest(study):
    own = shared(study)
    own.prepare()
    queued(own, 0, JOBS[0])
    own.write_result(own.take("earlier"), produced(JOBS[0]))
    whole = json.loads((own.results / f"{named(own, JOBS[0])}.json").read_bytes())["content"]
    assert own.read_result(named(own, JOBS[0]), JOBS[0]).records == produced(JOBS[0]).records
    lanes = whole["records"]
    swapped = [[*lanes[0][:2], *lanes[1][2:]], [*lanes[1][:2], *lanes[0][2:]]]
    edited = [[*lanes[0][:2], {**lanes[0][2], "tokens": "three"}, lanes[0][3]], *lanes[1:]]
    for other in (
        {"lock": "b" * 64},
        {"phase": "probe"},
        {"job": "c" * 64},
        {"records": lanes[:1]},
        {"records": [*lanes, lanes[0]]},
        {"records": swapped},
        {"records": edited},
        {"records": [[*lanes[0][:2], {**lanes[0][2], "grade": "correct"}, lanes[0][3]], *lanes[1:]]},
        {"trajectories": []},
        {"seconds": "soon"},
    ):
        spooled_as(own, JOBS[0], whole | other)
        with pytest.raises(DamagedResult):
            own.read_result(named(own, JOBS[0]), JOBS[0])


def test_what_a_job_refuses_is_refused_here(study):
    def execute(job):
        if job.problems == ("p3",):
            raise BadInput("problem 'p3': is not in this task")
        return produced(job)

    with pytest.raises(BadInput, match="problem 'p3': is not in this task"):
        ran(study, Threads(shared(study), execute))
    assert shard(study.folder).count(b"\n") == 3 * len(CELLS)  # those before it


def test_a_job_that_fails_is_a_refusal_that_names_it(study, capfd):
    def execute(job):
        raise KeyError("nobody")

    with pytest.raises(Refusal, match=r"a batch failed: KeyError\('nobody'\)"):
        ran(study, Threads(shared(study), execute))
    assert "Traceback" in capfd.readouterr().err


def test_where_one_worker_refuses_the_others_run_and_where_all_do_it_is_said(study, alone):
    told = []
    launcher = Threads(shared(study), refuses=(1,))
    slow = lambda job: time.sleep(0.02) or produced(job)  # noqa: E731
    launcher.execute = slow
    assert ran(study, launcher, report=told.append) == alone
    assert launcher.started[1] == 1  # not replaced
    assert "worker on here: study: policies/snapkv.py: changed" in {each.refused for each in told}


def test_where_all_workers_refuse_their_reason_is_given_and_nothing_ran(study):
    with pytest.raises(Drifted, match=r"worker on here: study: policies/snapkv\.py: changed"):
        ran(study, Threads(shared(study), refuses=(0, 1)))
    assert shard(study.folder) == b""


def test_workers_that_never_begin_are_waited_for_so_long(study):
    with pytest.raises(
        Refusal, match=r"none of 2 workers gave a sign of life .* 8 batches waiting; see: squeue --jobs 12"
    ):
        ran(study, Threads(shared(study), silent=(0, 1)), wait=0.1)


def test_a_scheduler_that_does_not_answer_ends_nothing_while_workers_beat(study, alone, monkeypatch):
    launcher = Threads(shared(study))
    monkeypatch.setattr(launcher, "states", lambda: None)
    assert ran(study, launcher) == alone


def test_a_silent_worker_loses_its_job_to_another(study, alone, monkeypatch):
    """Its machine hangs: what started it still sees it."""
    monkeypatch.setattr(spool_driver, "SILENT_SECONDS", 0.1)
    own = shared(study)
    launcher = Threads(own)
    work = launcher.work

    def hanging(slot, command):
        if slot:
            return work(slot, command)
        session = command[command.index("--session") + 1]
        said = {"host": "here", "slot": 0, "session": session, "state": "running", "beat": 1}
        while own.take("0-here-1") is None:
            time.sleep(0.005)
        (own.workers / "0-here-1.json").write_text(json.dumps(said))
        return time.sleep(3)

    monkeypatch.setattr(launcher, "work", hanging)
    launcher.silent = (0,)
    assert ran(study, launcher) == alone


def test_a_full_disk_loses_no_job(study, alone, monkeypatch):
    """Two results find no room; their workers end, and what they leave is no result."""
    finish, full = Spool.write_result, [1, 1]

    def finishing(self, asked, result):
        if full:
            full.pop()
            (self.results / f".{asked.name}.json.01234567").write_bytes(b"cut")
            raise OSError(errno.ENOSPC, "No space left on device")
        finish(self, asked, result)

    monkeypatch.setattr(Spool, "write_result", finishing)
    launcher = Threads(shared(study))
    assert ran(study, launcher) == alone
    assert sum(launcher.started.values()) == 4


def test_one_worker_alone_takes_a_job(tmp_path):
    own = Spool.for_phase(tmp_path, LOCK, "probe")
    own.prepare()
    for number, job in enumerate(JOBS):
        queued(own, number, job)
    taken, start = [], threading.Barrier(4)

    def take(worker):
        start.wait()
        while (asked := own.take(worker)) is not None:
            taken.append(asked.job)

    threads = [threading.Thread(target=take, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == JOBS


SECRET = Keeper(b"the vault opens with 7492")
TOKENS = ",".join(map(str, SECRET.text)).encode()  # as JSON has them


class Receiving(Threads):
    """Workers that can be handed prompts. received: those of each problem; kept: every byte that the folders had on
    disk when a batch ran.
    """

    def __init__(self, shared, folder):
        super().__init__(shared)
        self.folder, self.received, self.kept = folder, {}, []

    def serve(self, shared, name, decoder, says, session):
        receiver = prompt_handover.Receiver()
        says["recipient"] = receiver.recipient

        def run(job, prompts):
            self.received |= {prompt.problem: prompt for prompt in prompts.prompts}
            for path in self.folder.rglob("*.*"):
                with suppress(OSError):  # others rename and remove
                    self.kept.append(path.read_bytes())
            return produced(job)

        worker.serve_jobs(shared, name, decoder._replace(decode=run), says, session, receiver)


@pytest.mark.parametrize("sealed", [(), ("toy",)])
def test_workers_get_the_prompts_of_their_batch_and_no_disk_has_those_of_sealed_problems(study, alone, sealed):
    receiving = Receiving(shared(study), study.folder)
    assert ran(study, receiving, keeper=SECRET, sealed=sealed) == alone
    assert receiving.received == {job.problems[0]: SECRET.render(job).prompts[0] for job in JOBS}
    assert (TOKENS in b"".join(receiving.kept)) == (not sealed)
    assert any(data.startswith(b"age-encryption.org/v1") for data in receiving.kept) == bool(sealed)


def test_what_was_handed_to_a_worker_opens_for_no_other_and_is_handed_again_where_it_is_cut(tmp_path):
    own = Spool.for_phase(tmp_path, LOCK, "confirm")
    own.prepare()
    assert own.folder.stat().st_mode & 0o777 == 0o700
    own.enqueue(0, named(own, JOBS[0]), JOBS[0], None)
    asked, mine, others = own.take("me"), prompt_handover.Receiver(), prompt_handover.Receiver()
    assert asked.prompts is None
    assert mine.receive(asked.path) is None
    prompt_handover.hand_over(asked.path, TOKENS, mine.recipient)
    beside = asked.path.with_suffix(".age")
    whole = beside.read_bytes()
    assert mine.receive(asked.path) == TOKENS
    assert others.receive(asked.path) is None
    assert not beside.exists()
    for cut in (whole[:-1], whole[:40], b""):
        beside.write_bytes(cut)
        assert mine.receive(asked.path) is None
        assert not beside.exists()
    beside.write_bytes(whole)
    own.write_result(asked, produced(JOBS[0]))
    assert list(own.taken_jobs.rglob("*.*")) == []


def test_prompts_that_somebody_else_handed_over_are_not_run(study, alone):
    """Whoever can write into the folder can encrypt to a worker's public key."""
    receiving, hand_over = Receiving(shared(study), study.folder), prompt_handover.hand_over
    forged = [canonical.dumps(spool.dump_prompts(Keeper(b"another question").render(JOBS[2])))]

    def handing(path, prompts, recipient):
        hand_over(path, forged.pop() if forged and named_of(path) == sealed_name else prompts, recipient)

    named_of = lambda path: path.stem.partition("-")[2]  # noqa: E731
    sealed_name = shared(study).job_name(JOBS[2], SECRET.render(JOBS[2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_handover, "hand_over", handing)
        assert ran(study, receiving, keeper=SECRET, sealed=("toy",)) == alone
    assert not forged
    assert receiving.received["p2"] == SECRET.render(JOBS[2]).prompts[0]


def test_a_worker_that_waits_for_its_prompts_ends_with_its_driver_and_runs_nothing(study):
    own = shared(study)
    own.prepare()
    own.enqueue(0, named(own, JOBS[0]), JOBS[0], None)
    own.driver.write_text(json.dumps({"session": "mine", "beat": 1}))
    says, ended = {"state": ""}, []

    def serve():
        try:
            worker.serve_jobs(own, "me", Decoder(produced), says, "mine", prompt_handover.Receiver())
        except worker.Orphaned:
            ended.append("orphaned")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    while says["state"] != "waiting for its prompts":
        time.sleep(0.005)
    own.driver.write_text(json.dumps({"session": "over", "beat": 2}))
    thread.join(10)
    assert ended == ["orphaned"]
    assert own.result_names() == set()


def test_workers_end_with_their_driver(study, monkeypatch):
    own = shared(study)
    own.prepare()
    says = {"state": ""}
    own.driver.write_text(json.dumps({"session": "another", "beat": 1}))
    with pytest.raises(worker.Orphaned):
        worker.serve_jobs(own, "me", Decoder(produced), says, "mine")
    own.driver.write_text(json.dumps({"session": "mine", "beat": 1}))
    monkeypatch.setattr(worker, "ORPHANED_SECONDS", 0.05)
    with pytest.raises(worker.Orphaned):
        worker.serve_jobs(own, "me", Decoder(produced), says, "mine")
    own.driver.unlink()
    with pytest.raises(worker.Orphaned):
        worker.serve_jobs(own, "me", Decoder(produced), says, "mine")


def test_the_display_and_the_status_say_who_runs_and_who_waits(study):
    assert (
        progress.format_pool_status(PoolStatus(("node1 cpu", "node1 cpu", "node2 cpu"), 5, 12, 3))
        == "3 batches run (node1 cpu 2, node2 cpu), 12 are waiting, 3 are spooled; 5 workers have not started"
    )
    own = shared(study)
    assert spool.describe_status(study.folder, LOCK, "confirm") == ""
    own.prepare()
    said = {"running": ["node1"], "pending": 7, "waiting": 12, "ready": 3, "refused": ""}
    said |= {"look": "squeue --jobs 12", "workers": 8, "host": "login", "executor": "slurm"}
    own.driver.write_text(json.dumps(said))
    assert spool.describe_status(study.folder, LOCK, "confirm") == (
        "slurm, from login: 1 of 8 workers are running a batch, 7 have not started (squeue --jobs 12); "
        "12 batches are waiting, 3 results are spooled"
    )


def options(*words):
    import argparse

    parser = argparse.ArgumentParser()
    settings.add_options(parser)
    return settings.parse_settings(parser.parse_args(words))


def test_what_is_typed_is_what_is_chosen(tmp_path):
    assert options() == LOCAL
    assert options("--devices", "cuda:0,cuda:3").count(None) == 2
    assert options("--workers", "4").count(2) == 4
    assert LOCAL.count(3) == 3
    typed = ("--executor", "slurm", "--slurm", "partition=long,time=60", "--wait", "2")
    assert options(*typed) == Settings("slurm", wait=120.0, slurm=(("partition", "long"), ("time", "60")))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--executor dask", "--executor dask: write one of local, slurm, ray"),
        ("--workers 0", "--workers 0: write a whole number of at least 1"),
        ("--devices tpu:0", "--devices 'tpu:0': write cuda:0,cuda:1 and so on, or cpu"),
        ("--devices cuda:01", "--devices 'cuda:01': write"),
        ("--devices cpu,cpu --workers 3", "--workers 3: --devices names 2 devices, with one process each"),
        ("--executor ray --devices cpu", "--devices: is allowed only with --executor local"),
        ("--slurm partition=x", "--slurm: is allowed only with --executor slurm"),
        ("--executor slurm --slurm partion=x", "did you mean 'partition'?"),
        ("--executor slurm --slurm time=soon", "--slurm time=soon: write a whole number of at least 1"),
        ("--executor slurm --slurm cluster=kubernetes", "write one of slurm, local, debug"),
        ("--executor slurm --slurm cluster=debug --workers 2", "cluster=debug runs one"),
        ("--spool x", "--spool: processes on one machine need no spool folder"),
        ("--wait 0", "--wait 0: write a number of minutes above 0"),
    ],
)
def test_what_means_nothing_is_refused(words, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        options(*words.split())


def test_a_device_is_named_as_this_process_names_it():
    assert device_environment("cpu") == {}
    assert device_environment("cuda:2") == {"CUDA_VISIBLE_DEVICES": "2"}
    assert device_environment("cuda:1", "4,GPU-5e") == {"CUDA_VISIBLE_DEVICES": "GPU-5e"}
    with pytest.raises(BadInput, match="CUDA_VISIBLE_DEVICES has only '4'"):
        device_environment("cuda:1", "4")


@pytest.mark.parametrize(("phase", "problems", "sealed"), [("probe", None, set()), ("confirm", object(), {"toy"})])
def test_what_a_probe_asks_is_no_secret_since_its_workers_have_no_key(study, monkeypatch, phase, problems, sealed):
    """A worker that waited for what nobody hands over would wait for ever."""
    told = []
    monkeypatch.setattr(factory, "LAUNCHERS", {"slurm": SimpleNamespace(start=lambda *about: None, wait=1.0)})
    monkeypatch.setattr(factory.held_out_guard, "is_encrypted", lambda task: True)
    monkeypatch.setattr(factory, "open_keeper", lambda *about: nullcontext())
    monkeypatch.setattr(factory, "drive_workers", lambda *about: nullcontext(told.append(about[7])))
    generation = SimpleNamespace(workers=2, threads=1, device="cpu")
    planned = SimpleNamespace(protocol=SimpleNamespace(generation=generation), tasks={"toy": None})
    with factory.open_executor(study, planned, phase, problems, Settings(kind="slurm")):
        assert told == [sealed]
