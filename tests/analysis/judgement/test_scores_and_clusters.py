"""Scores from 0 to 1, and problems in clusters, from the records of a study to its judgement."""

import random
import re

import numpy as np
import pytest
import statsmodels.api as sm
import study
from scipy import stats

from analysis.judge import judge
from analysis.judgement import contrasts
from analysis.judgement.study_files import read_study
from analysis.judgement.study_table import has_scores
from analysis.judgement.untrusted_files import RecordError

ONE = {"against": ["snapkv"], "method": "t"}
TASK = "needle"


def number(lane) -> int:
    return int(lane[5][1:])


def worth(score: float, **more):
    return {"grade": "scored", "score": f"{score:.6f}"} | more


def judged(folder, record, problems=40, clusters=None, seeds=(0,), gate=None, **decision):
    content = study.content(**(ONE | decision)) | {"seeds": list(seeds)}
    if gate:
        content["gate"] = gate
    lock = {}
    if clusters is not None:
        named = {f"p{i:03d}": clusters(i) for i in range(problems)}
        items = study.items(content, list(named))
        lock["items"] = {task: item | {"clusters": named} for task, item in items.items()}
    return judge(study.write(folder / "s", content, problems, record, **lock))


def drawn(lane) -> float:
    """The scores of a study: many zeros and ones, the subject a little ahead."""
    stream = random.Random("/".join(map(str, lane)))
    return min(1.0, max(0.0, round(stream.gauss(0.6 if lane[3] == "crystal" else 0.45, 0.5), 6)))


def test_the_accuracy_of_scored_answers_is_their_mean_score(tmp_path):
    found = judged(tmp_path, lambda lane: worth(drawn(lane)), seeds=(0, 1))
    for row in found["arms"]:
        lanes = [("tiny", TASK, row["budget"], row["arm"], seed, f"p{i:03d}") for i in range(40) for seed in (0, 1)]
        assert float(row["accuracy"]) == pytest.approx(sum(map(drawn, lanes)) / 80, abs=1e-6)
    (row,) = found["contrasts"]
    accuracy = {one["arm"]: float(one["accuracy"]) for one in found["arms"]}
    assert float(row["difference"]) == pytest.approx(accuracy["crystal"] - accuracy["snapkv"], abs=2e-6)
    assert row["scored"] is True
    assert "clusters" not in row


def test_nothing_is_said_of_right_answers_where_scores_are_compared(tmp_path):
    ahead = lambda lane: worth(0.5 if lane[3] == "crystal" else 0.4 + number(lane) % 7 / 100)  # noqa: E731
    found = judged(tmp_path / "scores", ahead, 200)
    assert found["verdict"] == "CONFIRMED"
    assert found["proves"] == [
        "crystal scored significantly higher in 1 of 1 contrasts (t, level 0.05, Bonferroni): tiny needle at "
        "0.5 against snapkv."
    ]
    assert any(said.startswith("That more answers are right: needle has scores") for said in found["does_not_prove"])
    right = lambda lane: {"grade": "correct" if lane[3] == "crystal" else "wrong"}  # noqa: E731
    counted = judged(tmp_path / "counts", right, 200)
    assert counted["proves"][0].startswith("crystal was significantly more accurate in 1 of 1")
    assert not any("more answers are right" in said for said in counted["does_not_prove"])


def test_student_on_scores_is_that_of_the_problems_means(tmp_path):
    found = judged(tmp_path, lambda lane: worth(drawn(lane)))["contrasts"][0]
    each = [
        drawn(("tiny", TASK, "0.5", "crystal", 0, f"p{i:03d}")) - drawn(("tiny", TASK, "0.5", "snapkv", 0, f"p{i:03d}"))
        for i in range(40)
    ]
    expected = stats.ttest_1samp(each, 0)
    assert float(found["p"]) == pytest.approx(expected.pvalue, abs=1e-6)
    interval = expected.confidence_interval(0.95)
    assert (float(found["low"]), float(found["high"])) == pytest.approx(tuple(interval), abs=1e-6)
    assert found["gains"] == sum(one > 0 for one in each)
    assert found["losses"] == sum(one < 0 for one in each)


@pytest.mark.parametrize("method", ["t", "bootstrap", "sign-flip", "max-t"])
def test_scores_of_nought_and_one_are_wrong_and_correct_answers(tmp_path, method):
    """The judgement is the same to the last word."""

    def right(lane):
        return drawn(lane) > 0.5

    words = judged(tmp_path / "words", lambda lane: {"grade": "correct"} if right(lane) else {}, method=method)
    numbers = judged(tmp_path / "numbers", lambda lane: worth(float(right(lane))), method=method)
    assert numbers == words


def test_sums_of_scores_that_are_equal_are_a_tie(tmp_path):
    """0.1 + 0.2 and 0.3 + 0: a float would call the subject ahead."""
    score = {("crystal", 0): 0.1, ("crystal", 1): 0.2, ("snapkv", 0): 0.3, ("snapkv", 1): 0.0}
    content = study.content(**ONE) | {"seeds": [0]}
    folder = study.write(tmp_path / "s", content, 2, lambda lane: worth(score.get((lane[3], number(lane)), 0.5)))
    (pairing,) = contrasts.pair_arms(read_study(folder), [("crystal", "snapkv")])
    assert float(pairing.difference.sum()) != 0
    assert pairing.net == 0


def test_a_verdict_on_scores_counts_every_part_of_one(tmp_path):
    """0.4 more on each of 200 problems, which no count of right answers shows."""
    found = judged(
        tmp_path, lambda lane: worth(0.5 + 0.4 * (lane[3] == "crystal") + number(lane) / 10_000), problems=200
    )
    assert (found["verdict"], found["contrasts"][0]["difference"]) == ("CONFIRMED", "0.400000")


def test_a_lead_of_less_than_one_answer_in_all_is_a_lead(tmp_path):
    """0.001 to 0.003 on each of 200 problems: 0.4 of an answer, which rounded would be a tie."""
    ahead = lambda lane: (lane[3] == "crystal") * (0.001 + number(lane) / 100_000)  # noqa: E731
    found = judged(tmp_path, lambda lane: worth(0.5 + ahead(lane)), problems=200)
    assert found["verdict"] == "CONFIRMED"


@pytest.mark.parametrize("method", ["exact-bootstrap", "restricted-likelihood", "auto"])
@pytest.mark.parametrize("what", ["scores", "clusters"])
def test_a_method_that_counts_right_answers_judges_no_scores_and_no_clusters(tmp_path, method, what):
    record = (lambda lane: worth(drawn(lane))) if what == "scores" else lambda lane: {}
    clusters = (lambda i: str(i // 4)) if what == "clusters" else None
    with pytest.raises(
        RecordError,
        match=f"decision.method: {method} needs right and wrong answers, but .* has {what}; .*bootstrap, t,",
    ):
        judged(tmp_path, record, clusters=clusters, method=method)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"grade": "scored"}, "score: 'None' does not fit the grade 'scored'"),
        ({"grade": "wrong", "score": "0.500000"}, "does not fit the grade 'wrong'"),
        ({"grade": "scored", "score": "0.5"}, "is not a number from 0 to 1"),
        ({"grade": "scored", "score": "1.000001"}, "is not a number from 0 to 1"),
        ({"grade": "scored", "score": 1}, "is not a number from 0 to 1"),
        (worth(0.5, grade_second="scored"), "score: 'None'"),
        (worth(0.5, grade_second="scored", score_second="x"), "is not a number"),
    ],
)
def test_a_score_that_is_none_is_refused(tmp_path, change, says):
    with pytest.raises(RecordError, match=re.escape(says)):
        judged(tmp_path, lambda lane: change if number(lane) == 3 else {})


def test_two_scores_disagree_where_they_differ_and_lie_so_far_apart_on_average(tmp_path):
    def record(lane):
        other = 0.25 if lane[3] == "crystal" and number(lane) < 4 else 0.5
        return worth(0.5, grade_second="scored", score_second=f"{other:.6f}")

    rows = {row["arm"]: row for row in judged(tmp_path, record)["arms"]}
    assert (rows["crystal"]["disagreements"], rows["crystal"]["scores_apart"]) == (4, "0.025000")
    assert (rows["snapkv"]["disagreements"], rows["snapkv"]["scores_apart"]) == (0, "0.000000")


def test_a_second_grader_may_read_right_or_wrong_where_the_first_scores(tmp_path):
    def record(lane):
        return worth(0.75, grade_second=("correct", "wrong", "error", "no answer")[number(lane) % 4])

    row = judged(tmp_path, record)["arms"][0]
    # Of the 30 that it could grade 10 lie 0.25 apart and 20 lie 0.75 apart.
    assert (row["disagreements"], row["scores_apart"]) == (40, "0.583333")


@pytest.mark.parametrize(("needed", "passes"), [("0.475", True), ("0.475001", False)])
def test_a_gate_asks_for_the_mean_score_of_the_full_cache(tmp_path, needed, passes):
    gate = {"accuracy": needed, "truncated": "1"}
    record = lambda lane: worth(0.75 if number(lane) % 2 else 0.2)  # noqa: E731
    place = judged(tmp_path, record, gate=gate)["gate"]["places"][0]
    assert place["passed"] is passes
    assert place["accuracy"] == "0.475000"
    if not passes:
        assert place["why"] == ["the full cache scores 0.475 on 40 lanes (gate: 0.475001)"]


def test_a_scored_answer_counts_as_cut_where_it_scores_nothing(tmp_path):
    gate = {"accuracy": "0.1", "truncated": "0.5"}
    record = lambda lane: worth(0.3 * (number(lane) < 20), stop="length")  # noqa: E731
    assert judged(tmp_path / "half", record, gate=gate)["gate"]["passed"]
    fewer = lambda lane: worth(0.3 * (number(lane) < 19), stop="length")  # noqa: E731
    place = judged(tmp_path / "more", fewer, gate=gate)["gate"]["places"][0]
    assert "21 of 40 answers of the full cache are cut" in place["why"][0]


def test_a_table_knows_whether_its_answers_are_scored(tmp_path):
    judged(tmp_path / "scores", lambda lane: worth(drawn(lane)))
    judged(tmp_path / "words", lambda lane: {"grade": "correct"})
    assert has_scores(read_study(tmp_path / "scores" / "s").lanes)
    assert not has_scores(read_study(tmp_path / "words" / "s").lanes)


# Clusters.


def answers(lane):
    """Right or wrong by cluster and problem, so that the problems of a cluster are alike."""
    at, arm = number(lane), lane[3]
    stream = random.Random(f"{at // 5}/{arm}")
    other = random.Random(f"{at}/{arm}")
    right = stream.random() < 0.5 if other.random() < 0.7 else other.random() < 0.5
    return {"grade": "correct"} if right or (arm == "crystal" and other.random() < 0.2) else {}


def test_intervals_and_p_are_those_of_clusters_and_the_mean_is_that_of_problems(tmp_path):
    found = judged(tmp_path, answers, problems=203, clusters=lambda i: f"t{i // 5}")["contrasts"][0]
    lanes = [[("tiny", TASK, "0.5", arm, 0, f"p{i:03d}") for i in range(203)] for arm in ("crystal", "snapkv")]
    own, other = (np.array([float(bool(answers(lane))) for lane in side]) for side in lanes)
    groups = np.arange(203) // 5
    fitted = sm.OLS(own - other, np.ones(203)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    mean, error = float(fitted.params[0]), float(fitted.bse[0])
    reach = stats.t.ppf(0.975, 40) * error
    assert (found["n"], found["clusters"]) == (203, 41)
    assert float(found["difference"]) == pytest.approx(mean, abs=1e-6)
    assert (float(found["low"]), float(found["high"])) == pytest.approx((mean - reach, mean + reach), abs=1e-6)
    assert float(found["p_t"]) == pytest.approx(2 * stats.t.sf(abs(mean) / error, 40), abs=1e-6)
    plain = judged(tmp_path / "plain", answers, problems=203)["contrasts"][0]
    assert plain["difference"] == found["difference"]
    assert float(plain["low"]) > float(found["low"])


@pytest.mark.parametrize("method", ["t", "bootstrap", "sign-flip", "max-t"])
def test_problems_that_are_asked_again_in_their_cluster_change_no_number(tmp_path, method):
    """Of 60 problems, and of these with four copies each."""
    copied = lambda lane: worth(drawn((*lane[:5], f"p{number(lane) // 5:03d}")))  # noqa: E731
    alone = judged(tmp_path / "alone", lambda lane: worth(drawn(lane)), problems=60, method=method)
    again = judged(tmp_path / "again", copied, 300, lambda i: f"of {i // 5}", method=method)
    counts = {"n", "clusters", "gains", "losses"}
    (one,), (five,) = alone["contrasts"], again["contrasts"]
    same = {name: value for name, value in one.items() if name not in counts}
    for name, value in same.items():
        if isinstance(value, str) and re.fullmatch(r"-?[01]\.\d{6}", value):
            assert float(five[name]) == pytest.approx(float(value), abs=2e-6), name
        else:
            assert five[name] == value, name
    assert five["clusters"] == one["n"] == 60


@pytest.mark.parametrize("method", ["t", "bootstrap", "sign-flip", "max-t"])
def test_a_study_with_a_cluster_a_problem_is_one_without(tmp_path, method):
    plain = judged(tmp_path / "plain", answers, seeds=(0, 1), method=method)
    apart = judged(tmp_path / "apart", answers, clusters=str, seeds=(0, 1), method=method)
    (row,) = apart["contrasts"]
    assert row.pop("clusters") == 40
    assert apart["does_not_prove"] == [said.replace("n = 40;", "n = 40 clusters;") for said in plain["does_not_prove"]]
    assert apart | {"does_not_prove": []} == plain | {"does_not_prove": []}


@pytest.mark.parametrize(("clusters", "word"), [(199, "SCREENED"), (200, "CONFIRMED")])
def test_what_is_confirmed_counts_clusters(tmp_path, clusters, word):
    won = lambda lane: {"grade": "correct"} if lane[3] == "crystal" and number(lane) % 3 else {}  # noqa: E731
    found = judged(tmp_path, won, 400, lambda i: str(i % clusters))
    assert found["verdict"] == word
    assert any("n = 199 clusters" in said for said in found["does_not_prove"]) == (word == "SCREENED")


def test_a_giant_cluster_confirms_nothing_however_many_small_ones_stand_beside_it(tmp_path):
    """201 clusters, of which one has 200 of 400 problems: 400^2 / (200^2 + 200) = 3.98."""
    won = lambda lane: {"grade": "correct"} if lane[3] == "crystal" and number(lane) % 3 else {}  # noqa: E731
    found = judged(tmp_path, won, 400, lambda i: str(max(i, 199)))
    (row,) = found["contrasts"]
    assert (row["clusters"], row["effective_clusters"]) == (201, 3)
    assert (found["verdict"], found["label"]) == ("SCREENED", "screening-grade")
    assert any("n = 201 clusters (effective number 3)" in said for said in found["does_not_prove"])


def test_one_cluster_gives_no_estimate(tmp_path):
    found = judged(tmp_path, answers, clusters=lambda i: "all")
    assert found["contrasts"][0]["difference"] is None
    assert found["rule_says"] == "INCONCLUSIVE"


def test_a_lock_whose_clusters_lack_a_problem_is_refused(tmp_path):
    content = study.content(**ONE) | {"seeds": [0]}
    items = {TASK: {"dev": ["d"], "confirm": ["p000", "p001"], "clusters": {"p000": "a"}}}
    folder = study.write(tmp_path / "s", content, 2, answers, items=items)
    with pytest.raises(RecordError, match=r"items\.needle\.clusters: lacks p001"):
        judge(folder)


def test_every_lane_has_its_cluster_where_there_are_some(tmp_path):
    judged(tmp_path / "some", answers, clusters=lambda i: f"t{i // 5}")
    lanes = read_study(tmp_path / "some" / "s").lanes
    assert set(lanes.loc[lanes["problem"] == "p012", "cluster"]) == {"t2"}
    judged(tmp_path / "none", answers)
    assert "cluster" not in read_study(tmp_path / "none" / "s").lanes
