"""What does a second look at opened problems cost? Ways to price a study that registers what an earlier one showed.

Two arms answer 287 problems in four cells with three seeds, and neither is better: problems differ in how hard they
are, and an arm is a little better on some and a little worse on others (`SPREAD`), with mean 0 over the population.
A first study is run. Its records give 28 questions: each cell with each set of seeds. A second study registers
the one that looks best, and is judged by the paired t test at the level of the price.

    python -m benchmarks.second_look            # 4,000 studies a row
    python -m benchmarks.second_look --quick    # a tenth of them
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.report import table

__all__ = ["main", "second_looks"]

ALPHA, STUDIES, BLOCK = 0.05, 4_000, 200
PROBLEMS, CELLS, SEEDS = 287, 4, 3
SPREAD = 0.25  # on every problem one of the arms is better by this, on half of them the subject
SEED_SETS = [seeds for size in (1, 2, 3) for seeds in itertools.combinations(range(SEEDS), size)]

Array = NDArray[np.float64]


class Answers(NamedTuple):
    """Chances of being right and what was answered, [study, cell, problem] and [study, cell, seed, problem]."""

    subject: Array
    comparator: Array
    differences: Array


def draw_chances(studies: int, effect: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the chance of each arm to be right, [study, cell, problem]. effect: accuracy points."""
    shape = (studies, CELLS, PROBLEMS)
    comparator = rng.uniform(SPREAD, 1 - SPREAD - effect, shape)
    return comparator + effect + SPREAD * rng.choice([-1, 1], shape), comparator


def draw_answers(subject: Array, comparator: Array, rng: np.random.Generator) -> Array:
    """Return subject minus comparator for each seed, [study, cell, seed, problem]."""
    shape = (*subject.shape[:2], SEEDS, subject.shape[2])
    right = (rng.random(shape) < chances[:, :, None] for chances in (subject, comparator))
    first, second = (answers.astype(np.float64) for answers in right)
    return first - second


def test_questions(differences: Array) -> tuple[Array, Array]:
    """Return t and its one-sided p for each question, [study, cell x set of seeds]."""
    means = np.stack([differences[:, :, list(seeds)].mean(axis=2) for seeds in SEED_SETS], axis=2)
    error = means.std(axis=-1, ddof=1) / np.sqrt(PROBLEMS)
    t = (means.mean(axis=-1) / error).reshape(len(differences), -1)
    return t, stats.t.sf(t, PROBLEMS - 1)


def second_looks(studies: int, effect: float, rng: np.random.Generator) -> Mapping[str, float]:
    """Return the share of second studies that are CONFIRMED, by what they run on and by the price."""
    confirmed = dict.fromkeys(LEVELS, 0)
    for _ in range(studies // BLOCK):
        subject, comparator = draw_chances(BLOCK, effect, rng)
        opened = draw_answers(subject, comparator, rng)
        t, p = test_questions(opened)
        best, rows = t.argmax(axis=1), np.arange(BLOCK)
        whole = np.arange(CELLS) * len(SEED_SETS) + len(SEED_SETS) - 1  # a cell with all of its seeds
        best_cell = whole[t[:, whole].argmax(axis=1)]
        reseeded = test_questions(draw_answers(subject, comparator, rng))[1]
        similar = np.where(rng.random(opened.shape) < 0.9, opened, draw_answers(subject, comparator, rng))
        fresh_chances = draw_chances(BLOCK, effect, rng)
        fresh = test_questions(draw_answers(*fresh_chances, rng))[1]
        values = {
            "first study, one question at alpha / 4": p[:, whole].min(axis=1),
            "best cell, as today": p[rows, best_cell],
            "best cell and seeds, as today": p[rows, best],
            "best cell and seeds, alpha / 2: two openings": p[rows, best],
            "best cell and seeds, alpha / 28: every question": p[rows, best],
            "best of 28, a policy that answers alike in 90 %, alpha / 28": test_questions(similar)[1][rows, best],
            "best cell, new seeds on the opened problems": reseeded[rows, best_cell],
            "best cell, fresh problems and seeds": fresh[rows, best_cell],
        }
        for name, values_of_p in values.items():
            confirmed[name] += int((values_of_p <= LEVELS[name] / 2).sum())
    return {name: count / (studies // BLOCK * BLOCK) for name, count in confirmed.items()}


LEVELS: Mapping[str, float] = {  # two-sided; CONFIRMED is its upper half
    "first study, one question at alpha / 4": ALPHA / 4,
    "best cell, as today": ALPHA,
    "best cell and seeds, as today": ALPHA,
    "best cell and seeds, alpha / 2: two openings": ALPHA / 2,
    "best cell and seeds, alpha / 28: every question": ALPHA / 28,
    "best of 28, a policy that answers alike in 90 %, alpha / 28": ALPHA / 28,
    "best cell, new seeds on the opened problems": ALPHA,
    "best cell, fresh problems and seeds": ALPHA,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the studies")
    studies = STUDIES // 10 if parser.parse_args().quick else STUDIES
    rng = np.random.default_rng(20261127)
    null, real = (second_looks(studies, effect, rng) for effect in (0.0, 0.03))
    rows = [(name, f"{null[name]:.3f}", f"{real[name]:.3f}") for name in LEVELS]
    print(table(("second study", "CONFIRMED, nothing differs", "CONFIRMED, 3 points differ"), rows))


if __name__ == "__main__":
    main()
