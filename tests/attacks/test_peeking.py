"""Somebody wants to see the held-out problems before, or in some other way than, the one confirmation."""

import pytest
from attacking import caught, rewrite_ledger

import splits
from protocol.evidence import records
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import lock


def test_the_door_is_opened_without_a_claim(unconfirmed):
    with pytest.raises(BadInput, match="has no claim"):
        HeldOutGuard(lock.read(unconfirmed), unconfirmed).ids("needle-256", "a look")


def test_the_door_is_opened_with_the_claim_of_another_study(study):
    other = lock.read(study)._replace(digest="0" * 64)
    with pytest.raises(Tampered, match="names another lock"):
        HeldOutGuard(other, study).ids("needle-256", "a look")


def test_held_out_problems_are_read_before_the_claim(study):
    def early(lines):
        place = next(place for place, (event, _) in enumerate(lines) if event == "held-out")
        lines.insert(1, lines.pop(place))

    rewrite_ledger(study, early)
    caught(study, "ledger", "held-out problems were read before the claim")


def test_a_held_out_problem_is_slipped_into_the_probe(study):
    """Its record is put among those of the probe, with every digest of the shard mended."""
    place = study / "probe"
    found = records.read_records(place)
    held_out = splits.load("needle-256").confirm[0]
    body = {**found[0]["body"], "problem": held_out, "trajectory": None}
    with records.ShardWriter(place) as shard:
        shard.append([(body, {"attempt": 1})])
    caught(study, "probe", "was probed and is not of the development split")
