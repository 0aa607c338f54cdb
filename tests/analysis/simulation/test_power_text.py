"""What a planned size can see, said in points, and judged."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.simulation import power_text
from analysis.stats import power
from analysis.stats.methods import describe_sizes

SAMPLES = {"200": "200 problems", "40": "40 problems"}
REGISTRATIONS = Path(__file__).resolve().parents[3] / "registrations"


def checks(tests=4, level="0.012500", **effects):
    return {
        "tests": tests,
        "corrected_alpha": level,
        "problems": {
            size.removeprefix("n"): {"minimal_detectable_effect": dict(zip(("0.2", "0.6"), each, strict=True))}
            for size, each in effects.items()
        },
    }


def test_a_study_that_can_see_twenty_points_is_told_in_one_line():
    assert power_text.describe_power(checks(n200=("0.107", "0.188")), "sign-flip", SAMPLES) == [
        "detectable with 80 % power per contrast, by 200 problems and sign-flip at level 0.0125, corrected for 4 "
        "contrasts: 10.7 points where arms disagree on 20 % of problems; 18.8 points where arms disagree on 60 % of "
        "problems"
    ]


@pytest.mark.parametrize("effects", [("none", "0.403"), ("0.197", "0.201"), ("none", "none")])
def test_one_that_cannot_is_warned_of_with_the_number_that_would_see_ten(effects):
    _, said = power_text.describe_power(checks(n40=effects), "t", SAMPLES)
    assert said.startswith("WARNING: 40 problems are few: differences above 20 points can stay undetected;")
    assert said.endswith(
        "to detect 10 points, plan about 212 where arms disagree on 20 %, 658 where arms disagree on 60 %"
    )


def test_no_difference_at_all_is_said_where_none_can_be_seen():
    said, _ = power_text.describe_power(checks(tests=1, n40=("none", "0.403")), "t", SAMPLES)
    assert "at level 0.0125: no difference where arms disagree on 20 % of problems" in said


@pytest.mark.parametrize(("discordance", "problems"), [(0.2, 212), pytest.param(0.6, 658, marks=pytest.mark.soak)])
def test_so_many_problems_do_see_ten_points(discordance, problems):
    """By simulation of Student's t, which knows nothing of the formula."""
    assert power_text._problems_for_target(discordance, 0.0125) == problems
    seen = [
        power.minimal_detectable_effect(size, 0.0125, method="t", discordance=discordance, rng=np.random.default_rng(1))
        for size in (round(0.8 * problems), round(1.2 * problems))
    ]
    assert seen[0] > 0.1 > seen[1]


def test_problems_in_clusters_are_not_called_as_many_problems_as_they_weigh():
    """33 problems in 14 clusters, of which five hold 4, one 5 and eight 1: 33^2 / (5 * 16 + 25 + 8) = 9.6."""
    sizes = [4] * 5 + [5] + [1] * 8
    names = [f"c{number}" for number, size in enumerate(sizes) for _ in range(size)]
    ids = [f"p/{place:02d}" for place in range(33)]
    clustered = {"confirm": ids, "clusters": dict(zip(ids, names, strict=True))}
    alone = {"confirm": ids[:9], "clusters": {problem: problem for problem in ids}}
    samples = describe_sizes({"mine": clustered})
    assert samples == {"9": "33 problems in 14 clusters (effective number 9)"}
    assert describe_sizes({"mine": clustered, "other": alone}) == {"9": f"{samples['9']} or 9 problems"}
    detectable, warning = power_text.describe_power(checks(n9=("none", "none")), "betting", samples)
    assert f"by {samples['9']} and betting at level" in detectable
    assert warning.startswith(f"WARNING: {samples['9']} are few")


def test_every_lock_that_was_shipped_is_told():
    for lock in sorted(REGISTRATIONS.glob("*/lock.json")):
        content = json.loads(lock.read_text())
        method = content["protocol"]["content"]["decision"]["method"]
        said = power_text.describe_power(content["checks"], method, describe_sizes(content["items"]))
        assert len(said) >= len(content["checks"]["problems"])
