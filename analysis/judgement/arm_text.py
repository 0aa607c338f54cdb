"""Descriptions of arms: the policy or press, its settings, and its extra prompt."""

from collections.abc import Mapping
from typing import Any

from analysis.rules.rule import AS_COMPUTED, arm_pairs


def policy_name(arm: Mapping[str, Any]) -> str:
    """Return the name of the arm's policy or press: "snapkv", "kvpress:SnapKVPress"."""
    named: str = arm["press"] if "press" in arm else arm["policy"]
    return named


def policy_names(lock: Mapping[str, Any], judged: Mapping[str, Any], subject: str) -> dict[str, str]:
    """Return the policy name of each arm; for a swept subject, the winner's."""
    named = {arm: policy_name(entry) for arm, entry in lock["protocol"]["content"]["arms"].items()}
    if "selected" in judged:
        named[subject] = judged["selected"]["policy"]
    return named


def policy_settings(
    lock: Mapping[str, Any], judged: Mapping[str, Any], subject: str
) -> dict[str, Mapping[str, str]] | None:
    """Return the settings of each arm's policy; None if the lock has none. For a swept subject, the winner's."""
    if not lock.get("policies"):
        return None
    settings = dict(lock["policies"])
    if "selected" in judged:
        settings[subject] = settings[judged["selected"]["arm"]]
    return settings


def press_arms(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the arms that run a press, and the subject of a sweep that may choose one. Such an arm may
    retain every slot and still not answer as the full cache does: kvpress masks in place for some presses.
    """
    names = {name for name, arm in content["arms"].items() if "press" in arm}
    sweep = content.get("sweep")
    if sweep is not None and names & {*sweep["candidates"]}:
        names.add(sweep["name"])
    return frozenset(names)


def altered_arms(lock: Mapping[str, Any]) -> frozenset[str]:
    """Return the arms that differ from the full cache even if they evict nothing: their slots are not stored
    as computed, or they have an extra prompt. Includes the subject of a sweep that may choose one.
    """
    policies: Mapping[str, Mapping[str, str]] = lock.get("policies", {})
    names = {arm for arm, parts in policies.items() if parts.get("state", AS_COMPUTED[0]) not in AS_COMPUTED}
    names |= {arm for arm, text in lock.get("asked", {}).items() if text}
    sweep = lock["protocol"]["content"].get("sweep")
    if sweep is not None and names & {*sweep["candidates"]}:
        names.add(sweep["name"])
    return frozenset(names)


def describe_arm(arm: Mapping[str, Any]) -> str:
    """Describe an arm: "policy snapkv, scoring.window = 64". arm: from a lock or a selection."""
    settings = (f"{path} = {_format_setting(value)}" for path, value in arm.get("set", {}).items())
    return ", ".join([f"{'press' if 'press' in arm else 'policy'} {policy_name(arm)}", *settings])


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_setting, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _extra_prompt(lock: Mapping[str, Any], arm: str, chosen: str | None = None) -> str:
    """Return the extra prompt of an arm, or "". chosen: the candidate that the sweep's name stands for."""
    texts: Mapping[str, str] = lock.get("asked", {})
    sweep = lock["protocol"]["content"].get("sweep") or {}
    named = (chosen or sweep["candidates"][0]) if arm == sweep.get("name") else arm
    return texts.get(named, "")


def extra_prompt_sentences(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each extra prompt, with its arms."""
    arms: dict[str, list[str]] = {}
    for arm, text in lock.get("asked", {}).items():
        arms.setdefault(text, []).append(arm)
    return [f"{', '.join(named)}: prompt in addition to the problem: {_quote(text)}" for text, named in arms.items()]


def differing_prompt_sentences(lock: Mapping[str, Any], chosen: str | None = None) -> list[str]:
    """Return a sentence for each two compared arms with other extra prompts: they differ in more than caches."""
    decision = lock["protocol"]["content"]["decision"]
    compared = [*arm_pairs(decision), *((decision["subject"], other) for other in decision.get("beside") or ())]
    sentences = []
    for arm, other in dict.fromkeys(compared):
        prompt, other_prompt = _extra_prompt(lock, arm, chosen), _extra_prompt(lock, other, chosen)
        if prompt != other_prompt:
            sentences.append(
                f"{arm} and {other} were asked different things ({arm}: {_quote(prompt)}; {other}: "
                f"{_quote(other_prompt)})"
            )
    return sentences


def _quote(text: str) -> str:
    """Quote text on one line, without terminal control characters: a lock is untrusted."""
    plain = "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))
    return f'"{plain}"' if text else "nothing"
