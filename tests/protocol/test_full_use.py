"""A study whose budget is a share of what the full cache holds: from its registration to a replication."""

import json
import shutil

import pytest
import studies

from analysis.judgement.full_cache_use import describe_full_use
from protocol import tasks
from protocol.evidence import ledger, records
from protocol.formats import canonical, documents
from protocol.lock import lock
from protocol.models import load
from protocol.preflight import full_cache_use
from protocol.tasks import prompting

pytestmark = pytest.mark.usefixtures("same_environment")

BUDGET, NEW = "0.75 of full", 24
STUDY = "registrations/study"
SHARE = {
    **studies.ONE_TASK,
    "budgets = [0.8]": f'budgets = ["{BUDGET}"]',
    'query = "inside"': 'query = "outside"',
    "threads = 1": "threads = 1\nproblems_per_batch = 3",
    'crystal = { policy = "crystal-token-level" }': 'crystal = { policy = "h2o" }',
}


@pytest.fixture(scope="module")
def finished(made, tiny_model, same_environment):
    """Registered, probed and confirmed, with what each command said."""

    def make(root):
        folder = studies.write(root / STUDY, tiny_model, SHARE)
        for act in ("register", "probe", "confirm"):
            done = studies.ran((0, 11), act, folder, drawn=True)
            (root / act).write_text(done.stdout + done.stderr)
            shutil.copytree(folder, root / "after" / act / "study")

    return made("full-use", make) / STUDY


def after(finished, act):
    return finished.parent.parent / "after" / act / "study"


def said(finished, act):
    return (finished.parent.parent / act).read_text()


def of_lock(folder):
    ((_, by_task),) = studies.content(folder / "lock.json")["full_use"].items()
    return by_task["needle-256"]


def slots_of(held):
    """3/4 of the mean, rounded up, in whole numbers."""
    return -(-3 * sum(held.values()) // (4 * len(held)))


def test_what_is_locked_is_what_prompt_and_answer_take(finished, tiny_model, tmp_path):
    one, split = of_lock(finished), studies.content(finished / "lock.json")["items"]["needle-256"]
    tokenizer = load.tokenizer(f"path:{tiny_model}", tmp_path)
    count = prompting.counter(tokenizer)
    answers = {
        body["problem"]: body
        for body in (record["body"] for record in records.read_records(finished / "probe"))
        if body["cell"]["arm"] == "full"
    }
    assert one["held"].keys() == set(split["dev"]) == answers.keys()
    for problem, held in one["held"].items():
        asked = prompting.render(tasks.build("needle-256", problem, count), tokenizer, "outside")
        fed = answers[problem]["tokens"] - (answers[problem]["stop"] == "length")
        assert held == sum(map(len, asked)) + fed
    assert one["slots"] == {BUDGET: slots_of(one["held"])}


def test_every_lane_has_these_slots_and_the_texts_say_so(finished):
    one = of_lock(finished)
    for place in ("probe", "records"):
        bodies = [record["body"] for record in records.read_records(finished / place)]
        given = {(body["cell"]["budget"], body["slots"]) for body in bodies}
        assert given == {("full", None), (BUDGET, slots_of(one["held"]))}
        lengths = {body["prompt_tokens"] for body in bodies}
        assert len(lengths) > 1, "of a share of the prompt they would differ"
    (line,) = describe_full_use(studies.content(finished / "lock.json")["full_use"])
    assert f"{BUDGET} is {slots_of(one['held'])} slots" in line
    assert line in said(finished, "register")
    assert BUDGET in (finished / "report.html").read_text()
    exported = " ".join(studies.here("export", finished, "--format", "osf").stdout.split())
    assert line in exported
    assert "measured when it was locked" in exported


def test_it_audits_and_replicates_with_its_parents_slots(finished, tmp_path, monkeypatch):
    assert "only confirm measures again" in " ".join(studies.ran(0, "audit", finished, "--details").stdout.split())
    copied = shutil.copytree(finished, tmp_path / "registrations" / "study")
    monkeypatch.setattr(full_cache_use, "measure_full_cache", lambda *given: pytest.fail("was measured again"))
    assert "agrees with study" in studies.ran(11, "replicate", copied).stdout
    child = tmp_path / "replications" / "study-001"
    assert of_lock(child) == of_lock(finished)
    assert studies.here("audit", child).returncode == 0
    relock(child, lambda held: held["full_use"].update(scaled(held["full_use"], 2)))
    assert "full_use" in failed(child, "registered")


# ---------------------------------------------------------------- edited locks


def relock(folder, change):
    """Edit the lock and make its line in the ledger anew, as somebody would who knows how."""
    content = documents.read(folder / lock.NAME).content
    change(content)
    (folder / lock.NAME).write_bytes(canonical.dumps(content) + b"\n")
    lines = [(entry.event, entry.body) for entry in ledger.read(folder)]
    lines[0] = ("register", {"lock": lock.read(folder).digest})
    (folder / ledger.NAME).unlink()
    for event, body in lines:
        ledger.append(folder, event, body)


def failed(folder, item):
    done = studies.ran(3, "audit", folder, "--details")
    return next(line for line in done.stdout.splitlines() if line.startswith("failed") and f"{item}:" in line)


def scaled(full_use, by):
    """Every problem held so many times as much, with the mean and the slots that follow."""
    ((model, by_task),) = full_use.items()
    held = {problem: by * slots for problem, slots in by_task["needle-256"]["held"].items()}
    return {model: {"needle-256": entry(held)}}


def entry(held):
    total, count = sum(held.values()), len(held)
    while total % 2 == count % 2 == 0:
        total, count = total // 2, count // 2
    mean = str(total) if count == 1 else f"{total}/{count}"  # of 8 problems
    return {"held": held, "mean": mean, "slots": {BUDGET: slots_of(held)}}


def fewer_slots(content):
    ((_, by_task),) = content["full_use"].items()
    by_task["needle-256"]["slots"][BUDGET] -= 1


def a_problem_held_more(content):
    """One slot, which is within what its prompt and any answer take, and all that follows."""
    ((model, by_task),) = content["full_use"].items()
    held = by_task["needle-256"]["held"]
    first = min(held)
    content["full_use"] = {model: {"needle-256": entry(held | {first: held[first] - 1})}}


def test_edited_slots_are_not_confirmed_and_fail_an_audit(finished, tmp_path):
    for act in ("register", "confirm"):
        folder = shutil.copytree(after(finished, act), tmp_path / act / "study")
        relock(folder, fewer_slots)
        assert f".needle-256.slots.{BUDGET}: " in failed(folder, "registered")
    with studies.unchanged(tmp_path / "register" / "study"):
        for act in ("probe", "confirm"):
            assert f".needle-256.slots.{BUDGET}: " in studies.ran(3, act, tmp_path / "register" / "study").stderr


def test_edited_use_with_all_that_follows_is_measured_again_before_a_claim(finished, tmp_path):
    folder = shutil.copytree(after(finished, "probe"), tmp_path / "registrations" / "study")
    relock(folder, a_problem_held_more)
    done = studies.ran(3, "confirm", folder)
    assert "lock.json: full_use." in done.stderr
    assert "but must be" in done.stderr
    assert not (folder / "claim.json").exists()


def test_a_use_that_no_prompt_and_answer_can_have_fails_an_audit(finished, tmp_path):
    folder = shutil.copytree(after(finished, "confirm"), tmp_path / "registrations" / "study")
    relock(folder, lambda content: content.update(full_use=scaled(content["full_use"], 2)))
    assert "full use: " in failed(folder, "sense")


# ---------------------------------------------------------------- what is refused, and what is left out


def refused(tmp_path, model, replace):
    folder = studies.write(tmp_path / "registrations" / "refused", model, replace)
    done = studies.ran(2, "register", folder)
    assert [path.name for path in folder.iterdir()] == ["protocol.toml"]
    return done.stderr


def test_a_full_cache_that_fails_and_a_share_that_is_too_small_are_refused(tmp_path, tiny_model, broken_model):
    assert "budgets: the full cache fails on needle/256/" in refused(tmp_path, broken_model, SHARE)
    small = SHARE | {"budgets = [0.8]": 'budgets = ["0.5 of full"]'}
    assert "budgets: 0.5 of full gives 11" in (said := refused(tmp_path, tiny_model, small))
    assert "fewer than the 132 that arm" in said
    alike = SHARE | {"budgets = [0.8]": 'budgets = ["0.75 of full", "0.7501 of full"]'}
    assert "budgets: 0.75 of full and 0.7501 of full are the same slots for path:" in refused(
        tmp_path, tiny_model, alike
    )


def test_excluded_problems_are_not_measured_and_a_rehearsal_measures_its_own(finished, tmp_path, tiny_model):
    lengths = {
        record["body"]["problem"]: record["body"]["prompt_tokens"]
        for record in records.read_records(finished / "probe")
    }
    limit = sorted(lengths.values())[len(lengths) // 2]
    excluding = SHARE | {"[gate]": f"[exclude]\nprompt_tokens_above = {limit}\n[gate]"}
    folder = studies.write(tmp_path / "registrations" / "short", tiny_model, excluding)
    done = studies.ran(0, "rehearse", folder, "--problems", "8", "--tokens", "2", "--json")
    ((_, by_task),) = json.loads(done.stdout)["full_use"].items()
    held = by_task["needle-256"]["held"]
    assert held.keys() == {problem for problem, tokens in lengths.items() if tokens <= limit}
    assert 0 < len(held) < len(lengths)
    full = of_lock(finished)["held"]
    assert held == {problem: full[problem] - NEW + 2 for problem in held}
