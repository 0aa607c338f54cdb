"""The hypothesis of every policy: its parent, the component in which it differs, and what it was to show.

Names and components are those of the package policies, which no analysis imports: a test compares each row
with the difference of the two values, and checks that no policy of the catalogue is left out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "DECLARED",
    "ROOT",
    "STARTS",
    "SURFACES",
    "Declared",
    "ancestors",
    "gates",
    "held_against",
    "surface",
]


class Declared(NamedTuple):
    hypothesis: str
    """The claim of the policy, in one sentence."""
    parent: str = ""
    """The policy from which it differs in one component; empty for an independent method."""
    component: str = ""
    """The component that differs; empty without a parent, and for an alias of the parent."""


SURFACES: Mapping[str, str] = MappingProxyType(
    {
        "state": "state",
        "routing": "routing",
        "cadence": "cadence",
        "decoding": "decoding",
        "scoring": "scoring",
        "selection": "scoring",
    }
)
"""Component -> family of intervention (Sun and Harn, Figure 1), in the order of the paper's Table 1.

Their scoring decides which tokens are retained under a fixed budget, so it is two components here: scores,
and the selection that reads them.
"""

ROOT = "1d"
"""The policy that the paper compares every gate with: TriAttention's global mode."""

STARTS: Mapping[str, Declared] = MappingProxyType(
    {
        ROOT: Declared("The queries that a model asks on average say which keys later ones will attend to."),
        "1d-per-layer": Declared("As 1d; layers want scores and sets of their own."),
        "1d-per-head": Declared("As 1d; heads want scores and sets of their own."),
    }
)
"""TriAttention's three modes. They differ in both scoring and routing, so that none is a gate of another."""

_GATES: Mapping[str, Declared] = {
    "subspace": Declared(
        "Values of a head have low rank: a basis of rank 32 holds accuracy and frees memory for more slots.",
        "1d",
        "state",
    ),
    "syn_mem-1": Declared(
        "Spans of the prompt as mean slots, once, hold more of it than the tokens that would be kept.",
        "1d",
        "state",
    ),
    "syn_mem-2": Declared(
        "A bounded number of mean slots beside kept tokens beats kept tokens alone at small budgets.",
        "1d",
        "state",
    ),
    "syn_mem-3": Declared(
        "Kept tokens and mean slots in a fixed ratio beat kept tokens alone: a mean stands for many.",
        "1d",
        "state",
    ),
    "syn_mem-4": Declared(
        "As many mean slots as kept tokens leave gaps, whatever the ratio, beat a fixed ratio.",
        "1d",
        "state",
    ),
    "syn_mem": Declared("The family's name stands for its third sub-attempt.", "syn_mem-3"),
    "syn_mem-attention": Declared(
        "Means weighted by attention hold what a span is read for better than uniform ones.",
        "syn_mem",
        "state",
    ),
    "syn_mem-massless": Declared(
        "A mean slot needs no log N beside its logit.",
        "syn_mem",
        "state",
    ),
    "syn_mem-attention-massless": Declared(
        "Means weighted by attention need no log N beside their logit.",
        "syn_mem",
        "state",
    ),
    "static_route": Declared(
        "An offline choice, head by head, between evenly spaced and scored slots beats either alone.",
        "1d-per-head",
        "routing",
    ),
    "ada-1d": Declared(
        "Heads of a layer that compete for its slots use them better than equal shares.",
        "1d-per-head",
        "routing",
    ),
    "pyramid-1d": Declared(
        "More slots in early layers than in late ones use them better than equal shares.",
        "1d-per-head",
        "routing",
    ),
    "schedule-front": Declared(
        "Budgets that fall from round to round spend memory where reasoning is most at risk.",
        "1d",
        "cadence",
    ),
    "schedule-back": Declared(
        "Budgets that rise from round to round spend memory where reasoning is most at risk.",
        "1d",
        "cadence",
    ),
    "schedule-inverted": Declared(
        "The shortfall of a schedule is of its phase: turned round, a low budget first and a high one later, "
        "it goes.",
        "1d",
        "cadence",
    ),
    "state_emit": Declared(
        "Compact lines that the model is asked for give the scorer dense tokens that it can pin.",
        "state_ask",
        "decoding",
    ),
    "variant_b": Declared(
        "Values that point where the model's values point on average are worth more.", "1d", "scoring"
    ),
    "q_stats": Declared(
        "Query statistics of the model's own reasoning score better than those of plain text.",
        "1d",
        "scoring",
    ),
    "1d_div": Declared(
        "A greedy choice that discounts values like those kept already (by 0.5) is more accurate.",
        "1d",
        "selection",
    ),
    "1d_div-1.0": Declared("As 1d_div, at weight 1.0: a heavier discount is better.", "1d", "selection"),
    "1d_div-1.5": Declared("As 1d_div, at weight 1.5: a heavier discount is better.", "1d", "selection"),
    "1d_div-per-layer": Declared(
        "Likeness is to be told layer by layer, not on the mean value of all.", "1d_div", "selection"
    ),
    "1d_div-per-head": Declared(
        "Likeness is to be told head by head, not on the mean value of all.", "1d_div", "selection"
    ),
    "1d_div-scheduled": Declared(
        "The weight of the discount is to fall as the answer grows.", "1d_div", "selection"
    ),
    "ada-1d_div": Declared(
        "The discount helps inside budgets that heads compete for, as it does inside one for all.",
        "ada-1d",
        "selection",
    ),
    "pyramid-1d_div": Declared(
        "The discount helps inside budgets of layers, as it does inside one for all.",
        "pyramid-1d",
        "selection",
    ),
}
"""The policies that start from a mode of TriAttention and are to be better than it."""

_BESIDE: Mapping[str, Declared] = {
    "state_ask": Declared(
        "Asked for compact lines, with nothing pinned, the model answers as before: the control.",
        "1d",
        "decoding",
    ),
    "snapkv_with_window": Declared(
        "What the last queries attend to, one set for all, says better what to keep than query statistics.",
        "1d",
        "scoring",
    ),
}
"""The policies that start from `1d` as comparators, not attempts: a control, and that of appendix B."""

_METHODS: Mapping[str, Declared] = {
    "full": Declared("Nothing is evicted: what the task costs without any saving."),
    "full-subspace": Declared(
        "Values of rank 32 lose nothing where no slot is evicted: what coding alone costs.", "full", "state"
    ),
    "random": Declared("Which slots are kept does not matter: what others must beat."),
    "streaming": Declared("The first slots and the latest ones are enough."),
    "streamingllm-rkv": Declared("The first slots and the latest ones are enough.", "streaming"),
    "h2o": Declared("A few tokens receive most of all attention, and go on receiving it."),
    "h2o-window": Declared(
        "Attention of the latest queries alone says what will be attended to.", "h2o", "scoring"
    ),
    "snapkv": Declared("What the end of the prompt attends to is what the answer will attend to."),
    "crystal": Declared(
        "Trunks of text that many tokens lead to hold what is needed: whole trunks are to be kept."
    ),
    "tova": Declared("What the last query attends to is what the next ones will attend to."),
    "knorm": Declared("Keys of small norm are attended to."),
    "keydiff": Declared("Keys unlike the mean key are attended to.", "knorm", "scoring"),
    "keydiff-blocks": Declared(
        "A prompt can be read block by block under its budget and lose little.", "keydiff", "cadence"
    ),
    "pyramidkv": Declared("Early layers attend more broadly than late ones.", "snapkv", "routing"),
    "pyramidkv-cumulative": Declared(
        "Attention of all queries says what to keep, under budgets that fall with depth.",
        "pyramidkv",
        "scoring",
    ),
    "chunkkv": Declared("Whole chunks hold meaning that single tokens lose."),
    "chunkkv-20": Declared("Chunks of 20 hold more meaning than chunks of 10.", "chunkkv", "selection"),
    "chunkkv-cumulative": Declared(
        "Attention of all queries says which chunks to keep.", "chunkkv", "scoring"
    ),
    "ada-snapkv": Declared("Heads whose attention is spread need more slots.", "snapkv", "routing"),
    "scissorhands": Declared("What recent queries pass over, later ones pass over."),
    "crystal-uniform": Declared("The impact of single tokens adds nothing.", "crystal", "scoring"),
    "crystal-no-rarity": Declared("How rare a token is adds nothing.", "crystal", "scoring"),
    "crystal-token-level": Declared("Trunks of more than one slot add nothing.", "crystal", "scoring"),
    "crystal-static-graph": Declared("Links that breaths change add nothing.", "crystal", "scoring"),
    "crystal-still": Declared("The breath while decoding adds nothing.", "crystal", "scoring"),
    "crystal-adaptive-merge": Declared(
        "A merge threshold taken from the text is better than a fixed one.", "crystal", "scoring"
    ),
    "crystal-rarity-inverse": Declared("Rarity as one over the count is better.", "crystal", "scoring"),
    "crystal-rarity-exponential": Declared(
        "Rarity that falls exponentially is better.", "crystal", "scoring"
    ),
    "crystal-rarity-document": Declared(
        "Rarity by the sentences that hold a token is better.", "crystal", "scoring"
    ),
    "crystal-chunk-128": Declared("Attention read in chunks of 128 is better.", "crystal", "scoring"),
    "crystal-steepness-2": Declared("A flatter logistic is better.", "crystal", "scoring"),
    "crystal-d-only": Declared(
        "Impact adds nothing to the crystallization of a trunk.", "crystal", "selection"
    ),
    "crystal-impact-only": Declared(
        "Crystallization adds nothing to the impact of a trunk.", "crystal", "selection"
    ),
    "crystal-average": Declared("The average of both is as good as the larger.", "crystal", "selection"),
    "crystal-product": Declared("The product of both is as good as the larger.", "crystal", "selection"),
    "crystal-coverage": Declared(
        "A tenth of the budget spread over the text finds what trunks miss.", "crystal", "selection"
    ),
    "crystal-tiers": Declared(
        "Middling trunks in part are better than none of them.", "crystal", "selection"
    ),
    "crystal-over-budget": Declared(
        "Protected trunks are worth more than the budget says.", "crystal", "selection"
    ),
    "crystal-blog": Declared(
        "With the settings of its author's blog post CrystalCache is better.", "crystal-tiers", "scoring"
    ),
    "r-kv": Declared("Reasoning repeats itself: what is attended to, less what repeats other keys."),
    "snapkv-rkv": Declared("R-KV without redundancy is as good.", "r-kv", "scoring"),
    "raas": Declared("Steps of reasoning are read for a while and never again."),
    "longflow": Declared(
        "What adds most to the output of the current token will do so again.", "tova", "scoring"
    ),
    "lagkv": Declared("Keys and values that stand out from the chunk after theirs are needed."),
    "lagkv-blocks": Declared(
        "A prompt can be read block by block under its budget and lose little.", "lagkv", "cadence"
    ),
    "ahakv": Declared(
        "Sums of attention favour early tokens; sharpened recent attention times values does not.",
        "snapkv",
        "scoring",
    ),
    "epikv": Declared("Tokens at which one layer turns much and another little are epiphanies, and needed."),
    "hs-variance": Declared("Detrending adds nothing to how much layers turn.", "epikv", "scoring"),
    "band-adaptive": Declared("Bands of layers tell epiphanies better than two layers.", "epikv", "scoring"),
    "attn-x-hs": Declared("Attention received adds to how much a layer turns.", "epikv", "scoring"),
    "kv-key": Declared("The variance of keys over their channels is as good a sign.", "epikv", "scoring"),
    "kv-val": Declared("The variance of values over their channels is as good a sign.", "epikv", "scoring"),
    "lagkv-causal": Declared("Standing out from the chunk before is as good a sign.", "epikv", "scoring"),
    "segment-hs": Declared("Segments of thought want budgets, and in them epiphanies are to be kept."),
    "crystal-kv-lite": Declared(
        "What attention has come back to often and lately is part of the answer's skeleton."
    ),
    "crystal-kv": Declared(
        "Heads that are hit more want more slots, from event to event.", "crystal-kv-lite", "routing"
    ),
    "thinkv": Declared("Kinds of thought are worth different numbers of slots."),
    "thinkv-annealed": Declared(
        "Segments that later thoughts have left behind can shrink to a few medoids.", "thinkv", "scoring"
    ),
    "caote": Declared("What changes the output of attention most when it is taken away is to be kept."),
    "caote-blocks": Declared(
        "A prompt can be read block by block under its budget and lose little.", "caote", "cadence"
    ),
    "defensivekv": Declared("The worst that dropping a slot can do counts, and not what it does on average."),
    "layer-defensivekv": Declared(
        "Layers that risk more want more slots, told over all layers at once.", "defensivekv", "routing"
    ),
    "expected-attention": Declared("The distribution of queries so far says what later ones will attend to."),
    "kvzip": Declared("What is needed to repeat the context is all that any question can need."),
    "epicache": Declared("A long conversation is of episodes, each with a cache of its own."),
    "epicache-shared-budget": Declared("Episodes are worth it even where all their caches share one budget."),
}

DECLARED: Mapping[str, Declared] = MappingProxyType({**_GATES, **_BESIDE, **STARTS, **_METHODS})


def surface(name: str) -> str:
    """Return the family of intervention; empty for a policy without a parent and for an alias of its parent.
    """
    return SURFACES.get(DECLARED[name].component, "")


def ancestors(name: str) -> list[str]:
    """Return the parent of a policy, the parent of that, and so on."""
    found: list[str] = []
    while parent := DECLARED[found[-1] if found else name].parent:
        found.append(parent)
    return found


def held_against(name: str) -> list[str]:
    """Return the comparators of a gate: its ancestors that differ from it only in its own family."""
    found: list[str] = []
    at = name
    while (row := DECLARED[at]).parent and (not row.component or surface(at) == surface(name)):
        found.append(at := row.parent)
    return found


def gates() -> list[str]:
    """Return the policies that start from a mode of TriAttention to be better, each once, in the order of
    Table 1.
    """
    order = list(dict.fromkeys(SURFACES.values()))
    own = [name for name in _GATES if DECLARED[name].component]
    return sorted(own, key=lambda name: order.index(surface(name)))
