"""What an audit says fits on a screen, and its last word is the auditor's."""

import json
from types import SimpleNamespace

import pytest
import studies

from protocol.evidence.registration import Registration
from protocol.messages import audit_page, slot_sizes
from protocol.recompute import verify_judgement

HEADS = ("Registered", "Held", "Not run", "Not proven")


def test_it_says_what_was_registered_held_and_is_not_proven_on_one_screen(confirmed):
    said = studies.here("audit", confirmed).stdout.splitlines()
    assert len(said) <= 36
    assert max(map(len, said[:-1])) <= 110  # the last line has the folder as it was typed
    assert [line.split("  ")[0] for line in said if line.startswith(HEADS)] == list(HEADS)
    assert "8 cells (1 model, 2 tasks, 1 budget, 4 arms, 1 seed) on 26 held-out problems" in " ".join(
        " ".join(said).split()
    )


def test_the_word_printed_last_is_that_of_the_judge_that_is_installed(confirmed):
    own = verify_judgement.judge_study(Registration(confirmed))["verdict"]
    last = studies.here("audit", confirmed).stdout.splitlines()[-1]
    assert last.startswith(f"{confirmed}: everything held")
    assert f"; {own} (" in last
    assert last.endswith(", UNANCHORED")


def test_what_a_lock_says_of_a_parent_is_told_as_its_word(registered):
    """No item shows it where the parent is not at hand."""
    content = studies.content(registered / "lock.json")
    named = SimpleNamespace(lock=SimpleNamespace(content={**content, "parent": {"name": "alpha-chain"}}))
    assert audit_page.describe_design(named).endswith("; states that it replicates alpha-chain")
    assert "replicates" not in audit_page.describe_design(Registration(registered))


def test_for_tools_it_is_one_object_with_every_item(confirmed):
    done = studies.here("audit", confirmed, "--json")
    said = json.loads(done.stdout)
    assert (said["status"], said["held"], done.returncode) == (0, True, 0)
    assert {"files", "registered", "sense", "grades", "judgement"} <= {
        finding["item"] for finding in said["findings"] if finding["status"] == "held"
    }


# Sizes of slots


def lock(memory, arms):
    return {"protocol": {"content": {"decision": {"memory": memory}}}, "slot_bytes": {"m": {"arms": arms}}}


def said(memory, arms):
    return any(
        slot.startswith("Budgets give equal numbers of slots") for slot in slot_sizes.describe_slots(lock(memory, arms))
    )


PLAIN, CODED = {"bytes": 256}, {"bytes": 160}


@pytest.mark.parametrize(
    ("memory", "arms", "warned"),
    [
        ("bytes", {"a": PLAIN, "b": CODED}, True),
        ("bytes", {"a": PLAIN, "b": PLAIN}, False),
        ("slots", {"a": PLAIN, "b": CODED}, False),
        ("bytes", {"a": {**PLAIN, "slots": {"1 KiB": 4}}, "b": {**CODED, "slots": {"1 KiB": 6}}}, False),
    ],
)
def test_equal_slots_that_are_matched_in_bytes_are_told(memory, arms, warned):
    assert said(memory, arms) is warned
