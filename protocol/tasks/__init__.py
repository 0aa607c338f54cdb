"""Tasks: frozen sets of generated problems, found by name.

task = tasks.get("needle-768")
problem = task.build(task.ids()[0], count)      # count: tokens of a text under the model's tokenizer
"""

from protocol.tasks.catalogue import TASKS, Task, UnknownTask, get, names
from protocol.tasks.problem import Problem

__all__ = ["TASKS", "Problem", "Task", "UnknownTask", "get", "names"]
