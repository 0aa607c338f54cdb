"""List the policies: what each keeps, whose method it is, what it needs. Or say all of one.

    kv-prereg policies
    kv-prereg policies --family epikv
    kv-prereg policies snapkv        its settings by their paths, what its authors do otherwise, and, where it
                                     was measured, how far what it keeps agrees with what answers needed

A setting is changed by its path: policies.get("snapkv", {"scoring.window": 64}) or, of an arm in
protocol.toml, { policy = "snapkv", set = { "scoring.window" = 64 } }.

Exit status: 0 listed; 2 no such policy or family.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import torch

from policies import agreements
from policies.calibrated import Calibrated
from policies.catalogue import get, names
from policies.contract import (
    AttentionSignal,
    CacheSignal,
    FedSignal,
    HiddenSignal,
    Signal,
    UnknownPolicy,
)
from policies.described import DESCRIBED, FAMILIES
from protocol.evidence.bytes.shown import put
from protocol.evidence.mistakes import OneLine, hint
from policies.policy import Policy
from policies.structure import structure

__all__ = ["main"]

WIDTH = 110
KINDS = {
    AttentionSignal: "attention",
    HiddenSignal: "hidden states",
    CacheSignal: "keys and values",
    FedSignal: "keys and values as they are fed",
}


def main(argv: list[str] | None = None) -> int:
    parser = OneLine(
        prog="kv-prereg policies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="a policy, of which all is said")
    parser.add_argument("--family", metavar="NAME", help=f"one of {', '.join(FAMILIES)}")
    args = parser.parse_args(argv)
    if args.name is not None and args.family is not None:
        parser.error("name a policy or a family, not both")
    try:
        if args.name is not None:
            lines = _of_one(args.name)
        elif args.family is None or args.family in FAMILIES:
            lines = _listed(args.family)
        else:
            raise UnknownPolicy(f"no family named {args.family!r}; {hint(args.family, FAMILIES)}")
    except ValueError as refused:
        put(f"{type(refused).__name__}: {' '.join(str(refused).split())}", sys.stderr)
        return 2
    put("\n".join(lines), sys.stdout)
    return 0


def _listed(family: str | None) -> list[str]:
    """Format every policy, or those of one family, two lines each."""
    every, lines = names(), []
    for one, about in FAMILIES.items():
        own = [name for name, described in DESCRIBED.items() if described.family == one and name in every]
        if own and family in (None, one):
            lines += ["", f"{one}: {about}"]
            for name in own:
                lines += [f"  {name:<28}{DESCRIBED[name].line}", *_below(_facts(name))]
    if others := [name for name in every if name not in DESCRIBED and family is None]:
        lines += ["", "of other distributions: not described here"]
        for name in others:
            lines += [f"  {name}", *_below(_facts(name))]
    return lines[1:]


def _below(text: str) -> list[str]:
    indent = 30 * " "
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _of_one(name: str) -> list[str]:
    policy = get(name)
    described = DESCRIBED.get(name)
    about = (
        f"{described.family}: {described.line}"
        if described
        else "of another distribution: not described here"
    )
    settings, told = structure(policy), agreements.told(name)
    wide = max(map(len, settings))
    return [
        f"{name}, {about}",
        *textwrap.wrap(_facts(name), WIDTH),
        "",
        *(f"    {line}".rstrip() for line in _documented(name, policy).splitlines()),
        "",
        *([*told, ""] if told else []),
        "Settings by their paths; a name with () is a part, which is not set:",
        *(f"    {path:<{wide}}  {text}" for path, text in settings.items()),
    ]


def _facts(name: str) -> str:
    """Return the source, the measured signals, when the policy evicts and whether it protects any slot."""
    source = [DESCRIBED[name].source] if name in DESCRIBED else []
    try:
        policy = get(name)
    except Exception as broken:  # code of another distribution, which keeps no list from the reader
        return f"refused: {' '.join(str(broken).split())}"
    return "; ".join([*source, f"needs {_needs(policy.needs)}", _events(policy), _protects(policy)])


def _needs(signals: Iterable[Signal]) -> str:
    kinds = {words for signal in signals for kind, words in KINDS.items() if isinstance(signal, kind)}
    measured = [words for words in KINDS.values() if words in kinds]
    calibrated = sorted(signal.name for signal in signals if isinstance(signal, Calibrated))
    named = [f"calibrated statistics ({', '.join(calibrated)})"] if calibrated else []
    return ", ".join([*measured, *named]) or "nothing"


def _events(policy: Policy) -> str:
    if not policy.evicts:
        return "never evicts"
    return "no events while decoding" if policy.uncarried else "events while decoding"


def _protects(policy: Policy) -> str:
    """Call the protection after a prompt of 64 slots and after 32 more, under a budget of 48."""
    prompt, later = (torch.ones(1, 1, slots, dtype=torch.bool) for slots in (64, 96))
    first = policy.protect.slots(prompt, 48, decoding=False)
    then = policy.protect.slots(later, 48, decoding=True, prompt=torch.arange(96).view(1, 1, -1) < 64)
    return "protects slots" if first.any() or then.any() else "protects nothing"


def _documented(name: str, policy: Policy) -> str:
    """Return the docstring of the factory of a policy or, for a variant without one, of its parent."""
    made = _factories()
    for factory in made.values():
        if _makes(factory, policy):
            return inspect.getdoc(factory) or ""
    words, home = name.replace("-", "_").split("_"), type(policy.scoring).__module__.rpartition(".")[2]
    for parent in (*("_".join(words[:count]) for count in range(len(words), 0, -1)), home):
        if parent in made:
            return f"Of {parent}, from which it starts:\n\n{inspect.getdoc(made[parent])}"
    return inspect.getdoc(type(policy.scoring)) or ""


def _makes(factory: Callable[..., Any], policy: Policy) -> bool:
    needed = inspect.signature(factory).parameters.values()
    return all(one.default is not one.empty for one in needed) and bool(factory() == policy)


def _factories() -> dict[str, Callable[..., Any]]:
    """Return the functions of this package that build a policy, by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("policies.")]
    return {
        function.__name__: function
        for module in modules
        for function in vars(module).values()
        if inspect.isfunction(function) and function.__annotations__.get("return") == "Policy"
    }



if __name__ == "__main__":
    sys.exit(main())
