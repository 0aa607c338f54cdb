"""CrystalCache as a policy, its ablations and the extensions that its paper names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from policies.crystal.breath import Breath
from policies.crystal.coattention import CoAttention
from policies.crystal.dissolution import BranchDissolution, ExceedingDissolution
from policies.crystal.impact import Impact, Scaled, Uniform
from policies.crystal.scoring import TrunkScoring
from policies.crystal.tiers import TieredDissolution
from policies.crystal.trunks import Adaptive
from policies.policy import Policy
from policies.protect import Protect
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "crystal": PolicyFacts(
        "crystalcache",
        "the trunks that dissolve last. CrystalCache, not Crystal-KV",
        "Po-Ting Lin, CrystalCache",
        "The text that an answer needs lies in trunks to which many tokens lead, so that whole trunks are kept.",
        aliases=("crystalcache",),
    ),
    "crystal-uniform": PolicyFacts(
        "crystalcache",
        "as crystal, but every token has the same impact",
        "Po-Ting Lin, CrystalCache",
        "The impact of single tokens adds nothing to accuracy.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-no-rarity": PolicyFacts(
        "crystalcache",
        "as crystal, but impact ignores how rare a token is",
        "Po-Ting Lin, CrystalCache",
        "The rarity of a token adds nothing to accuracy.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-token-level": PolicyFacts(
        "crystalcache",
        "as crystal, but trunks of one slot",
        "Po-Ting Lin, CrystalCache",
        "Trunks of more than one slot add nothing to accuracy.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-static-graph": PolicyFacts(
        "crystalcache",
        "as crystal, but links that no breath changes",
        "Po-Ting Lin, CrystalCache",
        "Changing links by breaths adds nothing to accuracy.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-still": PolicyFacts(
        "crystalcache",
        "as crystal, but no breath while decoding",
        "Po-Ting Lin, CrystalCache",
        "The breath while decoding adds nothing to accuracy.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-adaptive-merge": PolicyFacts(
        "crystalcache",
        "as crystal, but the merge threshold is taken from the text",
        "Po-Ting Lin, CrystalCache",
        "A merge threshold taken from the text is better than a fixed one.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-rarity-inverse": PolicyFacts(
        "crystalcache",
        "as crystal, but rarity is one over the count",
        "Po-Ting Lin, CrystalCache",
        "Rarity as one over the count is better.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-rarity-exponential": PolicyFacts(
        "crystalcache",
        "as crystal, but rarity falls exponentially",
        "Po-Ting Lin, CrystalCache",
        "Rarity that falls exponentially is better.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-rarity-document": PolicyFacts(
        "crystalcache",
        "as crystal, but rarity by the number of sentences that contain a token",
        "Po-Ting Lin, CrystalCache",
        "Rarity by the number of sentences that contain a token is better.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-chunk-128": PolicyFacts(
        "crystalcache",
        "as crystal, but attention is read in chunks of 128",
        "Po-Ting Lin, CrystalCache (blog post)",
        "Attention read in chunks of 128 is better.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-steepness-2": PolicyFacts(
        "crystalcache",
        "as crystal, but a logistic of steepness 2",
        "Po-Ting Lin, CrystalCache (blog post)",
        "A flatter logistic is better.",
        parent="crystal",
        component="scoring",
    ),
    "crystal-d-only": PolicyFacts(
        "crystalcache",
        "as crystal, but trunks ranked by crystallization alone",
        "Po-Ting Lin, CrystalCache",
        "Impact adds nothing to the crystallization of a trunk.",
        parent="crystal",
        component="selection",
    ),
    "crystal-impact-only": PolicyFacts(
        "crystalcache",
        "as crystal, but trunks ranked by impact alone",
        "Po-Ting Lin, CrystalCache",
        "Crystallization adds nothing to the impact of a trunk.",
        parent="crystal",
        component="selection",
    ),
    "crystal-average": PolicyFacts(
        "crystalcache",
        "as crystal, but trunks ranked by the average of both",
        "Po-Ting Lin, CrystalCache",
        "The average of both is as good as the larger.",
        parent="crystal",
        component="selection",
    ),
    "crystal-product": PolicyFacts(
        "crystalcache",
        "as crystal, but trunks ranked by the product of both",
        "Po-Ting Lin, CrystalCache",
        "The product of both is as good as the larger.",
        parent="crystal",
        component="selection",
    ),
    "crystal-coverage": PolicyFacts(
        "crystalcache",
        "as crystal, but a tenth of the budget is spread over the text",
        "Po-Ting Lin, CrystalCache",
        "A tenth of the budget spread over the text covers what trunks miss.",
        parent="crystal",
        component="selection",
    ),
    "crystal-tiers": PolicyFacts(
        "crystalcache",
        "as crystal, but keeps the best trunks whole and the middle ones in part",
        "Po-Ting Lin, CrystalCache (blog post)",
        "Keeping part of the middle trunks is better than dropping them.",
        parent="crystal",
        component="selection",
    ),
    "crystal-over-budget": PolicyFacts(
        "crystalcache",
        "as crystal, but protected trunks stay whole beyond the budget",
        "Po-Ting Lin, CrystalCache",
        "Keeping protected trunks whole is worth exceeding the budget.",
        parent="crystal",
        component="selection",
    ),
    "crystal-blog": PolicyFacts(
        "crystalcache",
        "as crystal, but with every setting of the blog post",
        "Po-Ting Lin, CrystalCache (blog post)",
        "CrystalCache is better with the settings of its author's blog post.",
        parent="crystal-tiers",
        component="scoring",
    ),
}


@dataclass(frozen=True)
class CrystalConfig:
    """Settings of CrystalCache, with the defaults of Table 14. Sizes are in tokens."""

    chunk: int = 1024
    intra_k: int = 8
    intra_threshold: float = 0.3
    cross_k: int = 4
    cross_threshold: float = 0.02
    max_trunk: int = 32
    merge_threshold: float = 0.3
    impact_min: float = 0.1
    impact_max: float = 20.0
    edge_threshold: float = 0.05
    steepness: float = 5.0
    alpha: float = 1.0
    sinks: int = 4
    recent: int = 128
    min_keep: int = 3

    def scoring(self) -> TrunkScoring:
        return TrunkScoring(
            coattention=CoAttention(self.chunk, self.intra_k, self.intra_threshold, self.cross_k, self.cross_threshold),
            impact=self.impact(),
            max_trunk=self.max_trunk,
            merge_threshold=self.merge_threshold,
            edge_threshold=self.edge_threshold,
            steepness=self.steepness,
        )

    def impact(self) -> Impact:
        return Impact(lowest=self.impact_min, highest=self.impact_max)

    def selection(self) -> BranchDissolution:
        return BranchDissolution(self.alpha, self.min_keep)

    def protect(self) -> Protect:
        return Protect(self.sinks, self.recent, always=False)


def crystal(config: CrystalConfig | None = None) -> Policy:
    """CrystalCache: sections 3.2-3.7 at the end of the prefill, and 3.8 at eviction steps while decoding.

    With an interval of 64 steps the eviction steps are its breaths; without one it is the policy that the paper
    evaluated. Departs from the paper: a budget below the protected trunks is refused. Eq. 30 raises it to sinks +
    recent; by Eq. 31 larger protected trunks stay and exceed it, which is `crystal-over-budget`. Where the paper is
    silent: ties keep the lower position; the edge set is directed (`coattention.Edges`) and Eq. 17 uses its forward
    entries only; the standard deviation of Eq. 27 is the population's; for decode time see `TrunkScoring` and `Breath`.
    """
    config = config or CrystalConfig()
    return Policy(scoring=config.scoring(), selection=config.selection(), protect=config.protect())


def blog() -> Policy:
    """The variant of the author's blog post: chunks of 128, steepness 2, scaled impact, tiers, renewal.

    Where the post is silent, it follows the paper: edges between chunks, the merge threshold, the hops.
    """
    parent = crystal()
    return replace(
        parent,
        scoring=replace(
            trunk_scoring(parent),
            coattention=CoAttention(chunk=128),
            impact=Scaled(),
            steepness=2.0,
            breath=Breath(renewal=0.3),
        ),
        selection=TieredDissolution(),
    )


def variants() -> Mapping[str, Policy]:
    """Return the variants by name: each except `crystal-blog` differs from `crystal` in one component.

    Ablations of section 6.1, the alternatives that section 3.6 rejects, section 6.4, extensions F3-F5 of
    section 8.4, the settings of the blog post one by one, and Eq. 31 taken literally.

    At the end of a prefill two ablations of Table 10 rank trunks equally, by D: if every M_i is 1
    (`crystal-uniform`), Eq. 28 normalises it to 0, so Eq. 29 gives the same scores as `crystal-d-only`. They
    differ within the partially kept trunk, whose slots Eq. 33 ranks by M_i, and later in the decay of Eq. 36.
    """
    parent = crystal()
    scoring = trunk_scoring(parent)
    by_scoring = {
        "crystal-uniform": replace(scoring, impact=Uniform()),
        "crystal-no-rarity": replace(scoring, impact=Impact(rarity="none")),
        "crystal-token-level": replace(scoring, max_trunk=1),
        "crystal-static-graph": replace(scoring, breath=Breath(hebbian=0.0, edge_decay=1.0)),
        "crystal-still": replace(scoring, breath=None),
        "crystal-adaptive-merge": replace(scoring, merge_threshold=Adaptive()),
        "crystal-rarity-inverse": replace(scoring, impact=Impact(rarity="inverse")),
        "crystal-rarity-exponential": replace(scoring, impact=Impact(rarity="exponential")),
        "crystal-rarity-document": replace(scoring, impact=Impact(rarity="document")),
        "crystal-chunk-128": replace(scoring, coattention=CoAttention(chunk=128)),
        "crystal-steepness-2": replace(scoring, steepness=2.0),
    }
    by_selection = {
        "crystal-d-only": BranchDissolution(alpha=0.0),
        "crystal-impact-only": BranchDissolution(fusion="impact"),
        "crystal-average": BranchDissolution(fusion="average"),
        "crystal-product": BranchDissolution(fusion="product"),
        "crystal-coverage": BranchDissolution(coverage=0.1),
        "crystal-tiers": TieredDissolution(),
        "crystal-over-budget": ExceedingDissolution(),
    }
    policies = {name: replace(parent, scoring=part) for name, part in by_scoring.items()}
    policies |= {name: replace(parent, selection=part) for name, part in by_selection.items()}
    return MappingProxyType(policies | {"crystal-blog": blog()})


def trunk_scoring(policy: Policy) -> TrunkScoring:
    assert isinstance(policy.scoring, TrunkScoring)
    return policy.scoring
