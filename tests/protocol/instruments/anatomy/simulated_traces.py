"""Simulated traces with a known truth, on which the registered test is tried.

Labels have the structure that occlusion gives them: a few tokens are needed, a window is needed if it covers
one of them, and a token is labelled if a window over it is needed. So labels are correlated over tens of
tokens, like signals that are rolling means. Signals have trends along the text, the same in all traces, and
an autocorrelation; a planted signal also contains a share of the label.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal as filters


class TraceSettings(NamedTuple):
    """Parameters of simulated traces.

    sites: tokens needed, on average. autocorrelation: of signals from token to token. trend: the most that a
    signal gains from the first token to the last, in standard deviations; each signal has its own trend,
    positive or negative, the same in all traces. late: how much later in the span sites lie, 0 (anywhere) to
    1: a trend of the labels. strength: what a planted signal gains where it is needed, in standard
    deviations; varied: the standard deviation of that over traces.
    """

    tokens: int = 200
    window: int = 32
    stride: int = 16
    sites: float = 2.0
    autocorrelation: float = 0.9
    trend: float = 1.0
    late: float = 0.0
    strength: float = 0.0
    varied: float = 0.0


class SimulatedTrace(NamedTuple):
    """A simulated trace. windows: start, stop, whether the grade changed; signals: [signal, token]."""

    windows: list[tuple[int, int, bool]]
    label: NDArray[np.int8]
    signals: NDArray[np.float64]


def window_spans(tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    """Return a window every `stride` tokens while it fits, and one more at the end if tokens are left."""
    starts = list(range(0, tokens - window + 1, stride))
    if starts[-1] + window < tokens:
        starts.append(tokens - window)
    return [(start, start + window) for start in starts]


def simulate_trace(
    settings: TraceSettings, trends: NDArray[np.float64], planted: NDArray[np.bool_], rng: np.random.Generator
) -> SimulatedTrace:
    """Simulate one trace. trends: [signal], the same for all traces of a study; planted: [signal], a mask."""
    n = settings.tokens
    count = 1 + rng.poisson(max(0.0, settings.sites - 1))
    positions = rng.random(count)
    sites = np.minimum(
        n - 1, (n * np.where(rng.random(count) < settings.late, np.sqrt(positions), positions)).astype(int)
    )
    windows = [
        (start, stop, bool(((sites >= start) & (sites < stop)).any()))
        for start, stop in window_spans(n, settings.window, settings.stride)
    ]
    label = np.zeros(n, dtype=np.int8)
    for start, stop, changed in windows:
        if changed:
            label[start:stop] = 1
    rho = settings.autocorrelation
    noise = rng.normal(size=(len(trends), n + 100)) * np.sqrt(1 - rho**2)
    # The first hundred values are a warm-up, so that the series has the same spread throughout.
    series = filters.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 100:]
    position_axis = np.linspace(-0.5, 0.5, n)
    gain = rng.normal(settings.strength, settings.varied) if settings.varied else settings.strength
    signals = series + trends[:, None] * position_axis + np.where(planted, gain, 0.0)[:, None] * label
    return SimulatedTrace(windows, label, signals)
