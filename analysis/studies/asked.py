"""What arms say to the model beside the problem, and whom that sets apart: in words, from the lock alone."""

from collections.abc import Mapping
from typing import Any

from analysis.rules.rule import sides

__all__ = ["apart", "asked", "words"]


def asked(lock: Mapping[str, Any], arm: str, chosen: str | None = None) -> str:
    """Of one arm; empty for nothing. chosen: the candidate that a sweep's name stands for."""
    texts: Mapping[str, str] = lock.get("asked", {})
    sweep = lock["protocol"]["content"].get("sweep") or {}
    named = (chosen or sweep["candidates"][0]) if arm == sweep.get("name") else arm
    return texts.get(named, "")


def words(lock: Mapping[str, Any]) -> list[str]:
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
        own, others = asked(lock, one, chosen), asked(lock, other, chosen)
        if own != others:
            said.append(
                f"{one} and {other} were asked different things ({one}: {_quoted(own)}; {other}: "
                f"{_quoted(others)})"
            )
    return said


def _quoted(text: str) -> str:
    return f'"{" ".join(text.split())}"' if text else "nothing"
