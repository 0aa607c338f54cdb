"""No event fires before the answer has begun, unless that is registered or the lock is an older one."""

from contextlib import contextmanager

import pytest
import studies
from sampled import decoded_here, sampled, shipped

from protocol import register, replicate
from protocol.evidence import records
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput
from protocol.lock import lock, version_1
from protocol.plan import grid, toml_reader
from protocol.preflight import feasibility
from protocol.run import runner
from protocol.run.executors import Job, local
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study, open_study
from splits import load

pytestmark = pytest.mark.usefixtures("same_environment")

TASK = "association-256"  # whose question stands outside
CRYSTAL = {"crystal-token-level": "crystal"}  # which 0.8 of 204 tokens does not fit


def protocol_of(model, first_event=None, cadence="exact"):
    written = "" if first_event is None else f"\nfirst_event = {first_event}"
    text = studies.PROTOCOL.format(model=model)
    text = text.replace("threads = 1", f'threads = 1\ninterval = 6\ncadence = "{cadence}"{written}')
    return toml_reader.parse(text.encode(), "protocol.toml")


@pytest.fixture
def steps(tiny_model, tmp_path):
    """Steps of the events of every evicting lane of some problems, without the one after the context."""

    def act(*settings):
        protocol = protocol_of(tiny_model, *settings)
        cells = tuple(cell for cell in grid.cells(protocol) if cell.task == TASK)
        job = Job(protocol.models[0], TASK, tuple(load(TASK).dev[:2]), cells)
        done = local.make_executor(PlannedStudy(protocol, tmp_path), {})(job)
        events = {cell.arm: body["cache"]["events"] for (cell, _), (body, _) in done.records.items()}
        assert events.pop("full") == []
        assert all(found[0][0] == 0 for found in events.values())
        return {arm: [step for step, *_ in found[1:]] for arm, found in events.items()}

    return act


@pytest.mark.parametrize("cadence", sampled(["exact", "slack"], of=2))
def test_the_question_is_whole_until_the_answer_has_begun(steps, cadence):
    """The question is longer than an interval of 6: with 0 it was cut before anything was answered."""
    first = {"exact": 6, "slack": 1}[cadence]
    assert {found[0] for found in steps(None, cadence).values()} == {first}
    assert {found[0] for found in steps(1, cadence).values()} == {first}
    assert {found[0] for found in steps(0, cadence).values()} == {0}
    assert {found[0] for found in steps(7, cadence).values()} == {{"exact": 12, "slack": 7}[cadence]}


def locked(folder, model, changes=None):
    studies.write(folder, model, changes)
    with studies.remembering("register"):
        register.register(folder, folder)
    return open_study(Registration(folder), folder)


def replicated(study):
    with studies.remembering("replicate"):
        return replicate.register_child(study, is_fresh=False)


WRITTEN = {"threads = 1": "threads = 1\ninterval = 6\nfirst_event = 0"}


@pytest.mark.parametrize(("changes", "first_event"), [({}, 1), (WRITTEN, 0)])
def test_the_lock_says_when_the_first_event_may_fire_and_what_runs_has_it(
    tiny_model, tmp_path, monkeypatch, changes, first_event
):
    study = locked(tmp_path / "registrations" / "study", tiny_model, changes)
    assert study.lock.content["batch"]["first_event"] == study.first_event() == first_event
    assert replicated(study).first_event() == first_event
    given = []

    @contextmanager
    def opened(planned, *rest):
        given.append(planned.protocol.generation.steps_before_eviction)
        yield lambda jobs: iter(())

    monkeypatch.setattr(runner.factory.process_pool, "open_executor", opened)
    for protocol in (study.protocol, study.protocol.probe_design()):
        runner.run_phase(study, protocol, [], {}, phase="probe", attempt=1, report=lambda progress: None)
    assert given == [first_event] * 2
    if not changes:  # as the same lock would be if it were older
        older = Study(study.registration, study.planned)
        monkeypatch.setattr(Study, "first_event", lambda study: 0)
        runner.run_phase(older, study.protocol, [], {}, phase="probe", attempt=1, report=lambda progress: None)
        assert given[2:] == [0]


def test_a_replication_of_an_older_lock_decodes_as_that_did(tiny_model, tmp_path, monkeypatch):
    """Its lock says nothing of a first event, which was then 0, and its budgets were checked otherwise."""
    with monkeypatch.context() as then:
        then.setattr(feasibility, "refuse_small_budgets", lambda *given: None)
        study = locked(tmp_path / "registrations" / "study", tiny_model, CRYSTAL)
    content = dict(study.lock.content)
    content["batch"] = version_1.complete(content | {"batch": {"lanes": content["batch"]["lanes"]}})["batch"]
    (study.folder / lock.NAME).unlink()
    lock.write(study.folder, content)
    older = open_study(Registration(study.folder), tmp_path)
    assert older.first_event() == 0
    again = replicated(older)
    assert again.first_event() == 0
    assert again.lock.content["batch"]["first_event"] == 0
    with pytest.raises(BadInput, match="fewer than the 194 that arm 'crystal' protects at most"):
        locked(tmp_path / "registrations" / "new", tiny_model, CRYSTAL)


SHIPPED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/seal.json"))


@pytest.mark.parametrize("folder", shipped([*filter(decoded_here, SHIPPED)]))
def test_no_shipped_lane_had_an_event_between_its_prompt_and_its_answer(folder):
    """Of two events at step 0 the second would be one right after a question that stands outside."""
    seen = 0
    for record in records.read_records(folder / "records"):
        body = record["body"]
        if body["state"] == "ok" and (events := body["cache"]["events"]):
            seen += 1
            assert events[0][0] == 0
            assert all(step > 0 for step, *_ in events[1:])
    assert seen > 400
