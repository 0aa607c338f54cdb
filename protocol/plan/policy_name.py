"""The kind of a policy name in protocol.toml. The names are looked up when one is read, which needs torch."""

import re
from collections.abc import Mapping
from typing import Any

from protocol.formats.fields import Fault
from protocol.plan.field_kinds import CatalogueName

PRESS = re.compile(r"(?:kvpress:)?([A-Za-z]+Press)")


class PolicyName(CatalogueName):
    """The name of a policy of this package or of another distribution."""

    def make_fault(self, value: Any, at: str, words: str = "") -> Fault:
        fault = super().make_fault(value, at, words)
        if isinstance(value, str) and (press := PRESS.fullmatch(value)):
            fix = f'write press = "kvpress:{press[1]}" instead of policy'
            return Fault(f"{at}: {value!r} is a press; {fix}", fault.audit_message)
        return fault


def _policy_names() -> tuple[str, ...]:
    import policies

    return policies.names()


def _aliases() -> Mapping[str, str]:
    from policies.aliases import ALIASES

    return ALIASES


POLICY = PolicyName(_policy_names, "kv-prereg policies", open=True, corrections=_aliases)
