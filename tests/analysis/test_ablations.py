import json
import math
from functools import partial
from pathlib import Path
from statistics import NormalDist

import pytest
import study
from looped import looped
from statsmodels.stats.power import zt_ind_solve_power

from analysis import ablations, judge
from analysis.ablations import Claim, claim_outcome, judge_claims
from analysis.judgement.untrusted_files import RecordError
from analysis.stats.comparison import Comparison
from analysis.stats.sample_size import problems_needed
from protocol.formats.settings_difference import differing_settings

SHIPPED = Path(__file__).resolve().parents[2] / "registrations"

TREE = {
    "scoring": "policies.crystal.scoring.TrunkScoring()",
    "scoring.max_trunk": "32",
    "scoring.impact": "policies.crystal.impact.Impact()",
    "scoring.impact.rarity": "'logarithmic'",
    "selection": "policies.selection.TopK()",
    "routing": "policies.routing.Shared()",
}
DIVERSE = {"selection": "policies.selection.Diverse()", "selection.weight": "0.5"}


def content(*arms, claims=None, alpha="0.05", **decision):
    """`crystal` against these arms, one seed, one cell; level is alpha over the number of claims."""
    written = study.content(subject="crystal", against=list(arms), alpha=alpha, method="sign-flip", **decision)
    written["arms"] = {name: {"policy": name} for name in ("full", "crystal", *arms)}
    written["seeds"] = [0]
    return written | ({} if claims is None else {"claims": claims})


def finished(folder, content, problems, changes, **lock):
    """A judged study. changes: of a lane, what it changes in a wrong answer."""
    study.write(folder, content, problems, changes, **lock)
    verdict = {"judged": judge.judge(folder)}
    (folder / "verdict.json").write_bytes(study.canonical(verdict) + b"\n")
    return folder


def right(**solved):
    """By arm, the problems that it solves: those with these numbers."""
    names = {arm.replace("_", "-"): numbers for arm, numbers in solved.items()}

    def change(lane):
        return {"grade": "correct"} if int(lane[5][1:]) in names.get(lane[3], ()) else {}

    return change


def claim(says, margin=None):
    return Claim("one", "arm", "parent", says, margin)


@pytest.mark.parametrize(
    ("says", "margin", "arm", "parent", "expected"),
    [
        ("worse", None, 40, 20, "undecided"),  # of 210, of which a guess gets 52
        ("same", "0.1", 20, 20, "undecided"),
        ("same", "0.1", 200, 20, "undecided"),
        ("same", "0.1", 200, 200, "supported"),
        ("worse", None, 20, 200, "supported"),
        ("better", None, 200, 20, "supported"),  # above a guess, whatever the parent is
        ("better", None, 20, 0, "undecided"),  # significant, and both guess
    ],
)
def test_a_claim_about_arms_that_guess_is_undecided(tmp_path, says, margin, arm, parent, expected):
    claims = {"c": {"arm": "arm", "says": says} | ({"margin": margin} if margin else {})}
    solved = right(arm=range(arm), crystal=range(parent))
    lock = {"judging": 3, "chance": {"needle": "0.25"}}
    found = judge_claims(finished(tmp_path / "s", content("arm", claims=claims), 210, solved, **lock))["claims"][0]
    assert found["outcome"] == expected
    assert (found["p"] == 1.0 and "below the floor" in found["why"]) == (expected == "undecided")


# ---------------------------------------------------------------- structure


def test_a_replaced_part_is_one_difference_with_its_settings():
    found = differing_settings(TREE | DIVERSE, TREE)
    assert found == {"selection": ("TopK()", "Diverse(weight=0.5)")}


def test_a_changed_setting_is_named_by_its_path():
    assert differing_settings(TREE | {"scoring.impact.rarity": "'none'"}, TREE) == {
        "scoring.impact.rarity": ("'logarithmic'", "'none'")
    }


def test_a_part_that_one_policy_lacks_is_told():
    less = {path: text for path, text in TREE.items() if not path.startswith("scoring.impact")}
    whole = "Impact(rarity='logarithmic')"
    assert differing_settings(less, TREE) == {"scoring.impact": (whole, None)}
    assert differing_settings(TREE, less) == {"scoring.impact": (None, whole)}


def test_equal_policies_do_not_differ():
    assert differing_settings(TREE, dict(TREE)) == {}


def test_an_ablation_differs_from_the_subject_in_one_component(tmp_path):
    policies = {
        "full": TREE,
        "crystal": TREE,
        "plain": TREE | {"scoring.impact.rarity": "'none'", "scoring.max_trunk": "1"},  # both of its scoring
        "other": TREE | DIVERSE | {"scoring.max_trunk": "1"},
        "twin": TREE,
    }
    arms = content("plain", "other", "twin")
    found = judge_claims(finished(tmp_path / "s", arms, 10, right(crystal=range(3)), policies=policies))
    assert [one["arm"] for one in found["claims"]] == ["plain"]
    assert found["claims"][0]["structure"].keys() == {"scoring.impact.rarity", "scoring.max_trunk"}
    assert found["others"] == ["other", "twin"]
    assert found["structure"] == "locked"


def test_a_lock_without_settings_says_so_and_names_tell_the_ablations(tmp_path):
    arms = content("crystal-still", "crystal_x", "crystalline", "h2o")
    found = judge_claims(finished(tmp_path / "s", arms, 10, right(crystal=range(3))))
    assert found["structure"] == "the lock of this study does not contain it"
    assert [one["arm"] for one in found["claims"]] == ["crystal-still", "crystal_x"]
    assert found["claims"][0]["structure"] is None


def test_a_swept_subject_is_the_winner(tmp_path):
    written = content("base")
    written["arms"] = {name: {"policy": name} for name in ("low", "high", "base", "crystal")}
    written["sweep"] = {"name": "crystal", "candidates": ["low", "high"], "baseline": "base"}
    policies = {"low": TREE | DIVERSE | {"scoring.max_trunk": "1"}, "high": TREE | DIVERSE, "base": TREE}
    folder = study.write(tmp_path / "s", written, 10, lambda lane: {}, policies=policies)
    judged = {"verdict": "INCONCLUSIVE", "selected": {"arm": "high", "policy": "high"}}
    (folder / "verdict.json").write_bytes(study.canonical({"judged": judged}) + b"\n")
    (row,) = [one for one in judge_claims(folder)["claims"] if one["arm"] == "base"]
    assert row["structure"] == {"selection": {"parent": "Diverse(weight=0.5)", "arm": "TopK()"}}


# ---------------------------------------------------------------- outcomes


@looped(
    ("says", "p", "low", "high", "expected"),
    [
        ("worse", 0.01, -0.2, 0.01, "supported"),  # at the level of a claim, whatever the wider interval
        ("worse", 0.02, -0.2, 0.0, "undecided"),
        ("worse", 1.0, 0.1, 0.2, "contradicted"),
        ("better", 0.01, 0.1, 0.2, "supported"),
        ("better", 0.011, -0.1, 0.2, "undecided"),
        ("better", 1.0, -0.2, -0.1, "contradicted"),
        ("better", 1.0, -0.2, 0.0, "undecided"),
    ],
)
def test_a_claim_of_a_sign_is_supported_by_p_and_contradicted_by_the_interval(says, p, low, high, expected):
    assert claim_outcome(claim(says), p, 0.01, Comparison((low + high) / 2, low, high, 0.5)) == expected


@looped(
    ("p", "two_sided", "expected"),
    [
        (0.01, (-0.06, 0.03), "supported"),  # both one-sided tests passed
        (0.02, (-0.06, 0.03), "undecided"),
        (0.9, (0.051, 0.2), "contradicted"),
        (0.9, (-0.2, -0.051), "contradicted"),
        (0.9, (0.05, 0.2), "undecided"),  # a limit on the margin is not beyond it
    ],
)
def test_a_claim_of_equality_is_contradicted_beyond_the_margin(p, two_sided, expected):
    mean = sum(two_sided) / 2
    assert claim_outcome(claim("same", 0.05), p, 0.01, Comparison(mean, *two_sided, 0.5)) == expected


def two_tasks(folder, claims, solved, **decision):
    """Two tasks of 12 problems; solved[task, arm]: numbers of the problems that it solves."""
    written = content(*dict.fromkeys(one["arm"] for one in claims.values()), claims=claims, **decision)
    written["tasks"] += [{"name": "chain", "query": "inside", "max_new_tokens": 12}]

    def change(lane):
        return {"grade": "correct"} if int(lane[5][1:]) in solved.get((lane[1], lane[3]), ()) else {}

    return judge_claims(finished(folder / "s", written, 12, change))


def test_the_claims_are_a_family_and_the_cells_of_a_claim_are_not(tmp_path):
    # All 2^12 flips are counted, so that p of g losses without a gain is 2 / 2^g. Two claims of two cells: a
    # cell supports at .05 / 2 = .025 and contradicts at .05 / 4 = .0125.
    claims = {name: {"arm": arm, "says": "worse"} for name, arm in (("one", "h2o"), ("two", "snapkv"))}
    solved = {
        ("needle", "crystal"): range(9),
        ("chain", "crystal"): range(9),
        ("needle", "h2o"): range(7, 9),  # 7 losses: p = .015625
        ("chain", "h2o"): range(8, 9),  # 8 losses: p = .0078125
        ("needle", "snapkv"): (),  # 9 losses: p = .00390625
        ("chain", "snapkv"): range(6, 9),  # 6 losses: p = .03125
    }
    found = two_tasks(tmp_path, claims, solved)
    one, two = found["claims"]
    assert (found["claim_alpha"], found["corrected_alpha"]) == (0.025, 0.0125)
    # .015625 is above alpha over the four contrasts, and supports its claim all the same.
    assert [cell.effect.p for cell in one["cells"]] == [2 / 2**7, 2 / 2**8]
    assert (one["outcome"], two["outcome"]) == ("supported", "undecided")
    assert (one["p"], two["p"]) == (2 / 2**7, 2 / 2**6)
    assert (one["p_bonferroni"], two["p_bonferroni"]) == (4 / 2**7, 4 / 2**6)
    assert (one["p_holm"], two["p_holm"]) == (4 / 2**7, 4 / 2**7)  # the smaller doubled; the larger no less


@pytest.mark.parametrize(("gained", "says"), [(7, "undecided"), (8, "contradicted")])
def test_one_cell_contradicts_only_at_the_level_of_all_contrasts(tmp_path, gained, says):
    # 2 / 2^7 = .0156 and 2 / 2^8 = .0078 against .0125.
    claims = {name: {"arm": arm, "says": "worse"} for name, arm in (("one", "h2o"), ("two", "snapkv"))}
    one, _ = two_tasks(tmp_path, claims, {("needle", "h2o"): range(gained)})["claims"]
    assert (one["outcome"], one["p"], one["p_holm"]) == (says, 1.0, 1.0)


def test_losses_that_the_exact_test_finds_support_the_implied_claim(tmp_path):
    # 40 problems: crystal-a loses ten and gains none, crystal-b gains ten, crystal-c one each way. Ten of ten
    # have p = 2 / 2^10 = 0.00195; three contrasts, so 0.00586 corrected.
    changes = right(crystal=range(10, 30), crystal_a=range(20, 30), crystal_b=range(40), crystal_c=range(11, 31))
    found = judge_claims(finished(tmp_path / "s", content("crystal-a", "crystal-b", "crystal-c"), 40, changes))
    by_arm = {one["arm"]: one for one in found["claims"]}
    assert found["claims_are"] == "implied"
    assert [by_arm[f"crystal-{x}"]["outcome"] for x in "abc"] == ["supported", "contradicted", "undecided"]
    effect = by_arm["crystal-a"]["cells"][0].effect
    assert effect.difference == pytest.approx(-0.25)
    assert effect.p == pytest.approx(2 / 2**10, rel=0.5)  # of 10,000 random signs
    assert effect.p_corrected == pytest.approx(3 * effect.p)
    assert found["family"] == 3


def test_one_contradicted_cell_contradicts_and_one_undecided_leaves_open(tmp_path):
    written = content("crystal-a", "crystal-b")
    written["tasks"] += [{"name": "chain", "query": "inside", "max_new_tokens": 12}]

    def change(lane):
        solved = {
            ("needle", "crystal"): 15,
            ("needle", "crystal-a"): 0,
            ("needle", "crystal-b"): 0,
            ("chain", "crystal-a"): 15,
        }
        return {"grade": "correct"} if int(lane[5][1:]) < solved.get((lane[1], lane[3]), 0) else {}

    found = judge_claims(finished(tmp_path / "s", written, 40, change))
    by_arm = {one["arm"]: one for one in found["claims"]}
    assert [cell.outcome for cell in by_arm["crystal-a"]["cells"]] == ["supported", "contradicted"]
    assert by_arm["crystal-a"]["outcome"] == "contradicted"
    assert [cell.outcome for cell in by_arm["crystal-b"]["cells"]] == ["supported", "undecided"]
    assert by_arm["crystal-b"]["outcome"] == "undecided"


def test_unmatched_memory_leaves_a_claim_undecided(tmp_path):
    def change(lane):
        solved = lane[3] == "crystal" and int(lane[5][1:]) < 20
        return {"grade": "correct"} if solved else {"cache": study.cache(250.0)} if "-" in lane[3] else {}

    (row,) = judge_claims(finished(tmp_path / "s", content("crystal-a"), 40, change))["claims"]
    assert (row["outcome"], row["needs"], row["why"]) == ("undecided", None, "memory did not match")


def test_a_parent_that_holds_a_little_more_is_charged_for_it(tmp_path):
    # 256 slots against 251.5 are 1.8 %, which may buy 3.5 points; six of 300 problems are 2 points, p = 1/32.
    def change(lane, slots=251.5, lost=6):
        solved = int(lane[5][1:]) < (60 - lost if "-" in lane[3] else 60)
        held = {"cache": study.cache(slots)} if "-" in lane[3] else {}
        return held | ({"grade": "correct"} if solved else {})

    def found(name, **given):
        folder = finished(tmp_path / name, content("crystal-a"), 300, partial(change, **given))
        return judge_claims(folder)["claims"][0]

    assert found("equal", slots=256.0)["outcome"] == "supported"
    assert found("bought")["outcome"] == "undecided"
    assert found("earned", lost=30)["outcome"] == "supported"
    ((*_, effect, _, _, _),) = found("again")["cells"]
    assert effect.p == 1


def test_a_lane_without_a_grade_leaves_a_claim_undecided(tmp_path):
    def change(lane):
        if lane[3] == "crystal-a" and lane[5] == "p039":
            return study.FAILED
        return {"grade": "correct"} if lane[3] == "crystal" else {}

    (row,) = judge_claims(finished(tmp_path / "s", content("crystal-a"), 40, change))["claims"]
    assert (row["outcome"], row["why"]) == ("undecided", "lanes without a grade")


def test_one_problem_decides_nothing(tmp_path):
    (row,) = judge_claims(finished(tmp_path / "s", content("crystal-a"), 1, right()))["claims"]
    assert (row["outcome"], row["why"], row["cells"][0].effect) == ("undecided", "too few problems", None)


# ---------------------------------------------------------------- registered claims


def test_registered_claims_replace_the_implied_one(tmp_path):
    claims = {
        "parts-help": {"arm": "h2o", "says": "worse"},
        "siblings": {"arm": "h2o", "parent": "snapkv", "says": "better"},
    }
    written = content("h2o", "snapkv", claims=claims)
    changes = right(crystal=range(30), h2o=range(15))
    found = judge_claims(finished(tmp_path / "s", written, 40, changes))
    assert found["claims_are"] == "registered"
    assert [(one["name"], one["parent"], one["outcome"]) for one in found["claims"]] == [
        ("parts-help", "crystal", "supported"),
        ("siblings", "snapkv", "supported"),
    ]


@pytest.mark.parametrize(("problems", "expected", "needs"), [(60, "supported", None), (20, "undecided", 29)])
def test_equality_without_any_difference_follows_the_rule_of_three(tmp_path, problems, expected, needs):
    # 1 - 0.05^(1/60) = 0.049 and 1 - 0.05^(1/20) = 0.139 of other problems stay possible; 29 problems bring
    # that below a tenth: 0.9^29 = 0.0471, 0.9^28 = 0.0523.
    claims = {"lossless": {"arm": "h2o", "says": "same", "margin": "0.1"}}
    folder = finished(tmp_path / "s", content("h2o", claims=claims), problems, right())
    (row,) = judge_claims(folder)["claims"]
    assert (row["outcome"], row["needs"]) == (expected, needs)


@pytest.mark.parametrize(
    "wrong",
    [{"arm": "h2o", "says": "equal"}, {"arm": "h2o", "says": "same"}, {"arm": "h2o", "says": "worse", "margin": "0.1"}],
)
def test_a_claim_that_says_something_else_is_refused(tmp_path, wrong):
    folder = finished(tmp_path / "s", content("h2o", claims={"odd": wrong}), 10, right())
    with pytest.raises(RecordError, match=r"claims\.odd\.says"):
        judge_claims(folder)


# ---------------------------------------------------------------- how many problems


@pytest.mark.parametrize(("mean", "spread", "level"), [(0.05, 0.4, 0.05), (-0.02, 0.3, 0.01), (0.01, 1, 0.004)])
def test_problems_for_a_sign_are_those_of_statsmodels(mean, spread, level):
    expected = zt_ind_solve_power(effect_size=abs(mean) / spread, alpha=level, power=0.8, ratio=0)
    assert problems_needed(mean, spread, level) == math.ceil(expected)


@looped("mean", [0.0, 0.01, -0.03, 0.049])
def test_problems_for_equality_have_the_power_and_one_less_does_not(mean):
    spread, level, margin = 0.4, 0.01, 0.05

    def power(n):
        error = spread / math.sqrt(n)
        reach = margin - NormalDist().inv_cdf(1 - level) * error
        estimate = NormalDist(mean, error)
        return estimate.cdf(reach) - estimate.cdf(-reach)

    n = problems_needed(mean, spread, level, margin)
    assert power(n) >= 0.8 > power(n - 1)


def test_problems_for_a_difference_beyond_the_margin_are_those_of_what_lies_beyond():
    assert problems_needed(0.08, 0.4, 0.05, 0.05) == problems_needed(0.03, 0.4, 0.05)


@pytest.mark.parametrize(("mean", "spread", "margin"), [(0, 0.4, None), (0.05, 0.4, 0.05), (0.1, 0, None)])
def test_no_number_of_problems_is_made_up(mean, spread, margin):
    assert problems_needed(mean, spread, 0.05, margin) is None


# ---------------------------------------------------------------- shipped, and the command


def test_a_shipped_study_has_the_numbers_of_its_verdict():
    judged = json.loads((SHIPPED / "crystal-ablations" / "verdict.json").read_bytes())["judged"]
    found = judge_claims(SHIPPED / "crystal-ablations")
    cells = {(one["arm"], cell.task): cell.effect for one in found["claims"] for cell in one["cells"]}
    assert len(cells) == len(judged["contrasts"]) == found["family"]
    for row in judged["contrasts"]:
        effect = cells[row["against"], row["task"]]
        ends = (-float(row["high_simultaneous"]), -float(row["low_simultaneous"]))
        # Today's ends reach at least as far as those of the code that was locked, and leave zero out alike.
        assert effect.low <= ends[0] + 2e-6
        assert effect.high >= ends[1] - 2e-6
        assert (effect.low > 0, effect.high < 0) == (ends[0] > 0, ends[1] < 0)
        assert effect.p == pytest.approx(float(row["p"]), abs=2e-6)
    outcomes = {one["arm"]: one["outcome"] for one in found["claims"]}
    assert outcomes == {
        "uniform": "supported",
        "token-level": "supported",
        "d-only": "supported",
        "impact-only": "contradicted",
        "no-rarity": "undecided",
        "average": "undecided",
        "product": "undecided",
    }


def test_the_command_prints_text_and_canonical_json(tmp_path, capsysbinary):
    folder = finished(tmp_path / "s", content("crystal-a"), 40, right(crystal=range(20), crystal_a=range(9)))
    assert ablations.main([str(folder)]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "crystal-a is worse than crystal: supported" in text
    assert "This is exploratory" in text
    assert ablations.main([str(folder), "--json"]) == 0
    printed = capsysbinary.readouterr().out
    assert printed == study.canonical(json.loads(printed)) + b"\n"
    assert json.loads(printed)["claims"][0]["cells"][0]["effect"]["difference"] == "-0.275000"


def test_a_claim_of_equality_and_a_structure_are_told_in_words(tmp_path, capsys):
    claims = {"lossless": {"arm": "h2o", "says": "same", "margin": "0.1"}}
    policies = {"full": TREE, "crystal": TREE, "h2o": TREE | DIVERSE}
    folder = finished(tmp_path / "s", content("h2o", claims=claims), 20, right(), policies=policies)
    assert ablations.main([str(folder)]) == 0
    text = capsys.readouterr().out
    assert "h2o against crystal: selection: TopK() -> Diverse(weight=0.5)" in text
    assert "h2o is the same as crystal within 10: undecided (needs n = 29)" in text


def test_a_study_without_a_verdict_is_refused_in_one_line(tmp_path, capsys):
    folder = study.write(tmp_path / "s", content("crystal-a"), 4, lambda lane: {})
    assert ablations.main([str(folder)]) == 2
    refusal = capsys.readouterr().err
    assert refusal.count("\n") == 1
    assert "has no verdict" in refusal


# ---------------------------------------------------------------- what is no finding


def same(folder, gate, problems=210):
    written = content("plain", claims={"same": {"arm": "plain", "says": "same", "margin": "0.1"}})
    written["gate"] = gate
    return finished(folder, written, problems, right(full=range(10)))


def test_a_claim_where_the_full_cache_cannot_do_the_task_is_undecided(tmp_path):
    # No arm that evicts answers anything: they are the same.
    (one,) = judge_claims(same(tmp_path / "able", {"accuracy": "0.04", "truncated": "0.5"}))["claims"]
    assert one["outcome"] == "supported"
    found = judge_claims(same(tmp_path / "unable", {"accuracy": "0.5", "truncated": "0.5"}))
    (one,) = found["claims"]
    assert (one["outcome"], one["why"], one["p"]) == ("undecided", "the full cache fails its gate", 1.0)
    assert found["said"].endswith("uninformative: the full cache answers 10 of 210 (gate: 0.50)")


def test_claims_of_a_screening_are_called_that(tmp_path, capsys):
    gate = {"accuracy": "0.04", "truncated": "0.5"}
    for problems, said in ((210, False), (120, True)):
        ablations.main([str(same(tmp_path / str(problems), gate, problems))])
        assert ("Screening only: with 120 problems" in capsys.readouterr().out) == said


# ---------------------------------------------------------------- scores and clusters


def test_a_claim_about_scores_in_clusters_is_tested_on_clusters(tmp_path):
    """Every problem five times in its cluster: what is said of it is what 60 problems say."""
    says = {"one": {"arm": "plain", "says": "worse"}, "two": {"arm": "plain", "says": "same", "margin": "0.2"}}
    arms = content("plain", claims=says) | {}
    arms["decision"]["method"] = "t"

    def scores(copies):
        def change(lane):
            number = int(lane[5][1:]) // copies
            score = (number * 37 % 101) / 101 - 0.05 * (lane[3] == "plain") * (number % 3)
            return {"grade": "scored", "score": f"{max(score, 0):.6f}"}

        return change

    alone = judge_claims(finished(tmp_path / "s", arms, 60, scores(1)))
    ids = [f"p{number:03d}" for number in range(300)]
    named = {problem: f"c{place // 5}" for place, problem in enumerate(ids)}
    items = {task: item | {"clusters": named} for task, item in study.items(arms, ids).items()}
    copied = judge_claims(finished(tmp_path / "again", arms, 300, scores(5), items=items))
    for one, other in zip(alone["claims"], copied["claims"], strict=True):
        assert other["p"] == pytest.approx(one["p"])
        assert other["outcome"] == one["outcome"]
        (own,), (its,) = one["cells"], other["cells"]
        assert its.effect == pytest.approx(own.effect)
        assert (own.n, its.n, its.needs) == (60, 300, own.needs)
    assert alone["claims"][0]["outcome"] == "supported"
