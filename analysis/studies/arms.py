"""An arm in words: its policy or press, and what it sets of it."""

from collections.abc import Mapping
from typing import Any

__all__ = ["presses", "runs", "words"]


def runs(arm: Mapping[str, Any]) -> str:
    """The name of its policy or, of a press, that: "snapkv", "kvpress:SnapKVPress"."""
    named: str = arm["press"] if "press" in arm else arm["policy"]
    return named


def presses(content: Mapping[str, Any]) -> frozenset[str]:
    """The arms that run a press, and the subject of a sweep that may choose one. Such an arm may hold every
    slot and yet not answer as the full cache does: kvpress masks in place what some presses evict.
    """
    found = {name for name, arm in content["arms"].items() if "press" in arm}
    sweep = content.get("sweep")
    if sweep is not None and found & {*sweep["candidates"]}:
        found.add(sweep["name"])
    return frozenset(found)


def words(arm: Mapping[str, Any]) -> str:
    """E.g. "policy snapkv, scoring.window = 64". arm: as a lock has it, or what a sweep selected."""
    own = (f"{path} = {_text(value)}" for path, value in arm.get("set", {}).items())
    return ", ".join([f"{'press' if 'press' in arm else 'policy'} {runs(arm)}", *own])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
