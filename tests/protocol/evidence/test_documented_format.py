"""docs/records.md and its schema say what the code writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import finished_study
import pytest
import studies
from json_schema import fits
from sampled import decoded_here, shipped
from tamperings import replacements

from protocol.evidence import ledger, records
from protocol.formats import record_fields

DOCS = Path(__file__).resolve().parents[3] / "docs"


def script():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "records.md").read_text(), flags=re.DOTALL)
    return code


def check(path):
    return subprocess.run([sys.executable, "-c", script(), str(path)], capture_output=True, text=True)


def test_the_documented_script_reads_a_shard_and_notices_an_edit(finished_toy, tmp_path):
    done = check(finished_toy / "records" / "shard-0.jsonl")
    assert done.stdout.splitlines()[:2] == ["full p2 correct", "crystal p2 correct"]
    edited = tmp_path / "edited.jsonl"
    text = (finished_toy / "records" / "shard-0.jsonl").read_text()
    edited.write_text(text.replace('"grade":"wrong"', '"grade":"correct"'))
    assert "AssertionError" in check(edited).stderr


def test_the_schema_has_the_fields_of_a_written_record(finished_toy):
    schema = json.loads((DOCS / "record.schema.json").read_text())
    line = (finished_toy / "records" / "shard-0.jsonl").read_text().splitlines()[0]

    def same(schema, value):
        assert sorted(schema["required"]) == sorted(schema["properties"]) == sorted(value)

    record, body = json.loads(line), schema["properties"]["body"]
    same(schema, record)
    # Of answers that a second grader reads, of scored ones, of generation.think_only and of [outcome].
    registered = {"grade_second", "score", "score_second", "thought", "divergence"}
    assert registered <= body["properties"].keys() - body["required"]
    others = {name: field for name, field in body["properties"].items() if name not in registered}
    same({"properties": others, "required": [*body["required"], "batch"]}, record["body"])
    assert "batch" not in body["required"], "studies of before 2026-11-21 lack it"
    same(body["properties"]["cell"], record["body"]["cell"])
    cache = body["properties"]["cache"]["oneOf"][1]
    assert "granted" not in cache["required"], "studies of before 2026-11-22 lack it"
    # Of models with sliding-window layers, and of policies that read some slots of those that are held.
    assert {"window_bytes", "reads"} <= cache["properties"].keys() - cache["required"]
    plain = {name: field for name, field in cache["properties"].items() if name not in ("window_bytes", "reads")}
    same({"properties": plain, "required": [*cache["required"], "granted"]}, record["body"]["cache"])
    assert tuple(body["properties"]["state"]["enum"]) == records.STATES
    assert body["properties"]["phase"]["enum"] == list(records.FOLDERS)


# What a field may be replaced by: what is right elsewhere, what is nearly right, and what never is.
VALUES = [
    *(None, True, False, 0, 1, -1, 7, "", "0", "0.5", "nan", "1e9", "-1", "full", "eos", "ok", "failed"),
    *("excluded", "correct", "timeout", "probe", "confirm", "p2", "e" * 64, "E" * 64, "e" * 63, "e" * 64 + "#0"),
    *("e" * 64 + "#", [], ["p2"], [[0, 32, 16]], [[0, 32]], [[0, 32, -1]], [[0, 1, "2"]], [0], {}, {"a": 1}),
]
NOTHING = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))


def starts():
    """Records to begin with: of each state, with and without what only some have."""
    body = finished_study.body("e" * 64, "crystal", "p2")
    costs = {"attempt": 1, "prefill_seconds": "0.1", "decode_seconds": "2"}
    yield {"body": body, "costs": costs}
    scored = {"grade": "scored", "score": "0.500000", "grade_second": "scored", "score_second": "1.000000"}
    yield {"body": body | {"trajectory": "e" * 64} | scored, "costs": costs | {"lanes": 3}}
    for state in ("failed", "excluded"):
        yield {"body": body | NOTHING | {"state": state, "reason": "why"}, "costs": {"attempt": 2}}
    yield {"body": {name: value for name, value in body.items() if name != "batch"}, "costs": costs}


@pytest.mark.parametrize("start", list(starts()), ids=["ok", "older", "failed", "excluded", "without batch"])
def test_a_record_is_accepted_exactly_when_its_schema_says_so(start):
    schema = json.loads((DOCS / "record.schema.json").read_text())
    parts = {"properties": {name: schema["properties"][name] for name in ("body", "costs")}}
    answers = set()
    assert fits(parts, start, schema)
    assert record_fields.find_fault(**start) is None
    for record in (record for part in start for record in replacements(start, VALUES, (part,))):
        answer, fault = fits(parts, record, schema), record_fields.find_fault(**record)
        assert answer == (fault is None), (record, fault)
        answers.add(answer)
    assert answers == {True, False}


@pytest.mark.parametrize(
    "folder",
    shipped(
        [*filter(decoded_here, sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/seal.json")))]
    ),
)
def test_the_schema_takes_the_records_of_a_shipped_study(folder):
    schema = json.loads((DOCS / "record.schema.json").read_text())
    lines = studies.shard_text(folder).splitlines()
    assert len(lines) >= 300
    assert all(fits(schema, json.loads(line), schema) for line in lines[::200])


@pytest.mark.parametrize("name", ["claim.json", "seal.json", "verdict.json"])
def test_every_field_of_a_document_is_documented(finished_toy, name):
    section = (DOCS / "records.md").read_text().partition("## Claim, seal, verdict")[2]
    for field in json.loads((finished_toy / name).read_text()):
        assert f"`{field}`" in section, field


def test_every_event_of_the_ledger_is_documented(finished_toy):
    section = (DOCS / "records.md").read_text().partition("## Ledger")[2].partition("## Claim")[0]
    for entry in ledger.read(finished_toy):
        assert f"| `{entry.event}` |" in section
        assert all(f"`{field}`" in section for field in entry.body)
