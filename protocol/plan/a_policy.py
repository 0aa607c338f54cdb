"""The kind of a policy name in protocol.toml. The names are looked up when one is read, which needs torch."""

import re
from collections.abc import Mapping
from typing import Any

from protocol.evidence.bytes.fields import Fault
from protocol.plan.kinds import Named

__all__ = ["POLICY"]

PRESS = re.compile(r"(?:kvpress:)?([A-Za-z]+Press)")


class APolicy(Named):
    """The name of a policy of this package or of another distribution."""

    def fault(self, value: Any, at: str, words: str = "") -> Fault:
        fault = super().fault(value, at, words)
        if isinstance(value, str) and (press := PRESS.fullmatch(value)):
            fix = f'write press = "kvpress:{press[1]}" in the place of policy'
            return Fault(f"{at}: {value!r} is a press; {fix}", fault.found)
        return fault


def _policies() -> tuple[str, ...]:
    import policies

    return policies.names()


def _known_as() -> Mapping[str, str]:
    from policies.known_as import KNOWN_AS

    return KNOWN_AS


POLICY = APolicy(_policies, "kv-prereg policies", open=True, known_as=_known_as)
