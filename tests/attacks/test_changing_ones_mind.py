"""Somebody has seen enough to wish that something else had been registered."""

import studies
from attacking import assert_refused, findings


def begun(study):
    """Confirm until there are records, and stop."""
    studies.kill_when_it_grows(studies.start("confirm", study), study / "records" / "shard-0.jsonl")


def amended(study, **changes):
    """A folder beside the study whose protocol differs."""
    text = (study / "protocol.toml").read_text()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    new = study.parent / "better"
    new.mkdir()
    (new / "protocol.toml").write_text(text)
    return new


def test_the_question_is_amended_after_the_answer_was_seen(unconfirmed):
    """It may be asked; whatever the rule says, the verdict is DEVIATED, and the old study is closed."""
    begun(unconfirmed)
    new = amended(unconfirmed, budget=("budgets = [0.8]", "budgets = [0.9]"))
    done = studies.here("amend", unconfirmed, new, "--reason", "the larger budget looks better")
    assert done.returncode == 0, done.stderr
    assert "DEVIATED" in done.stderr
    assert_refused(4, "amended", "confirm", unconfirmed)
    again = studies.here("confirm", new)
    assert again.returncode == 12, again.stderr
    assert again.stdout.startswith("DEVIATED")
    about = studies.content(new / "lock.json")["amends"]
    assert about["after_claim"] is True
    assert about["seen"]["records"] > 0
    assert findings(new)["amendment"]["status"] == "held"
    assert findings(unconfirmed)["ending"]["status"] == "held"


def test_a_study_that_goes_badly_is_withdrawn_and_forgotten(unconfirmed):
    """It stays in the index, with what had been seen."""
    begun(unconfirmed)
    assert studies.here("withdraw", unconfirmed, "--reason", "the machine was needed").returncode == 0
    assert_refused(4, "withdrawn", "confirm", unconfirmed)
    said = studies.here("status", unconfirmed.parent).stdout
    assert "1 registered, 0 judged; 1 withdrawn\n" in said
    assert "withdrawn" in said
    assert "after its claim" in said
