"""What a judgement says of amendments, of where its seeds come from and of its place in time."""

import pytest
import study

from analysis.judge import judge
from analysis.judgement import statements

AMENDS = {
    "name": "older",
    "lock": "a1b2c3d4e5f6" + "0" * 52,
    "reason": "the tolerance was mistyped",
    "diff": [],
    "seen": {},
}


def won(lane: study.Lane) -> dict:
    return {"grade": "correct"} if lane[3] == "crystal" else {}


def judged(folder, record=won, amends=None, **changes) -> dict:
    content = study.content() | changes
    return judge(study.write(folder / "small", content, 12, record, amends=amends))


@pytest.mark.parametrize(("record", "says"), [(won, "CONFIRMED"), (lambda lane: {}, "INCONCLUSIVE")])
def test_a_study_that_was_amended_after_its_claim_deviates_whatever_the_rule_says(tmp_path, record, says):
    found = judged(tmp_path, record, AMENDS | {"after_claim": True})
    assert (found["verdict"], found["rule_says"], found["proves"]) == ("DEVIATED", says, [])
    assert found["does_not_prove"][0] == (
        "The registered question: this lock amends older (a1b2c3d4e5f6) after its claim, when held-out "
        f"answers could be known. The rule alone says {says}."
    )


@pytest.mark.parametrize("amends", [None, AMENDS | {"after_claim": False}])
def test_a_study_that_was_amended_before_any_claim_is_judged_as_any_other(tmp_path, amends):
    found = judged(tmp_path, amends=amends)
    assert (found["verdict"], found["rule_says"]) == ("SCREENED", "CONFIRMED")
    assert study.proves(found)


def about(found: dict, start: str) -> str:
    (sentence,) = (one for one in found["does_not_prove"] if one.startswith(start))
    return sentence


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("nonce", "the nonce of an auditor"),
        ("beacon", "a public beacon"),
        ("anchor", "the Bitcoin block that anchors the lock"),
    ],
)
def test_seeds_that_derive_from_late_randomness_are_said_to(tmp_path, source, named):
    sentence = about(judged(tmp_path, randomness={"source": source}), "Freedom")
    assert f"seeds and generated problems derive from the lock and {named}, as the claim" in sentence


def test_seeds_without_late_randomness_are_author_chosen(tmp_path):
    sentence = about(judged(tmp_path), "Freedom")
    assert sentence == "Freedom from the author's choices: the seeds (0; 1) are author-chosen."


def test_the_judgement_claims_no_witness_for_itself(tmp_path):
    sentence = about(judged(tmp_path), "Order in time")
    assert "rests on no outside witness" in sentence
    assert "python -m protocol.audit" in sentence


def test_a_study_names_its_population_unless_it_was_locked_before_that_existed(tmp_path):
    new = judge(study.write(tmp_path / "new", study.content(), 12, lambda lane: {"grade": "correct"}, judging=2))
    assert (new["population"], new["qualifiers"]) == ("these 12 problems of needle", [])
    old = judge(study.write(tmp_path / "old", study.content(), 12, won))
    assert not {"population", "qualifiers"} & set(old)


@pytest.mark.parametrize(
    ("state", "loses_nothing"), [("policies.state.Verbatim()", True), ("policies.quest.Quest()", False)]
)
def test_an_arm_that_holds_all_and_reads_some_may_lose(state, loses_nothing):
    decision = {"subject": "a", "cache_tolerance": "0.02"}
    lock = {"judging": 3, "policies": {"a": {"state": state}}, "protocol": {"content": {"decision": decision}}}
    (said,) = statements._unsaved_limits(lock, ["m t at 1 against full"], 1)
    assert said.startswith("Anything about eviction in 1 of 1 contrasts, where the full cache held at most 2 % more")
    assert ("loses nothing" in said) == loses_nothing
