"""Every setting of a policy by its path, as text: what a lock holds of it."""

from dataclasses import fields, is_dataclass
from typing import Any

from policies.policy import Policy

__all__ = ["structure"]

MOVED = {"policies.snapkv_with_window.WindowFirst": "policies.snapkv.WindowFirst"}
"""What a lock calls a class that has moved: its first path, so that no two locks differ by the move."""
GONE = {"policies.crystal.coattention.CoAttention()": {"sketch": "None"}}
"""Settings that a class no longer has, at the one value that every policy gave them: locks hold them."""


def structure(policy: Policy) -> dict[str, str]:
    """E.g. {"selection": "policies.selection.Diverse()", "selection.weight": "0.5"}: a part is its class and
    "()", then what is in it; a value is its repr.
    """
    settings: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if not is_dataclass(value):
            settings[path] = repr(value)
            return
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        part = settings[path] = f"{MOVED.get(name, name)}()"
        for field in fields(value):
            walk(f"{path}.{field.name}", getattr(value, field.name))
        settings.update((f"{path}.{gone}", text) for gone, text in GONE.get(part, {}).items())

    for field in fields(policy):
        walk(field.name, getattr(policy, field.name))
    return settings
