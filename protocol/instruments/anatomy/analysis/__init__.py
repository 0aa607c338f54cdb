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
    """Return the content of chosen.json: the (signal, layer) of every (model, task), from the choosing half alone.

    Fields: see `registered_test.choose`; decimals are text with six digits. The bytes do not depend on the
    machine. Raises RecordError (of `analysis.judgement.untrusted_files`) for a folder that registers no [anatomy],
    for an incomplete choosing half, and for files that do not follow the documented format.
    """
    from protocol.instruments.anatomy.analysis import registered_test

    return registered_test.choose(Path(folder))


def judge(folder: "Path | str") -> dict[str, Any]:
    """Return the content of verdict.json: the test of the chosen (signal, layer) on the testing half.

    Fields: see `registered_test.judge`. Raises RecordError as `choose` does, for an incomplete testing half,
    and for a chosen.json that is missing or differs from what the choosing half gives.
    """
    from protocol.instruments.anatomy.analysis import registered_test

    return registered_test.judge(Path(folder))
