"""Which lanes carry a verdict: how few of them, graded otherwise, turn it, and how many a replay draws to meet one.

A route turns the verdict line by the lanes of one contrast, in one direction: lowered, the subject's lanes lose
points and the comparator's gain them; raised, the reverse; or by the lanes of the full cache that passed its gate. A
contrast that is tested against a neighbour too is moved by the comparator's lanes there as well: a route of their own.
Whoever forged a verdict forged lanes of a route, and any of its lanes would have served: lanes on which both arms are
right turn a contrast more cheaply than those on which one is, so that discordant lanes alone would be too few to
draw from. How few turn it is a greedy count: tied lanes first, problem by problem. A cleverer choice may need fewer.
"""

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement.judgement import judge_study
from analysis.judgement.study_table import LANE_COLUMNS, Study
from analysis.rules import verdict_line
from analysis.rules.verdict_line import SCREENED
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.findings import CannotTell
from protocol.formats.vocabulary import FULL
from protocol.recompute import verify_judgement

ODDS = 0.95  # with which a default draw meets the fewest lanes that turn the verdict, on every route
UNROUTED = 59  # lanes of a default draw where nothing turns the verdict: they meet one changed lane in twenty with ODDS
UNIFORM_SHARE = 10  # one drawn lane in so many is of all lanes alike
Judge = Callable[[Study], Mapping[str, Any]]
Lane = tuple[Any, ...]  # (phase, model, task, budget, arm, seed, problem)


class Route(NamedTuple):
    """label: the contrast and the direction. lanes: all that move it. changed: how few of them turn the verdict."""

    label: str
    lanes: tuple[Lane, ...]
    changed: int


class DrawnRoute(NamedTuple):
    """A route with numbers: of its lanes that ran, of those that turn the verdict, and of those that were drawn."""

    label: str
    lanes: int
    changed: int
    drawn: int

    @property
    def odds(self) -> float:
        return meeting_odds(self.lanes, min(self.changed, self.lanes), self.drawn)


class Draw(NamedTuple):
    """routes: the least likely to be met first."""

    lanes: tuple[Lane, ...]
    routes: tuple[DrawnRoute, ...]

    def __str__(self) -> str:
        """Return the odds in a sentence."""
        if not self.routes:
            return (
                "no change of one contrast's grades changes the verdict, so all lanes were drawn with equal probability"
            )
        least, others = self.routes[0], len(self.routes) - 1
        return (
            f"a forgery of {least.changed} lanes that changes the verdict (greedy count; {least.label}, of "
            f"{least.lanes} lanes that affect it) would be detected with probability "
            f"{math.floor(1000 * least.odds) / 10:.1f} %"
            + f"; {others} other ways to forge it would be detected at least as likely"
            * bool(others)
        )


def meeting_odds(lanes: int, changed: int, drawn: int) -> float:
    """Return the probability that `drawn` of `lanes`, without replacement, meet one of `changed` (hypergeometric)."""
    return 1 - math.comb(lanes - changed, drawn) / math.comb(lanes, drawn)


def find_study_routes(study: Registration) -> list[Route]:
    """Return the routes of a judged registration; none where judging it takes long."""
    try:
        confirmed, selected = verify_judgement.read_for_judgement(study)
    except CannotTell:
        return []
    content = confirmed.lock["protocol"]["content"]
    decision = {name: value for name, value in content["decision"].items() if name != "beside"}  # no line depends on it
    protocol = {**confirmed.lock["protocol"], "content": {**content, "decision": decision}}
    alone = confirmed._replace(lock={**confirmed.lock, "protocol": protocol})
    return find_routes(alone, lambda changed: judge_study(changed, selected))


def find_routes(study: Study, judge: Judge) -> list[Route]:
    """Return the routes that turn the verdict of a judged study. judge: judges the lanes of a study.

    Takes some ten judgements for each contrast and direction.
    """
    judged = judge(study)
    if judged["verdict"] == SCREENED:
        return []  # whatever the grades are
    line, correct = verdict_line.format_verdict(judged), study.lanes["correct"].to_numpy(dtype=np.float64)
    columns = {name: study.lanes[name].to_numpy() for name in LANE_COLUMNS}
    names = list(zip(*(columns[name] for name in LANE_COLUMNS), strict=True))

    def turns_with(order: NDArray[np.int64], values: NDArray[np.float64], count: int) -> bool:
        changed = correct.copy()
        changed[order[:count]] = values[:count]
        return verdict_line.format_verdict(judge(study._replace(lanes=study.lanes.assign(correct=changed)))) != line

    routes = []
    for label, order, values in _list_flips(judged, columns, correct):
        # Of a margin on both sides too many changes turn the verdict back: counts are doubled from below.
        doubled = [1 << bit for bit in range(len(order).bit_length())] if "margin" in judged else []
        if fewest := _find_fewest(sorted({*doubled, len(order)} - {0}), partial(turns_with, order, values)):
            routes.append(Route(label, tuple(("confirm", *names[index]) for index in order), fewest))
    return routes


def _find_fewest(tried: Iterable[int], is_enough: Callable[[int], bool]) -> int | None:
    """Return a count that is enough, found by halving below the first of `tried` that is; None if none is. tried: in
    rising order; a narrow band of counts between two of them is missed.
    """
    below = 0
    for count in tried:
        if is_enough(count):
            while count - below > 1:
                middle = (below + count) // 2
                below, count = (below, middle) if is_enough(middle) else (middle, count)
            return count
        below = count
    return None


def draw_lanes(everything: Iterable[Lane], routes: Sequence[Route], count: int | None, nonce: str) -> Draw:
    """Draw lanes: so many of each route that the odds are alike, and one in `UNIFORM_SHARE` of all.

    count: of all together; None draws as many as `ODDS` needs. All lanes are ranked by HMAC-SHA256(nonce, canonical
    lane), so that the first so many of a route are a simple random sample of it; a lane of several counts once.
    """
    secret = bytes.fromhex(nonce)
    ranked = sorted({*everything}, key=lambda lane: hmac.digest(secret, canonical.dumps([*lane]), hashlib.sha256))
    present, drawn = {*ranked}, [0] * len(routes)
    orders = [[lane for lane in ranked if lane in inside] for inside in ({*route.lanes} & present for route in routes)]

    def describe(number: int) -> DrawnRoute:
        route = routes[number]
        return DrawnRoute(route.label, len(orders[number]), route.changed, drawn[number])

    chosen: dict[Lane, None] = {}
    target = len(ranked) if count is None else count - count // UNIFORM_SHARE
    while routes and len(chosen) < target:
        least = min(range(len(routes)), key=lambda number: describe(number).odds)
        if drawn[least] == len(orders[least]) or (count is None and describe(least).odds >= ODDS):
            break
        chosen[orders[least][drawn[least]]] = None
        drawn[least] += 1
    total = (len(chosen) + -(-len(chosen) // UNIFORM_SHARE) if routes else UNROUTED) if count is None else count
    chosen.update(dict.fromkeys([lane for lane in ranked if lane not in chosen][: total - len(chosen)]))
    return Draw(tuple(chosen), tuple(sorted(map(describe, range(len(routes))), key=lambda route: route.odds)))


def _list_flips(
    judged: Mapping[str, Any], columns: Mapping[str, NDArray[Any]], correct: NDArray[np.float64]
) -> Iterable[tuple[str, NDArray[np.int64], NDArray[np.float64]]]:
    """Yield for each contrast and direction its label, the lanes that move it, cheapest first, and their new grades."""
    for row in judged["contrasts"]:
        is_cell = (columns["model"] == row["model"]) & (columns["task"] == row["task"])
        subject = np.flatnonzero(is_cell & (columns["budget"] == row["budget"]) & (columns["arm"] == row["subject"]))
        is_against = is_cell & (columns["arm"] == row["against"])
        name = f"{row['subject']} against {row['against']} on {row['model']}, {row['task']}, budget {row['budget']}"
        compared: dict[str, tuple[Any, ...]] = {name: (row["budget"], FULL)}
        if neighbour := (row.get("memory") or {}).get("neighbour"):
            compared[f"{name}, tested at {neighbour} too"] = (neighbour,)
        for label, budgets in compared.items():
            other = np.flatnonzero(is_against & np.isin(columns["budget"], budgets))
            yield f"{label}, lowered", *_order_flips(columns, correct, other, subject)
            yield f"{label}, raised", *_order_flips(columns, correct, subject, other)
    for place in (judged.get("gate") or {}).get("places", ()):
        is_place = (
            (columns["model"] == place["model"]) & (columns["task"] == place["task"]) & (columns["budget"] == FULL)
        )
        lanes = np.flatnonzero(is_place & (correct > 0))
        yield f"the gate of {place['model']}, {place['task']}", lanes, np.zeros(len(lanes))


def _order_flips(
    columns: Mapping[str, NDArray[Any]],
    correct: NDArray[np.float64],
    winner: NDArray[np.int64],
    loser: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the lanes whose grades, 1 for the winner and 0 for the loser, favour it: tied pairs first, by problem."""
    pair_by_side = [
        {(columns["problem"][index], columns["seed"][index]): index for index in side} for side in (winner, loser)
    ]
    flips = []
    for pair in pair_by_side[0].keys() & pair_by_side[1].keys():
        indices = [side[pair] for side in pair_by_side]
        lead = correct[indices[0]] - correct[indices[1]]
        flips += [
            (abs(lead), str(pair), index, value)
            for index, value in zip(indices, (1.0, 0.0), strict=True)
            if not np.isnan(lead) and correct[index] != value
        ]
    flips.sort()
    return np.array([flip[2] for flip in flips], dtype=np.int64), np.array([flip[3] for flip in flips])
