"""The discordant answers of a contrast: those that only the subject, or only the comparator, got right."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.exploratory.text_difference import first_difference
from analysis.judgement import contrasts, outside_runs
from figures.report_page.judged_study import JudgedStudy
from protocol.formats.vocabulary import FULL


class DiscordantAnswer(NamedTuple):
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
    common_prefix: int
    gold: str | None = None


def find_discordant(
    files: JudgedStudy, contrast: Mapping[str, Any], limit: int | None = None
) -> list[DiscordantAnswer]:
    """Return the gains and losses that a contrast of `files.judged` counts, in the order of its problems and seeds.

    contrast: a row of the judgement, inside or outside the rule's family. limit: the maximum for each kind; None
    returns all of them, as many as the row's `gains` and `losses`.
    """
    if outside_runs.is_outside(files.study.lock) or "outcome" in files.study.lock["protocol"]["content"]:
        return []  # records have no texts of another harness, nor of arms that were fed the full cache's
    study = contrasts.apply_missing_rule(files.study).study
    problems = study.lock["items"][contrast["task"]]["confirm"]
    subject_lanes, comparator_lanes = (
        _select_lanes(study.lanes, contrast, contrast[side]) for side in ("subject", "against")
    )
    subject_worth, comparator_worth = (
        contrasts.problem_table(lanes, "correct", problems) for lanes in (subject_lanes, comparator_lanes)
    )
    seeds = sorted(set(subject_lanes["seed"]))
    budget, comparator_budget = contrast["budget"], comparator_lanes["budget"].iloc[0]
    answers: list[DiscordantAnswer] = []
    remaining = {"gain": limit, "loss": limit}
    for index, problem in enumerate(problems):
        if any(map(math.isnan, (*subject_worth[index], *comparator_worth[index]))):
            continue  # the judge leaves it out, too
        for column, seed in enumerate(seeds):
            subject_value, comparator_value = subject_worth[index, column], comparator_worth[index, column]
            kind = "gain" if subject_value > comparator_value else "loss"
            if subject_value == comparator_value or remaining[kind] == 0:
                continue
            cell = contrast["model"], contrast["task"]
            subject = files.texts[*cell, budget, contrast["subject"], seed, problem]
            against = files.texts[*cell, comparator_budget, contrast["against"], seed, problem]
            right_answer = subject.answer if subject_value > comparator_value else against.answer
            divergence = first_difference(subject.text, against.text)
            answers.append(
                DiscordantAnswer(
                    problem,
                    kind,
                    int(seed),
                    subject.text,
                    against.text,
                    len(subject.text) if divergence is None else divergence.character,
                    right_answer if max(subject_value, comparator_value) == 1 else None,
                )
            )
            if (rest := remaining[kind]) is not None:
                remaining[kind] = rest - 1
    return answers


def _select_lanes(lanes: Any, contrast: Mapping[str, Any], arm: str) -> Any:
    """Return the lanes of an arm in the contrast's cell; an arm that never evicts is the same at every budget."""
    arm_lanes = lanes[
        (lanes["arm"] == arm) & (lanes["model"] == contrast["model"]) & (lanes["task"] == contrast["task"])
    ]
    budget_lanes = arm_lanes[arm_lanes["budget"] == contrast["budget"]]
    return budget_lanes if len(budget_lanes) else arm_lanes[arm_lanes["budget"] == FULL]
