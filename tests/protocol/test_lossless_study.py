"""A study that asks how small a cache may be, from its registration to its report."""

import pytest
import studies

from analysis.judge import judge

pytestmark = pytest.mark.usefixtures("same_environment")

SMALLEST = {
    **studies.ONE_TASK,
    "budgets = [0.8]": "budgets = [140, 240]",  # of prompts of about 210 tokens: 240 evicts next to nothing
    'crystal = { policy = "crystal-token-level" }': 'h2o = { policy = "h2o" }',
    'subject = "crystal"': 'subject = "h2o"\nothers = ["streaming"]',
    'rule = "superior"': 'rule = "smallest_lossless"',
    'against = ["random", "streaming"]': 'against = ["full"]',
    "at_least = 1": "margin = 0.3",
    "accuracy = 0.05": "accuracy = 0.95",  # a third of it is more than the margin
    "alpha = 0.05": "alpha = 0.1",
    'method = "sign-flip"\ndraws = 10000\nseed = 7': 'method = "restricted-likelihood"',
}


@pytest.mark.soak
def test_a_lossless_study_is_registered_confirmed_audited_and_told(tmp_path, tiny_model):
    folder = studies.write(tmp_path / "registrations" / "lossless", tiny_model, SMALLEST)
    for act in ("register", "probe"):
        studies.ran(0, act, folder)
    checks = studies.content(folder / "lock.json")["checks"]
    assert checks["tests"] == 4  # two arms, two budgets
    assert float(checks["decision_errors"]["confirmed"]["low"]) < 0.1
    assert checks["rule"]["gates"]["the subject saves no memory"] == "INCONCLUSIVE"
    assert studies.here("confirm", folder).returncode == 11
    judged = judge(folder)
    rows = [
        (contrast["subject"], contrast["budget"], contrast["saves"], contrast["matched"])
        for contrast in judged["contrasts"]
    ]
    assert rows == [
        (arm, budget, saves, saves) for budget, saves in (("140", True), ("240", False)) for arm in ("h2o", "streaming")
    ]
    # The model knows nothing, so that every budget would pass: the gate keeps all of it unsaid.
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert {contrast["difference"] for contrast in judged["contrasts"]} == {"0.000000"}
    assert "smallest_lossless" not in judged
    assert judged["proves"] == []
    told = " ".join(studies.here("status", folder).stdout.split())
    assert "down to" not in told
    said = " ".join(judged["does_not_prove"])
    assert "Anything about eviction in 2 of 4 contrasts, where the full cache held at most 2 % more" in said
    assert "Anything at equal memory: the comparator is the full cache" in said
    assert studies.here("audit", folder).returncode == 0
