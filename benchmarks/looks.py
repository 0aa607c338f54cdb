"""How often designs with looks err: studies without a difference that some look decides, by method and spending.

    python -m benchmarks.looks            10,000 studies a row, about two minutes
    python -m benchmarks.looks 1000

Each study has one or four contrasts of problems of their own, right and wrong answers or scores, and Bonferroni over
the contrasts. It ends at the first look where a contrast decides; `errs` is the share that ends so, at most alpha = 5 %
if the design holds, beside the share of the fixed design on the same data. Then the mean number of problems where
nothing differs, at the difference that the fixed design finds in four of five studies, and at twice that.
"""

import sys
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.stats import betting, restricted_likelihood
from analysis.stats.sample_size import problems_needed
from analysis.stats.sequential import ANYTIME, SPENDING_FUNCTIONS, Look

LOOKS = (200, 400, 800)
ALPHA, MARGIN = 0.05, 0.03
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Data(NamedTuple):
    """A distribution of differences on a few values, with mean 0; a true difference moves weight from the first
    value to the last, at most all of it."""

    name: str
    values: tuple[float, ...]
    shares: tuple[float, ...]

    def moved(self, difference: float) -> list[float]:
        shift = min(difference / (self.values[-1] - self.values[0]), self.shares[0])
        return [self.shares[0] - shift, *self.shares[1:-1], self.shares[-1] + shift]

    @property
    def deviation(self) -> float:
        return float(np.sqrt(np.dot(self.shares, np.square(self.values))))


def skewed(one_in: int) -> Data:
    gain = 0.9
    loss = -gain / (one_in - 1)
    return Data(f"scores, a gain in 1 of {one_in}", (loss, gain), (1 - 1 / one_in, 1 / one_in))


ANSWERS = [
    Data(f"right/wrong, {share:.0%} differ", (-1.0, 0.0, 1.0), (share / 2, 1 - share, share / 2))
    for share in (0.05, 0.2, 0.6)
]
SCORES = [skewed(2), skewed(10), skewed(40)]


def two_sided_p(method: str, data: Data, counts: Counts) -> Floats:
    """Return the p of no difference, [study], of counts[study, value]."""
    values = np.asarray(data.values)
    total = counts.sum(axis=-1)
    if method == "betting":
        sides = [counts @ np.log1p(side * values[:, None] * betting.STAKES) for side in (1, -1)]
        capital = np.max([special.logsumexp(side + betting.LOG_WEIGHTS, axis=-1) for side in sides], axis=0)
        return np.asarray(np.minimum(1.0, 2 * np.exp(-np.maximum(capital, 0.0))))
    if method == "t":
        mean = counts @ values / total
        variance = (counts @ values**2 - total * mean**2) / (total - 1)
        error = np.sqrt(np.maximum(variance, 1e-30) / total)
        return np.asarray(2 * stats.t.sf(np.abs(mean) / error, total - 1))
    if method == "sign-flip":  # of right and wrong answers: the exact McNemar test
        differing, fewer = counts[:, 0] + counts[:, 2], np.minimum(counts[:, 0], counts[:, 2])
        return np.asarray(np.minimum(1.0, 2 * stats.binom.cdf(fewer, differing, 0.5)))
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    return np.asarray(restricted_likelihood.p_values(distinct))[place.ravel()]


def margin_p(method: str, counts: Counts) -> Floats:
    """Return the one-sided p of a mean at -MARGIN or below, [study]."""
    if method == "betting":
        return np.asarray(betting.p_of_counts(counts, -MARGIN)[:, 0])
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    return np.asarray(restricted_likelihood.tails(distinct, -MARGIN)[:, 1])[place.ravel()]


class Outcome(NamedTuple):
    errs: float  # share of studies that some look decides
    fixed: float  # share that the fixed design decides
    problems: float  # mean until a study ends


def simulate(method: str, spending: str, data: Data, contrasts: int, difference: float, studies: int) -> Outcome:
    rng = np.random.default_rng([len(method), len(spending), contrasts, studies])
    counts = np.zeros((studies * contrasts, len(data.values)), dtype=np.int64)
    level = ALPHA / contrasts
    is_running, before, problems = np.ones(studies, dtype=bool), 0, 0.0
    fractions = [look / LOOKS[-1] for look in LOOKS]
    for number, look in enumerate(LOOKS, 1):
        problems += float(is_running.mean()) * (look - before)
        counts += rng.multinomial(look - before, data.moved(difference), size=len(counts))
        p, before = two_sided_p(method, data, counts), look
        allowed = 2 * Look(spending, tuple(fractions[:number])).level(level / 2)
        is_running &= ~(p <= allowed).reshape(studies, contrasts).any(axis=1)
    fixed = float((p <= level).reshape(studies, contrasts).any(axis=1).mean())
    return Outcome(1 - float(is_running.mean()), fixed, problems)


def simulate_margin(method: str, spending: str, differing: float, studies: int) -> Outcome:
    """Return how often a subject that is worse by exactly the margin is called not inferior."""
    rng = np.random.default_rng([len(method), len(spending), int(1000 * differing)])
    shares = [(differing + MARGIN) / 2, 1 - differing, (differing - MARGIN) / 2]
    counts, before = np.zeros((studies, 3), dtype=np.int64), 0
    is_running, problems = np.ones(studies, dtype=bool), 0.0
    for number, look in enumerate(LOOKS, 1):
        problems += float(is_running.mean()) * (look - before)
        counts += rng.multinomial(look - before, shares, size=studies)
        p, before = margin_p(method, counts), look
        fractions = tuple(look / LOOKS[-1] for look in LOOKS[:number])
        is_running &= p > Look(spending, fractions).level(ALPHA)
    return Outcome(1 - float(is_running.mean()), float((p <= ALPHA).mean()), problems)


def detectable(data: Data, level: float) -> float:
    """Return the difference that all problems find in four of five studies at this level, by normal theory."""
    low, high = 1e-4, 0.5
    while high - low > 1e-5:
        middle = (low + high) / 2
        needed = problems_needed(middle, data.deviation, level) or 0
        low, high = (low, middle) if needed <= LOOKS[-1] else (middle, high)
    return high


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{date.today()}, looks {list(LOOKS)}, alpha {ALPHA}, {studies:,} studies a row\n")
    print("| method | spending | data | contrasts | errs | fixed | n null | n detectable | n twice that |")
    print("|---|---|---|---|---|---|---|---|---|")
    for method, kinds in (
        ("t", ANSWERS + SCORES),
        ("sign-flip", ANSWERS),
        ("restricted-likelihood", ANSWERS),
        ("betting", ANSWERS + SCORES),
    ):
        for spending in [ANYTIME] if method == "betting" else [*SPENDING_FUNCTIONS]:
            for data in kinds:
                for contrasts in (1, 4):
                    null = simulate(method, spending, data, contrasts, 0.0, studies)
                    effect = detectable(data, ALPHA / contrasts)
                    sizes = [
                        simulate(method, spending, data, contrasts, factor * effect, max(500, studies // 5)).problems
                        for factor in (1, 2)
                    ]
                    print(
                        f"| {method} | {spending} | {data.name} | {contrasts} | {null.errs:.2%} | {null.fixed:.2%} | "
                        f"{null.problems:.0f} | {sizes[0]:.0f} | {sizes[1]:.0f} |",
                        flush=True,
                    )
    print(
        f"\nNot worse by {MARGIN:g}, where the subject is worse by exactly that; p of t and auto is never below this\n"
    )
    print("| method | spending | arms differ on | errs | fixed | n |")
    print("|---|---|---|---|---|---|")
    for method, spending in (
        *(("restricted-likelihood", spending) for spending in SPENDING_FUNCTIONS),
        ("betting", ANYTIME),
    ):
        for differing in (0.03, 0.05, 0.2, 0.6):
            row = simulate_margin(method, spending, differing, studies)
            shares = f"{row.errs:.2%} | {row.fixed:.2%} | {row.problems:.0f}"
            print(f"| {method} | {spending} | {differing:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
