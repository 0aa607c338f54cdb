"""Facts about the policies: family, description, source, hypothesis. Each policy states its own in its file.

They are read from the source text, since importing a policy imports torch, which tables of hypotheses and the
index of studies do without.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class PolicyFacts(NamedTuple):
    """A file of the package `policies` has a literal FACTS: these by the policy's name in the catalogue."""

    family: str  # one of policies.descriptions.FAMILIES
    line: str  # what the policy keeps, in at most 90 characters
    source: str  # the paper, by its arXiv number or its author and title; "ours" if there is none
    hypothesis: str  # what the policy is to show, in one sentence
    parent: str = ""  # the policy from which it differs in one component; empty for an independent method
    component: str = ""  # that component; empty without a parent, and for an alias of the parent
    is_control: bool = False  # a comparator of its parent, not an attempt to be better
    aliases: tuple[str, ...] = ()  # names that papers and other libraries use for it


@cache
def read_policy_facts() -> Mapping[str, PolicyFacts]:
    spec = find_spec("policies")
    assert spec is not None
    assert spec.origin is not None
    paths = sorted(Path(spec.origin).parent.rglob("*.py"))
    return MappingProxyType({name: facts for path in paths for name, facts in _facts_of_file(path)})


def is_own_policy(name: str | None) -> bool:
    """Return whether this names a policy that is not of this project's catalogue; None is the name of a press's."""
    return name is not None and name not in read_policy_facts()


def _facts_of_file(path: Path) -> Iterator[tuple[str, PolicyFacts]]:
    text = path.read_text("utf-8")
    if "\nFACTS = {" not in text:
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FACTS":
            assert isinstance(node.value, ast.Dict)
            for name, call in zip(node.value.keys, node.value.values, strict=True):
                assert name is not None
                assert isinstance(call, ast.Call)
                settings = {item.arg or "": ast.literal_eval(item.value) for item in call.keywords}
                yield ast.literal_eval(name), PolicyFacts(*map(ast.literal_eval, call.args), **settings)
