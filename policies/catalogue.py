"""The catalogue of policies by name. A name keeps its meaning: a changed setting gets a new name.

A policy is imported when it is asked for, so that an audit loads those of its study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from typing import Any

from policies.aliases import ALIASES
from policies.contract import UnknownPolicy
from policies.policy import Policy
from protocol.formats.plugins import PluginGroup
from protocol.formats.registry import Registry, loader
from protocol.formats.suggestions import suggest


def _load(load_function: Callable[[], Callable[..., Policy]], **settings: Any) -> Callable[[], Policy]:
    """Return a function that imports the function of a policy and builds the policy."""
    return lambda: load_function()(**settings)


def _load_family(
    load_function: Callable[[], Callable[[], Mapping[str, Policy]]], names: str
) -> dict[str, Callable[[], Policy]]:
    """Return by name what builds each policy of a function that returns several; names: all of them, with spaces."""
    load_policies = cache(lambda: load_function()())
    return {name: partial(_select, load_policies, name) for name in names.split()}


def _select(load_policies: Callable[[], Mapping[str, Policy]], name: str) -> Policy:
    return load_policies()[name]


CATALOGUE = Registry[Policy](
    {
        "full": _load(loader("policies.full:full")),
        "random": _load(loader("policies.uniform:random")),
        "streaming": _load(loader("policies.streaming:streaming")),
        "h2o": _load(loader("policies.h2o:h2o")),
        "snapkv": _load(loader("policies.snapkv:snapkv")),
        "crystal": _load(loader("policies.crystal.policy:crystal")),
        "tova": _load(loader("policies.tova:tova")),
        "knorm": _load(loader("policies.knorm:knorm")),
        "keydiff": _load(loader("policies.keydiff:keydiff")),
        "pyramidkv": _load(loader("policies.pyramidkv:pyramidkv")),
        "chunkkv": _load(loader("policies.chunkkv:chunkkv")),
        "chunkkv-20": _load(loader("policies.chunkkv:chunkkv"), size=20),
        "ada-snapkv": _load(loader("policies.adakv:ada_snapkv")),
        "scissorhands": _load(loader("policies.scissorhands:scissorhands")),
        **_load_family(
            loader("policies.crystal.policy:variants"),
            "crystal-uniform crystal-no-rarity crystal-token-level crystal-static-graph crystal-still "
            "crystal-adaptive-merge crystal-rarity-inverse crystal-rarity-exponential "
            "crystal-rarity-document crystal-chunk-128 crystal-steepness-2 crystal-d-only "
            "crystal-impact-only crystal-average crystal-product crystal-coverage crystal-tiers "
            "crystal-over-budget crystal-blog",
        ),
        **_load_family(
            loader("policies.triattention:gates"),
            "1d 1d_div 1d_div-1.0 1d_div-1.5 variant_b q_stats schedule-front schedule-back "
            "schedule-inverted state_ask state_emit",
        ),
        "snapkv_with_window": _load(loader("policies.snapkv_with_window:snapkv_with_window")),
        **_load_family(loader("policies.r_kv:r_kv_variants"), "r-kv snapkv-rkv streamingllm-rkv"),
        "raas": _load(loader("policies.raas:raas")),
        "longflow": _load(loader("policies.longflow:longflow")),
        "lagkv": _load(loader("policies.lagkv:lagkv")),
        "ahakv": _load(loader("policies.ahakv:ahakv")),
        **_load_family(loader("policies.epikv:hidden_states"), "epikv hs-variance band-adaptive attn-x-hs"),
        **_load_family(loader("policies.epikv_vectors:vectors"), "kv-key kv-val lagkv-causal"),
        "crystal-kv-lite": _load(loader("policies.crystal_kv:crystal_kv_lite")),
        "crystal-kv": _load(loader("policies.crystal_kv:crystal_kv")),
        **_load_family(loader("policies.thinkv:thought_variants"), "thinkv segment-hs"),
        "thinkv-annealed": _load(loader("policies.annealing:thinkv_annealed")),
        **_load_family(loader("policies.subspace:subspaces"), "subspace full-subspace"),
        **_load_family(
            loader("policies.syn_mem:synthetic"),
            "syn_mem syn_mem-1 syn_mem-2 syn_mem-3 syn_mem-4 syn_mem-attention syn_mem-massless "
            "syn_mem-attention-massless",
        ),
        **_load_family(
            loader("policies.crystal_baselines:crystal_baselines"),
            "chunkkv-cumulative pyramidkv-cumulative h2o-window",
        ),
        "caote": _load(loader("policies.caote:caote")),
        "expected-attention": _load(loader("policies.expected_attention:expected_attention")),
        "defensivekv": _load(loader("policies.defensivekv:defensivekv")),
        "layer-defensivekv": _load(loader("policies.defensivekv:layer_defensivekv")),
        "keydiff-blocks": _load(loader("policies.blockwise_policies:keydiff_blocks")),
        "lagkv-blocks": _load(loader("policies.blockwise_policies:lagkv_blocks")),
        "caote-blocks": _load(loader("policies.blockwise_policies:caote_blocks")),
        "kvzip": _load(loader("policies.kvzip:kvzip")),
        "epicache": _load(loader("policies.epicache:epicache")),
        "epicache-shared-budget": _load(loader("policies.epicache:epicache"), shared=True),
        **_load_family(
            loader("policies.signatures:modes"),
            "1d-per-layer 1d-per-head 1d-per-head_div ada-1d ada-1d_div pyramid-1d pyramid-1d_div "
            "1d_div-per-layer 1d_div-per-head 1d_div-scheduled",
        ),
        "static_route": _load(loader("policies.static_route:static_route")),
        "random-twin": _load(loader("policies.uniform:random_twin")),
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
        raise ValueError(f"{unknown[0]} is not a component of a policy; override one of {', '.join(COMPONENTS)}")
    policy = replace(find_policy(name), **overrides)
    if not settings:
        return policy
    from policies.settings import with_settings  # which knows all stored formats

    return with_settings(policy, settings)


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
            f"entry point {name} of {PLUGINS.group} must be a Policy, not {type(policy).__name__}; pass a "
            "custom rule as one of its parts, such as the scoring"
        )
    for path, value in mutable_settings(policy):
        raise ValueError(
            f"entry point {name} of {PLUGINS.group}: {path} is {type(value).__name__}, whose settings "
            "could change after they are locked; make it a frozen dataclass of numbers, texts and tuples"
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
