"""A study with a sweep, end to end: probe selects, confirm runs the winner, audit derives both again."""

import hashlib
import json
import re
import shutil

import pytest
import studies

from protocol.evidence import ledger, records, selection
from protocol.evidence.audit import auditor
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.lock import version_1


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "registrations" / folder.name)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_command_says_what_follows(sweep_registered, swept):
    said = [
        (folder.parent.parent / f"{act}.txt").read_text()
        for folder, act in ((sweep_registered, "register"), (swept, "confirm"))
    ]
    assert re.search(r"next: kv-prereg probe \S+, then kv-prereg confirm", said[0])
    assert "chosen is h2o (policy h2o), selected on the development problems" in said[1]


def test_the_grid_has_the_sweeps_name_and_no_candidate(sweep_registered):
    lock = studies.content(sweep_registered / "lock.json")
    assert {cell[3] for cell in lock["grid"]} == {"full", "chosen", "streaming", "snapkv"}
    assert {cell[4] for cell in lock["grid"]} == {0}


def test_a_probe_runs_candidates_and_baseline_twice_on_dev_with_the_sweeps_seeds(sweep_probed):
    bodies = [line["body"] for line in lines(sweep_probed / "probe" / "shard-0.jsonl")]
    assert {body["cell"]["arm"] for body in bodies} == {"h2o", "random", "streaming", "streaming (again)"}
    assert {body["cell"]["seed"] for body in bodies} == {3, 4}
    items = studies.content(sweep_probed / "lock.json")["items"].values()
    assert {body["problem"] for body in bodies} == {problem for item in items for problem in item["dev"]}


def test_a_model_that_knows_nothing_ties_and_the_earliest_candidate_wins(sweep_probed):
    selected = studies.content(sweep_probed / "selection.json")["selected"]
    assert selected["winner"] == "h2o"
    assert set(selected["means"].values()) == {"0.000000"}
    assert len(selected["cells"]) == 2  # candidates


def test_a_second_probe_prints_the_same_and_leaves_the_selection(sweep_probed, tmp_path):
    folder = copy(sweep_probed, tmp_path)
    said = [studies.here("probe", folder) for _ in range(2)]
    assert said[0].stdout == said[1].stdout
    assert "<- selected" in said[0].stdout
    for name in ("selection.json", "probe/shard-0.jsonl"):
        assert (folder / name).read_bytes() == (sweep_probed / name).read_bytes()
    assert (folder / "ledger.jsonl").read_bytes() == (sweep_probed / "ledger.jsonl").read_bytes()


def test_a_finished_sweep_prints_its_selection_again(swept, tmp_path):
    folder = copy(swept, tmp_path)
    with studies.unchanged(folder):
        assert "<- selected" in studies.ran(0, "probe", folder).stdout


@pytest.mark.parametrize("with_selection", [False, True])
def test_a_selected_probe_that_was_thrown_away_is_not_run_again(sweep_probed, tmp_path, with_selection):
    folder = copy(sweep_probed, tmp_path)
    shutil.rmtree(folder / "probe")
    if with_selection:
        (folder / "selection.json").unlink()
    with studies.unchanged(folder):
        assert "selection.json" in studies.ran(3, "probe", folder).stderr


@pytest.mark.soak
def test_a_probe_says_how_many_records_it_found(sweep_registered, tmp_path):
    """Killed after its first batch; the second attempt counts what that left, so dropping it shows."""
    folder = copy(sweep_registered, tmp_path)
    studies.kill_when_it_grows(studies.start("probe", folder), folder / "probe" / "shard-0.jsonl")
    left = (folder / "probe" / "shard-0.jsonl").read_text().count("\n")
    assert studies.here("probe", folder).returncode == 0
    bodies = [line["body"] for line in lines(folder / "ledger.jsonl") if line["event"] == "probe"]
    assert bodies == [{"number": 1, "records": 0}, {"number": 2, "records": left}]
    held = statuses(folder)
    assert held["probe"].detail.endswith("2 attempts")

    rewrite(folder, lambda record: record["costs"].update(attempt=2))
    failed = statuses(folder)["probe"]
    assert failed.detail == f"attempt 2 found {left} records, but there are now 0 before it"


def rewrite(folder, change):
    """Every record of the probe changed, all digests of the shard made to fit again."""
    found = records.read_records(folder / "probe")
    (folder / "probe" / "shard-0.jsonl").unlink()
    for record in found:
        change(record)
    with ShardWriter(folder / "probe") as shard:
        shard.append([(record["body"], record["costs"]) for record in found])


def statuses(folder):
    """The findings of the evidence by itself, by item."""
    return {each.item: each for each in auditor.audit(Registration(folder))}


def test_records_of_a_probe_after_the_selection_are_found(sweep_probed, tmp_path):
    folder = copy(sweep_probed, tmp_path)
    assert statuses(folder)["selection"].status == "held"
    count = len(lines(folder / "probe" / "shard-0.jsonl"))
    ledger.append(folder, "probe", {"number": 2, "records": 0})
    rewrite(folder, lambda record: record["costs"].update(attempt=2))
    found = statuses(folder)
    assert found["probe"].status == "failed"
    assert f"probe attempt 1 ended with {count} records" in found["probe"].detail
    assert found["selection"].status == "failed"
    assert found["selection"].detail.endswith("was probed in attempt 2, after the selection")


def test_a_probe_line_without_its_count_is_that_of_a_shipped_study_alone(sweep_probed, tmp_path, monkeypatch):
    folder = copy(sweep_probed, tmp_path)
    entries = ledger.read(folder)
    (folder / "ledger.jsonl").unlink()
    for entry in entries[:-1]:
        ledger.append(folder, entry.event, {"number": 1} if entry.event == "probe" else entry.body)
    assert statuses(folder)["probe"].status == "failed"
    monkeypatch.setattr(version_1, "PROTOCOLS", {Registration(folder).lock.digest: ""})
    assert statuses(folder)["probe"].status == "held"


def test_a_probe_in_which_a_lane_failed_selects_nothing(broken_model, tmp_path):
    folder = studies.write(tmp_path / "registrations" / "study", broken_model, studies.SWEEP)
    assert studies.here("register", folder).returncode == 0
    done = studies.ran(2, "probe", folder)
    assert "probed lanes have no grade" in done.stderr
    assert "register a new folder whose question names this study as its parent" in done.stderr
    assert not (folder / "selection.json").exists()


def test_confirm_without_a_selection_is_refused_in_one_line_and_writes_nothing(sweep_registered, tmp_path):
    folder = copy(sweep_registered, tmp_path)
    with studies.unchanged(folder):
        studies.refused(2, f"run: kv-prereg probe {folder}", "confirm", folder)


def test_status_says_probe_then_confirm(sweep_registered, sweep_probed):
    assert f"next: kv-prereg probe {sweep_registered}" in studies.here("status", sweep_registered).stdout
    said = studies.here("status", sweep_probed).stdout
    assert "h2o selected" in said
    assert f"next: kv-prereg confirm {sweep_probed}" in said


def test_claim_seal_and_verdict_name_the_selection(swept):
    digest = hashlib.sha256((swept / "selection.json").read_bytes()[:-1]).hexdigest()
    assert studies.content(swept / "claim.json")["selection"] == digest
    assert studies.content(swept / "seal.json")["selection"] == digest
    judged = studies.content(swept / "verdict.json")["judged"]
    assert judged["selected"] == {"arm": "h2o", "policy": "h2o", "selection": digest}
    assert {row["subject"] for row in judged["contrasts"]} == {"chosen"}


def test_what_was_confirmed_is_the_winners_policy(swept, tiny_model, tmp_path):
    """The same problems under the plain name of the winner leave the same texts and caches."""
    plain = studies.write(
        tmp_path / "registrations" / "plain",
        tiny_model,
        {
            **studies.ONE_TASK,
            "threads = 1": "threads = 1\nproblems_per_batch = 2",
            'policy = "crystal-token-level"': 'policy = "h2o"',
        },
    )
    assert studies.here("register", plain).returncode == 0
    assert studies.here("confirm", plain).returncode in (10, 11)

    def found(folder, arm):
        bodies = [line["body"] for line in lines(folder / "records" / "shard-0.jsonl")]
        return {body["problem"]: (body["text"], body["cache"]) for body in bodies if body["cell"]["arm"] == arm}

    assert found(swept, "chosen") == found(plain, "crystal")
    assert found(swept, "chosen") != found(plain, "random")


def test_the_audit_holds_and_selects_again(swept):
    done = studies.ran(0, "audit", swept, "--details")
    assert "held         selection: h2o, selected before the claim from the probe's records" in done.stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "item"),
    [
        ("selection.json", '"winner":"h2o"', '"winner":"random"', "selection"),
        ("selection.json", '"0.005"', '"0.050"', "selection"),
        ("claim.json", '"selection":"', '"selection":"0', "claim"),
    ],
)
def test_an_edited_selection_is_found(swept, tmp_path, name, old, new, item):
    folder = copy(swept, tmp_path)
    studies.edit(folder / name, old, new)
    assert f"failed       {item}:" in studies.ran(3, "audit", folder).stdout


def test_an_edited_selection_is_not_confirmed(sweep_probed, tmp_path):
    folder = copy(sweep_probed, tmp_path)
    studies.edit(folder / "selection.json", '"winner":"h2o"', '"winner":"random"')
    studies.ran(3, "confirm", folder)
    assert not (folder / "claim.json").exists()


def test_a_selection_that_the_rule_does_not_give_is_not_confirmed(sweep_probed, tmp_path):
    """Another winner, with every digest made to fit: no digest tells, the rule does."""
    folder = copy(sweep_probed, tmp_path)
    kept = ledger.read(folder)[:-1]
    content = studies.content(folder / "selection.json")
    (folder / "ledger.jsonl").unlink()
    (folder / "selection.json").unlink()
    for entry in kept:
        ledger.append(folder, entry.event, entry.body)
    chosen = content["selected"] | {"winner": "random", "policy": "random"}
    selection.write(Registration(folder), chosen)
    assert "selection.json: differs from what the rule selects, h2o" in studies.ran(3, "confirm", folder).stderr
    assert not (folder / "claim.json").exists()


def test_a_selection_that_was_cut_off_is_completed_by_the_next_probe(sweep_probed, tmp_path):
    folder = copy(sweep_probed, tmp_path)
    ledger = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    assert '"event":"selection"' in ledger[-1]
    (folder / "ledger.jsonl").write_text("".join(ledger[:-1]))
    assert studies.here("audit", folder).returncode == 6
    assert "run again: kv-prereg probe" in studies.ran(2, "confirm", folder).stderr
    assert studies.here("probe", folder).returncode == 0
    assert studies.here("audit", folder).returncode == 0


@pytest.mark.soak
def test_killed_and_resumed_probe_and_confirm_change_nothing(sweep_registered, sweep_probed, swept, tmp_path):
    folder = copy(sweep_registered, tmp_path)
    for name, shard in (("probe", "probe/shard-0.jsonl"), ("confirm", "records/shard-0.jsonl")):
        studies.kill_when_it_grows(studies.start(name, folder), folder / shard)
        assert studies.here(name, folder).returncode in (0, 10, 11)
    once, again = (studies.content(each / "selection.json") for each in (sweep_probed, folder))
    assert (once["probe"], once["selected"]) == (again["probe"], again["selected"])
    assert studies.content(folder / "seal.json")["outcome"] == studies.content(swept / "seal.json")["outcome"]
    judged, before = (studies.content(each / "verdict.json")["judged"] for each in (folder, swept))
    assert judged.pop("selected")["arm"] == before["selected"]["arm"]
    assert judged == {name: value for name, value in before.items() if name != "selected"}
    assert studies.here("audit", folder).returncode == 0


def test_a_replication_takes_its_parents_selection_and_does_not_probe(swept, tmp_path):
    swept = copy(swept, tmp_path)
    done = studies.ran((10, 11), "replicate", swept)
    assert "agrees with study" in done.stdout
    assert "chosen is h2o" in done.stdout
    child = swept.parent.parent / "replications" / "study-001"
    assert not (child / "probe").exists()
    assert (child / "selection.json").read_bytes() == (swept / "selection.json").read_bytes()
    studies.ran(0, "audit", child)
    with studies.unchanged(child):
        studies.refused(2, "a replication uses its parent's selection and is not probed", "probe", child)

    parent, away = swept.parent, swept.parent.parent / "elsewhere" / "registrations"
    away.parent.mkdir()
    parent.rename(away)
    try:
        alone = statuses(child)["selection"]
        assert (alone.status, "no folder here has its lock" in alone.detail) == ("cannot tell", True)
        shutil.copytree(away / "study", parent / "study", ignore=shutil.ignore_patterns("selection.json"))
        assert statuses(child)["selection"].status == "failed"
        (parent / "study" / "lock.json").write_text('{"another":"lock"}\n')
        assert statuses(child)["selection"].status == "cannot tell"
    finally:
        shutil.rmtree(parent)
        away.rename(parent)
    assert statuses(child)["selection"].status == "held"
    edited = (child / "selection.json").read_text().replace('"winner":"h2o"', '"winner":"random"')
    (child / "selection.json").write_text(edited)
    assert "failed       selection: selection.json: differs from the parent's" in studies.here("audit", child).stdout
