"""A file of programs goes from its check to a verdict, and an audit grades its programs again."""

import json
import shutil

import pytest
import studies

from protocol import tasks
from protocol.evidence import records
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput
from protocol.recompute import study_files
from protocol.sandbox import sandbox
from protocol.tasks import __main__ as tasks_command

pytestmark = pytest.mark.soak  # a study takes 15 s of processor time
FILE = "answers.jsonl"  # a task has the name of its file, and `programs` is one that ships
CHANGES = {
    **studies.ONE_TASK,
    'name = "needle-256"': f'file = "{FILE}"\ngrader = "program"\nchance = 0\ndev = 2\nconfirm = 6',
    "max_new_tokens = 24": "max_new_tokens = 4",
    'against = ["random", "streaming"]': 'against = ["random"]',
    'streaming = { policy = "streaming" }\n': "",
    'policy = "crystal-token-level"': 'policy = "knorm"',
    'method = "sign-flip"': 'method = "t"',
}


def line(number: int) -> dict[str, str]:
    """A function in the words that the tiny model has."""
    task = tasks.get("needle-256").redrawn(7)
    problem = task.build(task.ids()[number], lambda text: len(text.split()))
    return {
        "task_id": f"made/{number}",
        "prompt": f'def answer():\n    """{problem.context} {problem.question} """\n',
        "entry_point": "answer",
        "canonical_solution": f"    return {number}\n",
        "test": f"def check(candidate):\n    assert candidate() == {number}\n",
    }


@pytest.fixture(scope="module")
def done(made, tiny_model, contained):
    def make(shelves):
        folder = studies.write(shelves / "registrations" / "programs", tiny_model, CHANGES)
        (folder / FILE).write_text("".join(json.dumps(line(number)) + "\n" for number in range(16)))
        assert tasks_command.main(["check", str(folder / FILE), "--grader", "program"]) == 0
        for act in ("register", "probe", "confirm"):
            studies.ran((0, 10, 11), act, folder)
            if act == "register":
                shutil.copytree(folder, shelves / "locked" / "programs")

    return made("programs-study", make) / "registrations" / "programs"


def test_it_has_a_verdict_and_its_audit_and_regrading_hold(done):
    bodies = [record["body"] for record in records.read_records(done / "records")]
    assert {body["grade"] for body in bodies} <= {"wrong", "no answer"}
    assert studies.content(done / "lock.json")["checks"]["golds"]["answers"]["confirm"] == 6
    assert studies.content(done / "verdict.json")["judged"]["verdict"] in ("INCONCLUSIVE", "SCREENED")
    assert "texts grade as recorded" in studies.ran(0, "audit", done).stdout
    assert studies.here("regrade", done).returncode == 0


def test_where_no_sandbox_works_it_is_refused_before_the_lock_and_before_the_claim(done, tmp_path, monkeypatch):
    locked = done.parents[1] / "locked" / "programs"
    for check in (study_files.check_probe, study_files.check_confirm):
        check(Registration(locked))
    monkeypatch.setattr(sandbox, "is_usable", lambda way: False)
    for check in (study_files.check_probe, study_files.check_confirm):
        with pytest.raises(BadInput, match=r"grader program: .* install bubblewrap"):
            check(Registration(locked))
    fresh = tmp_path / "registrations" / "fresh"
    fresh.mkdir(parents=True)
    for name in ("protocol.toml", FILE):
        shutil.copy(locked / name, fresh)
    assert "grader program: needs a sandbox for programs" in studies.ran(2, "register", fresh).stderr
    assert {path.name for path in fresh.iterdir()} == {"protocol.toml", FILE}
