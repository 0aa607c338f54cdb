"""How often the anatomy errs and finds: simulated studies with nothing planted, and with a known correlation.

    python -m benchmarks.anatomy_errors --studies 1000

Prints the rows of the table in benchmarks/RESULTS.md. A study has two (model, task) pairs with 24 rows each
and 16 traces a half, unless a row says otherwise; one with something planted has one pair.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from analysis.stats.interval import clopper_pearson
from benchmarks.anatomy_studies import StudySize, simulate_study
from benchmarks.simulated_traces import TraceSettings
from protocol.instruments.anatomy.analysis.power import choice_probability, power_of_test

PLAIN = TraceSettings(tokens=128, window=16, stride=8)
NULLS = {
    "autocorrelation .9, no trend": (PLAIN._replace(trend=0.0), StudySize()),
    "signals with trends": (PLAIN, StudySize()),
    "strong trends, autocorrelation .99": (PLAIN._replace(trend=4.0, autocorrelation=0.99), StudySize()),
    "signals with trends, 8 traces a half": (PLAIN, StudySize(traces=8)),
    "labels with a trend too (they do correlate)": (PLAIN._replace(late=1.0, trend=3.0), StudySize()),
}
PLANTED = {strength: PLAIN._replace(strength=strength, varied=0.3) for strength in (0.4, 0.6, 0.8)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000, help="made up for each row")
    parser.add_argument("--only", help="a word in the name of the rows to make")
    given = parser.parse_args(argv)
    for name, (nature, size) in NULLS.items():
        if given.only and given.only not in name:
            continue
        found = [simulate_study(nature, size, np.random.default_rng([1, at])) for at in range(given.studies)]
        shares = [_share(sum(bool(one[place]) for one in found), given.studies) for place in range(4)]
        print(f"| {name} | {' | '.join(shares)} |", flush=True)
    for strength, nature in PLANTED.items():
        if given.only and given.only not in "planted":
            continue
        size = StudySize(pairs=1, draws=1)
        found = [simulate_study(nature, size, np.random.default_rng([2, at])) for at in range(given.studies)]
        mean, sd = (float(np.mean([one[place] for one in found])) for place in (5, 6))
        test = power_of_test(size.traces, mean, sd, size.alpha)
        both = test * choice_probability(size.traces, mean, sd, size.signals)
        share = _share(sum(one.right for one in found), given.studies)
        print(f"| {strength} | {mean:.3f} | {sd:.3f} | {100 * test:.1f} % | {100 * both:.1f} % | {share} |", flush=True)
    return 0


def _share(count: int, of: int) -> str:
    low, high = clopper_pearson(count, of)
    return f"{100 * count / of:.1f} [{100 * low:.1f}, {100 * high:.1f}] %"


if __name__ == "__main__":
    sys.exit(main())
