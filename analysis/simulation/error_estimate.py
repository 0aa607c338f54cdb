"""An estimate of a type I error, simulated or tabulated, and the limit that a registration has to keep."""

from typing import Any, NamedTuple

LIMIT = 1.2  # times the nominal level; a method or rule that may be above it is refused


class TypeOneError(NamedTuple):
    """The type I error of a method at the planned size, also as a multiple of the nominal level."""

    rate: float
    ratio: float
    ratio_low: float  # limits of the simulation, 95 % over all looks; the ratio itself if enumerated
    ratio_high: float
    studies: int  # number of simulated studies; 0 if enumerated
    setting: Any  # the setting with the largest error, whose text names it

    def exceeds(self) -> bool:
        """Return whether the error may be above LIMIT times nominal: the upper limit of the simulation is."""
        return self.ratio_high > LIMIT
