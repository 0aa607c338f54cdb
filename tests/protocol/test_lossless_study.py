"""A study that asks how small a cache may be, from its registration to its report."""

import pytest
import studies

from analysis.judge import judge

pytestmark = pytest.mark.usefixtures("same_environment")

SMALLEST = {
    **studies.ONE_TASK,
    "budgets = [0.8]": "budgets = [210, 1000]",  # of prompts of about 256 tokens: 1000 evicts nothing
    'rule = "superior"': 'rule = "smallest_lossless"\nothers = ["streaming"]',
    'against = ["random", "streaming"]': 'against = ["full"]',
    "at_least = 1": "margin = 0.3",
    "alpha = 0.05": "alpha = 0.1",
    'method = "sign-flip"': 'method = "t"',
}


def test_a_lossless_study_is_registered_confirmed_judged_and_reported(tmp_path, tiny_model):
    folder = studies.write(tmp_path / "registrations" / "lossless", tiny_model, SMALLEST)
    for act in ("register", "probe", "confirm"):
        done = studies.here(act, folder)
        print(done.stdout, done.stderr)
        assert done.returncode in (0, 10, 11), done.stderr
    judged = judge(folder)
    import json

    print(json.dumps({k: v for k, v in judged.items() if k != "arms"}, indent=1))
    print(json.dumps(judged["arms"][:3]))
    print(json.dumps(studies.content(folder / "lock.json")["checks"], indent=1))
    import subprocess
    import sys

    print(
        subprocess.run(
            [sys.executable, "-m", "figures.report", str(folder)],
            capture_output=True,
            text=True,
            cwd=studies.ROOT,
        )
    )
    print(
        subprocess.run(
            [sys.executable, "-m", "figures.table", str(folder)],
            capture_output=True,
            text=True,
            cwd=studies.ROOT,
        ).stdout
    )
    assert 0
