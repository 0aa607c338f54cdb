"""List the policies with what they keep, their source and the signals that they need; or describe one in full.

    kv-prereg policies
    kv-prereg policies --family epikv
    kv-prereg policies snapkv        its settings by their paths, and its departures from its authors' code

A setting is changed by its path: policies.get("snapkv", {"scoring.window": 64}) or, for an arm in
protocol.toml, { policy = "snapkv", set = { "scoring.window" = 64 } }.

Exit status: 0 listed; 2 the policy or family does not exist.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from policies.calibration import Calibrated
from policies.catalogue import get, names
from policies.contract import AttentionSignal, CacheSignal, FedSignal, HiddenSignal, Signal, UnknownPolicy
from policies.descriptions import FAMILIES
from policies.policy import Policy
from policies.quantised.states import STATES
from policies.state import Verbatim
from policies.structure import structure
from protocol.formats.command_line import make_parser
from protocol.formats.escape import print_escaped
from protocol.formats.policy_facts import read_policy_facts
from protocol.formats.suggestions import suggest
from protocol.formats.terminal import wrap_text

POLICY_FACTS = read_policy_facts()
SIGNAL_LABELS = {
    AttentionSignal: "attention",
    HiddenSignal: "hidden states",
    CacheSignal: "keys and values",
    FedSignal: "keys and values as they are fed",
}


def main(argv: list[str] | None = None) -> int:
    parser = make_parser("kv-prereg policies", __doc__)
    parser.add_argument("name", nargs="?", help="name of a policy, to describe it in full")
    parser.add_argument("--family", metavar="NAME", help=f"a family of policies: {', '.join(FAMILIES)}")
    args = parser.parse_args(argv)
    if args.name is not None and args.family is not None:
        parser.error("name a policy or a family, not both")
    try:
        if args.name is not None:
            lines = _format_policy(args.name)
        elif args.family is None or args.family in FAMILIES:
            lines = _format_list(args.family)
        else:
            raise UnknownPolicy(f"no family named {args.family!r}; {suggest(args.family, FAMILIES)}")
    except ValueError as error:
        print_escaped(f"{type(error).__name__}: {' '.join(str(error).split())}", sys.stderr)
        return 2
    print_escaped("\n".join(lines), sys.stdout)
    return 0


def _format_list(only: str | None) -> list[str]:
    """Format every policy, or those of one family, two lines each."""
    catalogue, lines = names(), []
    for family, about in FAMILIES.items():
        members = [name for name in catalogue if name in POLICY_FACTS and POLICY_FACTS[name].family == family]
        if members and only in (None, family):
            lines += ["", f"{family}: {about}"]
            for name in members:
                lines += [f"  {name:<28}{POLICY_FACTS[name].line}", *_indent(_format_facts(name))]
    if others := [name for name in catalogue if name not in POLICY_FACTS and only is None]:
        lines += ["", "policies of other distributions, which are not described here:"]
        for name in others:
            lines += [f"  {name}", *_indent(_format_facts(name))]
    return lines[1:]


def _indent(text: str) -> list[str]:
    indent = 30 * " "
    return wrap_text(text, first=indent, later=indent)


def _format_policy(name: str) -> list[str]:
    policy = get(name)
    described = POLICY_FACTS.get(name)
    about = (
        f"{described.family}: {described.line}"
        if described
        else "from another distribution, which is not described here"
    )
    settings = structure(policy)
    width = max(map(len, settings))
    return [
        f"{name}, {about}",
        *wrap_text(_format_facts(name)),
        "",
        *(f"    {line}".rstrip() for line in _find_docstring(name, policy).splitlines()),
        "",
        "Settings by their paths; a name with () is a part and cannot be set:",
        *(f"    {path:<{width}}  {text}" for path, text in settings.items()),
        *([f"The state is set by its name: {', '.join(STATES)}"] if type(policy.state) is Verbatim else []),
    ]


def _format_facts(name: str) -> str:
    """Return the source, the measured signals, when the policy evicts and whether it protects any slot."""
    source = [POLICY_FACTS[name].source] if name in POLICY_FACTS else []
    try:
        policy = get(name)
    except Exception as error:  # code of another distribution, which keeps no list from the reader
        return f"refused: {' '.join(str(error).split())}"
    return "; ".join(
        [*source, f"needs {_format_needs(policy.needs)}", _format_cadence(policy), _format_protection(policy)]
    )


def _format_needs(signals: Iterable[Signal]) -> str:
    kinds = {label for signal in signals for kind, label in SIGNAL_LABELS.items() if isinstance(signal, kind)}
    labels = [label for label in SIGNAL_LABELS.values() if label in kinds]
    calibrated = sorted(signal.name for signal in signals if isinstance(signal, Calibrated))
    statistics = [f"calibrated statistics ({', '.join(calibrated)})"] if calibrated else []
    return ", ".join([*labels, *statistics]) or "nothing"


def _format_cadence(policy: Policy) -> str:
    if not policy.evicts:
        return "never evicts"
    return "no eviction steps while decoding" if policy.prefill_only_signals else "evicts while decoding"


def _format_protection(policy: Policy) -> str:
    """Call the protection after a prompt of 64 slots and after 32 more, under a budget of 48."""
    prompt, later = (torch.ones(1, 1, slots, dtype=torch.bool) for slots in (64, 96))
    at_prefill = policy.protect.slots(prompt, 48, decoding=False)
    while_decoding = policy.protect.slots(later, 48, decoding=True, prompt=torch.arange(96).view(1, 1, -1) < 64)
    return "protects slots" if at_prefill.any() or while_decoding.any() else "protects nothing"


def _find_docstring(name: str, policy: Policy) -> str:
    """Return the docstring of the factory of a policy or, for a variant without one, of its parent."""
    factories = _factories()
    for factory in factories.values():
        if _builds(factory, policy):
            return inspect.getdoc(factory) or ""
    parts, module = name.replace("-", "_").split("_"), type(policy.scoring).__module__.rpartition(".")[2]
    for parent in (*("_".join(parts[:count]) for count in range(len(parts), 0, -1)), module):
        if parent in factories:
            return f"Description of {parent}, from which it starts:\n\n{inspect.getdoc(factories[parent])}"
    return inspect.getdoc(type(policy.scoring)) or ""


def _builds(factory: Callable[..., Any], policy: Policy) -> bool:
    parameters = inspect.signature(factory).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters) and bool(factory() == policy)


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
