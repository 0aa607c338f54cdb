"""A study and its fresh replications are pooled; a reproduction, a copy and a stranger are not."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import study
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from analysis.exploratory.pooled_replications import pool_replications
from analysis.judgement.untrusted_files import RecordError
from analysis.stats.interval import DegenerateDifference
from analysis.stats.random_effects import pool_effects
from figures import pool

PROBLEMS = 20


def written(folder, wins, value, **lock):
    """crystal alone is right on the first `wins` problems with both seeds; snapkv and h2o on the last one."""

    def record(lane):
        *_, arm, _, problem = lane
        number = int(problem[1:])
        return {"grade": "correct"} if (number < wins if arm == "crystal" else number == PROBLEMS - 1) else {}

    study.write(folder, study.content(), PROBLEMS, record, **lock)
    (folder / "verdict.json").write_text(json.dumps({"judged": {"verdict": "SCREENED"}}) + "\n")
    claim = {"randomness": {"value": value}} if value else {}
    (folder / "claim.json").write_text(json.dumps(claim) + "\n")
    return folder


def digest(folder):
    return hashlib.sha256((folder / "lock.json").read_bytes().removesuffix(b"\n")).hexdigest()


@pytest.fixture
def parent(tmp_path):
    """10, 6 and 5 of 20 problems gained; and beside them a reproduction and a replication of something else."""
    first = written(tmp_path / "registrations" / "first", 10, None)
    shelf, cited = tmp_path / "replications", {"name": "first", "lock": digest(first)}
    written(shelf / "first-fresh-001", 6, "aa", parent=cited | {"fresh": True})
    written(shelf / "first-fresh-002", 5, "bb", parent=cited | {"fresh": True})
    written(shelf / "first-001", 10, None, parent=cited)
    written(shelf / "other-fresh-001", 3, "cc", parent={"name": "other", "lock": "0" * 64, "fresh": True})
    return first


def test_it_pools_the_parent_and_what_ran_on_other_problems(parent):
    pooled = pool_replications(parent)
    assert pooled.studies == ("first", "first-fresh-001", "first-fresh-002")
    contrast = pooled.contrasts[0]
    assert contrast[:5] == ("tiny", "needle", "0.5", "crystal", "snapkv")
    assert [round(effect.difference * PROBLEMS) for effect in contrast.effects] == [9, 5, 4]
    answers = np.array([1.0] * 10 + [0.0] * 9 + [-1.0])
    assert contrast.effects[0].error == pytest.approx(answers.std(ddof=1) / np.sqrt(20))
    pair = pool_effects(*zip(*[(each.difference, each.error) for each in contrast.effects[1:]], strict=True))
    assert contrast.replications == pair
    assert contrast.replications.prediction is None


def test_it_prints_what_it_is_and_draws_one_forest(parent, tmp_path, capsys):
    assert pool.main([str(parent), "--plot", str(tmp_path / "pooled.svg")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Exploratory summary of first, first-fresh-001, first-fresh-002. No rule")
    assert "first-001 " not in out
    drawn = (tmp_path / "pooled.svg").read_text()
    gids = ("study-0-0", "study-1-2", "fixed-0", "random-1", "prediction-0")
    assert [gid for gid in gids if f'id="{gid}"' not in drawn] == []
    assert 'id="study-0-3"' not in drawn
    assert pool.main([str(parent), "--plot", "pooled.pdf"]) == 2
    assert "is neither .svg nor .png; use one of these endings" in capsys.readouterr().err


def test_a_copy_of_a_late_value_or_of_all_answers_is_refused(parent):
    shelf = parent.parent.parent / "replications"
    cited = {"name": "first", "lock": digest(parent), "fresh": True}
    written(shelf / "first-fresh-003", 4, "bb", parent=cited)
    with pytest.raises(RecordError, match="has the same late value as"):
        pool_replications(parent)
    shutil.rmtree(shelf / "first-fresh-003")
    written(shelf / "first-fresh-003", 10, "dd", parent=cited)
    with pytest.raises(RecordError, match="has the same answers as first everywhere"):
        pool_replications(parent)
    shutil.rmtree(shelf / "first-fresh-003")
    written(shelf / "first\nCONFIRMED", 4, "dd", parent=cited)
    with pytest.raises(RecordError, match="the folder name of this study or of a replication, or a"):
        pool_replications(parent)


def test_without_a_verdict_or_a_fresh_replication_there_is_nothing_to_pool(parent):
    shutil.rmtree(parent.parent.parent / "replications" / "first-fresh-001")
    shutil.rmtree(parent.parent.parent / "replications" / "first-fresh-002")
    with pytest.raises(RecordError, match="kv-prereg replicate --fresh"):
        pool_replications(parent)
    (parent / "verdict.json").unlink()
    with pytest.raises(RecordError, match="has no verdict"):
        pool_replications(parent)


def test_a_study_without_any_difference_has_no_weight_and_says_so(parent):
    shelf = parent.parent.parent / "replications"
    shutil.rmtree(shelf / "first-fresh-002")
    written(shelf / "first-fresh-002", 0, "bb", parent={"name": "first", "lock": digest(parent), "fresh": True})
    lock = json.loads((shelf / "first-fresh-002" / "lock.json").read_text())
    assert lock["parent"]["fresh"] is True
    contrast = pool_replications(parent).contrasts[0]
    assert contrast.pooled is not None  # one problem lost is a spread
    with pytest.raises(DegenerateDifference, match="has no weight"):
        pool_effects([0.1, 0.0], [0.02, 0.0])


# ---------------------------------------------------------------- the numbers


EFFECTS, ERRORS = [0.056, 0.02, -0.01, 0.03], [0.01, 0.012, 0.015, 0.02]


def test_fixed_and_random_means_are_statsmodels():
    pooled = pool_effects(EFFECTS, ERRORS)
    oracle = combine_effects(np.array(EFFECTS), np.array(ERRORS) ** 2, method_re="iterated")
    fixed, random, *_ = oracle.conf_int()
    assert pooled.fixed == pytest.approx((oracle.mean_effect_fe, *fixed), abs=1e-9)
    assert pooled.random.mean == pytest.approx(oracle.mean_effect_re, abs=1e-9)
    reach = stats.t.ppf(0.975, 3) * oracle.sd_eff_w_re_hksj
    assert pooled.random.high - pooled.random.mean == pytest.approx(reach, rel=1e-4)
    assert random[1] - random[0] < pooled.random.high - pooled.random.low  # four studies: t, and not normal


def test_the_spread_between_studies_solves_the_equation_of_paule_and_mandel():
    tau = pool_effects(EFFECTS, ERRORS).tau
    weights = [1 / (error**2 + tau**2) for error in ERRORS]
    mean = sum(w * e for w, e in zip(weights, EFFECTS, strict=True)) / sum(weights)
    assert sum(w * (e - mean) ** 2 for w, e in zip(weights, EFFECTS, strict=True)) == pytest.approx(3, abs=1e-3)
    low, high = pool_effects(EFFECTS, ERRORS).prediction
    assert high - mean == pytest.approx(stats.t.ppf(0.975, 2) * (tau**2 + 1 / sum(weights)) ** 0.5)
    assert mean - low == pytest.approx(high - mean)


def test_equal_effects_pool_to_themselves_with_no_interval_below_that_of_the_errors():
    pooled = pool_effects([0.02, 0.02, 0.02], [0.01, 0.01, 0.01])
    assert (pooled.tau, pooled.fixed.mean, pooled.random.mean) == pytest.approx((0, 0.02, 0.02))
    assert pooled.fixed.high - 0.02 == pytest.approx(1.959964 * 0.01 / 3**0.5)
    assert pooled.random.high - 0.02 == pytest.approx(stats.t.ppf(0.975, 2) * 0.01 / 3**0.5)


def test_a_further_study_falls_into_the_prediction_interval_about_as_often_as_it_says():
    """Simulated: eight studies with a spread between them, and the effect of a ninth: 93 % in long runs."""
    draw = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        *true, ninth = 0.03 + 0.02 * draw.standard_normal(9)
        low, high = pool_effects(np.array(true) + 0.01 * draw.standard_normal(8), [0.01] * 8).prediction
        inside += low <= ninth <= high
    assert 0.9 < inside / 400 < 0.97
