"""The schemas in docs/ say what the readers read, and the page of a protocol's fields has them all."""

import copy
import json
import re
import tomllib

import outside_studies
import pytest
from json_schema import fits
from looped import looped
from studies import PROTOCOL, ROOT, SWEEP
from tamperings import replacements

from protocol.evidence import ledger
from protocol.formats import document_fields, fields
from protocol.formats.refusals import BadInput
from protocol.lock import lock
from protocol.outside import design as outside_design
from protocol.plan import design, toml_reader

DECLARED = {
    "lock": lock.FIELDS,
    "selection": document_fields.SELECTION,
    "claim": document_fields.CLAIM,
    "seal": document_fields.SEAL,
    "verdict": document_fields.VERDICT,
}
SHIPPED = sorted((ROOT / "registrations").glob("*/"))
# Shipped locks of version 1 are known by their digests, and have no schema.
DOCUMENTS = [
    path
    for study in SHIPPED
    for name in sorted(DECLARED.keys() - {"lock"})
    if (path := study / f"{name}.json").exists()
]
PROTOCOLS = sorted((ROOT / "registrations").glob("*/protocol.toml"))
LOCKED = [path for path in PROTOCOLS if path.with_name("lock.json").exists()]
OUTSIDE = [path for path in PROTOCOLS if "runner" in tomllib.loads(path.read_text())]
DECODED_HERE = [path for path in PROTOCOLS if path not in OUTSIDE]
TEMPLATES = ROOT / "protocol" / "command" / "templates"
EXAMPLE = ROOT / "docs" / "protocol.example.toml"
VALUES = [None, True, 0, -1, 7, "", "0.5", "eos", "e" * 64, "E" * 64, [], ["a"], [["a"]], {}, {"a": 1}]


def schema(name):
    return json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())


def short(path):
    return str(path.relative_to(ROOT))


@looped("path", DOCUMENTS, ids=short)
def test_every_shipped_document_is_what_its_schema_and_its_declaration_say(path):
    content, whole = json.loads(path.read_text()), schema(path.stem)
    assert fits(whole, content, whole)
    assert fields.find_fault(DECLARED[path.stem], content) is None


@looped("path", sorted((ROOT / "registrations").glob("*/ledger.jsonl")), ids=short)
def test_every_shipped_line_of_a_ledger_is_what_its_schema_says(path):
    whole = schema("ledger")
    for line in path.read_text().splitlines():
        assert fits(whole, json.loads(line), whole)
    assert ledger.read(path.parent)


@looped("path", [*DECODED_HERE, EXAMPLE], ids=short)
def test_a_protocol_that_is_read_is_what_the_schema_says(path):
    whole = schema("protocol")
    assert toml_reader.parse(path.read_bytes(), path.name)
    assert fits(whole, tomllib.loads(path.read_text()), whole)


@pytest.mark.parametrize("path", [*OUTSIDE, TEMPLATES / "outside.toml"], ids=short)
def test_a_protocol_of_outputs_of_others_has_a_schema_of_its_own(path):
    document, own, other = tomllib.loads(path.read_text()), schema("outside-protocol"), schema("protocol")
    assert toml_reader.parse(path.read_bytes(), path.name)
    assert fits(own, document, own)
    assert not fits(other, document, other)
    assert not fits(own, tomllib.loads(EXAMPLE.read_text()), own)


@looped("path", LOCKED, ids=short)
def test_a_shipped_protocol_is_locked_today_as_it_was_then(path):
    locked = json.loads(path.with_name("lock.json").read_text())["protocol"]["content"]
    assert toml_reader.parse(path.read_bytes(), path.name).content() == locked


@pytest.mark.parametrize("name", ["lock", "claim", "seal", "verdict"])
def test_a_document_is_read_exactly_when_its_schema_says_so(finished_toy, name):
    content, whole = json.loads((finished_toy / f"{name}.json").read_text()), schema(name)
    if name == "lock":
        amends = {"name": "a", "lock": "e" * 64, "reason": "why", "diff": [], "seen": {}, "after_claim": True}
        content["sources"], content["amends"] = {"a.py": "e" * 64}, amends
        content["signer"], content["git"] = None, {"commit": "e", "differs": []}
        content["protocol"]["content"]["sweep"] = {"name": "a"}
    answers = set()
    for made in replacements(content, VALUES):
        answer, fault = fits(whole, made, whole), fields.find_fault(DECLARED[name], made)
        assert answer == (fault is None), (made, fault)
        answers.add(answer)
    assert answers == {True, False}


def table(text):
    text = text.format(model="/nowhere")
    swept = text
    for old, new in SWEEP.items():
        swept = swept.replace(old, new)
    return swept + '\n[randomness]\nsource = "anchor"\n[exclude]\nprompt_tokens_above = 9\n'


@pytest.mark.parametrize(
    ("name", "declared", "text"),
    [
        ("protocol", design.DESIGN, table(PROTOCOL)),
        ("outside-protocol", outside_design.DESIGN, outside_studies.PROTOCOL),
    ],
)
def test_a_protocol_with_a_field_of_another_kind_is_refused_by_the_schema_as_by_the_reader(name, declared, text):
    """The reader looks at texts too, so that it refuses more; the schema refuses nothing else."""
    whole, document = schema(name), tomllib.loads(text)
    assert fits(whole, document, whole)
    for made in replacements(document, VALUES):
        try:
            declared.read(made, "")
        except (fields.Fault, BadInput):
            continue
        assert fits(whole, made, whole), made
    for name in ("alpha", "rule", "method", "against"):
        made = copy.deepcopy(document)
        made["decision"][name] = {"a": 1}
        assert not fits(whole, made, whole)


def test_the_page_has_every_field_of_every_table():
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert f"```toml\n{EXAMPLE.read_text()}```" in page

    def each(kind):
        inner = getattr(kind, "each", None) or getattr(kind, "table", None) or kind
        for name, field in getattr(inner, "fields", {}).items():
            yield name, field
            yield from each(field.kind)

    named = list(each(design.DESIGN))
    assert len(named) > 40
    for name, field in named:
        assert f"| `{name}` | {field.description} |" in page or re.search(rf"[\[.]{name}\]", page), name
        assert field.description.endswith("."), name
