"""A study of a file of one's own, with clusters, beside a task of ours taken in part: from its lock to its
replication, and whatever is done to the file meanwhile.
"""

import json
import shutil

import pytest
import studies

import splits
from analysis.judgement import previously_opened
from protocol import replicate, tasks
from protocol.evidence import records
from protocol.evidence.audit import inventory
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.instruments.exports import lock_sentences
from protocol.lock import lock
from protocol.preflight import frozen_problems, task_splits, verify_problems
from protocol.preflight import previously_opened as opened_before_lock
from protocol.preflight.previously_opened import find_previously_opened
from protocol.tasks import registry
from protocol.workspace import drift, run_inputs
from protocol.workspace.planned_study import PlannedStudy, read_protocol
from protocol.workspace.study import open_study

FILE = "questions.jsonl"
CHANGES = {
    'name = "needle-256"\n': 'name = "needle-256"\ndev = 2\nconfirm = 8\n',
    'name = "association-256"\nquery = "outside"': (
        f'file = "{FILE}"\ngrader = "exact"\nchance = 0\ninstruction = "Answer with the number."\n'
        'dev = 2\nconfirm = 11\nquery = "outside"'
    ),
    'against = ["random", "streaming"]': 'against = ["random"]',
    'streaming = { policy = "streaming" }\n': "",
    'policy = "crystal-token-level"': 'policy = "knorm"',
    "max_new_tokens = 24": "max_new_tokens = 4",
    'method = "sign-flip"\ndraws = 10000\nseed = 7\n': 'method = "betting"\n',
    "alpha = 0.05": "alpha = 0.2",  # at which bets on so few problems can decide
}


def written(folder, model, rows, changes=CHANGES):
    folder = studies.write(folder, model, changes)
    (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def rows():
    """Passages of words that the tiny model has, of which the first two pairs share a cluster."""
    task = tasks.get("needle-256").redrawn(7)
    built = [task.build(item, lambda text: len(text.split())) for item in task.ids()]
    return [
        {
            "id": f"mine/{number}",
            "context": problem.context,
            "question": problem.question,
            "answer": problem.gold,
            "cluster": f"c{number // 2 if number < 4 else number}",
        }
        for number, problem in enumerate(built)
    ]


@pytest.fixture(scope="module")
def done(made, tiny_model, rows):
    """Confirmed; each command with what it said."""

    def make(shelves):
        folder = written(shelves / "registrations" / "study", tiny_model, rows)
        for act in ("register", "probe", "confirm"):
            studies.ran((0, 10, 11), act, folder)

    return made("own-tasks", make) / "registrations" / "study"


@pytest.fixture
def study(done, tmp_path):
    return shutil.copytree(done, tmp_path / "registrations" / "study")


def hashed_first(ids, confirm, count):
    own = [item for item in ids if (splits.assign_bucket(item) in splits.CONFIRM) == confirm]
    return [item for item in own if item in splits.subsample(own, count)]


def test_the_lock_has_the_chosen_problems_their_clusters_and_the_digest_of_the_file(done, rows):
    content = studies.content(done / "lock.json")
    item, ids = content["items"]["questions"], [row["id"] for row in rows]
    assert item["dev"] == hashed_first(ids, False, 2)
    assert item["confirm"] == hashed_first(ids, True, 11)
    clusters = {row["id"]: row["cluster"] for row in rows}
    assert item["clusters"] == {each: clusters[each] for each in (*item["dev"], *item["confirm"])}
    assert "levels" not in item
    assert content["data"] == {"questions": files.sha256(done / FILE)}
    assert content["checks"]["golds"]["questions"] == {"purpose": "gold self-check", "dev": 2, "confirm": 11}
    ours = content["items"]["needle-256"]
    whole = splits.load("needle-256")
    assert (ours["manifest"], len(ours["dev"]), len(ours["confirm"])) == (whole.digest, 2, 8)
    assert set(ours) == {"manifest", "dev", "confirm", "population"}


def test_what_runs_are_these_problems_and_the_audit_holds(done):
    content = studies.content(done / "lock.json")
    for phase, split in (("probe", "dev"), ("records", "confirm")):
        ran = {(one["body"]["cell"]["task"], one["body"]["problem"]) for one in records.read_records(done / phase)}
        assert ran == {(name, each) for name, item in content["items"].items() for each in item[split]}
    judged = studies.content(done / "verdict.json")["judged"]
    (row,) = [row for row in judged["contrasts"] if row["task"] == "questions"]
    item = content["items"]["questions"]
    held = {item["clusters"][each] for each in item["confirm"]}
    assert (row["n"], row["clusters"]) == (11, len(held))
    assert "NOT VOUCHED FOR" not in studies.ran(0, "audit", done).stdout
    assert inventory.classify(Registration(done))[FILE] == "evidence"
    assert studies.here("regrade", done).returncode == 0


def test_the_file_goes_with_a_replication_and_an_amendment(study, tmp_path):
    studies.ran((0, 10, 11), "replicate", study)
    child = tmp_path / "replications" / "study-001"
    assert (child / FILE).read_bytes() == (study / FILE).read_bytes()
    assert lock.read(child).content["items"] == lock.read(study).content["items"]
    new = tmp_path / "registrations" / "study-b"
    studies.here("amend", study, new, "--reason", "a test")
    assert (new / FILE).read_bytes() == (study / FILE).read_bytes()


@pytest.mark.parametrize("change", ["edited", "gone", "a link"])
def test_a_file_that_changes_after_the_lock_is_found(change, study, same_environment):
    path = study / FILE
    match change:
        case "edited":
            path.write_bytes(path.read_bytes().replace(b'"cluster": "c0"', b'"cluster": "c9"'))
        case "gone":
            path.unlink()
        case _:
            path.rename(study.parent / FILE)
            path.symlink_to(study.parent / FILE)
    studies.ran(3, "audit", study)
    found = run_inputs.list_drift(Registration(study), study, studies.surroundings())
    assert any("questions" in line for line in found)


def test_a_lock_whose_problems_were_edited_is_found(study):
    content = studies.content(study / "lock.json")
    item = content["items"]["questions"]
    for field, value in (
        ("confirm", item["confirm"][:-1]),
        ("dev", item["dev"][::-1]),
        ("clusters", {**item["clusters"], item["confirm"][0]: "another"}),
        ("manifest", "0" * 64),
        ("source", "0" * 64),
    ):
        edited = {**content, "items": {**content["items"], "questions": {**item, field: value}}}
        found = verify_problems.derive_problem_fields(Registration.with_lock(study, lock.Lock(edited, "0" * 64)))
        assert (found.items["questions"], found.faults, found.undetermined) == (item, [], [])


@pytest.mark.parametrize("table", [{"data": "data.jsonl"}, {"lengths": [64]}])
def test_what_a_lock_says_of_a_task_of_lm_eval_is_derived_without_lm_eval(table, study):
    """Its ids, clusters and levels are those of the file beside the lock, or of the lengths."""
    rows = [
        {"_id": f"q{number}", "input": f"Who {number}?", "context": f"Text {number // 2}.", "answers": ["A"]}
        for number in range(20)
    ]
    (study / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = {"name": "theirs", "lm_eval": "niah_single_1", **table}
    item = task_splits.read_split("theirs", registry.make_task(table, study))
    kind = "clusters" if "data" in table else "levels"
    content = studies.content(study / "lock.json")
    content["data"]["theirs"] = files.sha256(study / "data.jsonl")
    opened = Registration.with_lock(study, lock.Lock(content, "0" * 64))
    first = item["confirm"][0]
    for edited in (item, {**item, "confirm": item["confirm"][1:]}, {**item, kind: {**item[kind], first: "alone"}}):
        opened.lock.content["items"]["theirs"] = edited
        found = verify_problems._item_of_task(
            opened, table, fields := verify_problems.ProblemFields({}, {}, {}, [], [], [])
        )
        assert (found, fields.faults, fields.undetermined) == (item, [], [])


@pytest.fixture
def alone(monkeypatch, tmp_path):
    monkeypatch.setattr(drift, "ROOT", tmp_path / "sources")


def test_the_same_problem_in_another_file_under_another_id_was_opened_before(study, alone, rows, tiny_model, tmp_path):
    held = set(studies.content(study / "lock.json")["items"]["questions"]["confirm"])
    renamed = [{**row, "id": f"other-{row['id']}", "answer": "7", "cluster": "one"} for row in rows]
    fresh = [{**row, "question": f"{row['question']} Say it twice."} for row in rows]
    for name, own, due in (("renamed", renamed, {f"other-{item}" for item in held}), ("fresh", fresh, set())):
        folder = written(tmp_path / "registrations" / name, tiny_model, own)
        _, protocol = read_protocol(folder)
        items = frozen_problems.freeze_items(PlannedStudy(protocol, tmp_path, folder=folder))
        found = find_previously_opened(folder, {"questions": items["questions"]}, protocol.content())
        shared = {item for one in found for item in one["problems"].get("questions", ())}
        assert shared == due & set(items["questions"]["confirm"])
        assert bool(shared) == bool(due)


def changed(rows, at, **fields):
    return [
        {name: value for name, value in {**row, **fields}.items() if value is not None} if place == at else row
        for place, row in enumerate(rows)
    ]


def test_a_file_that_cannot_be_read_asked_or_graded_is_refused_and_nothing_is_written(tiny_model, tmp_path, rows):
    """Also where a line is wrong that is held out, whose prompt is measured and not kept: after the claim it
    would be too late.
    """
    ids = [row["id"] for row in rows]
    held, dev = (ids.index(hashed_first(ids, side, size)[0]) for side, size in ((True, 9), (False, 2)))
    asked = rows[dev]["question"]
    for number, (broken, says) in enumerate(
        (
            ([*rows, {**rows[0], "id": "again"}], f"line {len(rows) + 1}: context: asks the same as line 1"),
            (
                changed(rows, held, context=f"{rows[dev]['context']} \n\u200d{asked}", question=None),
                f"line {max(held, dev) + 1}: context: asks the same as line {min(held, dev) + 1}",
            ),
            ([{**rows[0], "answer": ""}, *rows[1:]], "line 1: answer: is empty"),
            (rows[:1], "questions: its "),
            (changed(rows, held, context="word " * 4000 + "."), "a prompt of 40"),
            (changed(rows, held, question=None), f"{ids[held]!r}: has no separate question"),
            (
                changed(rows, held, question=f"{asked} Is it {rows[held]['answer']}?"),
                f"line {held + 1}: answer: is in the question, and exact counts an answer as right",
            ),
            (changed(rows, held, prefix=f"It is {rows[held]['answer']}"), "answer: is in the prefix"),
            (changed(rows, held, answer="e"), "answer: is a single letter, which almost any text contains"),
        )
    ):
        folder = written(tmp_path / f"study-{number}", tiny_model, broken)
        before = studies.snapshot(folder)
        studies.refused(2, says, "register", folder)
        assert studies.snapshot(folder) == before


TWO = {**CHANGES, 'name = "needle-256"\n': 'file = "other.jsonl"\ngrader = "exact"\nchance = 0\n'}


@pytest.mark.parametrize(
    ("renamed", "query", "says"),
    [
        (lambda item: f"other-{item}", "inside", "is the same as the development problem"),
        (lambda item: item, "outside", "is also a problem of other; a problem counts only once"),
        (lambda item: item, "inside", None),
    ],
)
def test_one_problem_in_two_files_is_held_out_or_developed_on_and_counts_once(
    renamed, query, says, tiny_model, tmp_path, rows
):
    changes = {**TWO, 'query = "inside"': f'instruction = "Answer with the number."\nquery = "{query}"'}
    folder = written(tmp_path / "study", tiny_model, rows, changes)
    other = [{**row, "id": renamed(row["id"])} for row in rows]
    (folder / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
    _, protocol = read_protocol(folder)
    planned = PlannedStudy(protocol, tmp_path, folder=folder)
    if says is None:  # asked in two ways
        assert frozen_problems.freeze_items(planned).keys() == {"other", "questions"}
        return
    with pytest.raises(BadInput, match=says):
        frozen_problems.freeze_items(planned)


def test_a_row_that_another_task_of_lm_eval_reads_under_another_id_was_opened_before(
    study, alone, tmp_path, monkeypatch
):
    """Rows of LongBench are those of LongBench-E too."""
    rows = [{"_id": f"q{place}", "input": f"Who {place}?", "context": "A.", "answers": ["B"]} for place in range(9)]
    later = tmp_path / "registrations" / "later"
    later.mkdir()
    tables, items = [], []
    for folder, name, key in ((study, "longbench_qasper", "_id"), (later, "longbench_qasper_e", "no_id")):
        data = [{**row, key: row["_id"]} for row in rows[::-1]]
        for row in data:
            row.pop("_id") if key != "_id" else None
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
        tables.append({"name": name, "lm_eval": name, "data": "data.jsonl"})
        items.append({name: task_splits.read_split(name, registry.make_task(tables[-1], folder))})
    content = studies.content(study / "lock.json")
    content["items"], content["protocol"]["content"]["tasks"] = items[0], tables[:1]
    earlier = Registration.with_lock(study, lock.Lock(content, "0" * 64))
    monkeypatch.setattr(opened_before_lock, "claimed_registrations", lambda folder: [earlier])
    (found,) = find_previously_opened(later, items[1], {"tasks": tables[1:]})
    held = {int(item.rpartition("q")[2]) for item in items[0]["longbench_qasper"]["confirm"]}
    numbers = {8 - int(item[-4:]) for item in items[1]["longbench_qasper_e"]["confirm"]}
    same = {8 - int(item[-4:]) for item in found["problems"]["longbench_qasper_e"]}
    assert same == held & numbers
    assert same


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_an_earlier_file_that_is_not_here_as_it_was_locked_is_told(change, study, alone, rows, tiny_model, tmp_path):
    renamed = [{**row, "id": f"other-{row['id']}"} for row in rows]
    if change == "edited":
        (study / FILE).write_bytes((study / FILE).read_bytes() + b" ")
    else:
        (study / FILE).unlink()
    folder = written(tmp_path / "registrations" / "later", tiny_model, renamed)
    _, protocol = read_protocol(folder)
    items = frozen_problems.freeze_items(PlannedStudy(protocol, tmp_path, folder=folder))
    own = {"questions": items["questions"]}
    found = find_previously_opened(folder, own, protocol.content())
    assert found == [{"name": "study", "lock": None, "problems": {}}]
    assert previously_opened.describe_opened({"items": own, "opened": found}) == [
        "study was claimed earlier, but the problems that it had opened could not be read."
    ]


def test_clusters_that_are_developed_on_too_are_said_where_a_verdict_is(done):
    lock = studies.content(done / "lock.json")
    item = lock["items"]["questions"]
    of, dev, held = item["clusters"], item["dev"], item["confirm"]
    both = {of[one] for one in held if of[one] in {of[other] for other in dev}}
    told = studies.content(done / "verdict.json")["judged"]["does_not_prove"]
    said = [one for one in told if one.startswith("Clusters without development problems")]
    assert len(said) == bool(both)
    problems = {"dev": ["a", "b"], "confirm": ["c", "d", "e"]}
    made = {**problems, "clusters": {"a": "one", "b": "two", "c": "one", "d": "three", "e": "one"}}
    assert previously_opened.describe_shared_clusters({"items": {"mine": made}}) == [
        "1 of 2 clusters of held-out problems of mine also contain development problems: 2 of 3 "
        "held-out problems are in such clusters."
    ]
    assert previously_opened.describe_shared_clusters({"items": {"mine": problems}}) == []


def test_a_file_of_ones_own_is_not_called_published(done):
    lock = studies.content(done / "lock.json")
    said = lock_sentences.describe_prior_knowledge(lock)
    assert not any("published" in one for one in said)
    assert any(one.startswith("The problems of questions are in a file of the author's") for one in said)
    lock["data"]["math500"] = "0" * 64
    assert any("problems of math500 are published" in one for one in lock_sentences.describe_prior_knowledge(lock))


def test_a_replication_without_its_file_leaves_no_folder(study, tmp_path):
    parent = open_study(Registration(study), tmp_path)
    (study / FILE).unlink()
    with pytest.raises((BadInput, FileNotFoundError)):
        replicate.register_child(parent, is_fresh=False)
    assert not (tmp_path / "replications").exists()
