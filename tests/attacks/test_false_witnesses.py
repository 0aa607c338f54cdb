"""Somebody shows a proof that proves nothing: of another study, of nobody, by an authority of his own."""

import studies
from attacking import assert_audit_names, findings


def anchored(study, data=b"", name="lock.tsr"):
    folder = study / "anchors"
    folder.mkdir()
    (folder / name).write_bytes(data)


def test_a_file_that_is_no_proof_is_put_among_the_proofs(study):
    anchored(study, b"trust me\n", "lock.txt")
    assert_audit_names(study, "anchors", "lock.txt")


def test_a_proof_is_made_up(study):
    anchored(study, b"not a token")
    assert_audit_names(study, "anchors", "lock")


def test_a_verdict_line_is_upgraded_by_no_file_alone(study):
    """Whatever lies in anchors/, the word changes only once a proof verified."""
    anchored(
        study,
        b'{"branch":"kv-prereg-anchors","commit":"' + b"0" * 40 + b'","remote":"https://nowhere"}\n',
        "lock.git.json",
    )
    done = studies.here("audit", study)
    assert "UNANCHORED" in done.stdout
    assert findings(study)["anchors"]["status"] != "held"
    assert studies.here("audit", study, "--require-anchor").returncode in (3, 5)
