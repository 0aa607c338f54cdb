"""Tasks: frozen sets of problems, generated or published, found by name.

problem = tasks.build("needle-768", item, count)      # count: tokens of a text under the model's tokenizer

A held-out problem is built with the open `HeldOut` of a claimed study alone. `tasks.get(name).build` is the
builder behind this door, for tests and benchmarks.

May import: splits, protocol.grading, protocol.harness, protocol.evidence; pyrage, transformers.
"""

from protocol.tasks.door import build, gold
from protocol.tasks.problem import Problem
from protocol.tasks.registry import TASKS, Task, UnknownTask, data, get, names

__all__ = ["TASKS", "Problem", "Task", "UnknownTask", "build", "data", "get", "gold", "names"]
