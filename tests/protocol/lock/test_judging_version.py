"""What ships keeps the rules that it was judged by; a new study of the same protocol does not."""

import pytest
import studies

from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.lock import closure, lock
from protocol.lock.judging_version import SECOND, choose_judging

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
    assert choose_judging({"lock": digest}, protocol) == 2
    assert choose_judging(None, protocol) == CURRENT_JUDGING
    assert choose_judging({"lock": digest, "fresh": True}, protocol) == CURRENT_JUDGING
    assert choose_judging({"lock": digest}, "0" * 64) == CURRENT_JUDGING
