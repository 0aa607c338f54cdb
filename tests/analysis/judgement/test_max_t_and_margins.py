"""A study judged by max-t, and studies judged by a rule with a margin."""

import numpy as np
import pytest
import study
from scipy import stats

from analysis.judge import judge
from analysis.stats.max_t import max_t
from analysis.stats.paired_tests import student_t

RIGHT = {"grade": "correct"}
EXCLUDED = study.FAILED | {"state": "excluded", "reason": "prompt_tokens_above", "prompt_tokens": 900}


def answers(lane: study.Lane) -> bool:
    """crystal solves two problems of three; snapkv one of two, h2o three of four; other ones elsewhere."""
    model, _, _, arm, _, problem = lane
    number = int(problem[1:]) + (model == "llama")
    return number % {"crystal": 3, "snapkv": 2, "h2o": 4}.get(arm, 1) > 0


def difference(model: str, other: str, problems: range) -> np.ndarray:
    lanes = [[(model, "needle", "0.5", arm, 0, f"p{number:03d}") for arm in ("crystal", other)] for number in problems]
    return np.array([[1.0 * answers(own) - answers(compared)] * 2 for own, compared in lanes])


def together(folder, record=lambda lane: RIGHT if answers(lane) else {}, models=("tiny", "llama"), **more):
    content = study.content(method="max-t", draws=2_000) | {"models": [*models]} | more
    return judge(study.write(folder / "small", content, 40, record))


def expected(groups: list[list[np.ndarray]]) -> list[tuple[str, str, str]]:
    found = max_t(groups, draws=2_000, rng=np.random.default_rng([7, 0]))
    return [tuple(f"{value + 0:.6f}" for value in (one.low, one.high, one.p)) for group in found for one in group]


def printed(judged) -> list[tuple[str, str, str]]:
    keys = ("low_simultaneous", "high_simultaneous", "p_adjusted")
    return [tuple(contrast[key] for key in keys) for contrast in judged["contrasts"]]


def test_all_contrasts_of_a_task_are_flipped_together_in_the_documented_stream(tmp_path):
    judged = together(tmp_path)
    group = [difference(model, arm, range(40)) for model in ("tiny", "llama") for arm in ("snapkv", "h2o")]
    assert printed(judged) == expected([group])
    for one, alone in zip(judged["contrasts"], map(student_t, group), strict=True):
        assert float(one["p"]) == float(one["p_t"]) == pytest.approx(alone.p, abs=1e-6)
        assert float(one["low"]) <= alone.low + 1e-6  # moved out where the exact test reaches further
        assert float(one["high"]) >= alone.high - 1e-6


def test_a_model_that_lost_other_problems_is_a_group_of_its_own(tmp_path):
    def record(lane: study.Lane) -> dict:
        if lane[0] == "llama" and lane[5] in ("p003", "p004"):
            return EXCLUDED
        return RIGHT if answers(lane) else {}

    judged = together(tmp_path, record, exclude={"prompt_tokens_above": 600})
    kept = [number for number in range(40) if number not in (3, 4)]
    groups = [
        [difference("tiny", arm, range(40)) for arm in ("snapkv", "h2o")],
        [difference("llama", arm, kept) for arm in ("snapkv", "h2o")],
    ]
    assert [contrast["n"] for contrast in judged["contrasts"]] == [40, 40, 38, 38]
    assert printed(judged) == expected(groups)


def test_a_contrast_is_won_by_the_adjusted_p_of_max_t(tmp_path):
    def record(lane: study.Lane) -> dict:
        """crystal alone solves the first seven problems, and the two others fail them alike."""
        return RIGHT if lane[3] == "crystal" and lane[5] < "p007" else {}

    judged = together(tmp_path, record, models=("tiny",))
    # The two contrasts are one and the same: flips leave 2 of 2^7 as extreme, and Bonferroni twice as many.
    for contrast in judged["contrasts"]:
        assert float(contrast["p_adjusted"]) == pytest.approx(2 / 2**7, abs=0.012)
        assert contrast["better"]
    assert judged["rule_says"] == "CONFIRMED"
    assert "max-t, level 0.05, simultaneous" in study.proves(judged)[0]


def test_accuracy_interpolated_beside_max_t_has_students_interval(tmp_path):
    def record(lane: study.Lane) -> dict:
        held = {"0.25": 200, "0.5": 300}[lane[2]] if lane[3] in ("snapkv", "h2o") else 256
        return (RIGHT if answers(lane) else {}) | {"cache": study.cache(held)}

    content = study.content(method="max-t", draws=1_000, memory="slots") | {"budgets": ["0.25", "0.5"]}
    found = [judge(study.write(tmp_path / "a", content, 20, record))]
    content["decision"]["method"] = "t"
    found.append(judge(study.write(tmp_path / "b", content, 20, record)))
    together, alone = ([contrast["isocache"] for contrast in each["contrasts"]] for each in found)
    assert together == alone
    assert {one["why"] for one in together} == {"interpolated"}


# ---------------------------------------------------------------- a margin


def lossless(folder, rule: str, record, problems: int = 100, margin: str = "0.05", **more):
    decision = {"rule": rule, "method": "t", "margin": margin} | more
    content = study.content(**decision)
    del content["decision"]["at_least"]
    return judge(study.write(folder / "small", content, problems, record))


def solved(arm: str, below: int):
    """All is solved but by `arm`, which fails the first problems."""
    return lambda lane: {} if lane[3] == arm and int(lane[5][1:]) < below else RIGHT


@pytest.mark.parametrize(
    ("arm", "below", "equivalent", "non_inferior"),
    [
        ("crystal", 0, "CONFIRMED", "CONFIRMED"),
        ("crystal", 1, "CONFIRMED", "CONFIRMED"),  # 0.037 = chance of at most one of 100 at 5 %
        ("crystal", 2, "INCONCLUSIVE", "INCONCLUSIVE"),  # 0.118
        ("crystal", 40, "REFUTED", "REFUTED"),
        ("snapkv", 2, "INCONCLUSIVE", "CONFIRMED"),
        ("snapkv", 40, "REFUTED", "CONFIRMED"),
    ],
)
def test_a_margin_is_judged_on_its_side_or_on_both(tmp_path, arm, below, equivalent, non_inferior):
    for rule, verdict in (("equivalent", equivalent), ("non_inferior", non_inferior)):
        judged = lossless(tmp_path / rule, rule, solved(arm, below))
        assert judged["rule_says"] == verdict
        assert judged["margin"] == "0.050000"
        lost = judged["contrasts"][0]["p_worse" if arm == "crystal" else "p_better"]
        chance = stats.binom.cdf(below, 100, 0.05)
        assert float(lost) == pytest.approx(chance if below < 10 else 1.0, abs=1e-6)


def test_limits_about_a_margin_are_one_sided_at_the_corrected_level(tmp_path):
    judged = lossless(tmp_path, "non_inferior", solved("crystal", 40))
    values = np.repeat([-1.0, 0.0], [40, 60])
    for contrast in judged["contrasts"]:
        interval = stats.ttest_1samp(values, 0).confidence_interval(1 - 2 * 0.05 / 2)
        assert [float(contrast["low_margin"]), float(contrast["high_margin"])] == pytest.approx(interval, abs=1e-6)


def test_unmatched_memory_neither_confirms_nor_refutes_a_margin(tmp_path):
    def uneven(below: int):
        graded = solved("crystal", below)
        return lambda lane: graded(lane) | ({"cache": study.cache(300)} if lane[3] != "crystal" else {})

    for below in (0, 40):
        judged = lossless(tmp_path / str(below), "non_inferior", uneven(below))
        assert [contrast["matched"] for contrast in judged["contrasts"]] == [False, False]
        assert judged["rule_says"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("rule", "arm", "below", "says"),
    [
        ("equivalent", "crystal", 0, "crystal differed by less than 0.05 accuracy points in each of 2"),
        ("non_inferior", "crystal", 0, "crystal was worse by less than 0.05 accuracy points in each of 2"),
        ("equivalent", "crystal", 40, "crystal was worse by more than 0.05 accuracy points in 2 of 2"),
        ("equivalent", "snapkv", 40, "crystal was better by more than 0.05 accuracy points in 1 of 2"),
    ],
)
def test_what_a_margin_proves_is_said_with_it(tmp_path, rule, arm, below, says):
    judged = lossless(tmp_path, rule, solved(arm, below))
    assert [one[: len(says)] for one in study.proves(judged)] == [says]


def test_a_study_without_a_margin_or_max_t_has_neither_field(tmp_path):
    judged = judge(study.write(tmp_path / "small", study.content(), 12, lambda lane: {}))
    assert "margin" not in judged
    assert not {"p_adjusted", "p_worse", "low_margin"} & judged["contrasts"][0].keys()
