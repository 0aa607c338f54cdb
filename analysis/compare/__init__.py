"""Comparison of finished result files, of this and other projects: read, paired by problem, compared. Nothing
was registered. The module is callable: `analysis.compare(frame)`.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.judgement; matplotlib, numpy, pandas, zstandard.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.compare.comparison import Comparison


class _CallableModule(ModuleType):
    def __call__(self, frame: Any, **options: Any) -> "Comparison":
        """Compare the arms of a data frame; see `analysis.compare.comparison.compare_frame`."""
        from analysis.compare.comparison import compare_frame

        return compare_frame(frame, **options)


sys.modules[__name__].__class__ = _CallableModule
