"""A judged study as a data set: the form of Croissant 1.0, and columns that are the records' fields."""

import hashlib
import json
import shutil
from functools import reduce
from pathlib import Path

import pytest
import studies

from protocol import export
from protocol.evidence.registration import Registration
from protocol.instruments.exports import croissant

QUICKSTART = studies.ROOT / "registrations" / "quickstart"
SPECIFIED = {  # of the specification's example: what a description and its parts have to have
    "sc:Dataset": {"@context", "@type", "dct:conformsTo", "name", "description", "distribution", "recordSet"},
    "cr:FileObject": {"@type", "@id", "name", "contentUrl", "encodingFormat", "sha256"},
    "cr:RecordSet": {"@type", "@id", "name", "field"},
    "cr:Field": {"@type", "@id", "name", "dataType", "source"},
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The shipped study with plain shards, as loaders read them."""
    folder = shutil.copytree(QUICKSTART, tmp_path_factory.mktemp("plain") / "quickstart")
    for phase in ("records", "probe"):
        studies.unpack_shard(folder, phase)
    return folder


@pytest.fixture(scope="module")
def made(unpacked) -> dict:
    return json.loads(export.export_study(Registration(unpacked), "croissant"))


def parts(made: dict) -> list[dict]:
    fields = [field for rows in made["recordSet"] for field in rows["field"]]
    return [made, *made["distribution"], *made["recordSet"], *fields]


def test_every_part_has_what_the_specification_asks_of_it(made):
    for part in parts(made):
        assert SPECIFIED[part["@type"]] <= part.keys(), part.get("@id")
    names = [part["@id"] for part in parts(made)[1:]]
    assert len(names) == len(set(names))
    assert made["dct:conformsTo"] == "http://mlcommons.org/croissant/1.0"


def test_every_reference_leads_to_a_part(made):
    names = {part["@id"] for part in parts(made)[1:]}
    for rows in made["recordSet"]:
        assert rows["key"]["@id"] in names
        assert {field["source"]["fileObject"]["@id"] for field in rows["field"]} <= names


def test_files_are_named_by_their_bytes(made, unpacked):
    assert [one["contentUrl"] for one in made["distribution"]] == ["records/shard-0.jsonl", "probe/shard-0.jsonl"]
    for one in made["distribution"]:
        assert one["sha256"] == hashlib.sha256((unpacked / one["contentUrl"]).read_bytes()).hexdigest()


def test_a_packed_file_is_said_to_be_one():
    packed = json.loads(export.export_study(Registration(QUICKSTART), "croissant"))["distribution"]
    assert [one["contentUrl"] for one in packed] == ["records/shard-0.jsonl.xz", "probe/shard-0.jsonl.xz"]
    assert {one["encodingFormat"] for one in packed} == {"application/x-xz"}


CASTS = {"sc:Integer": int, "sc:Float": float, "sc:Text": str}
FIRST = {  # of the first line of records/shard-0.jsonl, read by eye
    "model": "smollm2-135m",
    "seed": 0,
    "problem": "needle/768/0.25/001",
    "slots": None,
    "text": " 3410.",
    "tokens": 6,
    "grade": "correct",
    "cache_mean": 749.0,
    "cache_peak_bytes": 34928640,
    "sha256": "f650faca09b0317bfeed612427c3d861024f62e9b2d339296dd16c3bf6bc46df",
}


def row(line: dict, fields: list[dict]) -> dict:
    """What a loader makes of a line, as the specification says."""
    values = {}
    for field in fields:
        value = line[field["source"]["extract"]["column"]]
        for name in field["source"].get("transform", {}).get("jsonPath", "$").split(".")[1:]:
            value = (value or {}).get(name)
        values[field["name"]] = None if value is None else CASTS[field["dataType"]](value)
    return values


def test_a_line_is_read_as_a_row(made, unpacked):
    with (unpacked / "records" / "shard-0.jsonl").open() as file:
        first = row(json.loads(next(file)), made["recordSet"][0]["field"])
    assert {name: first[name] for name in FIRST} == FIRST


def test_no_field_of_a_record_is_forgotten(made):
    columns = {
        field["source"].get("transform", {}).get("jsonPath", "").removeprefix("$.")
        for field in made["recordSet"][0]["field"]
    }
    declared = json.loads((studies.ROOT / "docs" / "record.schema.json").read_text())["properties"]["body"]

    def leaves(schema: dict, path: str) -> list[str]:
        kinds = [schema, *schema.get("oneOf", [])]
        inner = reduce(lambda all, kind: all | kind.get("properties", {}), kinds, {})
        if not inner or path in croissant.LIST_FIELDS:
            return [path]
        return [leaf for name, kind in inner.items() for leaf in leaves(kind, f"{path}.{name}".lstrip("."))]

    assert columns - {""} == {*leaves(declared, "")} - {*croissant.LIST_FIELDS}
    assert croissant.NUMBER_TYPES.keys() <= columns


def test_records_of_a_study_without_a_verdict_are_not_described(tmp_path):
    for name in ("lock.json", "ledger.jsonl"):
        (tmp_path / name).write_bytes((QUICKSTART / name).read_bytes())
    done = studies.here("export", tmp_path, "--format", "croissant", "--to", tmp_path / "croissant.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no verdict" in done.stderr
    assert not (tmp_path / "croissant.json").exists()


def test_what_actions_attest_takes_is_the_predicate_alone():
    statement, predicate = (
        json.loads(export.export_study(Registration(QUICKSTART), form)) for form in ("in-toto", "predicate")
    )
    assert predicate == statement["predicate"]
    assert "_type" not in predicate
    assert "predicateType" not in predicate
