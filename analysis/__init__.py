"""The commands that read a study without torch, one file each; they do not import the protocol.

In a notebook `analysis.study(folder)` is a judged study with its lanes as a data frame, and
`analysis.compare(frame)` compares arms of any scores. Both are imported lazily: the code that runs cells
imports the rules, and no statistics with them.

May import: protocol.formats, analysis; numpy, pandas, scipy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.judgement.study_files import Study

__all__ = ["compare", "study"]


def study(folder: "Path | str") -> "Study":
    """Return a judged registration: its lock, and `.lanes`, one row for every registered lane.

    Raises RecordError without a verdict: nothing is derived from held-out records while a study runs.
    """
    from analysis.compare import registered_study

    return registered_study.read_judged(Path(folder))


def __getattr__(name: str) -> Any:
    """Return analysis.compare, a callable module."""
    if name != "compare":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import analysis.compare as module

    return module
