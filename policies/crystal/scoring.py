"""The scoring of CrystalCache: trunks with D and impact, at the end of a prefill and at every breath."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from policies.contract import Scores, Signal, Trunks, View
from policies.crystal import graph, trunks
from policies.crystal.breath import Breath, InverseKeyNorms
from policies.crystal.coattention import CoAttention, Edges, Observed
from policies.crystal.impact import Encoding, Impact
from policies.crystal.table import TrunkTable
from policies.crystal.trunks import Adaptive
from policies.signals import of_all_layers

__all__ = ["TrunkScoring"]


@dataclass(frozen=True)
class TrunkScoring:
    """S2-S4, and the breath of section 3.8; the score of a slot is its encoding impact M_i.

    Runs on the host in float64 for any device: it is O(n) and sequential over trunks, and the result must not
    depend on the summation order of an accelerator.

    breath: the update of D and W at an eviction step while decoding; None changes neither.

    The paper does not specify trunks for the tokens fed since the last eviction step. Here they form one
    chunk of S1, in which S2 and S3 build trunks as in a prompt; older slots count as earlier chunks. A new
    trunk gets its D from Eq. 27, by its degree among all current trunks; existing trunks keep theirs. A trunk
    never grows, so a sentence that an eviction step interrupts becomes two trunks.

    Departs from the paper: a breath happens only at an eviction step, so not before the lane first exceeds
    its budget; the decay of all steps since the last eviction step is applied at once, before new trunks are
    added, which is equivalent because D is not read in between (tokens of a question fed after the context
    count as steps). A trunk without slots neither resonates nor returns.
    """

    coattention: CoAttention = field(default_factory=CoAttention)
    impact: Encoding = field(default_factory=Impact)
    max_trunk: int = 32
    merge_threshold: float | Adaptive = 0.3
    edge_threshold: float = 0.05
    steepness: float = 5.0
    breath: Breath | None = field(default_factory=Breath)

    def __post_init__(self) -> None:
        if self.max_trunk < 1:
            raise ValueError(f"max_trunk must be 1 or more, not {self.max_trunk}")
        if not self.steepness > 0:
            raise ValueError(f"steepness must be above 0, not {self.steepness}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({self.coattention} if self.breath is None else {self.coattention, InverseKeyNorms()})

    @property
    def longest(self) -> int:
        return self.max_trunk

    def score(self, view: View) -> Scores:
        table = self.admit(view, TrunkTable.empty()) if view.memory is None else self.breathe(view)
        return Scores(
            slots=table.slots.view(1, 1, -1).to(view.token_ids.device),
            trunks=Trunks(table.spans, table.crystallization, table.impact),
            memory=table,
        )

    def observed(self, view: View) -> Observed:
        """S1, on the host."""
        origin, mass, edges = of_all_layers(view, self.coattention)[0]
        if not mass.isfinite().all():  # some forms of the impact would hide it
            at = origin + int((~mass.isfinite()).nonzero()[0])
            raise ValueError(f"scores must be finite: layer 0, head 0, slot {at} is {mass[at - origin]}")
        return Observed(origin, mass.cpu().double(), Edges(*(column.cpu() for column in edges)))

    def admit(self, view: View, table: TrunkTable) -> TrunkTable:
        """Append the tokens fed since the last eviction step to the table, as trunks."""
        origin, mass, edges = self.observed(view)
        known = len(table.slots)
        if origin != known or origin + len(mass) != view.slots:
            raise ValueError(
                f"{self.coattention} has seen slots {origin} to {origin + len(mass)}, "
                f"but {known} of {view.slots} slots are in trunks"
            )
        token_ids = view.token_ids.cpu()
        parts = trunks.sentences(token_ids[-len(mass) :], view.sentence_ends, first=origin)
        everything = trunks.sentences(token_ids, view.sentence_ends) if origin else parts
        worth = self.impact.of_tokens(mass, token_ids, everything)
        spans = trunks.build(parts, edges, self.merge_threshold, self.max_trunk)
        impact = self.impact.of_trunks(worth, [range(s.start - origin, s.stop - origin) for s in spans])
        all_spans = (*table.spans, *spans)
        links = graph.joined(table.links, graph.links_of(all_spans, edges, self.edge_threshold))
        today = graph.crystallization(links, len(all_spans), self.steepness)
        return TrunkTable(
            torch.cat([table.slots, worth]),
            all_spans,
            torch.cat([table.crystallization, today[len(table.spans) :]]),
            torch.cat([table.impact, impact]),
            links,
            len(token_ids),
        )

    def breathe(self, view: View) -> TrunkTable:
        """Apply Eq. 36-40 up to (c); the policy performs the re-eviction."""
        table = view.memory
        if not isinstance(table, TrunkTable):
            raise ValueError(
                f"view.memory must be the TrunkTable of the last event, not {type(table).__name__}"
            )
        breath = self.breath
        if breath is None:
            return self.admit(view, table)
        aged = breath.decay(table.crystallization, table.impact, len(view.token_ids) - table.seen)
        table = self.admit(view, table._replace(crystallization=aged))
        active = breath.active(of_all_layers(view, InverseKeyNorms())[0].cpu(), table.spans)
        weights = graph.dense(table.links, len(table.spans))
        crystallization = breath.resonate(table.crystallization, active, weights)
        weights = breath.associate(weights, active, self.edge_threshold)
        return table._replace(crystallization=crystallization, links=graph.sparse(weights))
