"""After the verdict somebody changes what came out, carelessly or with every digest of a file mended."""

from attacking import assert_audit_names, findings, rewrite, rewrite_records


def test_the_untouched_study_holds(study):
    """But for the commit that the code was locked on, which is in another repository than the study here."""
    found = findings(study)
    assert found.pop("commit")["status"] in {"cannot tell", "not run"}
    assert {one["status"] for one in found.values()} <= {"held", "not run"}


def test_a_wrong_answer_is_made_right_in_the_text_of_a_record(study):
    path = study / "records" / "shard-0.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"grade":"wrong"', b'"grade":"correct"', 1))
    assert_audit_names(study, "records", "the line was edited")


def test_the_verdict_is_turned_round(study):
    rewrite(study / "verdict.json", lambda verdict: verdict["judged"].update(verdict="CONFIRMED"))
    assert_audit_names(study, "verdict", "the ledger's verdict line is missing or cites another verdict")


def test_the_claim_is_removed(study):
    (study / "claim.json").unlink()
    assert_audit_names(study, "claim", "claim.json: missing")


def test_a_cell_is_added(study):
    def add(found):
        body = {**found[0]["body"], "cell": {**found[0]["body"]["cell"], "seed": 1}}
        found.append({**found[0], "body": body})

    rewrite_records(study, add)
    assert_audit_names(study, "grid", "has a record and is not registered")


def test_the_grid_of_the_lock_is_cut_to_the_cells_that_went_well(study):
    rewrite(study / "lock.json", lambda lock: lock["grid"].pop())
    assert_audit_names(
        study,
        "lock",
        "the ledger's lock line is missing or cites another lock".replace("lock line", "register line"),
    )
