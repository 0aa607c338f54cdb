"""The discordant answers of a contrast: those that only the subject, or only the comparator, got right."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.explored.one_problem import parting
from analysis.rules.rule import FULL
from analysis.studies import contrasts
from figures.html.finished import Finished

__all__ = ["Behind", "behind"]


class Behind(NamedTuple):
    """A problem and seed on which the two arms of a contrast are graded differently.

    kind: "gain", if the subject has the higher grade, or "loss". subject, comparator: their texts.
    common_prefix: characters shared before the first word that differs. gold: the answer extracted from the
    better text, if it was graded correct; records do not contain the gold answer.
    """

    problem: str
    kind: str
    seed: int
    subject: str
    comparator: str
    differs: int
    gold: str | None = None


def behind(files: Finished, contrast: Mapping[str, Any], most: int | None = None) -> list[Behind]:
    """Return the gains and losses that a contrast of `files.judged` counts, in the order of its problems and
    seeds.

    contrast: a row of the judgement, inside or outside the rule's family. limit: the maximum for each kind;
    None returns all of them, as many as the row's `gains` and `losses`.
    """
    study = contrasts.counted(files.study).study
    problems = study.lock["items"][contrast["task"]]["confirm"]
    own, other = (_lanes(study.lanes, contrast, contrast[side]) for side in ("subject", "against"))
    worth, compared = (contrasts.by_problem(lanes, "correct", problems) for lanes in (own, other))
    seeds = sorted(set(own["seed"]))
    budget, full = contrast["budget"], other["budget"].iloc[0]
    found: list[Behind] = []
    left = {"gain": most, "loss": most}
    for place, problem in enumerate(problems):
        if any(map(math.isnan, (*worth[place], *compared[place]))):
            continue  # the judge leaves it out, too
        for column, seed in enumerate(seeds):
            one, two = worth[place, column], compared[place, column]
            kind = "gain" if one > two else "loss"
            if one == two or left[kind] == 0:
                continue
            cell = contrast["model"], contrast["task"]
            subject = files.texts[*cell, budget, contrast["subject"], seed, problem]
            against = files.texts[*cell, full, contrast["against"], seed, problem]
            right = subject.answer if one > two else against.answer
            apart = parting(subject.text, against.text)
            found.append(
                Behind(
                    problem,
                    kind,
                    int(seed),
                    subject.text,
                    against.text,
                    len(subject.text) if apart is None else apart.character,
                    right if max(one, two) == 1 else None,
                )
            )
            if (rest := left[kind]) is not None:
                left[kind] = rest - 1
    return found


def _lanes(lanes: Any, contrast: Mapping[str, Any], arm: str) -> Any:
    """Return the lanes of an arm in the contrast's cell; an arm that never evicts is the same at every
    budget.
    """
    here = lanes[
        (lanes["arm"] == arm) & (lanes["model"] == contrast["model"]) & (lanes["task"] == contrast["task"])
    ]
    at = here[here["budget"] == contrast["budget"]]
    return at if len(at) else here[here["budget"] == FULL]
