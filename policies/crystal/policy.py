"""CrystalCache as a policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from policies.contract import Scores, Signal, Trunks, View
from policies.crystal import graph, impact, trunks
from policies.crystal.coattention import CoAttention, Edges, FirstLayer
from policies.crystal.dissolution import BranchDissolution
from policies.policy import Policy
from policies.protect import Protect
from policies.signals import of_all_layers

__all__ = ["CrystalConfig", "TrunkScoring", "crystal"]


@dataclass(frozen=True)
class TrunkScoring:
    """S2-S4: trunks with D and impact; the score of a slot is its encoding impact M_i.

    Runs on the host in float64, whatever the device: it is O(n), it walks over trunks one by one, and the
    fate of a trunk must not hang on the summation order of an accelerator.
    """

    coattention: CoAttention = field(default_factory=CoAttention)
    max_trunk: int = 32
    merge_threshold: float = 0.3
    impact_min: float = 0.1
    impact_max: float = 20.0
    edge_threshold: float = 0.05
    steepness: float = 5.0

    def __post_init__(self) -> None:
        if self.max_trunk < 1 or not 0 <= self.impact_min < self.impact_max:
            raise ValueError(
                f"max_trunk must be 1 or more and 0 <= impact_min < impact_max, not {self.max_trunk}, "
                f"{self.impact_min} and {self.impact_max}"
            )

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({self.coattention})

    def salience(self, first: FirstLayer) -> Tensor:
        """S_i [n] float64 on the host, Eq. 11."""
        return first.mass.to("cpu").double().clamp(self.impact_min, self.impact_max)

    def score(self, view: View) -> Scores:
        first: FirstLayer = of_all_layers(view, self.coattention)[0]
        edges = Edges(*(column.to("cpu") for column in first.edges))
        token_ids = view.token_ids.to("cpu")
        worth = impact.of_tokens(self.salience(first), token_ids, self.impact_min, self.impact_max)
        spans = trunks.build(token_ids, view.sentence_ends, edges, self.merge_threshold, self.max_trunk)
        return Scores(
            slots=worth.view(1, 1, -1).to(view.token_ids.device),
            trunks=Trunks(
                spans=spans,
                crystallization=graph.crystallization(spans, edges, self.edge_threshold, self.steepness),
                impact=impact.of_trunks(worth, spans),
            ),
        )


@dataclass(frozen=True)
class CrystalConfig:
    """Defaults of CrystalCache, Table 14. Sizes in tokens; thresholds in the unit of what they bound."""

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
        coattention = CoAttention(
            self.chunk, self.intra_k, self.intra_threshold, self.cross_k, self.cross_threshold
        )
        return TrunkScoring(
            coattention=coattention,
            max_trunk=self.max_trunk,
            merge_threshold=self.merge_threshold,
            impact_min=self.impact_min,
            impact_max=self.impact_max,
            edge_threshold=self.edge_threshold,
            steepness=self.steepness,
        )

    def selection(self) -> BranchDissolution:
        return BranchDissolution(self.alpha, self.min_keep)

    def protect(self) -> Protect:
        return Protect(self.sinks, self.recent)


def crystal(config: CrystalConfig | None = None) -> Policy:
    """CrystalCache at the end of prefill (sections 3.2-3.7); the decode-time part (3.8) is not here.

    Departs from the paper: a budget that the protected trunks exceed is refused, where Eq. 30 raises the
    budget to sinks + recent and leaves larger protected trunks open. Readings of what the paper leaves
    open: ties keep the lower position; the edge set is directed (`coattention.Edges`) and Eq. 17 reads its
    forward entries only; the deviation of Eq. 27 is the population's.
    """
    config = config or CrystalConfig()
    return Policy(scoring=config.scoring(), selection=config.selection(), protect=config.protect())
