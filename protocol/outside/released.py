"""The held-out problems that a claim releases: their ids in the files of the harness."""

import re
from collections.abc import Mapping
from typing import Any

from protocol.evidence import late_randomness
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.tasks import make_tasks
from protocol.tasks.outside_task import OutsideTask


def claimed_tasks(study: Registration) -> dict[str, OutsideTask]:
    """Return the tasks of a claimed study by name, with the problems that its claim drew."""
    key = study.late_key()
    made: Mapping[str, Any] = make_tasks(study.protocol["tasks"], study.folder)
    if key is None:
        return dict(made)
    return {name: task.redrawn(late_randomness.draw_number(key, "problems")) for name, task in made.items()}


def list_ids(study: Registration) -> dict[str, list[str]]:
    """Return the ids of the released problems, by what the files call the task."""
    called = {table["name"]: table.get("called", table["name"]) for table in study.protocol["tasks"]}
    return {called[name]: [*task.released().values()] for name, task in claimed_tasks(study).items()}


def format_released(study: Registration) -> bytes:
    """Return released.json, in the form that lm-eval's --samples reads: ids that are numbers stand as numbers."""
    ids = {name: [*map(write_id, items)] for name, items in list_ids(study).items()}
    return canonical.dumps(ids) + b"\n"


def write_id(item: str) -> int | str:
    """Return an id as it is released: as a number if that reads as the same text and canonical JSON has it."""
    return int(item) if re.fullmatch(r"0|[1-9][0-9]{0,14}", item) else item
