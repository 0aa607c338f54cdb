"""Twelve problems, two seeds, answers chosen so that every number below is a hand count."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import study
from looped import looped
from scipy import stats

from analysis import judge as judging
from analysis.judge import judge
from analysis.judgement.study_files import read_study
from analysis.judgement.untrusted_files import RecordError
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import compare
from protocol.formats.json_text import dumps

RIGHT = {"grade": "correct"}
# arm -> for each seed the problems that it solves
SOLVED = {
    "full": ({*range(12)}, {*range(12)}),
    "crystal": ({*range(9)}, {*range(7)}),
    "snapkv": ({11}, {11}),
    "h2o": ({*range(1, 9), 9}, {*range(7), 9}),
}
SLOTS = {"full": 512, "crystal": 256, "snapkv": 255, "h2o": 256}


def answers(lane: study.Lane) -> dict:
    *_, arm, seed, problem = lane
    solved = int(problem[1:]) in SOLVED[arm][seed]
    return (RIGHT if solved else {}) | {"cache": study.cache(SLOTS[arm])}


def except_for(lane: study.Lane, change: dict | None):
    """The answers above, but `change` in one lane; None: it never ran."""
    return lambda one: (None if change is None else answers(one) | change) if one == lane else answers(one)


LANE = ("tiny", "needle", "0.5", "h2o", 1, "p009")


def write(folder: Path, record=answers, problems: int = 12, **decision) -> Path:
    return study.write(folder / "small", study.content(**decision), problems, record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def judged(folder) -> dict:
    return judge(folder)


# ---------------------------------------------------------------- numbers by hand


def test_the_contrasts_are_those_counted_by_hand(judged):
    against_snapkv, against_h2o = judged["contrasts"]
    # Seven problems won by both seeds, two by one seed, one lost by both: (7 + 2/2 - 1) / 12.
    assert against_snapkv["difference"] == "0.583333"
    assert (against_snapkv["gains"], against_snapkv["losses"], against_snapkv["n"]) == (16, 2, 12)
    # Signs of eight 1 and two 1/2 summing to 7 or more: 1 + 8 + 2 + 1 of 2^10, both sides.
    assert against_snapkv["p"] == against_snapkv["p_sign_flip"] == f"{24 / 1024:.6f}"
    assert against_snapkv["p_holm"] == f"{48 / 1024:.6f}"
    assert against_snapkv["cache_ratio"] == against_snapkv["cache_worst"] == f"{256 / 255:.6f}"
    # Half a problem won, one lost.
    assert against_h2o["difference"] == f"{-0.5 / 12:.6f}"
    assert (against_h2o["gains"], against_h2o["losses"], against_h2o["p"]) == (1, 2, "1.000000")
    assert against_h2o["cache_ratio"] == "1.000000"
    flags = [(contrast["better"], contrast["worse"], contrast["matched"]) for contrast in judged["contrasts"]]
    assert flags == [(True, False, True), (False, False, True)]
    assert [contrast["against"] for contrast in judged["contrasts"]] == ["snapkv", "h2o"]
    assert {contrast["seeds"] for contrast in judged["contrasts"]} == {2}


def test_the_family_is_corrected_by_bonferroni(judged):
    assert (judged["family"], judged["alpha"], judged["corrected_alpha"]) == (2, "0.050000", "0.025000")
    for contrast in judged["contrasts"]:
        assert float(contrast["low_simultaneous"]) <= float(contrast["low"]) <= float(contrast["difference"])
        assert float(contrast["difference"]) <= float(contrast["high"]) <= float(contrast["high_simultaneous"])
    assert float(judged["contrasts"][0]["low_simultaneous"]) > 0  # as p is below 0.025


def test_the_simultaneous_interval_has_the_coverage_of_the_corrected_level(tmp_path):
    one = judge(write(tmp_path, method="t"))["contrasts"][0]
    theirs = stats.ttest_1samp([1] * 7 + [0.5] * 2 + [0] * 2 + [-1], 0)
    for level, ends in ((0.95, ("low", "high")), (0.975, ("low_simultaneous", "high_simultaneous"))):
        interval = theirs.confidence_interval(level)
        # 256 slots against 255: the interval at equal memory reaches down by what 1 in 255 may have bought,
        # twice that.
        bought = 2 / 255 if level == 0.975 else 0
        low, high = (float(one[end]) for end in ends)
        assert high == pytest.approx(min(1.0, interval.high), abs=1e-6)
        # Moved out: more losses than the one of 12 may have been missed.
        assert 0 < low < interval.low - bought


def test_holm_stands_beside_bonferroni(tmp_path):
    def record(lane):
        solved = {"crystal": 8, "h2o": 2}.get(lane[3], 0)
        return RIGHT if int(lane[5][1:]) < solved else {}

    # Eight gains and six gains without a loss: p = 2/256 and 2/64; Holm doubles the smaller one alone.
    holm = [contrast["p_holm"] for contrast in judge(write(tmp_path, record))["contrasts"]]
    assert holm == [f"{4 / 256:.6f}", f"{2 / 64:.6f}"]


def test_thirds_that_cancel_are_printed_as_zero_without_a_sign(tmp_path):
    def record(lane):
        *_, arm, seed, problem = lane  # two seeds lost on p000, one won on p001 and on p002
        if arm == "snapkv":
            return RIGHT if problem == "p000" and seed < 2 else {}
        return RIGHT if arm == "crystal" and problem in ("p001", "p002") and seed == 0 else {}

    content = study.content() | {"seeds": [0, 1, 2]}
    one = judge(study.write(tmp_path / "thirds", content, 12, record))["contrasts"][0]
    assert (one["gains"], one["losses"], one["difference"]) == (2, 2, "0.000000")


def test_the_arms_are_those_counted_by_hand(judged):
    arms = {one["arm"]: one for one in judged["arms"]}
    assert list(arms) == ["full", "crystal", "snapkv", "h2o"]
    accuracy = {name: one["accuracy"] for name, one in arms.items()}
    expected = {"full": "1.000000", "crystal": f"{16 / 24:.6f}", "snapkv": f"{2 / 24:.6f}"}
    assert accuracy == expected | {"h2o": f"{17 / 24:.6f}"}
    assert (arms["full"]["budget"], arms["h2o"]["budget"]) == ("full", "0.5")
    assert (arms["snapkv"]["mean_slots"], arms["snapkv"]["peak_slots"]) == ("255.000000", "255.500000")
    assert (arms["h2o"]["mean_bytes"], arms["h2o"]["mean_tokens"]) == ("1000.000000", "7.000000")
    assert all((one["n"], one["failed"], one["truncated"]) == (12, 0, 0) for one in arms.values())


def test_silent_and_truncated_answers_are_wrong_and_counted(tmp_path):
    silent = {"grade": "no answer", "stop": "length", "answer": None}
    judged = judge(write(tmp_path, except_for(LANE, silent)))
    row = next(one for one in judged["arms"] if one["arm"] == "h2o")
    assert (row["no_answer"], row["truncated"], row["failed"]) == (1, 1, 0)
    assert row["accuracy"] == f"{16 / 24:.6f}"
    assert judged["missing"]["lanes"] == 0


def test_every_method_stands_beside_the_registered_one(tmp_path, judged):
    for method, column in (("bootstrap", "p_bootstrap"), ("t", "p_t")):
        other = judge(write(tmp_path / method, method=method))
        for one, registered in zip(other["contrasts"], judged["contrasts"], strict=True):
            assert one["p"] == one[column] == registered[column]
            assert one["p_sign_flip"] == registered["p"]


# ---------------------------------------------------------------- verdicts


def test_one_win_of_two_confirms_when_one_was_registered(judged):
    assert judged["rule_says"] == "CONFIRMED"
    assert study.proves(judged)


def test_one_win_of_two_is_inconclusive_when_two_were_registered(tmp_path):
    judged = judge(write(tmp_path, at_least=2))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert judged["proves"] == []


def test_the_losing_arm_as_subject_is_refuted(tmp_path):
    judged = judge(write(tmp_path, subject="snapkv", against=["crystal", "h2o"]))
    assert judged["rule_says"] == "REFUTED"
    assert judged["contrasts"][0]["difference"] == "-0.583333"
    assert judged["contrasts"][0]["worse"]


@pytest.mark.parametrize(("tolerance", "verdict"), [("0.02", "CONFIRMED"), ("0.003", "INCONCLUSIVE")])
def test_measured_memory_beyond_the_tolerance_rules_confirmed_out(tmp_path, tolerance, verdict):
    judged = judge(write(tmp_path, cache_tolerance=tolerance))
    assert judged["rule_says"] == verdict
    assert judged["contrasts"][0]["matched"] is (verdict == "CONFIRMED")
    assert any("equal memory" in one for one in judged["does_not_prove"]) is (verdict == "INCONCLUSIVE")


def test_the_peak_and_the_nominal_budget_do_not_decide_what_is_matched(tmp_path):
    def record(lane):
        cache = study.cache(512.0 if lane[3] == "full" else 256.0)
        return answers(lane) | {"cache": cache | ({"peak": "900.000000"} if lane[3] == "crystal" else {})}

    assert judge(write(tmp_path, record))["contrasts"][0]["matched"]


@pytest.mark.parametrize(
    ("loses", "letter", "symmetric", "verdict"),
    [
        (set(), "A", "A", "CONFIRMED"),
        ({("qwen", "0.25")}, "A", "B", "INCONCLUSIVE"),
        ({("llama", "0.25")}, "B", "B", "REFUTED"),
        ({("qwen", "0.25"), ("qwen", "0.5")}, "C", "C", "REFUTED"),
    ],
)
def test_a_branch_study_reports_both_guards(tmp_path, loses, letter, symmetric, verdict):
    def record(lane):
        winner = "snapkv" if (lane[0], lane[2]) in loses else "crystal"
        return RIGHT if lane[3] in (winner, "full") else {}

    content = study.content(
        rule="branch", against=["snapkv"], primary_model="qwen", transfer_model="llama", at_least=None
    )
    content |= {"models": ["qwen", "llama"], "budgets": ["0.25", "0.5"]}
    judged = judge(study.write(tmp_path / "branch", content, 12, record))
    assert judged["branch"] == {"registered": letter, "symmetric": symmetric}
    assert judged["rule_says"] == verdict
    places = [("qwen", "0.25"), ("qwen", "0.5"), ("llama", "0.25"), ("llama", "0.5")]
    assert [(contrast["model"], contrast["budget"]) for contrast in judged["contrasts"]] == places


@pytest.mark.parametrize(("problems", "label"), [(199, "screening-grade"), (200, "confirmatory-grade for tiny alone")])
def test_below_two_hundred_problems_a_study_is_a_screening(tmp_path, problems, label):
    def record(lane):
        return RIGHT if lane[3] == "crystal" else {}

    judged = judge(write(tmp_path, record, problems=problems, draws=200))
    assert judged["label"] == label
    assert judged["verdict"] == ("SCREENED" if problems < 200 else "CONFIRMED")
    assert judged.get("rule_says") == ("CONFIRMED" if problems < 200 else None)
    assert bool(judged["proves"]) is (problems == 200)
    assert any("n = 199" in one for one in judged["does_not_prove"]) is (label == "screening-grade")


# ---------------------------------------------------------------- missing lanes


def test_an_answer_that_nobody_could_verify_in_time_is_not_correct_and_not_missing(tmp_path):
    timeout, wrong = (
        judge(write(tmp_path / grade.replace(" ", "-"), except_for(LANE, {"grade": grade})))
        for grade in ("timeout", "wrong")
    )
    assert timeout == wrong
    assert timeout["missing"]["lanes"] == 0


@pytest.mark.parametrize(
    ("change", "ended"), [(None, "not run"), (study.FAILED, "failed"), ({"grade": "error"}, "error")]
)
def test_one_lane_without_a_grade_is_inconclusive_and_named(tmp_path, change, ended):
    judged = judge(write(tmp_path, except_for(LANE, change)))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert judged["proves"] == []
    assert (judged["missing"]["lanes"], judged["missing"]["registered"]) == (1, 4 * 2 * 12)
    cell = dict(zip(("model", "task", "budget", "arm", "seed"), LANE[:-1], strict=True))
    assert judged["missing"]["cells"] == [cell | {"ended": ended, "lanes": 1}]
    json.loads(dumps(judged), parse_float=pytest.fail)
    assert [one["failed"] for one in judged["arms"] if one["arm"] == "h2o"] == [1]
    # The other comparator keeps twelve problems; p009, which h2o alone solves, falls out of this one.
    assert [contrast["n"] for contrast in judged["contrasts"]] == [12, 11]
    assert judged["contrasts"][1]["difference"] == f"{0.5 / 11:.6f}"
    assert "1 of 96 lanes" in judged["does_not_prove"][0]


def test_a_missing_lane_of_the_reference_arm_counts_too(tmp_path):
    lane = ("tiny", "needle", "full", "full", 0, "p003")
    assert judge(write(tmp_path, except_for(lane, None)))["rule_says"] == "INCONCLUSIVE"


def test_failed_lanes_are_counted_by_cell_and_end(tmp_path):
    def record(lane):
        return study.FAILED if lane[3] == "snapkv" else answers(lane)

    judged = judge(write(tmp_path, record))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert [(one["seed"], one["ended"], one["lanes"]) for one in judged["missing"]["cells"]] == [
        (0, "failed", 12),
        (1, "failed", 12),
    ]
    lost, kept = judged["contrasts"]
    assert (lost["n"], lost["difference"], lost["p_holm"], lost["better"]) == (0, None, None, False)
    assert kept["difference"] == f"{-0.5 / 12:.6f}"
    row = next(one for one in judged["arms"] if one["arm"] == "snapkv")
    assert (row["accuracy"], row["mean_slots"], row["failed"]) == (None, None, 24)


# ---------------------------------------------------------------- output


def test_the_output_is_canonical_without_floats_and_reproducible(folder, judged, monkeypatch):
    text = dumps(judged)

    def check(value):
        assert not isinstance(value, float)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(inner)

    check(judged)
    rfc8785 = pytest.importorskip("rfc8785")
    assert text.encode() == rfc8785.dumps(json.loads(text))
    assert "-0.000000" not in text
    monkeypatch.chdir(folder)
    assert dumps(judge(Path("."))) == text


def test_the_order_and_sharding_of_records_do_not_matter(tmp_path, judged):
    folder = write(tmp_path)
    shard = folder / "records" / "shard-0.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)[::-1]
    shard.write_bytes(b"".join(lines[:20]))
    (folder / "records" / "shard-1.jsonl").write_bytes(b"".join(lines[20:]))
    assert judge(folder) == judged


def test_another_decision_seed_draws_otherwise(tmp_path):
    def p(name: str, **decision):
        return judge(write(tmp_path / name, method="bootstrap", **decision))["contrasts"][1]["p"]

    assert p("a") == p("b") != p("c", seed=8)


def alternating(lane: study.Lane) -> dict:
    """crystal solves two problems of three, both others the same one of two."""
    number = int(lane[5][1:])
    return RIGHT if number % (3 if lane[3] == "crystal" else 2) else {}


@looped("method", [name for name in METHODS if name != "max-t"])
def test_intervals_are_those_of_the_method_at_both_levels_with_the_documented_draws(tmp_path, method):
    numbers = np.arange(40)
    difference = ((numbers % 3 > 0) * 1.0 - (numbers % 2 > 0))[:, None].repeat(2, axis=1)
    contrasts = judge(write(tmp_path, alternating, 40, method=method, draws=2_000))["contrasts"]
    for index, one in enumerate(contrasts):
        for suffix, level in (("", 0.95), ("_simultaneous", 1 - 0.05 / 2)):
            draws = np.random.default_rng([7, index])
            expected = compare(method, difference, level=level, draws=2_000, rng=draws)
            found = [float(one[end + suffix]) for end in ("low", "high")]
            assert found == pytest.approx([expected.low, expected.high], abs=1e-6)


def test_the_exact_bootstrap_is_every_resample_and_needs_no_draws_and_no_seed(tmp_path):
    """Six problems: all 6^6 ways to draw six of them, by hand."""
    content = study.content(method="exact-bootstrap")
    for name in ("draws", "seed"):
        del content["decision"][name]
    contrasts = judge(study.write(tmp_path / "small", content, 6, alternating))["contrasts"]
    means = np.array([0.0, 0.0, 1.0, -1.0, 1.0, 0.0])  # crystal is right in 1, 2, 4, 5, others in 1, 3, 5
    every = np.sort(np.array([*itertools.product(means, repeat=6)]).mean(axis=1)).round(12)
    for contrast in contrasts:
        assert float(contrast["difference"]) == pytest.approx(means.mean(), abs=1e-6)
        tails = (every <= 0).mean(), (every >= 0).mean()
        assert float(contrast["p"]) == pytest.approx(min(1, max(2 * min(tails), 2**-5)), abs=1e-6)
        for suffix, level in (("", 0.95), ("_simultaneous", 1 - 0.05 / 2)):
            ends = np.quantile(every, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
            low, high = (float(contrast[end + suffix]) for end in ("low", "high"))
            assert low <= ends[0] + 1e-6  # moved out where the exact test reaches further
            assert high >= ends[1] - 1e-6
        assert (contrast["p_bootstrap"], contrast["p_sign_flip"]) == (None, None)
        assert contrast["p_t"] is not None


def test_every_contrast_has_its_own_draws(tmp_path):
    alike = judge(write(tmp_path, alternating, 40, method="bootstrap", draws=1_001))["contrasts"]
    assert alike[0]["difference"] == alike[1]["difference"]
    assert alike[0]["p_sign_flip"] != alike[1]["p_sign_flip"]


def test_a_complete_study_of_one_problem_estimates_nothing_and_is_inconclusive(tmp_path):
    judged = judge(write(tmp_path, problems=1))
    assert judged["missing"]["lanes"] == 0
    assert [contrast["difference"] for contrast in judged["contrasts"]] == [None, None]
    assert judged["rule_says"] == "INCONCLUSIVE"


def test_probe_records_are_not_judged(tmp_path, judged):
    folder = write(tmp_path)
    body = study.bodies(folder)[0]
    study.append(folder, body | {"phase": "probe", "problem": "d", "registration": "another"})
    assert judge(folder) == judged


# ---------------------------------------------------------------- what cannot be judged


@looped(
    ("change", "says"),
    [
        ({}, r"shard-0.jsonl:97: second record of model=tiny .* seed=0 problem=p000"),
        ({"problem": "p099"}, r"problem=p099 is not in the registered grid"),
        ({"problem": "d"}, r"problem=d is not in the registered grid"),
        ({"registration": "0" * 64}, r"shard-0.jsonl:97: registration"),
        ({"problem": "p099", "grade": "great"}, r"shard-0.jsonl:97: grade: 'great'"),
        ({"problem": "p099", "state": "lost"}, r"shard-0.jsonl:97: state: 'lost'"),
        ({"problem": "p099", "cache": None}, r"shard-0.jsonl:97: not a record"),
        ({"problem": "p099", "cache": study.cache(float("nan"))}, r"97: mean_slots: 'nan' is not a finite"),
        ({"problem": "p099", "tokens": "many"}, r"97: tokens: 'many' is not a finite"),
        ({"problem": "p099", "tokens": 10**400}, "97: an integer beyond 2"),
        ({"problem": "p099", "cache": study.cache(1) | {"peak": "inf"}}, r"97: peak_slots: 'inf' is not a"),
        ({"problem": "p099", "cache": study.cache(1) | {"prefill_end": "-inf"}}, r"97: prefill_end: '-inf' is"),
        ({"problem": "p099", "cache": study.cache(1) | {"peak_bytes": "nan"}}, r"97: peak_bytes: 'nan' is"),
    ],
)
def test_a_record_that_cannot_be_is_refused_by_name(tmp_path, change, says):
    folder = write(tmp_path)
    study.append(folder, study.bodies(folder)[0] | change)
    with pytest.raises(RecordError, match=says):
        judge(folder)


def test_a_record_of_an_unknown_cell_is_refused_by_name(tmp_path):
    folder = write(tmp_path)
    body = study.bodies(folder)[0]
    for name, other in {"model": "big", "budget": "0.7", "arm": "lacache", "seed": 9}.items():
        strange = tmp_path / name
        write(strange)
        study.append(strange / "small", body | {"cell": body["cell"] | {name: other}})
        with pytest.raises(RecordError, match=rf"{name}={other}.*not in the registered grid"):
            judge(strange / "small")


@looped(
    ("line", "says"),
    [
        (b'{"body": {"phase": "conf', "not JSON: "),
        (b'{"body": 1, "body": 2}', "body: occurs twice"),
        (b'{"body": "\xff"}', "not UTF-8 at byte 11"),
        (b'{"body": {"tokens": 7.5}}', r"7\.5: write decimals as strings"),
        (b'{"body": {"tokens": NaN}}', "NaN: write decimals as strings"),
        (b'{"body": {"tokens": -Infinity}}', "-Infinity: write decimals as strings"),
        (b'{"body": {"tokens": 1e999}}', "1e999: write decimals as strings"),
        (b'{"body": {"tokens": ' + b"9" * 5000 + b"}}", "an integer beyond 2"),
        (b"[]", "not an object"),
        (b"{}", "not a record"),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_file_and_line(tmp_path, line, says):
    folder = write(tmp_path)
    with (folder / "records" / "shard-0.jsonl").open("ab") as shard:
        shard.write(line + b"\n")
    with pytest.raises(RecordError, match=rf"shard-0.jsonl:97: .*{says}"):
        judge(folder)


def test_a_folder_without_lock_or_records_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"lock\.json: is missing"):
        judge(tmp_path)
    with pytest.raises(RecordError, match="no confirm records"):
        judge(write(tmp_path, lambda lane: None))


def test_an_unknown_treatment_of_missing_lanes_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"decision\.missing: 'drop'"):
        judge(write(tmp_path, missing="drop"))


def test_the_table_has_one_row_for_every_registered_lane(folder):
    lanes = read_study(folder).lanes
    assert len(lanes) == 4 * 2 * 12
    assert lanes.groupby(["arm", "seed"]).size().tolist() == [12] * 8


# ---------------------------------------------------------------- command


def command(folder: Path) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[2]
    line = [sys.executable, "-m", "analysis.judge", str(folder)]
    return subprocess.run(line, cwd=root, capture_output=True, timeout=120)


def test_the_command_prints_the_judgement_and_nothing_else(folder, judged):
    done = command(folder)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(b"[0:") for line in done.stderr.splitlines())  # phases, on a slow machine
    assert done.stdout == dumps(judged).encode() + b"\n"


def test_the_command_succeeds_whatever_the_verdict(tmp_path, capsysbinary):
    assert judging.main([str(write(tmp_path, at_least=2))]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rule_says"] == "INCONCLUSIVE"


def test_the_command_refuses_a_folder_that_cannot_be_read_in_one_line(tmp_path, capsys):
    assert judging.main([str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("RecordError: ")
    assert said.err.count("\n") == 1
