"""docs/records.md and its schema say what the code writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import finished_study
import pytest

from protocol.evidence import ledger, records

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registrations") / "study"
    finished_study.finished(folder)
    return folder


def script():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "records.md").read_text(), flags=re.DOTALL)
    return code


def check(path):
    return subprocess.run([sys.executable, "-c", script(), str(path)], capture_output=True, text=True)


def test_the_documented_script_reads_a_shard_and_notices_an_edit(folder, tmp_path):
    done = check(folder / "records" / "shard-0.jsonl")
    assert done.stdout.splitlines()[:2] == ["full p2 correct", "crystal p2 correct"]
    edited = tmp_path / "edited.jsonl"
    text = (folder / "records" / "shard-0.jsonl").read_text()
    edited.write_text(text.replace('"grade":"wrong"', '"grade":"correct"'))
    assert "AssertionError" in check(edited).stderr


def test_the_schema_has_the_fields_of_a_written_record(folder):
    schema = json.loads((DOCS / "record.schema.json").read_text())
    line = (folder / "records" / "shard-0.jsonl").read_text().splitlines()[0]

    def same(schema, value):
        assert sorted(schema["required"]) == sorted(schema["properties"]) == sorted(value)

    record, body = json.loads(line), schema["properties"]["body"]
    same(schema, record)
    second = {"grade_second"}  # in the records of mathematical tasks alone
    assert second <= body["properties"].keys() - body["required"]
    others = {name: field for name, field in body["properties"].items() if name not in second}
    same({"properties": others, "required": [*body["required"], "batch"]}, record["body"])
    assert "batch" not in body["required"], "studies of before 2026-11-21 lack it"
    same(body["properties"]["cell"], record["body"]["cell"])
    same(body["properties"]["cache"]["oneOf"][1], record["body"]["cache"])
    assert tuple(body["properties"]["state"]["enum"]) == records.STATES
    assert body["properties"]["phase"]["enum"] == list(records.FOLDERS)


@pytest.mark.parametrize("name", ["claim.json", "seal.json", "verdict.json"])
def test_every_field_of_a_document_is_documented(folder, name):
    section = (DOCS / "records.md").read_text().partition("## Claim, seal, verdict")[2]
    for field in json.loads((folder / name).read_text()):
        assert f"`{field}`" in section, field


def test_every_event_of_the_ledger_is_documented(folder):
    section = (DOCS / "records.md").read_text().partition("## Ledger")[2].partition("## Claim")[0]
    for entry in ledger.read(folder):
        assert f"| `{entry.event}` |" in section
        assert all(f"`{field}`" in section for field in entry.body)
