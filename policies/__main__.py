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
import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TextIO

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
from policies.mistakes import OneLine, hint
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
        _put(f"{type(refused).__name__}: {' '.join(str(refused).split())}\n", sys.stderr)
        return 2
    _put("".join(f"{line}\n" for line in lines), sys.stdout)
    return 0


def _listed(family: str | None) -> list[str]:
    """Every policy, or those of a family, two lines each."""
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
    """Whose method it is, what is measured for it, when it evicts and whether it protects any slot."""
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
    """Asked of its protection: after a prompt of 64 slots and after 32 more, under a budget of 48."""
    prompt, later = (torch.ones(1, 1, slots, dtype=torch.bool) for slots in (64, 96))
    first = policy.protect.slots(prompt, 48, decoding=False)
    then = policy.protect.slots(later, 48, decoding=True, prompt=torch.arange(96).view(1, 1, -1) < 64)
    return "protects slots" if first.any() or then.any() else "protects nothing"


def _documented(name: str, policy: Policy) -> str:
    """What is written on the factory of a policy or, of a variant without one, on what it starts from."""
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
    """Functions of this package that make a policy, by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("policies.")]
    return {
        function.__name__: function
        for module in modules
        for function in vars(module).values()
        if inspect.isfunction(function) and function.__annotations__.get("return") == "Policy"
    }


def _put(text: str, stream: TextIO) -> None:
    """What a terminal would obey or hide is shown, and what its encoding lacks is escaped. Where the reader
    has gone (`| head`), the rest goes nowhere.
    """
    seen = "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text
    )
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(seen.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
