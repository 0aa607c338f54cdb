"""lm-eval's tasks: prompts, generated problems and scores of the installed version, in a separate process.

prompt = harness.shared_harness().prompt("longbench_qasper", row)
values = harness.shared_harness().scores("longbench_qasper", row, text)

lm-eval is not imported into this process, and no copy of it is in this repository.

May import: protocol.formats; datasets, lm_eval, nltk, numpy.
"""

from protocol.harness.child_process import ChildOwner, ChildProcess
from protocol.harness.lm_eval_harness import (
    Facts,
    Harness,
    Prompt,
    Scores,
    TookTooLong,
    installed_version,
    shared_harness,
)

__all__ = [
    "ChildOwner",
    "ChildProcess",
    "Facts",
    "Harness",
    "Prompt",
    "Scores",
    "TookTooLong",
    "installed_version",
    "shared_harness",
]
