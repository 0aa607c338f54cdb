"""The settings in which two policies differ, from the texts of their settings in a lock."""

from collections.abc import Mapping


def differing_settings(arm: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the topmost settings in which two policies differ: {path: (in the parent, in the arm)}.

    arm, parent: the text of each setting by its path, e.g. {"selection": "policies.selection.Diverse()",
    "selection.weight": "0.5"}. A part is its class and "()". None if a policy has no such setting.
    """
    differences: dict[str, tuple[str | None, str | None]] = {}
    for path in sorted(arm.keys() | parent.keys()):  # a part sorts before its own settings
        is_inside = any(path.startswith(f"{other}.") for other in differences)
        if arm.get(path) != parent.get(path) and not is_inside:
            differences[path] = _format_setting(parent, path), _format_setting(arm, path)
    return differences


def differing_parts(arm: Mapping[str, str], parent: Mapping[str, str]) -> set[str]:
    """Return the parts of a policy (scoring, cadence, ...) in which two policies differ."""
    return {path.partition(".")[0] for path in differing_settings(arm, parent)}


def _format_setting(settings: Mapping[str, str], path: str) -> str | None:
    """Format a setting with its parts: Diverse(weight=0.5)."""
    if path not in settings:
        return None
    value, inner = settings[path], f"{path}."
    if not value.endswith("()"):
        return value
    names = [other.removeprefix(inner) for other in settings if other.startswith(inner)]
    parts = (f"{name}={_format_setting(settings, inner + name)}" for name in names if "." not in name)
    return f"{value.removesuffix('()').rpartition('.')[2]}({', '.join(parts)})"
