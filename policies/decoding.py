"""What the prompt asks for, and how text is emitted given that the cache is compressed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plain"]


@dataclass(frozen=True)
class Plain:
    """The prompt of the task, unchanged, and no pinned spans."""
