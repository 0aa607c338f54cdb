"""Descriptions of arms: the policy or press, its settings, and its extra prompt."""

from collections.abc import Mapping
from typing import Any

from analysis.rules.rule import AS_COMPUTED, sides

__all__ = ["apart", "asked", "presses", "runs", "unlike", "words"]


def runs(arm: Mapping[str, Any]) -> str:
    """Return the name of the arm's policy or press: "snapkv", "kvpress:SnapKVPress"."""
    named: str = arm["press"] if "press" in arm else arm["policy"]
    return named


def presses(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the arms that run a press, and the subject of a sweep that may choose one. Such an arm may
    retain every slot and still not answer as the full cache does: kvpress masks in place for some presses.
    """
    found = {name for name, arm in content["arms"].items() if "press" in arm}
    sweep = content.get("sweep")
    if sweep is not None and found & {*sweep["candidates"]}:
        found.add(sweep["name"])
    return frozenset(found)


def unlike(lock: Mapping[str, Any]) -> frozenset[str]:
    """Return the arms that differ from the full cache even if they evict nothing: their slots are not stored
    as computed, or they have an extra prompt. Includes the subject of a sweep that may choose one.
    """
    policies: Mapping[str, Mapping[str, str]] = lock.get("policies", {})
    found = {arm for arm, own in policies.items() if own.get("state", AS_COMPUTED[0]) not in AS_COMPUTED}
    found |= {arm for arm, text in lock.get("asked", {}).items() if text}
    sweep = lock["protocol"]["content"].get("sweep")
    if sweep is not None and found & {*sweep["candidates"]}:
        found.add(sweep["name"])
    return frozenset(found)


def words(arm: Mapping[str, Any]) -> str:
    """Describe an arm: "policy snapkv, scoring.window = 64". arm: from a lock or a selection."""
    own = (f"{path} = {_text(value)}" for path, value in arm.get("set", {}).items())
    return ", ".join([f"{'press' if 'press' in arm else 'policy'} {runs(arm)}", *own])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _asked(lock: Mapping[str, Any], arm: str, chosen: str | None = None) -> str:
    """Return the extra prompt of an arm, or "". chosen: the candidate that the sweep's name stands for."""
    texts: Mapping[str, str] = lock.get("asked", {})
    sweep = lock["protocol"]["content"].get("sweep") or {}
    named = (chosen or sweep["candidates"][0]) if arm == sweep.get("name") else arm
    return texts.get(named, "")


def asked(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each extra prompt, with its arms."""
    arms: dict[str, list[str]] = {}
    for arm, text in lock.get("asked", {}).items():
        arms.setdefault(text, []).append(arm)
    return [f"{', '.join(named)}: asked beside the problem: {_quoted(text)}" for text, named in arms.items()]


def apart(lock: Mapping[str, Any], chosen: str | None = None) -> list[str]:
    """Return a sentence for each two compared arms with different extra prompts: they differ in more than
    their caches.
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
    """Quote text on one line, without terminal control characters: a lock is untrusted."""
    plain = "".join(one if one.isprintable() else "\ufffd" for one in " ".join(text.split()))
    return f'"{plain}"' if text else "nothing"
