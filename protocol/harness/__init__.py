"""lm-eval's tasks: prompts, generated problems and scores of the installed version, in a process of its own.

prompt = harness.shared().prompt("longbench_qasper", row)
values = harness.shared().scores("longbench_qasper", row, text)

Nothing of lm-eval is imported into this process, and nothing of it is in this repository.

May import: protocol.evidence; datasets, lm_eval, nltk, numpy.
"""

from protocol.harness.child import Child
from protocol.harness.harness import PREFIX, Facts, Harness, Prompt, Scores, TookTooLong, installed, shared

__all__ = [
    "PREFIX",
    "Child",
    "Facts",
    "Harness",
    "Prompt",
    "Scores",
    "TookTooLong",
    "installed",
    "shared",
]
