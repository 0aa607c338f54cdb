"""The catalogue of policies by name. A name keeps its meaning: a changed setting gets a new name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from policies.adakv import ada_snapkv
from policies.ahakv import ahakv
from policies.aliases import ALIASES
from policies.annealing import thinkv_annealed
from policies.blockwise import caote_blocks, keydiff_blocks, lagkv_blocks
from policies.caote import caote
from policies.chunkkv import chunkkv
from policies.contract import UnknownPolicy
from policies.crystal.policy import crystal, variants
from policies.crystal_baselines import crystal_baselines
from policies.crystal_kv import crystal_kv, crystal_kv_lite
from policies.defensivekv import defensivekv, layer_defensivekv
from policies.epicache import epicache
from policies.epikv import hidden_states
from policies.epikv_vectors import vectors
from policies.expected_attention import expected_attention
from policies.full import full
from policies.h2o import h2o
from policies.keydiff import keydiff
from policies.knorm import knorm
from policies.kvzip import kvzip
from policies.lagkv import lagkv
from policies.longflow import longflow
from policies.policy import Policy
from policies.pyramidkv import pyramidkv
from policies.r_kv import r_kv_variants
from policies.raas import raas
from policies.scissorhands import scissorhands
from policies.settings import with_settings
from policies.signatures import modes
from policies.snapkv import snapkv
from policies.snapkv_with_window import snapkv_with_window
from policies.static_route import static_route
from policies.streaming import streaming
from policies.subspace import subspaces
from policies.syn_mem import synthetic
from policies.thinkv import thought_variants
from policies.tova import tova
from policies.triattention import gates
from policies.uniform import random, random_twin
from protocol.formats.plugins import PluginGroup
from protocol.formats.suggestions import suggest

__all__ = ["CATALOGUE", "PLUGINS", "diff", "get", "mutable_settings", "names"]

CATALOGUE: Mapping[str, Policy] = MappingProxyType(
    {
        "full": full(),
        "random": random(),
        "streaming": streaming(),
        "h2o": h2o(),
        "snapkv": snapkv(),
        "crystal": crystal(),
        "tova": tova(),
        "knorm": knorm(),
        "keydiff": keydiff(),
        "pyramidkv": pyramidkv(),
        "chunkkv": chunkkv(),
        "chunkkv-20": chunkkv(size=20),
        "ada-snapkv": ada_snapkv(),
        "scissorhands": scissorhands(),
        **variants(),
        **gates(),
        "snapkv_with_window": snapkv_with_window(),
        **r_kv_variants(),
        "raas": raas(),
        "longflow": longflow(),
        "lagkv": lagkv(),
        "ahakv": ahakv(),
        **hidden_states(),
        **vectors(),
        "crystal-kv-lite": crystal_kv_lite(),
        "crystal-kv": crystal_kv(),
        **thought_variants(),
        "thinkv-annealed": thinkv_annealed(),
        **subspaces(),
        **synthetic(),
        **crystal_baselines(),
        "caote": caote(),
        "expected-attention": expected_attention(),
        "defensivekv": defensivekv(),
        "layer-defensivekv": layer_defensivekv(),
        "keydiff-blocks": keydiff_blocks(),
        "lagkv-blocks": lagkv_blocks(),
        "caote-blocks": caote_blocks(),
        "kvzip": kvzip(),
        "epicache": epicache(),
        "epicache-shared-budget": epicache(shared=True),
        **modes(),
        "static_route": static_route(),
        "random-twin": random_twin(),
    }
)

PLUGINS = PluginGroup("kv_prereg.policies", "policy", frozenset(CATALOGUE), ValueError)
"""Each entry point of another distribution names a Policy value."""

COMPONENTS = tuple(field.name for field in fields(Policy))


def get(name: str, settings: Mapping[str, Any] | None = None, /, **overrides: Any) -> Policy:
    """Return the policy, with settings changed by their paths: get("snapkv", {"scoring.window": 64}).

    Overrides replace components and are applied first: get("snapkv", selection=TopK()).

    Raises UnknownPolicy with the nearest name, and ValueError for an override that is no component and
    whenever `with_settings` does.
    """
    unknown = sorted(overrides.keys() - set(COMPONENTS))
    if unknown:
        raise ValueError(f"{unknown[0]} is no component of a policy: override one of {', '.join(COMPONENTS)}")
    policy = replace(find_policy(name), **overrides)
    return with_settings(policy, settings) if settings else policy


def names() -> tuple[str, ...]:
    """Return every name: the catalogue in its order, then those of other distributions, sorted."""
    return (*CATALOGUE, *sorted(PLUGINS.points()))


def diff(a: Policy, b: Policy) -> dict[str, tuple[Any, Any]]:
    """Return the components in which two policies differ: {component: (in a, in b)}."""
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in COMPONENTS}
    return {name: (in_a, in_b) for name, (in_a, in_b) in pairs.items() if in_a != in_b}


def find_policy(name: str) -> Policy:
    if name in CATALOGUE:
        PLUGINS.points()  # refuses a plugin that takes this name
        return CATALOGUE[name]
    if name not in PLUGINS.points():
        fix = suggest(name, names(), "kv-prereg policies", ALIASES)
        raise UnknownPolicy(f"no policy named {name!r}; {fix}")
    policy = PLUGINS.load(name)
    if type(policy) is not Policy:
        raise ValueError(
            f"entry point {name} of {PLUGINS.group} must be a Policy, not {type(policy).__name__}; a rule of its own "
            "is one of its parts, such as the scoring"
        )
    for path, value in mutable_settings(policy):
        raise ValueError(
            f"entry point {name} of {PLUGINS.group}: {path} is {type(value).__name__}, whose settings can change "
            "after they were locked; make it a frozen dataclass, of numbers, texts and tuples"
        )
    return policy


def mutable_settings(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths and values that a lock cannot record: neither frozen dataclasses nor plain values."""
    for field in fields(value):
        path, inner = f"{prefix}{field.name}", getattr(value, field.name)
        if is_dataclass(inner) and not isinstance(inner, type):
            if not inner.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                yield path, inner
            yield from mutable_settings(inner, f"{path}.")
            continue
        try:
            hash(inner)
        except TypeError:
            yield path, inner
            continue
        # An object that hashes by its identity differs in each process.
        if inner is not None and not isinstance(inner, type) and _hashes_by_identity(type(inner)):
            yield path, inner


def _hashes_by_identity(kind: type) -> bool:
    return getattr(kind, "__hash__", None) is getattr(object, "__hash__", None)
