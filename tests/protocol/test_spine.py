"""The spine end to end, on a tiny random model, through the commands a person would type."""

import hashlib
import random
import shutil

import pytest
import studies


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "registrations" / folder.name)


def lock_digest(folder):
    return hashlib.sha256((folder / "lock.json").read_bytes().removesuffix(b"\n")).hexdigest()


def sealed(folder):
    return studies.content(folder / "seal.json")["outcome"]


def test_register_writes_a_lock_once(registered, tmp_path):
    folder = copy(registered, tmp_path)
    before = studies.snapshot(folder)
    assert set(before) == {".gitattributes", "protocol.toml", "lock.json", "sources.zip", "ledger.jsonl"}
    studies.ran(4, "register", folder)
    assert studies.snapshot(folder) == before


@pytest.mark.parametrize("left", [None, b"", b'{"body":{'])
def test_a_locking_that_was_cut_off_is_completed(registered, tmp_path, left):
    """left: of a ledger whose first line a crash or a full disk kept from being written whole."""
    folder = copy(registered, tmp_path)
    (folder / "ledger.jsonl").unlink()
    if left is not None:
        (folder / "ledger.jsonl").write_bytes(left)
    assert studies.here("audit", folder).returncode == 6
    before = (folder / "lock.json").read_bytes()
    assert studies.here("register", folder).returncode == 0
    assert (folder / "lock.json").read_bytes() == before
    assert studies.here("audit", folder).returncode == 0


def test_the_lock_covers_code_split_weights_and_environment(registered):
    lock = studies.content(registered / "lock.json")
    code = {"policies/crystal/trunks.py", "analysis/rules/superior.py", "protocol/run/runner.py", "figures/forest.py"}
    assert code <= set(lock["sources"])
    assert "splits/needle-256.json" in lock["sources"]
    (weights,) = lock["weights"].values()
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(weights)
    assert "torch" in lock["environment"]["distributions"]
    assert lock["environment"]["torch"]["threads"] == 1
    assert {"altered", "library", "own"} <= set(lock["environment"])


def test_confirm_ends_in_a_sealed_verdict_with_a_figure(confirmed):
    verdict = studies.content(confirmed / "verdict.json")
    judged = verdict["judged"]
    assert (judged["verdict"], judged["rule_says"]) == ("SCREENED", "INCONCLUSIVE")
    assert not judged["gate"]["passed"], "the model knows nothing, its cache whole"
    assert verdict["judged"]["label"] == "screening-grade"
    assert (confirmed / "figures" / "forest.svg").exists()
    assert (confirmed / "figures" / "forest.png").exists()
    lock = studies.content(confirmed / "lock.json")
    lines = (confirmed / "records" / "shard-0.jsonl").read_text().splitlines()
    assert len(lines) == sum(len(lock["items"][cell[1]]["confirm"]) for cell in lock["grid"])


def test_the_claim_comes_before_the_first_held_out_id(confirmed):
    events = [studies.json.loads(line)["event"] for line in (confirmed / "ledger.jsonl").read_text().splitlines()]
    assert events.index("claim") < events.index("held-out") < events.index("seal") < events.index("verdict")


@pytest.mark.soak
def test_killed_at_random_moments_and_resumed_seals_the_same_outcome(registered, confirmed, tmp_path):
    folder = copy(registered, tmp_path)
    moments = random.Random(5)
    for number in range(5):
        # Claiming grows the ledger, running grows the shard: kill it a random moment after either.
        path = folder / ("ledger.jsonl" if number % 2 else "records/shard-0.jsonl")
        studies.kill_when_it_grows(studies.start("confirm", folder), path, after=moments.uniform(0, 0.2))
    studies.ran((10, 11), "confirm", folder)
    assert sealed(folder) == sealed(confirmed)
    again, once = (studies.content(each / "verdict.json")["judged"] for each in (folder, confirmed))
    assert again == once
    attempts = [line for line in (folder / "ledger.jsonl").read_text().splitlines() if '"attempt"' in line]
    assert 4 <= len(attempts) <= 6  # a kill before its line is written leaves none
    assert studies.here("audit", folder).returncode == 0


@pytest.mark.soak
def test_batches_with_refill_and_events_are_resumed_whole(tiny_model, tmp_path):
    """Three problems a batch, five lanes at once, prompts in chunks, events while decoding."""
    settings = "threads = 1\nproblems_per_batch = 3\nlanes_per_batch = 5\nprefill_chunk = 100\ninterval = 8"
    changes = {**studies.ONE_TASK, "threads = 1": settings, 'policy = "crystal-token-level"': 'policy = "h2o"'}
    once = studies.write(tmp_path / "registrations" / "once", tiny_model, changes)
    assert studies.here("register", once).returncode == 0
    lock = studies.content(once / "lock.json")
    assert list(lock["batch"]["lanes"].values()) == [5]
    killed = shutil.copytree(once, once.parent / "killed")
    assert studies.here("confirm", once).returncode in (10, 11)
    for _ in range(2):
        studies.kill_when_it_grows(studies.start("confirm", killed), killed / "records/shard-0.jsonl")
    assert studies.here("confirm", killed).returncode in (10, 11)
    assert sealed(killed) == sealed(once)
    assert studies.here("audit", killed).returncode == 0

    bodies = [studies.json.loads(line)["body"] for line in (once / "records/shard-0.jsonl").read_text().splitlines()]
    assert {len(body["batch"]["problems"]) for body in bodies} <= {1, 2, 3}
    for body in bodies:
        assert body["problem"] in body["batch"]["problems"]
        if body["cell"]["arm"] != "full":
            assert body["cache"]["events"][0][0] == 0
            assert len(body["cache"]["events"]) > 1, "24 new tokens and an interval of 8"
            assert float(body["cache"]["peak"]) < body["slots"] + 8
            assert body["cache"]["state_bytes"] > 0
    assert {body["batch"]["joined"] for body in bodies} > {0}, "some lanes had to wait for a place"


def test_a_probe_reads_the_development_split_only(probed):
    assert "random (again)" in (probed.parent.parent / "probe.txt").read_text()
    items = studies.content(probed / "lock.json")["items"].values()
    seen = {studies.json.loads(line)["body"]["problem"] for line in studies.shard_text(probed, "probe").splitlines()}
    assert seen == {problem for item in items for problem in item["dev"]}
    assert not seen & {problem for item in items for problem in item["confirm"]}


def test_a_reproduction_agrees_with_its_parent(confirmed, tmp_path):
    parent = copy(confirmed, tmp_path)
    assert "agrees with study" in studies.ran((10, 11), "replicate", parent).stdout
    child = tmp_path / "replications" / "study-001"
    assert studies.content(child / "lock.json")["parent"]["lock"] == lock_digest(parent)
    assert studies.here("audit", child).returncode == 0
