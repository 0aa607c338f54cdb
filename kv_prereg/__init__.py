"""Pre-registered evaluation of KV-cache eviction policies, from Python.

    import kv_prereg as kvp

    study = kvp.Study("registrations/alpha-chain")
    study.contrasts[["model", "budget", "difference", "low", "high"]]  # numbers, from -1 to 1
    study.records.groupby("arm")["correct"].mean()  # every registered lane
    print(study.to_latex())

What registers, runs and audits is the command of that name, in a process of its own, as kv-prereg runs it. Nothing
here computes anything a second time, and importing loads neither torch nor the libraries that judge.

May import: protocol, policies, analysis, figures; pandas; torch, transformers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kv_prereg.study import Refused, Study

if TYPE_CHECKING:
    import pandas as pd

    from analysis.compare.comparison import Comparison
    from policies import Policy
    from protocol.tasks import Task

__all__ = ["Refused", "Study", "compare", "policy", "tasks"]


def compare(frame: "pd.DataFrame", *, subject: str | None = None, alpha: float = 0.05, **options: Any) -> "Comparison":
    """Compare the arms of any scores: exploratory, since nothing was registered.

    frame: columns id, arm, score; task, seed, cluster, question where there are any. subject: the arm that is compared
    with each other one, by default the first. options: those of `analysis.compare.comparison.compare`. The result has
    the data frames `contrasts` and `arms`, and `notes`. Raises ResultError, a ValueError, for what cannot be paired.
    """
    from analysis.compare.comparison import compare_frame

    return compare_frame(frame, subject=subject, alpha=alpha, **options)


def policy(name: str, settings: Mapping[str, Any] | None = None) -> "Policy":
    """Return a policy by its name, with settings changed by path: policy("snapkv", {"scoring.window": 64}).

    Needs torch. Raises UnknownPolicy, which suggests a near name.
    """
    import policies

    return policies.get(name, settings or {})


def tasks() -> "Mapping[str, Task]":
    """Return every task that is installed here, by name."""
    from protocol.tasks import get, names

    return {name: get(name) for name in names()}
