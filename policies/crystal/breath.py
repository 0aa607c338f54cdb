"""Decode time: crystallization decays, and a breath renews active trunks (CrystalCache, section 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.signals import upcast


@dataclass(frozen=True)
class InverseKeyNorms:
    """1 / ||k|| of the first layer, mean over its KV heads: [n] in float32 or better; None elsewhere."""

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Any:
        return (1 / upcast(keys).norm(dim=-1)).mean(0) if layer == 0 else None


@dataclass(frozen=True)
class Breath:
    """Equations 36 to 40; defaults of Table 14.

    The trunk graph W is a symmetric [trunk, trunk], D and the impact are [trunk], all float64.

    rate, scale: beta_0 and D_c of Eq. 36. threshold: on the normalised inverse key norm. resonance, hops,
    hop_decay, min_pulse: Eq. 37-38. hebbian, edge_decay: Eq. 39-40. renewal: the fraction that an active
    trunk itself regains; 0 in the paper, 0.3 in the blog.
    """

    rate: float = 0.05
    scale: float = 2.0
    threshold: float = 0.3
    resonance: float = 0.15
    hops: int = 2
    hop_decay: float = 0.5
    min_pulse: float = 0.01
    hebbian: float = 0.05
    edge_decay: float = 0.99
    renewal: float = 0.0

    def __post_init__(self) -> None:
        if not (self.rate >= 0 and self.scale > 0 and self.hops >= 0):
            raise ValueError(
                f"rate and hops must be 0 or more and scale above 0, not {self.rate}, {self.hops} and {self.scale}"
            )
        for name in ("threshold", "resonance", "hop_decay", "min_pulse", "hebbian", "edge_decay", "renewal"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {share}")

    def decay(self, crystallization: Tensor, impact: Tensor, steps: int) -> Tensor:
        """Eq. 36, once for each of `steps` decode steps, with a time step of 1."""
        for _ in range(steps):
            rate = self.rate * torch.exp(-crystallization * impact / self.scale)
            crystallization = (crystallization - rate * crystallization).clamp(min=0)
        return crystallization

    def active(self, inverse_norms: Tensor, spans: Sequence[range]) -> Tensor:
        """(a): bool [trunk], whether more than half of the slots are above the threshold. inverse_norms [n]."""
        above = inverse_norms / inverse_norms.max() > self.threshold
        is_above = above.tolist()
        return above.new_tensor([2 * sum(is_above[span.start : span.stop]) > len(span) for span in spans])

    def resonate(self, crystallization: Tensor, active: Tensor, weights: Tensor) -> Tensor:
        """(b): every active trunk sends a pulse.

        Eq. 38 in the form 1 - D <- (1 - D)(1 - resonance * pulse), which is independent of the pulse order.
        """
        missing = (1 - crystallization) * (1 - self.renewal * active.to(crystallization))
        for source in active.nonzero().flatten().tolist():
            missing = missing * (1 - self.resonance * self.pulse(source, weights))
        return 1 - missing

    def pulse(self, source: int, weights: Tensor) -> Tensor:
        """Eq. 37: [trunk], the pulse that arrives from a unit pulse of the source; 0 at the source itself.

        A trunk is reached once, along the strongest of its shortest paths. A pulse below `min_pulse` does not arrive.
        """
        frontier = weights.new_zeros(len(weights))
        frontier[source] = 1
        arrived, reached = torch.zeros_like(frontier), frontier > 0
        for _ in range(self.hops):
            senders = frontier.nonzero().flatten()
            if not len(senders):
                break
            frontier = (frontier[senders, None] * weights[senders] * self.hop_decay).amax(0)
            frontier[reached | (frontier < self.min_pulse)] = 0
            arrived, reached = arrived + frontier, reached | (frontier > 0)
        return arrived

    def associate(self, weights: Tensor, active: Tensor, edge_threshold: float) -> Tensor:
        """(c), Eq. 39-40: links between active trunks grow, new ones included; all others decay.

        A link below the threshold is pruned.
        """
        are_active = active[:, None] & active
        weights = torch.where(are_active, (weights + self.hebbian).clamp(max=1), self.edge_decay * weights)
        return weights.masked_fill(weights < edge_threshold, 0).fill_diagonal_(0)
