"""Somebody shows a proof that proves nothing: of another study, of nobody, by an authority of his own."""

import pytest
import studies
from attacking import assert_audit_names, findings


def anchored(study, data, name):
    folder = study / "anchors"
    folder.mkdir()
    (folder / name).write_bytes(data)


@pytest.mark.parametrize(("name", "data"), [("lock.txt", b"trust me\n"), ("lock.tsr", b"not a token")])
def test_what_is_no_proof_is_put_among_the_proofs(study, name, data):
    anchored(study, data, name)
    assert_audit_names(study, "anchors", name.removesuffix(".tsr"))


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
