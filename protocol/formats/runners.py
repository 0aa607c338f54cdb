"""The registry of runners: who decodes a study whose protocol has the table [runner], by import paths.

Without [runner] this project decodes. Paths are "module:attribute" and are imported when the core asks for them.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.formats.registry import load_attribute

TABLE = "runner"  # of protocol.toml, and in the lock


class Runner(NamedTuple):
    """What decodes in place of this project.

    design: the `Table` of a protocol with this runner. derive: (plan, protocol.toml, items by task, inputs of the
    lock) -> the lock. confirm: (study, folder of outputs or None, file and block of a late value) -> what is to be
    run, one line each; nothing once it is sealed. simulate: (lock, cell, problem, generator) -> a record
    and its trajectory or None.
    files: a pattern of the names of its evidence files, by folder. checks: (study) -> its checks in an audit, by item.
    unaudited: the items of an audit that are about decoding.
    """

    design: str
    derive: str
    confirm: str
    simulate: str
    checks: str
    files: Mapping[str, str]
    unaudited: tuple[str, ...]


RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {
        "outside": Runner(
            design="protocol.outside.design:DESIGN",
            derive="protocol.outside.derive:derive_outside",
            confirm="protocol.outside.confirm:confirm_outside",
            simulate="protocol.outside.lanes:simulate_lane",
            checks="protocol.outside.verify:make_checks",
            files=MappingProxyType({"outside": r"released\.json|outputs\.json", "outside/files": r"[0-9a-f]{64}"}),
            unaudited=("policies", "trajectories", "sense", "grades"),
        )
    }
)


def find_runner(content: Mapping[str, Any]) -> Runner | None:
    """Return the runner of a protocol, as a lock has it; None if this project decodes."""
    table = content.get(TABLE)
    return None if table is None else RUNNERS[table["kind"]]


def describe_refusal(folder: object) -> str:
    """Return why a command about decoded lanes refuses a study that another harness runs."""
    return (
        f"{folder}: another harness runs this study ([{TABLE}]), so kv-prereg cannot decode, grade or measure "
        f"its lanes; to see its results: kv-prereg table {folder}"
    )


def folder_patterns() -> dict[str, tuple[str, re.Pattern[str]]]:
    """Return the table of protocol.toml and the pattern of file names, by folder in a registration."""
    return {
        folder: (TABLE, re.compile(pattern)) for runner in RUNNERS.values() for folder, pattern in runner.files.items()
    }


def find_design_table(document: Mapping[str, Any], default: Any) -> Any:
    """Return the table that reads a parsed protocol.toml. default: that of a study which this project decodes."""
    return load_attribute(RUNNERS["outside"].design) if TABLE in document else default
