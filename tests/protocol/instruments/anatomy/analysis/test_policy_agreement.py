"""The agreement that is told of a policy, against plain loops over the lines of a made-up folder."""

import numpy as np
import pytest
import simulated_anatomy

from protocol.instruments.anatomy.analysis import screening
from protocol.instruments.anatomy.analysis.traces import read_anatomy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return simulated_anatomy.written(
        tmp_path_factory.mktemp("agreed") / "study", np.random.default_rng(1), problems=12, states={1: "unmoved"}
    )


def agreed(folder):
    return screening.measure_policies(read_anatomy(folder))


def test_what_an_arm_kept_of_needed_tokens_is_a_mean_over_traces_in_which_some_were_needed(folder):
    rows = {(one.arm, one.budget): one for one in agreed(folder)}
    assert "oracle-occlusion" not in {arm for arm, _ in rows}
    shares, areas, right = [], [], []
    for one in read_anatomy(folder).traces:
        label = one.labels("padded")
        if not label.any():
            continue
        at = next(at for at, kept in enumerate(one.outcomes) if (kept.arm, kept.budget) == ("keen", "32"))
        own = one.values().retained[at, slice(*one.span)]
        needed, others = own[label == 1], own[label == 0]
        shares.append(needed.mean())
        right.append(one.outcomes[at].correct)
        wins = [(a > b) + (a == b) / 2 for a in needed for b in others]
        areas.append(sum(wins) / len(wins))
    found = rows["keen", "32"]
    assert found.traces == len(shares) == 11
    assert found.kept == pytest.approx(np.mean(shares), abs=1e-6)
    assert found.auc == pytest.approx(np.mean(areas), abs=1e-6)
    assert found.accuracy == pytest.approx(np.mean(right))
    error = np.std(areas, ddof=1) / np.sqrt(11)
    assert found.interval == pytest.approx(  # Student's t of 10 degrees at .975
        (np.mean(areas) - 2.228139 * error, np.mean(areas) + 2.228139 * error), abs=1e-6
    )
