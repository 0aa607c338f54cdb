"""The hypothesis of every policy: its parent, the component in which it differs, and what it was to show.

Names and components are those of the package policies, which no analysis imports: a test compares each row
with the difference of the two values, and checks that no policy of the catalogue is left out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "FAMILY_OF_COMPONENT",
    "HYPOTHESES",
    "ROOT",
    "TRIATTENTION_MODES",
    "PolicyHypothesis",
    "family_of",
    "gate_comparators",
    "list_ancestors",
    "list_gates",
]


class PolicyHypothesis(NamedTuple):
    hypothesis: str
    """The claim of the policy, in one sentence."""
    parent: str = ""
    """The policy from which it differs in one component; empty for an independent method."""
    component: str = ""
    """The component that differs; empty without a parent, and for an alias of the parent."""


FAMILY_OF_COMPONENT: Mapping[str, str] = MappingProxyType(
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

TRIATTENTION_MODES: Mapping[str, PolicyHypothesis] = MappingProxyType(
    {
        ROOT: PolicyHypothesis("The queries that a model asks on average say which keys later ones will attend to."),
        "1d-per-layer": PolicyHypothesis("As 1d; layers want scores and sets of their own."),
        "1d-per-head": PolicyHypothesis("As 1d; heads want scores and sets of their own."),
    }
)
"""TriAttention's three modes. They differ in both scoring and routing, so that none is a gate of another."""

_GATES: Mapping[str, PolicyHypothesis] = {
    "subspace": PolicyHypothesis(
        "Values of a head have low rank: a basis of rank 32 holds accuracy and frees memory for more slots.",
        "1d",
        "state",
    ),
    "syn_mem-1": PolicyHypothesis(
        "Spans of the prompt as mean slots, once, hold more of it than the tokens that would be kept.",
        "1d",
        "state",
    ),
    "syn_mem-2": PolicyHypothesis(
        "A bounded number of mean slots beside kept tokens beats kept tokens alone at small budgets.",
        "1d",
        "state",
    ),
    "syn_mem-3": PolicyHypothesis(
        "Kept tokens and mean slots in a fixed ratio beat kept tokens alone: a mean stands for many.",
        "1d",
        "state",
    ),
    "syn_mem-4": PolicyHypothesis(
        "As many mean slots as kept tokens leave gaps, whatever the ratio, beat a fixed ratio.",
        "1d",
        "state",
    ),
    "syn_mem": PolicyHypothesis("The family's name stands for its third sub-attempt.", "syn_mem-3"),
    "syn_mem-attention": PolicyHypothesis(
        "Means weighted by attention hold what a span is read for better than uniform ones.",
        "syn_mem",
        "state",
    ),
    "syn_mem-massless": PolicyHypothesis(
        "A mean slot needs no log N beside its logit.",
        "syn_mem",
        "state",
    ),
    "syn_mem-attention-massless": PolicyHypothesis(
        "Means weighted by attention need no log N beside their logit.",
        "syn_mem",
        "state",
    ),
    "static_route": PolicyHypothesis(
        "An offline choice, head by head, between evenly spaced and scored slots beats either alone.",
        "1d-per-head",
        "routing",
    ),
    "ada-1d": PolicyHypothesis(
        "Heads of a layer that compete for its slots use them better than equal shares.",
        "1d-per-head",
        "routing",
    ),
    "pyramid-1d": PolicyHypothesis(
        "More slots in early layers than in late ones use them better than equal shares.",
        "1d-per-head",
        "routing",
    ),
    "schedule-front": PolicyHypothesis(
        "Budgets that fall from round to round spend memory where reasoning is most at risk.",
        "1d",
        "cadence",
    ),
    "schedule-back": PolicyHypothesis(
        "Budgets that rise from round to round spend memory where reasoning is most at risk.",
        "1d",
        "cadence",
    ),
    "schedule-inverted": PolicyHypothesis(
        "The shortfall of a schedule is of its phase: turned round, a low budget first and a high one later, it goes.",
        "1d",
        "cadence",
    ),
    "state_emit": PolicyHypothesis(
        "Compact lines that the model is asked for give the scorer dense tokens that it can pin.",
        "state_ask",
        "decoding",
    ),
    "variant_b": PolicyHypothesis(
        "Values that point where the model's values point on average are worth more.", "1d", "scoring"
    ),
    "q_stats": PolicyHypothesis(
        "Query statistics of the model's own reasoning score better than those of plain text.",
        "1d",
        "scoring",
    ),
    "1d_div": PolicyHypothesis(
        "A greedy choice that discounts values like those kept already (by 0.5) is more accurate.",
        "1d",
        "selection",
    ),
    "1d_div-1.0": PolicyHypothesis("As 1d_div, at weight 1.0: a heavier discount is better.", "1d", "selection"),
    "1d_div-1.5": PolicyHypothesis("As 1d_div, at weight 1.5: a heavier discount is better.", "1d", "selection"),
    "1d_div-per-layer": PolicyHypothesis(
        "Likeness is to be told layer by layer, not on the mean value of all.", "1d_div", "selection"
    ),
    "1d_div-per-head": PolicyHypothesis(
        "Likeness is to be told head by head, not on the mean value of all.", "1d_div", "selection"
    ),
    "1d_div-scheduled": PolicyHypothesis(
        "The weight of the discount is to fall as the answer grows.", "1d_div", "selection"
    ),
    "ada-1d_div": PolicyHypothesis(
        "The discount helps inside budgets that heads compete for, as it does inside one for all.",
        "ada-1d",
        "selection",
    ),
    "pyramid-1d_div": PolicyHypothesis(
        "The discount helps inside budgets of layers, as it does inside one for all.",
        "pyramid-1d",
        "selection",
    ),
}
"""The policies that start from a mode of TriAttention and are to be better than it."""

_CONTROLS: Mapping[str, PolicyHypothesis] = {
    "state_ask": PolicyHypothesis(
        "Asked for compact lines, with nothing pinned, the model answers as before: the control.",
        "1d",
        "decoding",
    ),
    "snapkv_with_window": PolicyHypothesis(
        "What the last queries attend to, one set for all, says better what to keep than query statistics.",
        "1d",
        "scoring",
    ),
}
"""The policies that start from `1d` as comparators, not attempts: a control, and that of appendix B."""

_METHODS: Mapping[str, PolicyHypothesis] = {
    "full": PolicyHypothesis("Nothing is evicted: what the task costs without any saving."),
    "full-subspace": PolicyHypothesis(
        "Values of rank 32 lose nothing where no slot is evicted: what coding alone costs.", "full", "state"
    ),
    "random": PolicyHypothesis("Which slots are kept does not matter: what others must beat."),
    "streaming": PolicyHypothesis("The first slots and the latest ones are enough."),
    "streamingllm-rkv": PolicyHypothesis("The first slots and the latest ones are enough.", "streaming"),
    "h2o": PolicyHypothesis("A few tokens receive most of all attention, and go on receiving it."),
    "h2o-window": PolicyHypothesis(
        "Attention of the latest queries alone says what will be attended to.", "h2o", "scoring"
    ),
    "snapkv": PolicyHypothesis("What the end of the prompt attends to is what the answer will attend to."),
    "crystal": PolicyHypothesis(
        "Trunks of text that many tokens lead to hold what is needed: whole trunks are to be kept."
    ),
    "tova": PolicyHypothesis("What the last query attends to is what the next ones will attend to."),
    "knorm": PolicyHypothesis("Keys of small norm are attended to."),
    "keydiff": PolicyHypothesis("Keys unlike the mean key are attended to.", "knorm", "scoring"),
    "keydiff-blocks": PolicyHypothesis(
        "A prompt can be read block by block under its budget and lose little.", "keydiff", "cadence"
    ),
    "pyramidkv": PolicyHypothesis("Early layers attend more broadly than late ones.", "snapkv", "routing"),
    "pyramidkv-cumulative": PolicyHypothesis(
        "Attention of all queries says what to keep, under budgets that fall with depth.",
        "pyramidkv",
        "scoring",
    ),
    "chunkkv": PolicyHypothesis("Whole chunks hold meaning that single tokens lose."),
    "chunkkv-20": PolicyHypothesis("Chunks of 20 hold more meaning than chunks of 10.", "chunkkv", "selection"),
    "chunkkv-cumulative": PolicyHypothesis("Attention of all queries says which chunks to keep.", "chunkkv", "scoring"),
    "ada-snapkv": PolicyHypothesis("Heads whose attention is spread need more slots.", "snapkv", "routing"),
    "scissorhands": PolicyHypothesis("What recent queries pass over, later ones pass over."),
    "crystal-uniform": PolicyHypothesis("The impact of single tokens adds nothing.", "crystal", "scoring"),
    "crystal-no-rarity": PolicyHypothesis("How rare a token is adds nothing.", "crystal", "scoring"),
    "crystal-token-level": PolicyHypothesis("Trunks of more than one slot add nothing.", "crystal", "scoring"),
    "crystal-static-graph": PolicyHypothesis("Links that breaths change add nothing.", "crystal", "scoring"),
    "crystal-still": PolicyHypothesis("The breath while decoding adds nothing.", "crystal", "scoring"),
    "crystal-adaptive-merge": PolicyHypothesis(
        "A merge threshold taken from the text is better than a fixed one.", "crystal", "scoring"
    ),
    "crystal-rarity-inverse": PolicyHypothesis("Rarity as one over the count is better.", "crystal", "scoring"),
    "crystal-rarity-exponential": PolicyHypothesis("Rarity that falls exponentially is better.", "crystal", "scoring"),
    "crystal-rarity-document": PolicyHypothesis(
        "Rarity by the sentences that hold a token is better.", "crystal", "scoring"
    ),
    "crystal-chunk-128": PolicyHypothesis("Attention read in chunks of 128 is better.", "crystal", "scoring"),
    "crystal-steepness-2": PolicyHypothesis("A flatter logistic is better.", "crystal", "scoring"),
    "crystal-d-only": PolicyHypothesis(
        "Impact adds nothing to the crystallization of a trunk.", "crystal", "selection"
    ),
    "crystal-impact-only": PolicyHypothesis(
        "Crystallization adds nothing to the impact of a trunk.", "crystal", "selection"
    ),
    "crystal-average": PolicyHypothesis("The average of both is as good as the larger.", "crystal", "selection"),
    "crystal-product": PolicyHypothesis("The product of both is as good as the larger.", "crystal", "selection"),
    "crystal-coverage": PolicyHypothesis(
        "A tenth of the budget spread over the text finds what trunks miss.", "crystal", "selection"
    ),
    "crystal-tiers": PolicyHypothesis("Middling trunks in part are better than none of them.", "crystal", "selection"),
    "crystal-over-budget": PolicyHypothesis(
        "Protected trunks are worth more than the budget says.", "crystal", "selection"
    ),
    "crystal-blog": PolicyHypothesis(
        "With the settings of its author's blog post CrystalCache is better.", "crystal-tiers", "scoring"
    ),
    "r-kv": PolicyHypothesis("Reasoning repeats itself: what is attended to, less what repeats other keys."),
    "snapkv-rkv": PolicyHypothesis("R-KV without redundancy is as good.", "r-kv", "scoring"),
    "raas": PolicyHypothesis("Steps of reasoning are read for a while and never again."),
    "longflow": PolicyHypothesis(
        "What adds most to the output of the current token will do so again.", "tova", "scoring"
    ),
    "lagkv": PolicyHypothesis("Keys and values that stand out from the chunk after theirs are needed."),
    "lagkv-blocks": PolicyHypothesis(
        "A prompt can be read block by block under its budget and lose little.", "lagkv", "cadence"
    ),
    "ahakv": PolicyHypothesis(
        "Sums of attention favour early tokens; sharpened recent attention times values does not.",
        "snapkv",
        "scoring",
    ),
    "epikv": PolicyHypothesis("Tokens at which one layer turns much and another little are epiphanies, and needed."),
    "hs-variance": PolicyHypothesis("Detrending adds nothing to how much layers turn.", "epikv", "scoring"),
    "band-adaptive": PolicyHypothesis("Bands of layers tell epiphanies better than two layers.", "epikv", "scoring"),
    "attn-x-hs": PolicyHypothesis("Attention received adds to how much a layer turns.", "epikv", "scoring"),
    "kv-key": PolicyHypothesis("The variance of keys over their channels is as good a sign.", "epikv", "scoring"),
    "kv-val": PolicyHypothesis("The variance of values over their channels is as good a sign.", "epikv", "scoring"),
    "lagkv-causal": PolicyHypothesis("Standing out from the chunk before is as good a sign.", "epikv", "scoring"),
    "segment-hs": PolicyHypothesis("Segments of thought want budgets, and in them epiphanies are to be kept."),
    "crystal-kv-lite": PolicyHypothesis(
        "What attention has come back to often and lately is part of the answer's skeleton."
    ),
    "crystal-kv": PolicyHypothesis(
        "Heads that are hit more want more slots, from event to event.", "crystal-kv-lite", "routing"
    ),
    "thinkv": PolicyHypothesis("Kinds of thought are worth different numbers of slots."),
    "thinkv-annealed": PolicyHypothesis(
        "Segments that later thoughts have left behind can shrink to a few medoids.", "thinkv", "scoring"
    ),
    "caote": PolicyHypothesis("What changes the output of attention most when it is taken away is to be kept."),
    "caote-blocks": PolicyHypothesis(
        "A prompt can be read block by block under its budget and lose little.", "caote", "cadence"
    ),
    "defensivekv": PolicyHypothesis("The worst that dropping a slot can do counts, and not what it does on average."),
    "layer-defensivekv": PolicyHypothesis(
        "Layers that risk more want more slots, told over all layers at once.", "defensivekv", "routing"
    ),
    "expected-attention": PolicyHypothesis("The distribution of queries so far says what later ones will attend to."),
    "kvzip": PolicyHypothesis("What is needed to repeat the context is all that any question can need."),
    "epicache": PolicyHypothesis("A long conversation is of episodes, each with a cache of its own."),
    "epicache-shared-budget": PolicyHypothesis("Episodes are worth it even where all their caches share one budget."),
}

HYPOTHESES: Mapping[str, PolicyHypothesis] = MappingProxyType({**_GATES, **_CONTROLS, **TRIATTENTION_MODES, **_METHODS})


def family_of(name: str) -> str:
    """Return the family of intervention; empty for a policy without a parent and for an alias of its parent."""
    return FAMILY_OF_COMPONENT.get(HYPOTHESES[name].component, "")


def list_ancestors(name: str) -> list[str]:
    """Return the parent of a policy, the parent of that, and so on."""
    names: list[str] = []
    while parent := HYPOTHESES[names[-1] if names else name].parent:
        names.append(parent)
    return names


def gate_comparators(name: str) -> list[str]:
    """Return the comparators of a gate: its ancestors that differ from it only in its own family."""
    comparators: list[str] = []
    current = name
    while (row := HYPOTHESES[current]).parent and (not row.component or family_of(current) == family_of(name)):
        comparators.append(current := row.parent)
    return comparators


def list_gates() -> list[str]:
    """Return the policies that start from a mode of TriAttention to be better, each once, in the order of
    Table 1.
    """
    order = list(dict.fromkeys(FAMILY_OF_COMPONENT.values()))
    names = [name for name in _GATES if HYPOTHESES[name].component]
    return sorted(names, key=lambda name: order.index(family_of(name)))
