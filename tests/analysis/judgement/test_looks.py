"""Studies with looks: where they end, what is deviation, and p by hand."""

import hashlib

import numpy as np
import pytest

from analysis.judgement.judgement import judge_study
from analysis.judgement.looks import advise, list_deciding
from analysis.judgement.opened_lanes import keep_looks, keep_reached
from analysis.judgement.study_table import NOT_RUN
from analysis.rules import verdict_line
from analysis.rules.self_test_cases import Outcome, Scenario
from analysis.simulation.simulated_studies import StudyPlan, simulate_study
from analysis.stats import restricted_likelihood

LOOKS = [200, 300, 400]
BOUNDARIES = [2.962588]  # of fraction 1/2, as in a table of two equal looks


def plan(looks=LOOKS, **decision):
    arms = {name: {"policy": name} for name in ("full", "mine", "other")}
    content = {
        "title": "t", "question": "q", "models": ["m"], "seeds": [0], "budgets": ["64"],
        "tasks": [{"name": "t"}], "arms": arms,
        "generation": {"temperature": "0", "dtype": "float32"},
        "decision": {
            "rule": "superior", "subject": "mine", "against": ["other"], "at_least": 1, "alpha": "0.05",
            "method": "restricted-likelihood", "cache_tolerance": "0.02", "missing": "inconclusive",
            "looks": looks, "spending": "obrien-fleming",
        } | decision,
    }  # fmt: skip
    grid = [["m", "t", "64", arm, 0] for arm in ("mine", "other")]
    return StudyPlan(content, grid, {"t": {"dev": [], "confirm": [f"p{number}" for number in range(looks[-1])]}})


def whole(outcome, looks=LOOKS, **decision):
    """The study with all of its problems recorded."""
    study = simulate_study(plan(looks, **decision), Scenario(outcomes={0: outcome}))
    lock = study.lock | {"protocol": study.lock["protocol"] | {"sha256": "a" * 64}, "amends": None, "opened": []}
    return study._replace(lock=lock)


def recorded(study, number):
    """The study as it is read when its first `number` looks have records."""
    numbers = opened_by_hand(study)
    later = [numbers[problem] > number for problem in study.lanes["problem"]]
    lanes = study.lanes.assign(state=study.lanes["state"].mask(later, NOT_RUN))
    return study._replace(**keep_reached(study.lock, lanes, NOT_RUN)._asdict())


def opened_by_hand(study):
    """The look of each problem: its place among the SHA-256 of "digest of the protocol, task, id"."""
    looks = study.lock["protocol"]["content"]["decision"]["looks"]
    ids = study.lock["items"]["t"]["confirm"]
    order = sorted(ids, key=lambda problem: hashlib.sha256(f"{'a' * 64} t {problem}".encode()).hexdigest())
    return {problem: 1 + sum(place >= look for look in looks) for place, problem in enumerate(order)}


@pytest.mark.parametrize("missing", ["inconclusive", "wrong"])
def test_a_large_gain_stops_at_the_first_look(missing):
    judged = judge_study(recorded(whole(Outcome(gained=160), missing=missing), 1))
    assert judged["verdict"] == "CONFIRMED"
    assert (judged["looks"]["at"], judged["looks"]["reason"], advise(judged)) == (1, "efficacy", "stop")
    assert [row["n"] for row in judged["contrasts"]] == [200]
    assert (
        "looks: stopped at look 1 of 3, with 200 of 400 problems per task, for efficacy"
        in verdict_line.list_remarks(judged)
    )


def test_a_loss_stops_for_harm():
    judged = judge_study(recorded(whole(Outcome(lost=160)), 1))
    assert (judged["verdict"], judged["looks"]["reason"]) == ("REFUTED", "harm")


def test_nothing_is_decided_before_the_last_look_where_nothing_differs():
    study = whole(Outcome(gained=20, lost=20))
    for number in (1, 2):
        assert advise(judge_study(recorded(study, number))) == "go on"
    judged = judge_study(recorded(study, 3))
    assert (judged["verdict"], judged["looks"]["at"], len(judged["looks"]["path"])) == ("INCONCLUSIVE", 3, 3)
    assert advise(judged) == "stop"


def test_going_on_after_a_decision_and_ending_without_one_are_deviations():
    gone_on = judge_study(recorded(whole(Outcome(gained=160)), 2))
    assert (gone_on["verdict"], gone_on["rule_says"]) == ("DEVIATED", "CONFIRMED")
    assert gone_on["looks"]["deviation"] == "it continued to look 2, although the rule had decided at look 1"
    assert not any("CONFIRMED" in sentence for sentence in gone_on["proves"])
    ended = judge_study(recorded(whole(Outcome(gained=20, lost=20)), 2))
    assert (ended["verdict"], ended["rule_says"]) == ("DEVIATED", "INCONCLUSIVE")
    assert "ended after look 2" in " ".join(ended["does_not_prove"])


def test_numbers_at_a_look_are_those_of_its_problems_and_boundary():
    """A gain that the fixed design calls significant at look 1 and the look does not."""
    study = whole(Outcome(gained=50, lost=20))
    judged = judge_study(recorded(study, 1))
    numbers = opened_by_hand(study)
    lanes = study.lanes[[numbers[problem] == 1 for problem in study.lanes["problem"]]]
    columns = [lanes[lanes["arm"] == arm].set_index("problem")["correct"] for arm in ("mine", "other")]
    by_hand = restricted_likelihood.compare((columns[0] - columns[1]).to_numpy()[:, None])
    assert by_hand.p < 0.05
    row = judged["contrasts"][0]
    from scipy import stats

    z = float(row["look"]["z"])
    assert 2 * stats.norm.sf(z) == pytest.approx(by_hand.p, rel=1e-3)
    assert float(row["look"]["boundary"]) == pytest.approx(BOUNDARIES[0], abs=1e-4)
    assert float(row["p"]) > by_hand.p
    assert judged["looks"]["reason"] is None
    assert not row["better"]
    wide = restricted_likelihood.compare(
        (columns[0] - columns[1]).to_numpy()[:, None], level=1 - 2 * stats.norm.sf(BOUNDARIES[0])
    )
    assert [float(row[end]) for end in ("low_simultaneous", "high_simultaneous")] == pytest.approx(
        [wide.low, wide.high], abs=2e-5
    )
    assert float(row["low_simultaneous"]) <= 0 <= float(row["high_simultaneous"])


def test_a_look_below_200_problems_stops_no_larger_study_and_spends_nothing():
    assert list_deciding((100, 200, 400)) == [200, 400]
    assert list_deciding((20, 40)) == [20, 40]
    study = whole(Outcome(gained=200), [100, 200, 400])
    assert advise(judge_study(recorded(study, 1))) == "go on"
    judged = judge_study(recorded(study, 2))
    assert (judged["verdict"], judged["looks"]["at"]) == ("CONFIRMED", 2)
    assert float(judged["contrasts"][0]["look"]["boundary"]) == pytest.approx(2.9626, abs=1e-3)  # of fraction 1/2


def test_a_later_look_has_the_boundary_that_the_looks_before_it_leave():
    """R's gsDesign, sfLDOF with three equal looks: 3.7103, 2.5114, 1.9930."""
    judged = judge_study(recorded(whole(Outcome(gained=20, lost=20), [200, 400, 600]), 3))
    boundaries = [float(look["contrasts"][0]["boundary"]) for look in judged["looks"]["path"]]
    assert boundaries == pytest.approx([3.7103, 2.5114, 1.9930], abs=2e-4)


def test_a_margin_stops_for_efficacy_and_for_harm():
    fields = {"rule": "non_inferior", "margin": "0.1", "at_least": None}
    equal = judge_study(recorded(whole(Outcome(), **fields), 1))
    assert (equal["verdict"], equal["looks"]["reason"]) == ("CONFIRMED", "efficacy")
    worse = judge_study(recorded(whole(Outcome(lost=160), **fields), 1))
    assert (worse["verdict"], worse["looks"]["reason"]) == ("REFUTED", "harm")


def test_betting_decides_where_its_p_is_at_most_alpha_at_any_look():
    study = whole(Outcome(gained=60, lost=10), method="betting", spending=None)
    for number in (1, 2):
        judged = judge_study(recorded(study, number))
        (row,) = judged["contrasts"]
        assert (float(row["p"]) <= 0.05) == (judged["looks"]["reason"] == "efficacy") == row["better"]
        assert float(row["look"]["boundary"]) == pytest.approx(1.959964, abs=1e-5)
        if row["better"]:
            return
    pytest.fail("60 gains and 10 losses in 400 decide")


def test_a_study_that_was_read_to_a_look_opens_its_earlier_ones_alike():
    study = whole(Outcome(gained=20))
    to_two = study._replace(**keep_looks(study.lock, study.lanes, 2)._asdict())
    again = keep_looks(to_two.lock, to_two.lanes, 1)
    direct = keep_looks(study.lock, study.lanes, 1)
    assert again.lock["items"] == direct.lock["items"]
    np.testing.assert_array_equal(again.lanes["problem"], direct.lanes["problem"])
