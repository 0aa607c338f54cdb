"""The settings of a policy by path, as text: the form in which a lock records them."""

from dataclasses import fields, is_dataclass
from typing import Any

from policies.policy import Policy

ORIGINAL_CLASS_PATHS = {"policies.snapkv_with_window.WindowFirst": "policies.snapkv.WindowFirst"}
"""Original paths of moved classes, which locks keep using, so that locks do not differ by the move."""
REMOVED_SETTINGS = {"policies.crystal.coattention.CoAttention()": {"sketch": "None"}}
"""Removed settings of a class with the only value that policies ever used; locks still record them."""


def structure(policy: Policy) -> dict[str, str]:
    """Return e.g. {"selection": "policies.selection.Diverse()", "selection.weight": "0.5"}: a part is written
    as its class and "()", followed by its settings; a value is written as its repr.
    """
    settings: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if not is_dataclass(value):
            settings[path] = repr(value)
            return
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        part = settings[path] = f"{ORIGINAL_CLASS_PATHS.get(name, name)}()"
        for field in fields(value):
            walk(f"{path}.{field.name}", getattr(value, field.name))
        settings.update((f"{path}.{removed}", text) for removed, text in REMOVED_SETTINGS.get(part, {}).items())

    for field in fields(policy):
        walk(field.name, getattr(policy, field.name))
    return settings
