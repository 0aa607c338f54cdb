"""A study that is made of another one, in the folders of registrations here: by its clocks, prompts, lock or place."""

import copy
import hashlib
import json
import shutil

import pytest
import rewriting
import studies
from attacking import findings
from sampled import sampled

from figures.report_page import report_index
from protocol import status
from protocol.evidence import late_randomness
from protocol.formats.citations import CITED_SHARD

pytestmark = pytest.mark.usefixtures("installed_once")


@pytest.fixture
def original(confirmed, tmp_path):
    """The finished study, with the clock of a slower machine: a fast one may measure the same for most lanes."""
    study = rewriting.read_study(confirmed)
    for number, lane in enumerate(study.confirmed):
        lane.costs["decode_seconds"] = f"{number}.125"
    return rewriting.read_study(rewriting.write_study(study, tmp_path / "registrations" / "study"))


def relabel(original, place, name, seconds=0, **lock):
    """Write the records of a study as those of another lock, of which every `seconds`-th lane took another time."""
    study = copy.deepcopy(original)
    study.lock |= {"name": name} | lock
    for lane in study.confirmed[:: seconds or len(study.confirmed) + 1]:
        lane.costs["decode_seconds"] = f"5{lane.costs['decode_seconds']}"
    folder = original.source.parent.parent / place / name
    return rewriting.write_study(study, folder)


def reference(original):
    return {"name": "study", "lock": rewriting.digest(original.lock)}


def list_opened(original):
    problems = {task: item["confirm"] for task, item in original.lock["items"].items()}
    return [reference(original) | {"problems": problems}]


@pytest.mark.parametrize(
    ("expected", "is_child"), sampled([(0, "failed"), (3, "failed"), (1, "held")], [True, False], of=2)
)
def test_records_with_the_seconds_of_an_earlier_study_were_copied(original, is_child, expected):
    seconds, outcome = expected
    """Half of the lanes are enough; with another time in each lane nothing shows it."""
    (stub := original.source.parent.parent / "archive" / "study").mkdir(parents=True)  # a copy that has no records
    shutil.copy(original.source / "lock.json", stub)
    lock = {"parent": reference(original)} if is_child else {"opened": list_opened(original)}
    found = findings(relabel(original, "replications", "mine", seconds, **lock))["records"]
    assert found["status"] == outcome
    if outcome == "failed":
        assert "lanes have exactly the seconds of study: they were copied, not run" in found["detail"]
    assert findings(original.source)["records"]["status"] == "held"


def test_of_two_copies_that_name_no_earlier_one_neither_is_accused(original):
    parent = reference(original)
    first = relabel(original, "replications", "study-001", 1, parent=parent)
    second = relabel(original, "replications", "study-002", 1, parent=parent)
    for folder, other in ((first, second), (second, first)):
        found = findings(folder)["records"]
        assert found["status"] == "cannot tell"
        assert f"have exactly the seconds of {other.name}: one of the two was copied" in found["detail"]


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_fresh_replication_has_other_prompts_than_its_parent(original, is_fresh):
    study = copy.deepcopy(original)
    study.lock |= {"name": "study-fresh-001", "parent": reference(original) | {"fresh": True}}
    study.lock["protocol"]["content"]["randomness"] = {"source": "local"}
    study.later["claim"] = lambda claim: (
        claim
        | {
            "randomness": {
                "source": "local",
                "value": "7" * 64,
                "key": late_randomness.derive_key(rewriting.digest(study.lock), "7" * 64),
            }
        }
    )
    for number, lane in enumerate(study.confirmed):
        lane.costs["decode_seconds"] = f"{number}.250"
        if is_fresh:
            lane.body["prompt"] = hashlib.sha256(lane.body["prompt"].encode()).hexdigest()
    found = findings(rewriting.write_study(study, original.source.parent.parent / "replications" / "study-fresh-001"))
    assert found["records"]["status"] == ("held" if is_fresh else "failed")
    if not is_fresh:
        assert "26 of 26 fresh problems have the prompt that they have in study" in found["records"]["detail"]


@pytest.mark.parametrize("document", ["claim", "seal", "verdict"])
def test_a_document_names_the_head_that_its_own_line_continues(confirmed, tmp_path, document):
    """An older head binds fewer lines: attempts after it could be taken out later, under the digest of the document."""
    study = rewriting.read_study(confirmed)
    first = json.loads((confirmed / "ledger.jsonl").read_bytes().splitlines()[0])
    study.later[document] = lambda content: content | {"ledger": {"count": 1, "head": first["sha256"]}}
    found = findings(rewriting.write_study(study, tmp_path / "study"))[document]
    assert found["status"] == "failed"
    assert "names the ledger's first 1 lines, but its own line comes after" in found["detail"]


@pytest.mark.parametrize("name", [CITED_SHARD, "shard-1.jsonl"])
def test_records_are_in_the_shard_where_they_belong(confirmed, tmp_path, name):
    """In the shard of cited records no attempt is counted, and in a second one no order is told."""
    study = rewriting.read_study(confirmed)
    study.keeps_judgement = True
    study.later["seal"] = lambda seal: seal | {"shards": {name: seal["shards"]["shard-0.jsonl"]}}
    records = tmp_path / "study" / "records"
    study.last.append(lambda _: (records / "shard-0.jsonl").rename(records / name))
    found = findings(rewriting.write_study(study, tmp_path / "study"))["records"]
    assert found["status"] == "failed"
    assert f"{name}: has the record of" in found["detail"]
    assert "which belongs in shard-0.jsonl" in found["detail"]


def test_plain_problems_were_not_decrypted(confirmed, tmp_path):
    study = rewriting.read_study(confirmed)
    for body in study.entries("held-out"):
        body["purpose"] = "confirm, decrypted"
    found = findings(rewriting.write_study(study, tmp_path / "study"))["grid"]
    assert (found["status"], "for a purpose that is not allowed" in found["detail"]) == ("failed", True)


def test_a_copy_of_a_folder_is_counted_once_and_named_by_its_lock(confirmed, tmp_path):
    shelf = tmp_path / "registrations"
    for name in ("another", "study"):  # by name the copy comes first
        shutil.copytree(confirmed, shelf / name)
    text = studies.ran(0, "status", shelf).stdout
    assert "1 registered, 1 judged" in text
    assert "another: a copy of study, with its lock; not counted" in text
    assert status.read_index(shelf).copies == {"another": "study"}
    entries = {entry.name: entry for entry in report_index.read_entries(shelf)}
    assert (entries["another"].state, entries["another"].reason) == ("copy", "has the lock of study")
    assert report_index.format_total([*entries.values()]).startswith("1 registered, 1 judged")
    assert "not counted" in report_index.render_index([*entries.values()])
    assert findings(shelf / "another")["lock"]["detail"].endswith(", locked under the name 'study'")
    assert "under the name" not in findings(shelf / "study")["lock"]["detail"]
