"""What a slot stores."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verbatim"]


@dataclass(frozen=True)
class Verbatim:
    """Key and value as the model computed them, in its precision and at their original RoPE position."""
