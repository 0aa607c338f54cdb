"""The scoring of CrystalCache: trunks with D and impact, at the end of a prefill and at every breath."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from policies.contract import Scores, Signal, Trunks, View
from policies.crystal import graph, trunks
from policies.crystal.breath import Breath, InverseKeyNorms
from policies.crystal.coattention import CoAttention, Edges, FirstLayerResult
from policies.crystal.impact import Impact, ImpactEncoding
from policies.crystal.table import TrunkTable
from policies.crystal.trunks import Adaptive
from policies.signals import read_signal


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
    impact: ImpactEncoding = field(default_factory=Impact)
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
        table = self.add_trunks(view, TrunkTable.empty()) if view.memory is None else self.breathe(view)
        return Scores(
            slots=table.slots.view(1, 1, -1).to(view.token_ids.device),
            trunks=Trunks(table.spans, table.crystallization, table.impact),
            memory=table,
        )

    def measure_first_layer(self, view: View) -> FirstLayerResult:
        """S1, on the host."""
        origin, mass, edges = read_signal(view, self.coattention)[0]
        if not mass.isfinite().all():  # some forms of the impact would hide it
            slot = origin + int((~mass.isfinite()).nonzero()[0])
            raise ValueError(f"scores must be finite: layer 0, head 0, slot {slot} is {mass[slot - origin]}")
        return FirstLayerResult(origin, mass.cpu().double(), Edges(*(column.cpu() for column in edges)))

    def add_trunks(self, view: View, table: TrunkTable) -> TrunkTable:
        """Append the tokens fed since the last eviction step to the table, as trunks."""
        origin, mass, edges = self.measure_first_layer(view)
        slot_count = len(table.slots)
        if origin != slot_count or origin + len(mass) != view.slots:
            raise ValueError(
                f"{self.coattention} has processed slots {origin} to {origin + len(mass)}, but "
                f"{slot_count} of {view.slots} slots are in trunks"
            )
        token_ids = view.token_ids.cpu()
        new_sentences = trunks.split_sentences(token_ids[-len(mass) :], view.sentence_ends, first=origin)
        all_sentences = trunks.split_sentences(token_ids, view.sentence_ends) if origin else new_sentences
        token_impact = self.impact.token_impact(mass, token_ids, all_sentences)
        spans = trunks.build_trunks(new_sentences, edges, self.merge_threshold, self.max_trunk)
        impact = self.impact.trunk_impact(
            token_impact, [range(span.start - origin, span.stop - origin) for span in spans]
        )
        all_spans = (*table.spans, *spans)
        links = graph.join_links(table.links, graph.build_links(all_spans, edges, self.edge_threshold))
        current = graph.crystallization(links, len(all_spans), self.steepness)
        return TrunkTable(
            torch.cat([table.slots, token_impact]),
            all_spans,
            torch.cat([table.crystallization, current[len(table.spans) :]]),
            torch.cat([table.impact, impact]),
            links,
            len(token_ids),
        )

    def breathe(self, view: View) -> TrunkTable:
        """Apply Eq. 36-40 up to (c); the policy performs the re-eviction."""
        table = view.memory
        if not isinstance(table, TrunkTable):
            raise ValueError(f"view.memory must be the TrunkTable of the last event, not {type(table).__name__}")
        breath = self.breath
        if breath is None:
            return self.add_trunks(view, table)
        decayed = breath.decay(table.crystallization, table.impact, len(view.token_ids) - table.token_count)
        table = self.add_trunks(view, table._replace(crystallization=decayed))
        active = breath.active(read_signal(view, InverseKeyNorms())[0].cpu(), table.spans)
        weights = graph.to_matrix(table.links, len(table.spans))
        crystallization = breath.resonate(table.crystallization, active, weights)
        weights = breath.associate(weights, active, self.edge_threshold)
        return table._replace(crystallization=crystallization, links=graph.to_links(weights))
