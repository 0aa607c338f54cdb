"""Contenders measured in turn, so that whatever drifts in the machine falls on all of them alike."""

import sys
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch


class Ratio(NamedTuple):
    """Median and range of the ratios of one pair of contenders, a ratio a round."""

    median: float
    low: float
    high: float

    def minus(self, amount: float) -> "Ratio":
        return Ratio(*(value - amount for value in self))


class Times(NamedTuple):
    """Seconds of each contender, [round]."""

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def ratio(self, name: str, base: str) -> Ratio:
        pairs = zip(self.seconds[name], self.seconds[base], strict=True)
        ratios = [one / other for one, other in pairs]
        return Ratio(median(ratios), min(ratios), max(ratios))


def clocked(act: Callable[[], object], device: str, clock: Callable[[], float] = perf_counter) -> Callable[[], float]:
    """Seconds that `act` takes, with the work that it leaves queued on an accelerator."""

    def measure() -> float:
        wait(device)
        start = clock()
        act()
        wait(device)
        return clock() - start

    return measure


def alternate(contenders: Mapping[str, Callable[[], float]], repetitions: int) -> Times:
    """Call every contender for its seconds, once a round; a first round warms up and is not counted.

    Every second round goes backwards, so that nobody always follows the same neighbour. Progress goes to
    standard error.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(repetitions + 1):
        for name in list(contenders) if repetition % 2 == 0 else list(reversed(list(contenders))):
            taken = contenders[name]()
            place = f"round {repetition} of {repetitions}" if repetition else "warming up"
            print(f"{place}: {name}: {taken:.3f} s", file=sys.stderr, flush=True)
            if repetition:
                seconds[name].append(taken)
    return Times({name: tuple(taken) for name, taken in seconds.items()})


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
