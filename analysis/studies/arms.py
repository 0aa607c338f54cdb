"""An arm in words: its policy or press, what it sets of it, and what it says to the model."""

from collections.abc import Mapping
from typing import Any

from analysis.rules.rule import AS_COMPUTED, sides

__all__ = ["apart", "asked", "presses", "runs", "unlike", "words"]


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


def unlike(lock: Mapping[str, Any]) -> frozenset[str]:
    """The arms that with nothing evicted are not the full cache under another name: their slots may be stored
    otherwise than computed, or something was asked of them beside the problem. With them the subject of a
    sweep that may choose one.
    """
    policies: Mapping[str, Mapping[str, str]] = lock.get("policies", {})
    found = {arm for arm, own in policies.items() if own.get("state", AS_COMPUTED[0]) not in AS_COMPUTED}
    found |= {arm for arm, text in lock.get("asked", {}).items() if text}
    sweep = lock["protocol"]["content"].get("sweep")
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


def _asked(lock: Mapping[str, Any], arm: str, chosen: str | None = None) -> str:
    """Of one arm; empty for nothing. chosen: the candidate that a sweep's name stands for."""
    texts: Mapping[str, str] = lock.get("asked", {})
    sweep = lock["protocol"]["content"].get("sweep") or {}
    named = (chosen or sweep["candidates"][0]) if arm == sweep.get("name") else arm
    return texts.get(named, "")


def asked(lock: Mapping[str, Any]) -> list[str]:
    """A sentence for each text that is asked, with its arms; none where no arm asks anything."""
    arms: dict[str, list[str]] = {}
    for arm, text in lock.get("asked", {}).items():
        arms.setdefault(text, []).append(arm)
    return [f"{', '.join(named)}: asked beside the problem: {_quoted(text)}" for text, named in arms.items()]


def apart(lock: Mapping[str, Any], chosen: str | None = None) -> list[str]:
    """A sentence for each two arms that are compared, by the rule or beside it, and were asked different
    things: they differ in more than their caches.
    """
    decision = lock["protocol"]["content"]["decision"]
    compared = [*sides(decision), *((decision["subject"], other) for other in decision.get("beside") or ())]
    said = []
    for one, other in dict.fromkeys(compared):
        own, others = _asked(lock, one, chosen), _asked(lock, other, chosen)
        if own != others:
            said.append(
                f"{one} and {other} were asked different things ({one}: {_quoted(own)}; {other}: "
                f"{_quoted(others)})"
            )
    return said


def _quoted(text: str) -> str:
    """On one line, with no character that a terminal acts on: a lock may come from anyone."""
    plain = "".join(one if one.isprintable() else "\ufffd" for one in " ".join(text.split()))
    return f'"{plain}"' if text else "nothing"
