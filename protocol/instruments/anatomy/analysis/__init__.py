"""Occlusion attribution: which tokens an answer needs, which signals rank them, and what follows for
policies.

`choose(folder)` and `judge(folder)` compute the content of anatomy/chosen.json and anatomy/verdict.json. The
statistics are imported on the first call.

May import: protocol.formats, protocol.instruments.anatomy, protocol.tasks, analysis.rules, analysis.stats,
analysis.judgement; numpy, scipy, statsmodels.
"""

from pathlib import Path
from typing import Any


def choose(folder: "Path | str") -> dict[str, Any]:
    """Return the content of chosen.json, as `registered_test.choose` does; its bytes do not depend on the machine."""
    from protocol.instruments.anatomy.analysis import registered_test

    return registered_test.choose(Path(folder))


def judge(folder: "Path | str") -> dict[str, Any]:
    """Return the content of verdict.json, as `registered_test.judge` does."""
    from protocol.instruments.anatomy.analysis import registered_test

    return registered_test.judge(Path(folder))
