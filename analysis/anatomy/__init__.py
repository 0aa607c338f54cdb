"""The anatomy: which tokens an answer needs, which signals know it, and what that says of policies.

`choose(folder)` and `judge(folder)` are what anatomy/chosen.json and anatomy/verdict.json hold. Neither loads
statistics before it is called.

May import: analysis.output, analysis.rules, analysis.stats, analysis.studies; numpy, scipy, statsmodels.
"""

from pathlib import Path
from typing import Any

__all__ = ["choose", "judge"]


def choose(folder: "Path | str") -> dict[str, Any]:
    """The (signal, layer) of every (model, task), by the traces of the choosing half alone: chosen.json.

    Fields: see `judging.choose`; decimals are text with six digits. The same bytes wherever it is computed.
    Raises RecordError (of `analysis.studies.plain_files`) for a folder that registers no [anatomy], whose
    choosing half is not all there, or whose files are not of the documented format.
    """
    from analysis.anatomy import judging

    return judging.choose(Path(folder))


def judge(folder: "Path | str") -> dict[str, Any]:
    """What the testing half says of the chosen (signal, layer), and nothing else: verdict.json.

    Fields: see `judging.judge`. Raises RecordError as `choose`, and where chosen.json is missing, is not what
    the choosing half gives, or the testing half is not all there.
    """
    from analysis.anatomy import judging

    return judging.judge(Path(folder))
