"""Held-out problems that an earlier registration has opened: found by content, whatever it is called."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import finished_study
import pytest
import studies

import splits
from analysis.judgement import previously_opened, statements
from protocol import export, tasks
from protocol.evidence import claim, late_randomness, ledger
from protocol.evidence.audit import amendment
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.refusals import Refusal
from protocol.lock import lock
from protocol.preflight import sibling_registrations
from protocol.preflight.previously_opened import find_previously_opened
from protocol.tasks import file_rows
from protocol.tasks.chain import Chain
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.tasks.needle import Needle
from protocol.workspace import drift

NEEDLE, OTHER = "needle-256", "association-256"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """The shipped registrations are those of another repository, but where a test asks for them."""
    monkeypatch.setattr(drift, "ROOT", tmp_path / "sources")


def items(*names):
    """The split of these tasks, as registering writes it."""
    return {
        name: {"manifest": found.digest, "dev": list(found.dev), "confirm": list(found.confirm)}
        for name, found in ((name, splits.load(name)) for name in names)
    }


def locked(folder, *names, written=None, **own):
    folder.mkdir(parents=True)
    content = finished_study.lock_content(folder.name, written, items=items(*names), **own)
    ledger.append(folder, "register", {"lock": lock.write(folder, content)})
    return folder


def claimed(folder, *names, **own):
    study = Registration(locked(folder, *names, **own))
    with claim.exclusive_run(study):
        claim.take(study)
    return folder


def found(folder, *names, content=None):
    """Names, and how many problems by task."""
    seen = find_previously_opened(folder, items(*names), content or {})
    return {one["name"]: {task: len(ids) for task, ids in one["problems"].items()} for one in seen}


@pytest.fixture
def mine(tmp_path):
    return tmp_path / "registrations" / "mine"


def test_what_was_locked_and_not_claimed_has_opened_nothing(mine):
    locked(mine.parent / "first", NEEDLE)
    assert found(mine, NEEDLE) == {}


def test_a_claim_without_a_record_has_opened_every_held_out_problem_of_its_tasks(mine):
    claimed(mine.parent / "first", NEEDLE)
    assert found(mine, NEEDLE, OTHER) == {"first": {NEEDLE: len(splits.load(NEEDLE).confirm)}}
    assert found(mine, OTHER) == {}


def test_the_ids_are_those_that_both_hold_out_in_the_order_of_the_lock(mine):
    claimed(mine.parent / "first", NEEDLE)
    (one,) = find_previously_opened(mine, items(NEEDLE), {})
    assert one["problems"] == {NEEDLE: list(splits.load(NEEDLE).confirm)}
    assert one["lock"] == lock.read(mine.parent / "first").digest


@pytest.mark.parametrize("left", ["seal.json", "verdict.json", "records", "ledger"])
def test_a_claim_that_was_removed_shows_in_anything_that_only_a_claim_leaves(left, mine):
    folder = claimed(mine.parent / "first", NEEDLE)
    (folder / "claim.json").unlink()
    if left != "ledger":
        (folder / "ledger.jsonl").unlink()
        (folder / left).mkdir() if left == "records" else (folder / left).write_text("{}")
    assert list(found(mine, NEEDLE)) == ["first"]


def test_a_folder_that_was_renamed_or_put_deeper_is_found(mine):
    first = claimed(mine.parent / "first", NEEDLE)
    deeper = mine.parent / "old" / "zzz"
    deeper.parent.mkdir()
    first.rename(deeper)
    assert list(found(mine, NEEDLE)) == ["zzz"]


def test_studies_elsewhere_in_the_repository_are_found_from_any_folder(tmp_path):
    claimed(tmp_path / "sources" / "registrations" / "first", NEEDLE)
    claimed(tmp_path / "replications" / "first-001", OTHER)
    assert list(found(tmp_path / "aside" / "mine", NEEDLE, OTHER)) == ["first", "first-001"]


def test_a_withdrawn_and_an_amended_study_that_were_claimed_have_opened_theirs(mine):
    for name in ("withdrawn", "amended"):
        claimed(mine.parent / name, NEEDLE)
    amendment.withdraw(Registration(mine.parent / "withdrawn"), "The golds were wrong.")
    ledger.append(mine.parent / "amended", "amended", {"lock": "0" * 64, "reason": "Too few."})
    assert list(found(mine, NEEDLE)) == ["amended", "withdrawn"]


def test_a_claimed_study_whose_lock_cannot_be_read_is_named_and_not_passed_over(mine):
    folder = claimed(mine.parent / "first", NEEDLE)
    (folder / "lock.json").write_text("{}")
    assert find_previously_opened(mine, items(OTHER), {}) == [{"name": "first", "lock": None, "problems": {}}]
    assert previously_opened.describe_opened(lock_of(mine, [{"name": "first", "lock": None, "problems": {}}])) == [
        "first was claimed earlier, but the problems that it had opened could not be read."
    ]


# ---------------------------------------------------------------- by content


def also_known(monkeypatch, tmp_path, **named):
    """These tasks beside those of the catalogue, with manifests of their own."""
    own = {name: splits.manifest.build_content(name, task.ids(), task.source()) for name, task in named.items()}
    load = splits.load
    for name, content in own.items():
        (tmp_path / f"{name}.json").write_bytes(canonical.encode(content) + b"\n")
    monkeypatch.setattr(splits, "load", lambda name: load(name, tmp_path) if name in own else load(name))
    monkeypatch.setattr(tasks.registry, "TASKS", dict(tasks.TASKS) | named)


def test_the_same_problems_under_another_task_name_are_the_same(mine, monkeypatch, tmp_path):
    longer = replace(tasks.get(NEEDLE), repetitions=9)
    also_known(monkeypatch, tmp_path, **{"my-own": longer})
    claimed(mine.parent / "first", NEEDLE)
    shared = set(splits.load(NEEDLE).confirm)
    assert shared < set(splits.load("my-own").confirm)
    assert found(mine, "my-own") == {"first": {"my-own": len(shared)}}


def test_the_same_ids_drawn_from_another_seed_are_other_problems(mine, monkeypatch, tmp_path):
    reseeded = tasks.get(NEEDLE).redrawn(43)
    assert reseeded.ids() == tasks.get(NEEDLE).ids()
    also_known(monkeypatch, tmp_path, reseeded=reseeded)
    claimed(mine.parent / "first", NEEDLE)
    assert found(mine, "reseeded") == {}


def test_a_manifest_that_no_task_has_any_more_counts_by_its_ids(mine):
    folder = mine.parent / "first"
    gone = {"old": items(NEEDLE)[NEEDLE] | {"manifest": "0" * 64}}
    folder.mkdir(parents=True)
    content = finished_study.lock_content("first", items=gone)
    ledger.append(folder, "register", {"lock": lock.write(folder, content)})
    (folder / "records").mkdir()
    assert found(mine, NEEDLE) == {"first": {NEEDLE: len(splits.load(NEEDLE).confirm)}}


@pytest.mark.parametrize("late", ["earlier", "this"])
def test_generated_problems_that_are_drawn_late_are_other_ones_and_published_ones_are_not(late, mine):
    randomness = {"randomness": {"source": "anchor"}}
    data = {"aime24": "0" * 64}
    folder = locked(
        mine.parent / "first", *(NEEDLE, "aime24"), data=data, written=randomness if late == "earlier" else None
    )
    (folder / "records").mkdir()
    content = randomness if late == "this" else {}
    assert found(mine, NEEDLE, "aime24", content=content) == {"first": {"aime24": len(splits.load("aime24").confirm)}}


def test_two_tasks_of_one_recipe_have_the_same_text_under_the_same_id():
    """What the recipe promises, for settings that it leaves out, and what it must tell apart."""

    def words(text):
        return len(text.split())

    short, long = Needle(256, repetitions=4), Needle(256, repetitions=9, depths=("0.5",))
    item = "needle/256/0.5/002"
    assert short.recipe() == long.recipe()
    assert short.build(item, words) == long.build(item, words)
    assert replace(short, seed=7).recipe() != short.recipe()
    chain = Chain((6,), repetitions=3, calibration=1)
    more = Chain((6, 8), repetitions=5, calibration=0)
    assert chain.recipe() == more.recipe()
    assert chain.puzzle("chain/06/001") == more.puzzle("chain/06/001")
    for other in (replace(chain, most=5), replace(chain, fewest=2), replace(chain, seed=1)):
        assert other.recipe() != chain.recipe()


def test_the_chain_problems_that_alpha_chain_opened_are_not_fresh(monkeypatch, mine):
    monkeypatch.setattr(drift, "ROOT", studies.ROOT)
    assert found(mine, "chain")["alpha-chain"] == {"chain": 287}


# ---------------------------------------------------------------- where it is said


def lock_of(folder, earlier):
    content = finished_study.lock_content(folder.name, items={"chain": {"confirm": [f"p{i}" for i in range(9)]}})
    return content | {"opened": earlier}


def by(name, *ids):
    return {"name": name, "lock": "0" * 64, "problems": {"chain": [f"p{i}" for i in ids]}}


def test_a_problem_that_two_had_opened_counts_once(mine):
    (one,) = previously_opened.opened_problems(lock_of(mine, [by("a", 0, 1, 2), by("b", 2, 3)]))
    assert one == ("chain", 4, 9, {"a": 3, "b": 2})


def test_the_sentence_says_how_many_and_by_whom(mine):
    assert previously_opened.describe_opened(lock_of(mine, [by("a", *range(9))])) == [
        "9 of 9 held-out problems of chain had been opened before this was locked, by a."
    ]
    assert previously_opened.describe_opened(lock_of(mine, [by("a", 0, 1), by("b", 1)])) == [
        "2 of 9 held-out problems of chain had been opened before this was locked, by a (2), b (1)."
    ]
    assert previously_opened.describe_opened(lock_of(mine, [])) == []
    assert previously_opened.describe_opened(finished_study.lock_content()) == []


def test_a_verdict_says_what_was_not_fresh(confirmed):
    judged = studies.content(confirmed / "verdict.json")["judged"]
    held = studies.content(confirmed / "lock.json")
    assert held["opened"] == []
    assert not [said for said in judged["does_not_prove"] if said.startswith("Fresh problems")]
    ids = held["items"][NEEDLE]["confirm"][:3]
    held["opened"] = [{"name": "first", "lock": "0" * 64, "problems": {NEEDLE: ids}}]
    every = len(held["items"][NEEDLE]["confirm"])
    assert (
        f"Fresh problems: 3 of {every} held-out problems of {NEEDLE} had been opened before this was locked, by first."
    ) in statements.does_not_prove(judged, held)


def test_registering_says_it_locks_it_and_the_texts_have_it(registered, tmp_path, monkeypatch, capsys):
    """A second study of the same tasks beside one that was claimed."""
    shelf = tmp_path / "registrations"
    first = shutil.copytree(registered, shelf / "first")
    study = Registration(first)
    with claim.exclusive_run(study):
        claim.take(study)
    second = shelf / "second"
    second.mkdir()
    shutil.copyfile(registered / "protocol.toml", second / "protocol.toml")
    rehearsed = studies.here("rehearse", second, "--problems", "1", "--tokens", "2")
    assert "the verdict can only be RE-USED, INCONCLUSIVE or SCREENED" in rehearsed.stdout, rehearsed.stderr
    done = studies.ran(0, "register", second)
    held = studies.content(second / "lock.json")
    assert {one["name"]: sorted(one["problems"]) for one in held["opened"]} == {"first": [OTHER, NEEDLE]}
    count = len(held["items"][NEEDLE]["confirm"])
    said = f"{count} of {count} held-out problems of {NEEDLE} had been opened before this was locked, by first."
    assert said in done.stdout
    assert "the verdict can only be RE-USED, INCONCLUSIVE or SCREENED" in done.stdout
    assert 'fresh problems need [randomness] with source = "local"' in done.stdout
    export.main([str(second), "--format", "osf"])
    text = capsys.readouterr().out
    assert said in text
    assert "what the rule decides is RE-USED" in text
    assert "Registration following analysis of the data" in text


def test_a_lock_whose_field_is_of_another_kind_is_refused(mine):
    content = json.loads(json.dumps(finished_study.lock_content(items=items(NEEDLE))))
    mine.mkdir(parents=True)
    with pytest.raises(Refusal, match="opened"):
        lock.write(mine, content | {"opened": [{"name": "a"}]})


# ---------------------------------------------------------------- the same texts under other names


def chain_in_a_file(folder, chain, ids):
    """The problems of a chain task written into a file of the folder, with ids of its own; the content that
    names it, and the split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, problem_id in enumerate(ids):
        problem = chain.build(problem_id, len)
        asked = f"{problem.context}\n\n{problem.question}"  # without the border of context and question
        rows.append({"id": f"mine/{number}", "context": asked, "answer": problem.gold})
    (folder / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    split = {"mine": {"dev": [], "confirm": [row["id"] for row in rows]}}
    return {"tasks": [{"name": "mine", "file": "q.jsonl", "grader": "boxed"}]}, split


def test_chains_that_were_copied_into_a_file_are_recognised_by_their_text(mine):
    claimed(mine.parent / "first", "chain")
    confirm = splits.load("chain").confirm[:3]
    content, split = chain_in_a_file(mine, tasks.get("chain"), confirm)
    (entry,) = find_previously_opened(mine, split, content)
    assert entry["problems"] == {"mine": ["mine/0", "mine/1", "mine/2"]}
    fresh, split = chain_in_a_file(mine, tasks.get("chain").redrawn(5), confirm)
    assert find_previously_opened(mine, split, fresh) == []


def test_problems_that_a_late_value_drew_are_known_once_they_were_drawn(mine):
    """The seed that the claim of the first study gave, under another name and in a file."""
    randomness = {late_randomness.FIELD: {"source": "anchor"}}
    first = locked(mine.parent / "first", "chain", written=randomness)
    content = Registration(first)
    block = SimpleNamespace(height=1, hash="ab" * 32)
    with claim.exclusive_run(content):
        claim.take(content, block=lambda: block)
    key = Registration(first).claim.content[late_randomness.FIELD]["key"]
    drawn = tasks.get("chain").redrawn(late_randomness.draw_number(key, "problems"))
    copied, split = chain_in_a_file(mine, drawn, splits.load("chain").confirm[:2])
    (entry,) = find_previously_opened(mine, split, copied)
    assert entry["problems"] == {"mine": ["mine/0", "mine/1"]}
    undrawn, split = chain_in_a_file(mine, tasks.get("chain"), splits.load("chain").confirm[:2])
    assert find_previously_opened(mine, split, undrawn) == []


def test_where_every_problem_will_be_drawn_late_no_unreadable_study_matters(mine):
    (claimed(mine.parent / "first", NEEDLE) / "lock.json").write_text("{}")
    late = {late_randomness.FIELD: {"source": "anchor"}}
    assert find_previously_opened(mine, items(OTHER), late) == []
    assert [entry["lock"] for entry in find_previously_opened(mine, items(OTHER), {})] == [None]


def test_a_row_of_lm_eval_is_the_same_in_a_file(mine, tmp_path):
    row = {"id": "7", "question": "How many  hens?", "answer": "3"}
    (tmp_path / "data.jsonl").write_text(f"{json.dumps(row)}\n")
    task = LmEvalTask("theirs", "gsm8k", tmp_path / "data.jsonl")
    assert task.content_digest("gsm8k/7") == file_rows.digest_text("How many hens?", "")


# ---------------------------------------------------------------- an emptied list


def check_claimed(folder, name, *, opened=()):
    """A claimed study of chains, and what its audit finds of its list."""
    claimed(folder, name, written={"tasks": [{"name": name}]}, opened=list(opened))
    return sibling_registrations.check_opened(Registration(folder))


def test_an_emptied_list_beside_a_shipped_study_is_a_fault(mine):
    """alpha-chain was claimed before any lock of this release."""
    mine.parent.mkdir(parents=True)
    shutil.copytree(studies.ROOT / "registrations" / "alpha-chain", mine.parent / "alpha-chain")
    (fault,) = check_claimed(mine, "chain").faults
    assert fault == (
        "opened: does not list alpha-chain, which was claimed before the release of kv-prereg that locked this study"
    )
    shutil.move(mine.parent / "alpha-chain", mine.parent.parent.parent / "alpha-chain")
    assert sibling_registrations.check_opened(Registration(mine)) == ([], [])


def test_without_a_commit_the_order_of_two_studies_that_do_not_name_each_other_cannot_be_told(mine):
    first = claimed(mine.parent / "first", "chain")
    findings = check_claimed(mine, "chain")
    assert findings.faults == []
    assert [text.partition(",")[0] for text in findings.undetermined] == [
        "opened: first has the same held-out problems"
    ]
    (mine / "lock.json").unlink()
    (mine / "claim.json").unlink()
    (mine / "ledger.jsonl").unlink()
    ids = list(splits.load("chain").confirm)
    listed = {"name": "first", "lock": lock.read(first).digest, "problems": {"chain": ids}}
    second = mine.parent / "second"
    assert check_claimed(second, "chain", opened=[listed]) == ([], [])
    # The earlier one of the two does not list the later one, which lists it.
    assert sibling_registrations.check_opened(Registration(first)) == ([], [])
