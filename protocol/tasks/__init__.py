"""Tasks: frozen sets of problems, generated or published, found by name.

task = tasks.get("needle-768")
problem = task.build(task.ids()[0], count)      # count: tokens of a text under the model's tokenizer
"""

from protocol.tasks.catalogue import TASKS, Task, UnknownTask, data, get, names
from protocol.tasks.problem import Problem

__all__ = ["TASKS", "Problem", "Task", "UnknownTask", "data", "get", "names"]
