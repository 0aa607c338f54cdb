"""After the verdict somebody changes what came out, carelessly or with every digest of a file mended."""

import pytest
from attacking import caught, findings, rewrite, rewrite_ledger, rewrite_records

from protocol.evidence import records

DOCUMENTS = [
    "protocol.toml",
    "lock.json",
    "sources.zip",
    "claim.json",
    "seal.json",
    "verdict.json",
    "ledger.jsonl",
]


def test_the_untouched_study_holds(study):
    """But for the commit that the code was locked on, which is in another repository than the study here."""
    found = findings(study)
    assert found.pop("commit")["status"] in {"cannot tell", "not run"}
    assert {one["status"] for one in found.values()} <= {"held", "not run"}


def test_a_wrong_answer_is_made_right_in_the_text_of_a_record(study):
    path = study / "records" / "shard-0.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"grade":"wrong"', b'"grade":"correct"', 1))
    caught(study, "records", "the line was edited")


def test_a_wrong_answer_is_made_right_and_the_shard_mended(study):
    def improve(found):
        wrong = next(one for one in found if one["body"]["grade"] == "wrong")
        wrong["body"]["grade"] = "correct"

    rewrite_records(study, improve)
    caught(study, "seal", "outcome: changed")


def test_the_verdict_is_turned_round(study):
    rewrite(study / "verdict.json", lambda verdict: verdict["judged"].update(verdict="CONFIRMED"))
    caught(study, "verdict", "the ledger's verdict line is missing or cites another verdict")


def test_the_last_lines_of_the_ledger_are_cut_off(study):
    path = study / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    caught(study, "ledger", "where the files say")


def test_an_aborted_attempt_is_taken_out_of_the_ledger(study):
    def forget(lines):
        del lines[next(place for place, (event, _) in enumerate(lines) if event == "attempt")]

    rewrite_ledger(study, forget)
    caught(study, "seal", "names a ledger head that this ledger never had")


def test_a_probe_is_taken_out_of_the_ledger(study):
    def forget(lines):
        del lines[next(place for place, (event, _) in enumerate(lines) if event == "probe")]

    rewrite_ledger(study, forget)
    caught(study, "probe", "records are of an attempt that the ledger does not have")


def test_the_claim_is_removed(study):
    (study / "claim.json").unlink()
    caught(study, "claim", "claim.json: missing")


def test_a_cell_is_dropped(study):
    def drop(found):
        arm = found[0]["body"]["cell"]["arm"]
        found[:] = [one for one in found if one["body"]["cell"]["arm"] != arm]

    rewrite_records(study, drop)
    caught(study, "grid", "registered records are missing")


def test_a_cell_is_added(study):
    def add(found):
        body = {**found[0]["body"], "cell": {**found[0]["body"]["cell"], "seed": 1}}
        found.append({**found[0], "body": body})

    rewrite_records(study, add)
    caught(study, "grid", "has a record and is not registered")


def test_two_cells_are_swapped(study):
    def swap(found):
        first, second = (
            next(one for one in found if one["body"]["cell"]["arm"] == arm) for arm in ("crystal", "random")
        )
        for name in ("text", "answer", "grade", "grade_reason"):
            first["body"][name], second["body"][name] = second["body"][name], first["body"][name]
        first["body"]["text"] += " "

    rewrite_records(study, swap)
    caught(study, "seal", "outcome: changed")


def test_a_cache_that_is_not_a_number_is_written(study):
    path = study / "records" / "shard-0.jsonl"
    found = records.read_records(study / "records")
    lines = path.read_bytes().splitlines(keepends=True)
    mean = found[0]["body"]["cache"]["mean"].encode()
    lines[0] = lines[0].replace(b'"mean":"' + mean, b'"mean":"nan')
    path.write_bytes(b"".join(lines))
    caught(study, "records", "shard-0.jsonl:1")


def test_the_grid_of_the_lock_is_cut_to_the_cells_that_went_well(study):
    rewrite(study / "lock.json", lambda lock: lock["grid"].pop())
    caught(
        study,
        "lock",
        "the ledger's lock line is missing or cites another lock".replace("lock line", "register line"),
    )


@pytest.mark.parametrize("name", [*DOCUMENTS, "records/shard-0.jsonl"])
def test_a_file_is_lost(study, name):
    (study / name).unlink()
    failed = [item for item, one in findings(study).items() if one["status"] == "failed"]
    assert failed, name


def test_a_trajectory_is_lost(study):
    side = min((study / "records" / "trajectories").iterdir())
    side.unlink()
    caught(study, "trajectories", side.name)


def test_a_second_shard_is_slipped_in(study):
    (study / "records" / "shard-1.jsonl").write_bytes(b"")
    caught(study, "seal", "shards")
