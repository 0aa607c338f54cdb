"""One-line descriptions of the policies of the catalogue: family, what it keeps, and source."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["DESCRIPTIONS", "FAMILIES", "Description"]


class Description(NamedTuple):
    family: str
    line: str
    """What the policy keeps, in at most 90 characters."""
    source: str
    """The paper, by its arXiv number or its author and title; "ours" if there is none."""


FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "controls": "what the others are measured against",
        "positions": "where a token stands",
        "attention": "what queries attend to",
        "stored": "what keys and values look like",
        "crystalcache": "CrystalCache: trunks of text, its ablations and extensions",
        "triattention": "TriAttention's modes, and gates that start from them",
        "crystal-kv": "Crystal-KV: what attention comes back to",
        "thoughts": "segments of an answer, by the kind of thought",
        "epikv": "EpiKV: how much a token changed the model's state, and what it compares with",
    }
)
"""Families of policies by name, in the order of the listing."""

CRYSTALCACHE = "Po-Ting Lin, CrystalCache"
BLOG = "Po-Ting Lin, CrystalCache (blog post)"
GATES = "Sun and Harn, arXiv:2605.14292"
R_KV = "arXiv:2505.24133"
CRYSTAL_KV = "arXiv:2601.16986"
EPIKV = "Kolawole and Smith, arXiv:2606.26472"

BY_FAMILY: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "controls": {
        "full": ("every slot: the full cache, which never evicts", "ours"),
        "full-subspace": ("every slot, its value as 32 coefficients: what coding alone costs", "ours"),
        "random": ("sinks and recent slots, and a random choice of the others", "ours"),
    },
    "positions": {
        "streaming": ("the first slots and the latest ones: StreamingLLM", "arXiv:2309.17453"),
        "streamingllm-rkv": ("the first slots and the latest ones, as R-KV's repository has it", R_KV),
    },
    "attention": {
        "h2o": ("recent slots, and those with the largest attention of all queries", "arXiv:2306.14048"),
        "snapkv": ("the last window, and what its queries attend to", "arXiv:2404.14469"),
        "tova": ("what the last query attends to, one set for each layer", "arXiv:2401.06104"),
        "pyramidkv": ("as snapkv, more slots in early layers than in late ones", "arXiv:2406.02069"),
        "chunkkv": ("the last window, and whole chunks of 10 that it attends to", "arXiv:2502.00299"),
        "chunkkv-20": ("as chunkkv, chunks of 20", "arXiv:2502.00299"),
        "ada-snapkv": ("as snapkv, heads of a layer competing for its slots", "arXiv:2407.11550"),
        "scissorhands": ("what recent queries pass over least often", "arXiv:2305.17118"),
        "snapkv_with_window": ("as snapkv, one set for all layers and heads: a comparator", GATES),
        "r-kv": ("what recent queries attend to, less what repeats other keys", R_KV),
        "snapkv-rkv": ("what recent queries attend to, as R-KV's repository has it", R_KV),
        "raas": ("the prompt, and what some query has looked at most recently", "arXiv:2502.11147"),
        "longflow": ("what adds most to the output of the current token", "arXiv:2603.11504"),
        "caote": ("what the output of the last query would miss most", "arXiv:2504.14051"),
        "caote-blocks": ("as caote, after each block of 128 of the prompt", "arXiv:2504.14051"),
        "expected-attention": ("what queries to come are expected to attend to", "arXiv:2510.00636"),
        "defensivekv": (
            "what any recent query attends to, by what values add to the output",
            "arXiv:2510.13334",
        ),
        "layer-defensivekv": (
            "as defensivekv, heads of all layers competing for the slots",
            "arXiv:2510.13334",
        ),
        "chunkkv-cumulative": ("as chunkkv, by the attention of all queries", CRYSTALCACHE),
        "pyramidkv-cumulative": ("as pyramidkv, by the attention of all queries", CRYSTALCACHE),
        "h2o-window": ("as h2o, by the attention of the last 128 queries", CRYSTALCACHE),
        "kvzip": ("what a repetition of the text looks at, heads and layers competing", "arXiv:2505.23416"),
        "epicache": ("what the question's episode looks at; a cache for each of four", "arXiv:2509.17396"),
        "epicache-shared-budget": ("as epicache, the four caches sharing the budget", "arXiv:2509.17396"),
        "ahakv": ("recent attention, sharpened to the budget, times the size of values", "arXiv:2506.03762"),
    },
    "stored": {
        "knorm": ("keys of small norm", "arXiv:2406.11430"),
        "keydiff": ("keys that are least like the mean key", "arXiv:2504.15364"),
        "lagkv": ("keys and values that stand out from the chunk after theirs", "arXiv:2504.04704"),
        "keydiff-blocks": ("as keydiff, after each block of 128 of the prompt", "arXiv:2504.15364"),
        "lagkv-blocks": ("as lagkv, after each block of 128 of the prompt", "arXiv:2504.04704"),
    },
    "crystalcache": {
        "crystal": ("the trunks that dissolve last. CrystalCache, and not Crystal-KV", CRYSTALCACHE),
        "crystal-uniform": ("as crystal, every token of the same impact", CRYSTALCACHE),
        "crystal-no-rarity": ("as crystal, impact without the rarity of a token", CRYSTALCACHE),
        "crystal-token-level": ("as crystal, trunks of one slot", CRYSTALCACHE),
        "crystal-static-graph": ("as crystal, links that no breath changes", CRYSTALCACHE),
        "crystal-still": ("as crystal, no breath while decoding", CRYSTALCACHE),
        "crystal-adaptive-merge": ("as crystal, the merge threshold taken from the text", CRYSTALCACHE),
        "crystal-rarity-inverse": ("as crystal, rarity as one over the count", CRYSTALCACHE),
        "crystal-rarity-exponential": ("as crystal, rarity falling exponentially", CRYSTALCACHE),
        "crystal-rarity-document": ("as crystal, rarity by the sentences that hold a token", CRYSTALCACHE),
        "crystal-d-only": ("as crystal, trunks ranked by crystallization alone", CRYSTALCACHE),
        "crystal-impact-only": ("as crystal, trunks ranked by impact alone", CRYSTALCACHE),
        "crystal-average": ("as crystal, trunks ranked by the average of both", CRYSTALCACHE),
        "crystal-product": ("as crystal, trunks ranked by the product of both", CRYSTALCACHE),
        "crystal-coverage": ("as crystal, a tenth of the budget spread over the text", CRYSTALCACHE),
        "crystal-over-budget": ("as crystal, protected trunks whole beyond the budget", CRYSTALCACHE),
        "crystal-chunk-128": ("as crystal, attention read in chunks of 128", BLOG),
        "crystal-steepness-2": ("as crystal, a logistic of steepness 2", BLOG),
        "crystal-tiers": ("as crystal, the best trunks whole and the middle ones in part", BLOG),
        "crystal-blog": ("as crystal, with every setting of the blog post", BLOG),
    },
    "triattention": {
        "1d": ("keys that the model's mean query would attend to, one set for all", "arXiv:2604.04921"),
        "1d_div": ("as 1d, less the likeness of values to those kept already, weight 0.5", GATES),
        "1d_div-1.0": ("as 1d_div, weight 1.0", GATES),
        "1d_div-1.5": ("as 1d_div, weight 1.5", GATES),
        "variant_b": ("as 1d, and values that point where the model's values point", GATES),
        "q_stats": ("as 1d, with statistics of the model's own answers", GATES),
        "schedule-front": ("as 1d, budgets that fall from round to round", GATES),
        "schedule-back": ("as 1d, budgets that rise from round to round", GATES),
        "schedule-inverted": ("as 1d, a low budget in the first rounds and a high one after", GATES),
        "state_ask": ("as 1d, of a model that is asked for State: lines; none is pinned: a control", GATES),
        "state_emit": ("as state_ask, and State: lines that it wrote are pinned", GATES),
        "1d-per-layer": ("as 1d, one set for the heads of each layer", "arXiv:2604.04921"),
        "1d-per-head": ("as 1d, a set for each layer and KV head", "arXiv:2604.04921"),
        "ada-1d": ("as 1d-per-head, heads of a layer competing for its slots", "ours"),
        "ada-1d_div": ("as ada-1d, less the likeness of values that the head has kept", "ours"),
        "pyramid-1d": ("as 1d-per-head, more slots in early layers than in late ones", "ours"),
        "pyramid-1d_div": ("as pyramid-1d, less the likeness of values that the head has kept", "ours"),
        "1d_div-per-layer": ("as 1d_div, likeness as the mean over layers", "ours"),
        "1d_div-per-head": ("as 1d_div, likeness as the mean over layers and heads", "ours"),
        "1d_div-scheduled": ("as 1d_div, a weight that falls while the answer grows", "ours"),
        "static_route": ("as 1d-per-head, slots at even distances where a table says so", GATES),
        "subspace": ("as 1d, values as coefficients of the 32 directions in which they vary most", GATES),
        "syn_mem": ("as 1d, a quarter of the slots means of what is dropped: syn_mem-3", GATES),
        "syn_mem-1": ("as 1d, the prompt as means of its spans", GATES),
        "syn_mem-2": ("as 1d, what is dropped as means of spans, of which the oldest merge", GATES),
        "syn_mem-3": ("as 1d, a quarter of the slots means of spans of what is dropped", GATES),
        "syn_mem-4": ("as 1d, as many means of what is dropped as there are gaps", GATES),
        "syn_mem-attention": ("as syn_mem, means weighted by recent attention", GATES),
        "syn_mem-massless": ("as syn_mem, without log N on a slot of N tokens", GATES),
        "syn_mem-attention-massless": ("as syn_mem-attention, without log N", GATES),
    },
    "crystal-kv": {
        "crystal-kv": (
            "as crystal-kv-lite, with budgets that move. Crystal-KV, not CrystalCache",
            CRYSTAL_KV,
        ),
        "crystal-kv-lite": (
            "what was attended to often and lately. Crystal-KV, not CrystalCache",
            CRYSTAL_KV,
        ),
    },
    "thoughts": {
        "thinkv": ("of each segment as many slots as its kind of thought is worth", "arXiv:2510.01290"),
        "thinkv-annealed": ("as thinkv, segments that shrink at each transition", "arXiv:2510.01290"),
    },
    "epikv": {
        "epikv": ("tokens that changed one layer much and another little, detrended", EPIKV),
        "hs-variance": ("as epikv, changes averaged and not detrended", EPIKV),
        "band-adaptive": ("as epikv, two bands of layers in place of two layers", EPIKV),
        "kv-key": ("as epikv, tokens whose keys vary most over their channels", EPIKV),
        "kv-val": ("as epikv, tokens whose values vary most over their channels", EPIKV),
        "lagkv-causal": ("as epikv, what stands out from the chunk before: its Lag-KV", EPIKV),
        "attn-x-hs": ("as epikv, attention received and the change of one layer", EPIKV),
        "segment-hs": ("as thinkv, slots of a segment ranked by the score of epikv", EPIKV),
    },
}

DESCRIPTIONS: Mapping[str, Description] = MappingProxyType(
    {
        name: Description(family, line, source)
        for family, policies in BY_FAMILY.items()
        for name, (line, source) in policies.items()
    }
)
