"""The shipped retrieval studies judged again by topic, beside their own words, which stand as they were locked.

    python -m benchmarks.judged_by_topic [registrations/NAME ...]

Their problems are about three topics (association) or five facts (needle), and were compared as if each were
independent. For every task: the wins and losses of the verdict; of these, those whose sign is the same in every
topic, and those with a small p by topic (Student's t of the topic means by CR2), uncorrected and corrected. Then the
contrasts that differ most between topics. Takes five processor seconds.
"""

import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement import contrasts
from analysis.judgement.study_files import read_study
from analysis.rules.rule import arm_pairs
from analysis.stats.cluster_robust import compare
from analysis.stats.clusters import cluster_means
from analysis.stats.interval import problem_means
from protocol.formats import strict_json
from protocol.tasks import registry

REGISTRATIONS = Path(__file__).resolve().parent.parent / "registrations"
STUDIES = ("retrieval", "crystal-retrieval", "crystal-retrieval-2")
SHOWN = 4  # contrasts of a study with the largest spread between topics


class Contrast(NamedTuple):
    task: str
    name: str
    verdict: str  # "better", "worse" or ""
    difference: float
    by_topic: NDArray[np.float64]  # [topic]
    correlation: float  # of two problems of a topic
    p: float  # by topic


def judge_by_topic(folder: Path) -> list[Contrast]:
    """Return the contrasts of the rule of a judged study."""
    study = read_study(folder)
    rows = strict_json.parse((folder / "verdict.json").read_bytes())["judged"]["contrasts"]
    decision = study.lock["protocol"]["content"]["decision"]
    graded = contrasts.apply_missing_rule(study).study
    found = []
    for pairing, row in zip(contrasts.pair_arms(graded, arm_pairs(decision)), rows, strict=True):
        topics = registry.topics(registry.get(pairing.task))
        means = problem_means(pairing.difference)
        labels = [topics[problem] for problem in pairing.problems]
        by_topic, sizes = cluster_means(means, labels)
        name = f"{pairing.task} at {pairing.budget}, against {pairing.against}"
        verdict = "better" if row["better"] else "worse" if row["worse"] else ""
        p = compare(by_topic, sizes).p
        found.append(
            Contrast(pairing.task, name, verdict, means.mean(), by_topic, intraclass_correlation(means, labels), p)
        )
    return found


def intraclass_correlation(values: NDArray[np.float64], labels: list[str]) -> float:
    """Return the intraclass correlation by analysis of variance (Fisher 1925), 0 without any spread."""
    means, sizes = cluster_means(values, labels)
    between = sizes @ (means - values.mean()) ** 2 / (len(sizes) - 1)
    within = ((values**2).sum() - sizes @ means**2) / (len(values) - len(sizes))
    size = (len(values) - (sizes @ sizes) / len(values)) / (len(sizes) - 1)
    total = between + (size - 1) * within
    return float((between - within) / total) if total else 0.0


def main(folders: list[str]) -> None:
    for folder in map(Path, folders or [str(REGISTRATIONS / name) for name in STUDIES]):
        found = judge_by_topic(folder)
        print(f"{folder.name}: {len(found)} contrasts")
        for task, word in itertools.product(dict.fromkeys(one.task for one in found), ("better", "worse")):
            decided = [one for one in found if (one.task, one.verdict) == (task, word)]
            same = sum(np.ptp(np.sign(one.by_topic)) == 0 for one in decided)
            small, corrected = (sum(one.p < level for one in decided) for level in (0.05, 0.05 / len(found)))
            print(
                f"  {task}: {len(decided)} {word} by problems; of these {same} alike in every topic, {small} with "
                f"p < 0.05 by topic, {corrected} corrected"
            )
        for one in sorted(found, key=lambda one: -np.ptp(one.by_topic))[:SHOWN]:
            topics = ", ".join(f"{100 * each:+.0f}" for each in one.by_topic)
            print(
                f"  {one.name}: {100 * one.difference:+.1f} points ({one.verdict or 'open'}), by topic {topics}; "
                f"correlation {one.correlation:.2f}, p by topic {one.p:.2f}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
