"""The settings in which two policies differ, from the texts of their settings in a lock."""

from collections.abc import Mapping

__all__ = ["differing"]


def differing(arm: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the topmost settings in which two policies differ: {path: (in the parent, in the arm)}.

    arm, parent: the text of each setting by its path, e.g. {"selection": "policies.selection.Diverse()",
    "selection.weight": "0.5"}. A part is its class and "()". None if a policy has no such setting.
    """
    found: dict[str, tuple[str | None, str | None]] = {}
    for path in sorted(arm.keys() | parent.keys()):  # a part sorts before its own settings
        above = any(path.startswith(f"{other}.") for other in found)
        if arm.get(path) != parent.get(path) and not above:
            found[path] = _spoken(parent, path), _spoken(arm, path)
    return found


def _spoken(settings: Mapping[str, str], path: str) -> str | None:
    """Format a setting with its parts: Diverse(weight=0.5)."""
    if path not in settings:
        return None
    value, inner = settings[path], f"{path}."
    if not value.endswith("()"):
        return value
    names = [one.removeprefix(inner) for one in settings if one.startswith(inner)]
    parts = (f"{name}={_spoken(settings, inner + name)}" for name in names if "." not in name)
    return f"{value.removesuffix('()').rpartition('.')[2]}({', '.join(parts)})"
