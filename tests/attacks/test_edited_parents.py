"""A replication of what does not hold repeats nothing: the parent is audited before anything is written."""

import pytest
import studies
from attacking import assert_refused, rewrite, rewrite_records

from protocol import audit
from protocol.formats.findings import Finding
from protocol.formats.refusals import BadInput


def improve(found):
    for one in found:
        one["body"]["grade"] = "correct"


@pytest.mark.parametrize(
    ("item", "edit"),
    [
        ("seal", lambda study: rewrite_records(study, improve)),
        (
            "verdict",
            lambda study: rewrite(study / "verdict.json", lambda one: one["judged"].update(verdict="CONFIRMED")),
        ),
        ("records", lambda study: (study / "records" / "better.jsonl").write_bytes(b"")),
        ("grid", lambda study: (study / "records" / "shard-0.jsonl").write_bytes(b"")),
    ],
)
def test_a_study_that_was_edited_is_not_replicated(study, item, edit):
    edit(study)
    assert_refused(3, item, "replicate", study)
    assert not (study.parent.parent / "replications").exists()


@pytest.fixture
def begun(monkeypatch):
    """The replication is refused as soon as it begins, which is what these tests ask about."""
    from protocol import replicate as act

    def begin(parent, **_):
        raise BadInput(f"{parent.folder.name} is begun")

    monkeypatch.setattr(act, "start_child", begin)


def test_an_honest_study_is(study, begun):
    done = studies.here("replicate", study)
    assert done.stderr == "BadInput: study is begun\n"


def test_what_cannot_be_told_of_the_parent_is_said_and_stops_nobody(study, begun, monkeypatch):
    found = [Finding("judgement", "cannot tell", "another scipy"), Finding("anchors", "not run", "")]
    monkeypatch.setattr(audit, "audit", lambda *_: audit.AuditResult(found, [], "REFUTED", "REFUTED"))
    done = studies.here("replicate", study)
    told, refusal = done.stderr.splitlines()
    assert told == f"{study}: judgement could not be checked; continuing"
    assert refusal == "BadInput: study is begun"
