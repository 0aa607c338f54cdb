"""No verdict rests on a full cache that cannot do the task: the real judge on studies written here."""

import pytest
import study

from analysis.judge import judge
from analysis.rules import full_cache_gate, verdict_line

NEEDED = {"accuracy": "0.5", "truncated": "0.1"}
RIGHT = {"grade": "correct"}
CUT = {"grade": "no answer", "answer": None, "stop": "length", "text": "…"}
CUT_BUT_RIGHT = RIGHT | {"stop": "length"}
NEVER = None


def number(lane) -> int:
    return int(lane[5][1:])


def won(lane):
    """crystal and the full cache solve everything, the two comparators nothing."""
    return RIGHT if lane[3] in ("crystal", "full") else {}


def full(record):
    """The same, but for the lanes of the full cache."""
    return lambda lane: record(lane) if lane[3] == "full" else won(lane)


def judged(folder, record=won, problems=200, gate=NEEDED, **changes):
    named = {"models", "tasks", "seeds", "exclude"} & set(changes)
    top = {name: changes.pop(name) for name in named}
    content = study.content(**changes) | {"seeds": [0]} | top
    if gate is not None:
        content["gate"] = gate
    return judge(study.write(folder / "s", content, problems, record))


def test_a_full_cache_that_answers_nothing_makes_equal_arms_uninformative_not_equivalent(tmp_path):
    """Every lane cut and silent with 8 new tokens: the policies do not differ, and nothing was shown."""
    found = judged(
        tmp_path,
        lambda lane: CUT,
        problems=287,
        models=["chain-llama"],
        tasks=[{"name": "chain", "query": "inside", "max_new_tokens": 8}],
        rule="equivalent",
        margin="0.05",
        at_least=None,
        method="t",
    )
    assert [(contrast["gains"], contrast["losses"]) for contrast in found["contrasts"]] == [(0, 0), (0, 0)]
    assert (found["verdict"], found["proves"]) == ("INCONCLUSIVE", [])
    assert found["gate"]["passed"] is False
    assert full_cache_gate.describe_gate(found) == (
        "uninformative: the full cache answers 0 of 287 (gate: 0.50), 287 of 287 answers of the full cache "
        "are cut before they are correct (gate: 0.10)"
    )
    assert found["does_not_prove"][0].startswith(
        "Anything about the policies, since the study is uninformative: the full cache answers 0 of 287"
    )


def test_the_same_study_without_a_gate_says_that_it_has_none(tmp_path):
    found = judged(tmp_path, lambda lane: CUT, gate=None, rule="equivalent", margin="0.1", method="t")
    assert found["verdict"] == "CONFIRMED"  # a replication of a lock of before there were gates
    assert found["gate"] is None
    assert full_cache_gate.describe_gate(found).startswith("no gate")
    assert "That the full cache can do the task: this study registers no gate." in found["does_not_prove"]


def test_what_a_passed_gate_says(tmp_path):
    found = judged(tmp_path)
    assert (found["verdict"], full_cache_gate.describe_gate(found)) == ("CONFIRMED", "")
    assert found["gate"] == {
        "arm": "full",
        "passed": True,
        "places": [
            {
                "model": "tiny",
                "task": "needle",
                "n": 200,
                "lanes": 200,
                "correct": 200,
                "accuracy": "1.000000",
                "truncated": "0.000000",
                "cut": "0.000000",
                "no_answer": "0.000000",
                "ungraded": 0,
                "needed": "0.500000",
                "at_most": "0.100000",
                "passed": True,
                "why": [],
            }
        ],
    }
    assert verdict_line.format_single_model(found) == "for tiny alone"


@pytest.mark.parametrize(("right", "word"), [(100, "CONFIRMED"), (99, "INCONCLUSIVE")])
def test_the_least_accuracy_passes_and_one_lane_fewer_does_not(tmp_path, right, word):
    found = judged(tmp_path, full(lambda lane: RIGHT if number(lane) < right else {}))
    assert found["verdict"] == word


def test_a_refutation_needs_the_full_cache_as_well(tmp_path):
    record = full(lambda lane: {})
    assert judged(tmp_path, record, subject="snapkv", against=["crystal"])["verdict"] == "INCONCLUSIVE"
    passing = judged(tmp_path / "able", subject="snapkv", against=["crystal"])
    assert passing["verdict"] == "REFUTED"


@pytest.mark.parametrize(
    ("cut", "how", "word"),
    [
        (20, CUT, "CONFIRMED"),
        (21, CUT, "INCONCLUSIVE"),
        (21, {"stop": "length"}, "INCONCLUSIVE"),  # cut, with a wrong answer
        (200, CUT_BUT_RIGHT, "CONFIRMED"),  # went on after a correct answer: nothing was lost
    ],
)
def test_answers_are_cut_where_the_limit_came_before_a_correct_one(tmp_path, cut, how, word):
    found = judged(tmp_path, full(lambda lane: how if number(lane) < cut else RIGHT))
    assert found["verdict"] == word
    assert found["gate"]["places"][0]["truncated"] == f"{cut / 200:.6f}"


@pytest.mark.parametrize("missing", ["inconclusive", "wrong"])
@pytest.mark.parametrize("change", [study.FAILED, NEVER, {"grade": "error"}])
def test_a_full_cache_that_left_no_answers_passes_nothing(tmp_path, missing, change):
    found = judged(tmp_path, full(lambda lane: change), missing=missing, gate=NEEDED | {"accuracy": "0.05"})
    assert (found["verdict"], found["gate"]["passed"]) == ("INCONCLUSIVE", False)
    assert found["gate"]["places"][0]["why"] == ["the full cache answers 0 of 200, 200 without a grade (gate: 0.05)"]


def test_failed_lanes_of_the_full_cache_are_not_left_out_of_its_accuracy(tmp_path):
    """Half of the lanes failed, all others correct: 0.5 of the registered, not 1.0 of the graded."""

    def record(lane):
        return RIGHT if number(lane) < 100 else study.FAILED

    found = judged(tmp_path, full(record), missing="wrong", gate=NEEDED | {"accuracy": "0.51"})
    assert (found["verdict"], found["gate"]["places"][0]["accuracy"]) == ("INCONCLUSIVE", "0.500000")


def test_with_every_problem_excluded_no_gate_is_passed(tmp_path):
    def record(lane):
        long = {"prompt_tokens": 5000, "state": "excluded", "reason": "prompt_tokens: 5000, above 4096"}
        return study.FAILED | long

    found = judged(tmp_path, record, exclude={"prompt_tokens_above": 4096}, problems=5)
    assert (found["verdict"], found["rule_says"]) == ("SCREENED", "INCONCLUSIVE")
    assert found["gate"]["places"][0]["why"] == ["the full cache has no lane on this model and task"]


TWO = [{"name": name, "query": "inside", "max_new_tokens": 12} for name in ("needle", "chain")]


@pytest.mark.parametrize(("place", "models", "tasks"), [(0, ["a", "b"], TWO[:1]), (1, ["a"], TWO)])
def test_one_model_or_task_that_fails_is_enough_and_is_named(tmp_path, place, models, tasks):
    last = (models[-1], tasks[-1]["name"])
    found = judged(
        tmp_path, full(lambda lane: {} if lane[:2] == last else RIGHT), models=models, tasks=tasks, at_least=4
    )
    assert found["verdict"] == "INCONCLUSIVE"
    assert [one["passed"] for one in found["gate"]["places"]] == [True, False]
    assert full_cache_gate.describe_gate(found) == (
        f"uninformative: the full cache answers 0 of 200 (gate: 0.50) on {last[0]}, {last[1]}"
    )


@pytest.mark.parametrize(
    ("right", "passed"), [(94, False), (95, True), (100, True), (107, False), (106, True), (200, False)]
)
def test_a_published_number_is_reproduced_within_its_margin_or_the_study_is_uninformative(tmp_path, right, passed):
    """0.503 ± 0.03 of 200 is 94.6 to 106.6: a full cache that is much better is another set-up as well."""
    place = {"model": "tiny", "task": "needle", "accuracy": "0.3", "published": "0.503", "margin": "0.03"}
    gate = NEEDED | {"places": [place], "truncated": "0.5"}
    found = judged(tmp_path, full(lambda lane: RIGHT if number(lane) < right else {}), gate=gate)
    assert found["gate"]["passed"] is passed
    if not passed:
        assert f"{right / 200:.3f}, while 0.503 ± 0.03 is published" in full_cache_gate.describe_gate(found)


def test_a_place_has_its_own_threshold_and_others_keep_theirs(tmp_path):
    place = {"model": "a", "task": "needle", "accuracy": "0.9"}
    record = full(lambda lane: RIGHT if number(lane) < 120 else {})
    found = judged(tmp_path, record, models=["a", "b"], gate=NEEDED | {"places": [place]}, at_least=4)
    assert [(one["needed"], one["passed"]) for one in found["gate"]["places"]] == [
        ("0.900000", False),
        ("0.500000", True),
    ]


def test_below_two_hundred_problems_the_word_is_that_nothing_is_decided(tmp_path):
    found = judged(tmp_path, problems=12)
    assert (found["verdict"], found["rule_says"], found["proves"]) == ("SCREENED", "CONFIRMED", [])
    assert verdict_line.format_verdict(found) == "SCREENED (the rule says CONFIRMED; n = 12 decides nothing)"
    wrong = judged(tmp_path / "w", full(lambda lane: {}), problems=12)
    assert verdict_line.format_verdict(wrong) == "SCREENED (the rule says INCONCLUSIVE; n = 12 decides nothing)"


def test_a_study_of_two_models_confirms_for_no_one_alone(tmp_path):
    found = judged(tmp_path, models=["a", "b"], at_least=4)
    assert (found["verdict"], found["label"]) == ("CONFIRMED", "confirmatory-grade")
    assert verdict_line.format_single_model(found) == ""


# ---------------------------------------------------------------- lanes that fail in one arm alone


@pytest.mark.parametrize("missing", ["inconclusive", "wrong"])
def test_lanes_that_one_arm_alone_loses_are_named_whatever_missing_says(tmp_path, missing):
    def record(lane):
        return study.FAILED if lane[3] == "crystal" and number(lane) in (3, 7) else won(lane)

    found = judged(tmp_path, record, missing=missing)
    place = {"model": "tiny", "task": "needle", "budget": "0.5", "arm": "crystal"}
    assert found["missing"]["uneven"] == [place | {"problems": 2, "of": 200}]
    (said,) = (
        one
        for one in found["does_not_prove"]
        if one.startswith("That lanes are missing at random: some ended without a")
    )
    assert said.endswith("crystal in 2 of 200 problems (tiny needle at 0.5).")


@pytest.mark.parametrize(
    ("arms", "named"),
    [
        (("full", "crystal", "snapkv", "h2o"), []),  # a problem that no arm answers tells nothing of an arm
        (("crystal", "snapkv", "h2o"), ["crystal", "snapkv", "h2o"]),  # the full cache does answer it
        (("full",), ["full"]),
        (("snapkv", "h2o"), ["snapkv", "h2o"]),
    ],
)
def test_an_arm_loses_a_problem_alone_where_some_other_one_has_it(tmp_path, arms, named):
    def record(lane):
        return study.FAILED if lane[3] in arms and number(lane) == 3 else won(lane)

    assert [one["arm"] for one in judged(tmp_path, record)["missing"]["uneven"]] == named
