"""What is exported is what others' own validators take: PRML's `falsify`, and the schema of Every Eval Ever."""

import json
import sys
import zipfile
from pathlib import Path

import falsify_prml
import jsonschema
import pytest
import studies

from protocol import export
from protocol.evidence.registration import Registration

pytestmark = pytest.mark.filterwarnings("default")
LOCKED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/lock.json"))


@pytest.mark.parametrize("folder", LOCKED, ids=lambda folder: folder.name)
def test_a_manifest_is_locked_and_verified_by_its_own_command(folder, tmp_path, capsys):
    text = export.export_study(Registration(folder), "prml")
    assert falsify_prml.validate_manifest(json.loads(text)) == []
    assert Registration(folder).lock.digest in json.loads(text)["notes"]
    manifest = tmp_path / "claim.json"
    manifest.write_text(text)
    assert falsify_prml.main(["lock", str(manifest)]) == falsify_prml.EXIT_PASS
    for observed, status in (("1", falsify_prml.EXIT_PASS), ("0", falsify_prml.EXIT_FAIL)):
        assert falsify_prml.main(["verify", str(manifest), "--observed", observed]) == status
    manifest.write_text(text.replace('"threshold": 1.0', '"threshold": 0.0'))
    assert falsify_prml.main(["verify", str(manifest)]) == falsify_prml.EXIT_TAMPERED


@pytest.fixture(scope="module")
def schema():
    (wheel,) = Path(sys.prefix, "wheels").glob("every_eval_ever-*.whl")  # which `make peers` brings
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("every_eval_ever/schemas/eval.schema.json"))


@pytest.mark.parametrize("name", ["alpha-chain", "control-effect", "looks-chain-2"])
def test_every_arm_of_a_verdict_stands_in_a_document_of_its_schema(name, schema):
    folder = studies.ROOT / "registrations" / name
    judged = json.loads((folder / "verdict.json").read_text())["judged"]
    documents = [json.loads(line) for line in export.export_study(Registration(folder), "every-eval-ever").splitlines()]
    for document in documents:
        assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
        assert document["source_metadata"]["additional_details"]["verdict"].startswith(judged["verdict"])
    scores = [result["score_details"]["score"] for document in documents for result in document["evaluation_results"]]
    assert scores == [float(arm["accuracy"]) for arm in judged["arms"]]
    wrong = documents[0] | {"schema_version": 3}
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(wrong)) != []
