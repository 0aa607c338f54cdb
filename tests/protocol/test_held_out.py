"""A held-out problem is built under an open claim, and by nothing that runs before."""

import ast
import hashlib
import re
import shutil
from dataclasses import replace

import finished_study
import pytest
import studies
from studies import words

import splits
from protocol import calibrate, confirm, probe, tasks
from protocol.evidence import claim, ledger, records, seal, verdict
from protocol.evidence.held_out_guard import HeldOutGuard, JudgedHeldOut
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock
from protocol.models import load
from protocol.plan import toml_reader
from protocol.plan.grid import cells
from protocol.preflight import feasibility, frozen_problems
from protocol.preflight import rehearsal as rehearse
from protocol.run import runner
from protocol.run.executors import Job, local, process_pool
from protocol.tasks import prompting, registry
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.task_union import TaskUnion
from protocol.workspace import study
from protocol.workspace.planned_study import PlannedStudy

TASK = "needle-256"
DEV, CONFIRM = splits.load(TASK).dev, splits.load(TASK).confirm


pytestmark = pytest.mark.usefixtures("same_environment")


def locked(folder, content=None):
    """A lock that holds out what the manifest does, and the first line of its ledger."""
    folder.mkdir()
    items = {TASK: {"manifest": splits.load(TASK).digest, "dev": list(DEV), "confirm": list(CONFIRM)}}
    held = finished_study.lock_content(written=content, items=items)
    ledger.append(folder, "register", {"lock": lock.write(folder, held)})
    return folder


def door(folder, value=None, block=None):
    held = lock.read(folder)
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration.with_lock(folder, held), value, block)
    return HeldOutGuard(held, folder)


class Block:
    height, hash = 7, "ab" * 32


LATE = {"randomness": {"source": "anchor"}}


@pytest.mark.parametrize("name", tasks.names())
def test_without_a_claim_no_held_out_problem_of_any_task_is_built(name):
    for problem in splits.load(name).confirm[:20]:
        with pytest.raises(BadInput, match=r"is held out; only confirm may read it"):
            tasks.build(name, problem, words)


def test_development_and_calibration_problems_are_built_as_ever():
    for problem in DEV:
        assert tasks.build(TASK, problem, words) == tasks.get(TASK).build(problem, words)
    chain = tasks.get("chain")
    for problem in (*splits.load("chain").dev[:20], *chain.calibration_ids()[:20]):
        assert tasks.build("chain", problem, words) == chain.build(problem, words)


def test_the_door_builds_what_was_opened_with_a_purpose_and_only_that(tmp_path):
    held_out = door(locked(tmp_path / "study"))
    with pytest.raises(BadInput, match="have not been opened; open them with a purpose first"):
        tasks.build(TASK, CONFIRM[0], words, held_out)
    held_out.ids(TASK, "a test")
    assert tasks.build(TASK, CONFIRM[0], words, held_out) == tasks.get(TASK).build(CONFIRM[0], words)
    other = splits.load("association-256").confirm[0]
    with pytest.raises(BadInput, match="held out, but not by the lock of"):
        tasks.build("association-256", other, words, held_out)


def test_the_door_is_shut_before_the_claim_under_another_lock_and_after_the_seal(tmp_path):
    folder = locked(tmp_path / "study")
    held = lock.read(folder)
    with pytest.raises(BadInput, match="no claim"):
        tasks.build(TASK, CONFIRM[0], words, HeldOutGuard(held, folder))
    held_out = door(folder)
    held_out.ids(TASK, "a test")
    with pytest.raises(Tampered, match="a lock other than"):
        tasks.build(TASK, CONFIRM[0], words, HeldOutGuard(held._replace(digest="f" * 64), folder))
    (folder / seal.NAME).write_text("{}\n")
    with pytest.raises(AlreadyClaimed, match="sealed"):
        tasks.build(TASK, CONFIRM[0], words, held_out)


def judged(folder):
    """A seal and a verdict as the ledger cites it; neither is read here."""
    (folder / seal.NAME).write_text("{}\n")
    (folder / verdict.NAME).write_text("{}\n")
    ledger.append(folder, "verdict", {"sha256": hashlib.sha256(b"{}\n").hexdigest()})
    return JudgedHeldOut(lock.read(folder), folder)


def test_an_auditor_builds_what_was_held_out_once_the_verdict_is_there_and_enters_nothing(tmp_path):
    held_out = door(locked(tmp_path / "study", LATE), block=Block)
    held_out.ids(TASK, "a test")
    late = tasks.build(TASK, CONFIRM[0], words, held_out)
    auditor = judged(held_out.folder)
    with studies.unchanged(held_out.folder):
        assert tasks.build(TASK, CONFIRM[0], words, auditor) == late
        other = splits.load("association-256").confirm[0]
        with pytest.raises(BadInput, match="held out, but not by the lock of"):
            tasks.build("association-256", other, words, auditor)


def test_the_auditors_door_is_shut_until_then(tmp_path):
    folder = door(locked(tmp_path / "study")).folder
    auditor = JudgedHeldOut(lock.read(folder), folder)
    shut = pytest.raises(BadInput, match="has no verdict yet; until then only confirm may read its held-out problems")
    with shut:
        tasks.build(TASK, CONFIRM[0], words, auditor)
    (folder / seal.NAME).write_text("{}\n")
    with shut:
        tasks.build(TASK, CONFIRM[0], words, auditor)
    (folder / verdict.NAME).write_text("{}\n")  # without its line, which closes the study
    with shut:
        tasks.build(TASK, CONFIRM[0], words, auditor)
    auditor = judged(folder)
    (folder / verdict.NAME).write_text('{"a":1}\n')
    with pytest.raises(Tampered, match="its verdict line cites a different"):
        tasks.build(TASK, CONFIRM[0], words, auditor)


def test_with_a_late_value_held_out_problems_are_others_and_development_problems_the_same(tmp_path):
    held_out = door(locked(tmp_path / "study", LATE), block=Block)
    held_out.ids(TASK, "a test")
    before = [tasks.get(TASK).build(problem, words) for problem in CONFIRM]
    drawn = [tasks.build(TASK, problem, words, held_out) for problem in CONFIRM]
    assert [problem.id for problem in drawn] == list(CONFIRM)
    assert not {problem.context for problem in drawn} & {problem.context for problem in before}
    assert [tasks.gold(TASK, problem.id, held_out.key()) for problem in drawn] == [one.gold for one in drawn]
    assert [tasks.gold(TASK, problem.id) for problem in before] == [one.gold for one in before]
    for problem in DEV:
        assert tasks.build(TASK, problem, words, held_out) == tasks.get(TASK).build(problem, words)
        assert tasks.gold(TASK, problem, held_out.key()) == tasks.get(TASK).build(problem, words).gold


SEVERAL = [name for name in tasks.names() if isinstance(tasks.get(name), TaskUnion)]
GENERATED = [name for name in tasks.names() if tasks.get(name).grader != "math"]


@pytest.mark.parametrize("name", GENERATED)
def test_a_task_that_is_drawn_anew_keeps_its_ids_and_its_golds_are_those_of_its_problems(name):
    task = tasks.get(name)
    drawn = task.redrawn(2**63)
    assert drawn.ids() == task.ids()
    seed = task.parts[0].seed if name in SEVERAL else task.seed
    assert drawn.redrawn(seed) == task
    for problem in task.ids()[:: len(task.ids()) // (2 if name in SEVERAL else 8)]:  # long texts take their time
        assert task.gold(problem) == task.build(problem, words).gold
        assert drawn.gold(problem) == drawn.build(problem, words).gold
        assert drawn.build(problem, words).context != task.build(problem, words).context


def test_golds_of_published_problems_come_without_their_text(tmp_path, monkeypatch):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))
    data = b'{"answer":"005","level":"","problem":"Add 2 and 3.","unique_id":"aime24/60"}\n'
    published = replace(tasks.get("aime24"), sha256=hashlib.sha256(data).hexdigest())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "aime24.jsonl").write_bytes(data)
    assert published.gold("aime24/60") == "005"
    assert published.redrawn(5) is published
    with pytest.raises(BadInput, match="is not in this task"):
        published.gold("aime24/6")


@pytest.fixture
def written(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "written", tiny_model, studies.ONE_TASK)
    return toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml")


def opened(model, held_out, home):
    """The first held-out problem, as confirm builds it."""
    count = prompting.counter(load.tokenizer(model, home))
    return HeldOutProblems(
        held_out, held_out.key(), {(model, TASK, CONFIRM[0]): tasks.build(TASK, CONFIRM[0], count, held_out)}
    )


def test_a_batch_with_a_held_out_problem_is_refused_without_the_door(written, tmp_path):
    job = Job(written.models[0], TASK, CONFIRM[:1], cells(written)[:1])
    with pytest.raises(BadInput, match="is held out; only confirm may read it"):
        local.make_executor(PlannedStudy(written, tmp_path), {})(job)


@pytest.mark.usefixtures("forked_workers")
def test_processes_that_run_batches_go_through_the_door_and_ask_again_whether_it_is_open(written, tmp_path):
    folder = locked(tmp_path / "study", LATE)
    held_out = door(folder, block=Block)
    held_out.ids(TASK, "a test")
    protocol = replace(written, generation=replace(written.generation, workers=2))
    job = Job(written.models[0], TASK, CONFIRM[:1], cells(written)[:1])
    problems = opened(job.model, held_out, tmp_path)
    with process_pool.open_executor(PlannedStudy(protocol, tmp_path), {}, problems) as execute:
        ((body, _),) = next(execute([job])).records.values()
        (folder / seal.NAME).write_text("{}\n")
        with pytest.raises(AlreadyClaimed, match="is sealed"):
            list(execute([job]))
    (folder / seal.NAME).unlink()
    tokenizer = load.tokenizer(job.model, tmp_path)
    built = tasks.build(TASK, CONFIRM[0], prompting.counter(tokenizer), held_out)
    assert body["prompt"] == prompting.digest(*prompting.render(built, tokenizer, "inside"))


def test_lanes_sample_with_the_drawn_seed_and_records_keep_the_label(tmp_path, written, monkeypatch):
    held_out = door(locked(tmp_path / "study", LATE), block=Block)
    held_out.ids(TASK, "a test")
    seen, run = [], local.engine.run

    def watched(model, requests, **settings):
        seen.extend(lane.seed for request in requests for lane in request.lanes)
        return run(model, requests, **settings)

    monkeypatch.setattr(local.engine, "run", watched)
    job = Job(written.models[0], TASK, CONFIRM[:1], cells(written)[:1])
    done = local.make_executor(PlannedStudy(written, tmp_path), {}, opened(job.model, held_out, tmp_path))(job)
    assert [body["cell"]["seed"] for body, _ in done.records.values()] == [0]
    key = bytes.fromhex(held_out.key())
    inner = hashlib.sha256(bytes(a ^ 0x36 for a in key.ljust(64, b"\0")) + b"seed 0\x01").digest()
    outer = hashlib.sha256(bytes(a ^ 0x5C for a in key.ljust(64, b"\0")) + inner).hexdigest()
    assert seen == [int(outer[:16], 16)]


def planted(monkeypatch):
    """The manifest says that a held-out problem is for development."""
    manifest = splits.load(TASK)
    altered = manifest._replace(dev=(manifest.confirm[0], *manifest.dev))
    for module in (registry.splits, calibrate.splits):
        monkeypatch.setattr(module, "load", lambda name: altered)


def test_registering_and_rehearsing_reach_no_planted_problem(written, tiny_model, tmp_path, monkeypatch):
    planted(monkeypatch)
    with pytest.raises(BadInput, match="is held out"):
        feasibility.check_feasibility(
            PlannedStudy(written, tmp_path), frozen_problems.freeze_items(PlannedStudy(written, tmp_path))
        )
    planned, models = PlannedStudy(written, tmp_path), {one: one for one in written.models}
    with pytest.raises(BadInput, match="is held out"):
        rehearse.rehearse(planned, models, frozen_problems.freeze_items(planned), 1, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_calibrating_reaches_no_planted_problem(tiny_model, tmp_path, monkeypatch):
    planted(monkeypatch)
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "home"))
    asked = ("calibrate", f"path:{tiny_model}", "traces", "--task", TASK, "--split", "dev")
    studies.refused(2, f"problem {CONFIRM[0]!r} of {TASK}: is held out", *asked)
    assert not list((tmp_path / "home").rglob("*.safetensors"))


@pytest.fixture(scope="module")
def registered(tiny_model, tmp_path_factory):
    folder = studies.write(tmp_path_factory.mktemp("registrations") / "study", tiny_model, studies.ONE_TASK)
    studies.ran(0, "register", folder)
    return folder


def test_probing_reaches_no_planted_problem(registered, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "study")
    opened = study.open_study(Registration(folder), tmp_path)
    opened.lock.content["items"][TASK]["dev"].insert(0, CONFIRM[0])
    with pytest.raises(BadInput, match="is held out"):
        probe.run_probe(opened)
    probed = {record["body"]["problem"] for record in records.read_records(folder / "probe")}
    assert probed < set(DEV)


def test_a_held_out_prompt_that_was_probed_under_another_id_stops_confirm(
    registered, tiny_model, tmp_path, monkeypatch
):
    folder = shutil.copytree(registered, tmp_path / "study")
    source = f"path:{tiny_model}"
    tokenizer = load.tokenizer(source, tmp_path)
    built = tasks.get(TASK).build(CONFIRM[-1], prompting.counter(tokenizer))
    opened = study.open_study(Registration(folder), tmp_path)
    job = Job(source, TASK, DEV[:1], opened.cells()[:1])
    done = local.make_executor(opened.planned, {})(job)
    ((body, costs),) = done.records.values()
    body |= {"registration": lock.read(folder).digest, "phase": "probe"}
    body["prompt"] = prompting.digest(*prompting.render(built, tokenizer, "inside"))
    with ShardWriter(folder / "probe") as shard:
        shard.keep_trajectories(done.trajectories)
        shard.append([(body, {"attempt": 1, **costs})])
    monkeypatch.setattr(runner, "run_phase", lambda *_, **__: pytest.fail("a lane ran"))
    with pytest.raises(
        BadInput, match=re.escape(f"problem {CONFIRM[-1]!r}: {source} was probed with its prompt, as {DEV[0]!r}")
    ):
        confirm.confirm(opened)
    assert not (folder / "records").exists()


def test_nothing_but_the_door_calls_a_raw_builder_and_nothing_but_confirm_opens_it():
    """Read from the source: `held_out_guard.build` is the door, and `tasks.build` for a name; whatever else is called
    `build` is behind it.
    """
    allowed = {
        # A task of several asks its parts; new questions are drawn from a seed that no study has.
        "build": {
            "tasks/held_out_guard.py",
            "tasks/task_union.py",
            "init.py",
            "adapters/openvino_arm.py",  # of a file of the author's, what a claim released
        },
        "redrawn": {
            "tasks/held_out_guard.py",
            "tasks/task_union.py",
            "tasks/registry.py",  # from seeds that no study has
            "preflight/previously_opened.py",  # as an earlier study's claim drew them; their texts are compared
            "outside/released.py",  # as a claim drew them, for whoever decodes elsewhere
            "init.py",
        },
        "with_identity": {"tasks/held_out_guard.py"},
        # A worker decrypts with a key of its own the prompts that the driver, under the claim, encrypted to it.
        "decrypt": {"tasks/dataset.py", "tasks/encryption.py", "run/executors/prompt_handover.py"},
        "puzzle": {"tasks/chain.py"},
        "HeldOutGuard": {"confirm.py", "outside/confirm.py"},
        "JudgedHeldOut": {"recompute/replay.py", "instruments/show/problem_reader.py"},
        "gold": {
            "recompute/verify_traces.py",  # of development problems, whose traces are graded again
            "init.py",
            "preflight/frozen_problems.py",
            "recompute/verify_grades.py",
            "tasks/__init__.py",
            "tasks/held_out_guard.py",
            "tasks/lm_eval_task.py",  # of its own
            *(f"tasks/{name}.py" for name in FAMILIES),
        },
    }
    package = studies.ROOT / "protocol"
    found = {name: set() for name in allowed}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (name := called(node.func)) in allowed:
                found[name].add(path.relative_to(package).as_posix())
    assert {name: found[name] - allowed[name] for name in allowed} == {name: set() for name in allowed}
    assert all(found.values())


FAMILIES = ("needle", "association", "recital", "programs", "task_union", "topic_retrieval", "lm_eval_task")


def called(function):
    if isinstance(function, ast.Name):
        return function.id if function.id in ("HeldOutGuard", "JudgedHeldOut") else None
    if not isinstance(function, ast.Attribute):
        return None
    door_itself = isinstance(function.value, ast.Name) and function.value.id in ("tasks", "held_out_guard")
    return None if door_itself and function.attr == "build" else function.attr
