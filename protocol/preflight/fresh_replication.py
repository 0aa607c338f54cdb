"""A fresh replication: the protocol of its parent, with problems and seeds that are drawn after the new lock.

What a study that ships with this project lacks of what today's rules require is completed here, and nothing else
is changed: a gate at which half of the full cache's answers are right, slots as the measure of memory with the
largest tolerance that was tried, and, where a method draws, the exact one in its place, as that errs too often at
its level. The lock of the replication names its parent, and an audit compares the two protocols.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from analysis.stats.methods import METHODS
from protocol.evidence import late_randomness
from protocol.formats.refusals import BadInput
from protocol.lock import version_1
from protocol.lock.lock import Lock
from protocol.plan.checks import TOLERANCE

Changes = Mapping[str, Mapping[str, Any]]
"""By table and field; None for a field that is left out."""

GATE = {"accuracy": 0.5, "truncated": 0.1}
EXACT_METHOD = "restricted-likelihood"
LATER_SOURCES = ("nonce", "anchor", "local")  # a registered round of a beacon would be older than the new lock
COMPLETED = ("method", "draws", "seed", "memory", "cache_tolerance")  # fields of [decision] of a shipped study


def complete_protocol(text: str, parent: Lock) -> str:
    """Return the protocol.toml of a fresh replication. text: that of the parent. Raises BadInput where a table that
    has to be changed is not written as a table of its own.
    """
    changes = _list_changes(parent)
    edited = text
    for table, fields in changes.items():
        edited = _edit_table(edited, table, fields)
    expected = tomllib.loads(text)
    for table, fields in changes.items():
        values = {**expected.get(table, {}), **fields}
        expected[table] = {name: value for name, value in values.items() if value is not None}
    try:
        is_as_expected = tomllib.loads(edited) == expected
    except tomllib.TOMLDecodeError:
        is_as_expected = False
    if not is_as_expected:
        raise BadInput(
            f"protocol.toml: {', '.join(f'[{table}]' for table in changes)} could not be filled in; start "
            "your own study, and write each as a separate table with one field a line"
        )
    changed = ", ".join(f"{table}.{field}" for table, fields in changes.items() for field in fields) or "nothing"
    title = f"# A fresh replication of {parent.content['name']} (lock {parent.digest[:12]})"
    return f"{title}. Changed in its protocol: {changed}.\n{edited}"


def find_differences(parent: Mapping[str, Any], child: Mapping[str, Any], *, is_shipped: bool) -> Iterator[str]:
    """Yield each field of two protocols, as locks have them, in which a fresh replication may not differ."""
    free = {late_randomness.FIELD} | ({"gate"} if is_shipped and "gate" not in parent else set())
    for name in sorted((parent.keys() | child.keys()) - free):
        first, second = parent.get(name), child.get(name)
        if name == "decision" and is_shipped:
            first, second = (
                {k: v for k, v in side.items() if k not in COMPLETED} for side in (parent[name], child[name])
            )
        if first != second:
            yield f"protocol.content.{name}: differs from its parent's, although it claims to be a fresh replication"


def _list_changes(parent: Lock) -> Changes:
    content = parent.content["protocol"]["content"]
    changes: dict[str, dict[str, Any]] = {}
    if (content.get(late_randomness.FIELD) or {}).get("source") not in LATER_SOURCES:
        registered = content.get(late_randomness.FIELD, {})
        changes[late_randomness.FIELD] = dict.fromkeys(registered) | {"source": "local"}
    if parent.digest not in version_1.PROTOCOLS:
        return changes
    decision = content["decision"]
    completed: dict[str, Any] = {}
    if METHODS[decision["method"]].draws:
        completed |= {name: None for name in ("draws", "seed") if name in decision} | {"method": EXACT_METHOD}
    if "memory" not in decision:
        completed["memory"] = "slots"
    if Decimal(decision["cache_tolerance"]) > TOLERANCE:
        completed["cache_tolerance"] = float(TOLERANCE)
    changes |= {"decision": completed} if completed else {}
    return changes | ({} if "gate" in content else {"gate": GATE})


def _edit_table(text: str, table: str, fields: Mapping[str, Any]) -> str:
    """Return the text with fields of a table set or left out; a table that is missing is added at the end."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if re.match(rf"\[{re.escape(table)}\]", line)), None)
    written = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
    if start is None:
        return "\n".join([*lines, "", f"[{table}]", *written]) + "\n"
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("[")), len(lines))
    kept = [line for line in lines[start + 1 : end] if line.partition("=")[0].strip() not in fields]
    return "\n".join([*lines[: start + 1], *written, *kept, *lines[end:]]) + "\n"
