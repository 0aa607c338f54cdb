"""Arms whose policy is not of this project's catalogue: what ran is the author's code, and its digest names it."""

from collections.abc import Mapping
from typing import Any

from protocol.formats.policy_facts import is_own_policy


def own_arms(lock: Mapping[str, Any]) -> dict[str, str]:
    """Return the policy of each arm that runs one of another distribution. lock: its content, as written."""
    arms = lock["protocol"]["content"]["arms"]
    return {name: arm["policy"] for name, arm in arms.items() if "policy" in arm and is_own_policy(arm["policy"])}


def describe_own_policies(lock: Mapping[str, Any]) -> str:
    """Say which arms ran code that is not this project's, and whose; empty if none did."""
    arms_by_code: dict[str, list[str]] = {}
    for arm, policy in own_arms(lock).items():
        arms_by_code.setdefault(f"{policy} of {_describe_distribution(lock, arm)}", []).append(arm)
    if not arms_by_code:
        return ""
    named = "; ".join(f"{', '.join(arms)} ran {code}" for code, arms in arms_by_code.items())
    return (
        f"{named}: this is not code of this project, so that only reading it shows whether it does "
        "anything other than score slots"
    )


def _describe_distribution(lock: Mapping[str, Any], arm: str) -> str:
    """Return the name, version and digest of the distribution that an arm's policy is of, as the lock lists it."""
    name = lock.get("policies", {}).get(arm, {}).get("distribution", "")
    listed = lock.get("environment", {}).get("distributions", {}).get(name)
    if listed is None:
        return "a distribution that the lock does not list"
    return f"{name} {listed['version']} (sha256 {listed['files'][:12]})"
