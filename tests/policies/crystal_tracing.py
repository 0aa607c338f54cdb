"""CrystalCache on a given attention matrix, with all its intermediate results."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from torch import Tensor

from policies.contract import AttentionRows, View
from policies.crystal.policy import CrystalConfig
from policies.policy import refuse_non_finite
from policies.signals import BLOCK


class CrystalTrace(NamedTuple):
    """The results of S1-S6 for one prompt, with the paper's equations."""

    retained: list[int]
    """Positions, ascending."""
    salience: Tensor
    """[n], S_i of Eq. 11, clipped."""
    impact: Tensor
    """[n], M_i of Eq. 22."""
    trunks: list[list[int]]
    """Positions of each trunk."""
    edges: list[tuple[int, int, float]]
    """Entries (i, j, weight) of E, sorted; directed, see `coattention.Edges`."""
    crystallization: Tensor
    """[trunk], D of Eq. 27 before the eviction step, from which `score` is computed."""
    score: Tensor
    """[trunk], Eq. 29; not used for protected trunks."""
    retention: Tensor
    """[trunk], r_g of Eq. 32; D after the eviction step is retention * crystallization (Eq. 34)."""


def trace(
    attention: Tensor, token_ids: Tensor, sentence_ends: Set[int], budget: int, config: CrystalConfig | None = None
) -> CrystalTrace:
    """Run the stages of `crystal` on the first layer's causal attention [head, n, n], with the policy's code.

    token_ids [n]. Entries above the diagonal are not read. A budget of n or more keeps everything.
    """
    config = config or CrystalConfig()
    scoring = config.scoring()
    n = attention.shape[-1]
    state = None
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        rows = AttentionRows(attention[:, start:stop, :stop].tril(start), layer=0, start=start, total=n, kv_heads=1)
        state = scoring.coattention.attend(rows, state)
    assert state is not None
    first = scoring.coattention.result(state)
    view = View(
        token_ids=token_ids,
        layers=1,
        kv_heads=1,
        sentence_ends=frozenset(sentence_ends),
        seed=0,
        signals={scoring.coattention: (first,)},
    )
    scores = scoring.score(view)
    refuse_non_finite(scores.slots, view.filled)
    assert scores.trunks is not None
    protected = config.protect().slots(view.filled, budget, decoding=False)[0, 0]
    slot_scores = scores.slots[0, 0]
    dissolution = config.selection().dissolve(slot_scores, scores.trunks, protected, budget)
    columns = (column.tolist() for column in first.edges)
    return CrystalTrace(
        retained=dissolution.retained,
        salience=config.impact().salience(first.mass.cpu().double()),
        impact=slot_scores,
        trunks=[list(span) for span in scores.trunks.spans],
        edges=sorted(zip(*columns, strict=True)),
        crystallization=scores.trunks.crystallization,
        score=dissolution.score,
        retention=dissolution.retention,
    )
