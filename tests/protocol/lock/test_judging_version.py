"""What ships keeps the rules that it was judged by; a new study of the same protocol does not."""

import pytest
import studies

from protocol.formats.vocabulary import CURRENT_JUDGING, SHARED_ALPHA_JUDGING
from protocol.lock import closure, lock
from protocol.lock.judging_version import SECOND, THIRD, choose_judging, shipped_judging

JUDGED_BY_SECOND = (
    "registrations/crystal-retrieval-3",
    "replications/alpha-chain-fresh-001",
    "replications/alpha-chain-fresh-002",
)


@pytest.mark.parametrize("name", JUDGED_BY_SECOND)
def test_a_reproduction_keeps_the_rules_and_a_new_study_of_the_protocol_does_not(name):
    digest = lock.read(studies.ROOT / name).digest
    protocol = closure.sha256_hex((studies.ROOT / name / "protocol.toml").read_bytes())
    assert SECOND[digest] == protocol
    assert choose_judging({"lock": digest}, protocol, {}) == 2
    assert choose_judging(None, protocol, {}) == CURRENT_JUDGING
    assert choose_judging({"lock": digest, "fresh": True}, protocol, {}) == CURRENT_JUDGING
    assert choose_judging({"lock": digest}, "0" * 64, {}) == CURRENT_JUDGING


@pytest.mark.parametrize("name", ["think-answer", "think-answer-2"])
def test_slip_has_a_number_of_its_own_but_for_what_was_locked_before(name):
    locked = lock.read(studies.ROOT / "registrations" / name)
    protocol = closure.sha256_hex((studies.ROOT / "registrations" / name / "protocol.toml").read_bytes())
    content = locked.content["protocol"]["content"]
    assert THIRD[locked.digest] == protocol
    assert shipped_judging(locked.digest) == {"judging": locked.content["judging"]} == {"judging": 3}
    assert choose_judging({"lock": locked.digest}, protocol, content) == 3
    assert choose_judging(None, protocol, content) == SHARED_ALPHA_JUDGING
    assert choose_judging({"lock": locked.digest, "fresh": True}, protocol, content) == SHARED_ALPHA_JUDGING
    without = {name: value for name, value in content["anatomy"].items() if name != "slip"}
    assert choose_judging(None, protocol, {**content, "anatomy": without}) == CURRENT_JUDGING


def test_every_shipped_study_has_the_number_that_an_audit_expects():
    for file in sorted((studies.ROOT / "registrations").glob("*/lock.json")):
        locked = lock.read(file.parent)
        if (number := locked.content.get("judging", 1)) > 1:
            content = locked.content["protocol"]["content"]
            expected = shipped_judging(locked.digest).get("judging") or choose_judging(
                locked.content["parent"], locked.content["protocol"]["sha256"], content
            )
            assert number == expected, file
