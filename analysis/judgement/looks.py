"""A study with registered looks: the one that it is judged at, and whether it kept to them.

A study ends at the first look at which its rule decides, or at the last one. It deviates from what was registered if
its records end before that look or go on after it. Both follow from lock and records alone.

At a look every p, interval and margin test is that of the sequential design (`analysis.stats.sequential`), so that
rules and sentences apply as they are.
"""

from collections.abc import Callable, Mapping
from typing import Any

from analysis.judgement.opened_lanes import DEVIATION, FIELD, keep_looks
from analysis.judgement.study_table import Study
from analysis.rules import verdict_line
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.stats.methods import MIN_CONFIRMATORY
from analysis.stats.sequential import ANYTIME, Look
from protocol.formats.looks import GO_ON, STOP, read_looks

REASONS = {CONFIRMED: "efficacy", REFUTED: "harm"}


def list_deciding(looks: tuple[int, ...]) -> list[int]:
    """Return the looks that may stop a study: a verdict of fewer than 200 problems is a screening, so that such a look
    stops no larger study and spends nothing of its alpha.
    """
    return [look for look in looks if look >= MIN_CONFIRMATORY or looks[-1] < MIN_CONFIRMATORY]


def read_look(lock: Mapping[str, Any]) -> Look:
    """Return the look at which a study with looks is judged."""
    looks, decision = read_looks(lock), lock["protocol"]["content"]["decision"]
    present = looks[lock[FIELD] - 1]
    counted = [*(look for look in list_deciding(looks) if look < present), present]
    return Look(decision.get("spending") or ANYTIME, tuple(look / looks[-1] for look in counted))


def judge_looks(study: Study, judge: Callable[[Study], dict[str, Any]]) -> dict[str, Any]:
    """Return the judgement at the look where the study had to stop, with the path that led there.

    study: the lanes up to the last look with a record. judge: judges the lanes of one look.
    """
    looks, reached = read_looks(study.lock), study.lock[FIELD]
    path: list[dict[str, Any]] = []
    for number, look in enumerate(looks[:reached], 1):
        opened = study._replace(**keep_looks(study.lock, study.lanes, number)._asdict())
        judged = judge(opened)
        reason = _stop_reason(judged, looks, number)
        path.append(_path_row(judged, look))
        if reason:
            break
    if deviation := _describe_deviation(number, reached, reason):
        judged = judge(opened._replace(lock={**opened.lock, DEVIATION: deviation}))
    return judged | {
        "looks": {"problems": list(looks), "at": number, "reason": reason or None, "path": path}
        | ({DEVIATION: deviation} if deviation else {})
    }


def advise(judged: Mapping[str, Any]) -> str:
    """Return what a study does after the last look that has records: stop or go on."""
    return STOP if judged["looks"]["reason"] else GO_ON


def _stop_reason(judged: Mapping[str, Any], looks: tuple[int, ...], number: int) -> str:
    """Return why a study stops at a look; empty if it goes on."""
    if looks[number - 1] in list_deciding(looks) and (word := verdict_line.rule_verdict(judged)) in REASONS:
        return REASONS[word]
    return "the last look" if number == len(looks) else ""


def _describe_deviation(number: int, reached: int, reason: str) -> str:
    if not reason:
        return f"it ended after look {number}, although the rule did not decide there"
    if number < reached:
        return f"it continued to look {reached}, although the rule had decided at look {number}"
    return ""


def _path_row(judged: Mapping[str, Any], look: int) -> dict[str, Any]:
    """Return one look of the path: the word of the rule, and the contrasts with their boundaries."""
    contrasts = [row["look"] | {"difference": row["difference"]} for row in judged["contrasts"] if "look" in row]
    return {"problems": look, "rule_says": verdict_line.rule_verdict(judged), "contrasts": contrasts}
