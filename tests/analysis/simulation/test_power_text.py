"""What a planned size can see, said in points, and judged."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.simulation import power_text
from analysis.stats import power

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
    assert power_text.describe_power(checks(n200=("0.107", "0.188")), "sign-flip") == [
        "detectable with 80 % power per contrast, by 200 problems and sign-flip at level 0.0125, corrected for 4 "
        "contrasts: 10.7 points where arms disagree on 20 % of problems; 18.8 points where arms disagree on 60 % of "
        "problems"
    ]


@pytest.mark.parametrize("effects", [("none", "0.403"), ("0.197", "0.201"), ("none", "none")])
def test_one_that_cannot_is_warned_of_with_the_number_that_would_see_ten(effects):
    _, said = power_text.describe_power(checks(n40=effects), "t")
    assert said.startswith("WARNING: 40 problems are few: differences above 20 points can stay undetected;")
    assert said.endswith("10 points need about 212 where arms disagree on 20 %, 658 where arms disagree on 60 %")


def test_no_difference_at_all_is_said_where_none_can_be_seen():
    said, _ = power_text.describe_power(checks(tests=1, n40=("none", "0.403")), "t")
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


def test_every_lock_that_was_shipped_is_told():
    for lock in sorted(REGISTRATIONS.glob("*/lock.json")):
        content = json.loads(lock.read_text())
        said = power_text.describe_power(content["checks"], content["protocol"]["content"]["decision"]["method"])
        assert len(said) >= len(content["checks"]["problems"])
