"""A replay draws among the lanes that carry the verdict, and says how likely a forged verdict is met."""

import functools
import itertools
import math
import random

import numpy as np
import pandas as pd
import pytest
from looped import looped
from studies import ROOT

from analysis.judgement import family
from analysis.judgement.judgement import judge_study
from analysis.judgement.study_table import LANE_COLUMNS, Study
from protocol import audit
from protocol.evidence.registration import Registration
from protocol.recompute import replay, turning_lanes, verify_judgement
from protocol.recompute.turning_lanes import ODDS, Route, draw_lanes, find_routes, meeting_odds

ARMS = ("ours", "theirs")


def toy(ours, theirs, full=()):
    """One lane for each problem and arm, right or wrong."""
    lanes = [
        ("m", "t", "full" if arm == "full" else "8", arm, 0, f"p{number}", float(right))
        for arm, grades in zip((*ARMS, "full"), (ours, theirs, full), strict=True)
        for number, right in enumerate(grades)
    ]
    return Study("", {}, pd.DataFrame(lanes, columns=[*LANE_COLUMNS, "correct"]))


def grades(study, arm):
    return study.lanes.loc[study.lanes["arm"] == arm, "correct"].to_numpy()


def judge_by_sign(study):
    """CONFIRMED where (gains - losses) / sqrt(gains + losses) is above 1.9, if the full cache passes half."""
    lead = grades(study, "ours") - grades(study, "theirs")
    discordant = np.abs(lead).sum()
    passes = grades(study, "full").mean() >= 0.5 if len(grades(study, "full")) else True
    word = "CONFIRMED" if passes and discordant and lead.sum() / math.sqrt(discordant) > 1.9 else "INCONCLUSIVE"
    row = {"model": "m", "task": "t", "budget": "8", "subject": "ours", "against": "theirs"}
    gate = {"places": [{"model": "m", "task": "t"}]} if len(grades(study, "full")) else None
    return {"verdict": word, "contrasts": [row], "gate": gate, "qualifiers": []}


def fewest_of_all(study):
    """The smallest number of lanes that turn the word, of all sets of lanes."""
    correct, word = study.lanes["correct"].to_numpy(), judge_by_sign(study)["verdict"]
    for size in range(1, len(correct) + 1):
        for chosen in itertools.combinations(range(len(correct)), size):
            changed = correct.copy()
            changed[list(chosen)] = 1 - changed[list(chosen)]
            if judge_by_sign(study._replace(lanes=study.lanes.assign(correct=changed)))["verdict"] != word:
                return size
    raise AssertionError


@looped(
    ("ours", "theirs"),
    [("111111", "100000"), ("1111111", "0011000"), ("110000", "000000"), ("111110", "000000"), ("011111", "000110")],
)
def test_the_greedy_count_is_that_of_an_exhaustive_search(ours, theirs):
    study = toy(map(int, ours), map(int, theirs))
    assert min(route.changed for route in find_routes(study, judge_by_sign)) == fewest_of_all(study)


def test_a_neighbour_that_a_win_hangs_on_is_a_way_of_its_own():
    """At the budget 10 of 12 are gained, at the neighbour 4: one wrong lane there that was right turns the word."""
    study = toy([1] * 12, [0] * 10 + [1] * 2)
    there = study.lanes[study.lanes["arm"] == "theirs"].assign(budget="9", correct=[0.0] * 4 + [1.0] * 8)
    study = study._replace(lanes=pd.concat([study.lanes, there], ignore_index=True))

    def judge(study):
        lanes = study.lanes
        words = [
            judge_by_sign(study._replace(lanes=lanes[(lanes["arm"] == "ours") | (lanes["budget"] == budget)]))
            for budget in ("8", "9")
        ]
        (row,) = words[0]["contrasts"]
        verdict = max(each["verdict"] for each in words)  # INCONCLUSIVE unless both are CONFIRMED
        return words[0] | {"verdict": verdict, "contrasts": [row | {"memory": {"neighbour": "9"}}]}

    assert judge(study)["verdict"] == "CONFIRMED"
    routes = {route.label: route for route in find_routes(study, judge)}
    at = "ours against theirs on m, t, budget 8"
    assert routes.keys() == {f"{at}, lowered", f"{at}, tested at 9 too, lowered"}
    assert routes[f"{at}, tested at 9 too, lowered"].changed == 1
    moved = {lane[3:5] for lane in routes[f"{at}, tested at 9 too, lowered"].lanes}
    assert moved == {("9", "theirs"), ("8", "ours")}


def judge_by_two_margins(study):
    """CONFIRMED where the mean difference and 1.6 standard errors of it lie within .1, REFUTED where beyond."""
    lead = grades(study, "ours") - grades(study, "theirs")
    mean, reach = abs(lead.mean()), 1.6 * lead.std() / math.sqrt(len(lead))
    word = "CONFIRMED" if mean + reach < 0.1 else "REFUTED" if mean - reach > 0.1 else "INCONCLUSIVE"
    row = {"model": "m", "task": "t", "budget": "8", "subject": "ours", "against": "theirs"}
    return {"verdict": word, "contrasts": [row], "gate": None, "qualifiers": [], "margin": "0.1"}


@looped("wrong", [0, 8, 12, 16, 24, 40, 80])
def test_where_too_many_changes_turn_a_verdict_back_the_first_that_turn_it_count(wrong):
    study = toy([0] * wrong + [1] * (200 - wrong), [1] * 200)
    word = judge_by_two_margins(study)["verdict"]
    columns = {name: study.lanes[name].to_numpy() for name in LANE_COLUMNS}
    fewest = {}
    for label, order, values in turning_lanes._list_flips(judge_by_two_margins(study), columns, study.lanes["correct"]):
        for count in range(1, len(order) + 1):
            changed = study.lanes["correct"].to_numpy().copy()
            changed[order[:count]] = values[:count]
            if judge_by_two_margins(study._replace(lanes=study.lanes.assign(correct=changed)))["verdict"] != word:
                fewest[label] = count
                break
    assert fewest
    assert {route.label: route.changed for route in find_routes(study, judge_by_two_margins)} == fewest


def test_every_lane_that_moves_a_contrast_is_in_its_route_and_no_other():
    study = toy([1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 0, 0])
    (route,) = find_routes(study, judge_by_sign)
    lane = {(arm, number): ("confirm", "m", "t", "8", arm, 0, f"p{number}") for arm in ARMS for number in range(6)}
    lowering = {lane["ours", number] for number in range(5)} | {lane["theirs", number] for number in range(1, 6)}
    assert {*route.lanes} == lowering
    assert route.label == "ours against theirs on m, t, budget 8, lowered"


def test_a_gate_that_was_bought_is_a_way_too():
    study = toy([1] * 9, [0] * 9, [1, 1, 1, 1, 1, 1, 0, 0, 0])
    routes = {route.label: route for route in find_routes(study, judge_by_sign)}
    assert (routes["the gate of m, t"].changed, len(routes["the gate of m, t"].lanes)) == (2, 6)


def test_a_screening_is_not_judged_again():
    judged = iter([{"verdict": "SCREENED", "contrasts": [], "qualifiers": []}])
    assert find_routes(toy([1], [0]), lambda study: next(judged)) == []


def test_lanes_without_a_grade_are_left_as_they_are():
    assert find_routes(toy([math.nan] * 9, [math.nan] * 9), judge_by_sign) == []


LANES = [("confirm", "m", "t", "8", "ours", 0, f"p{number}") for number in range(120)]
ROUTES = [Route("near", tuple(LANES[:40]), 4), Route("far", tuple(LANES[30:110]), 20)]


@functools.cache
def simulated(count, times=400):
    """The lanes of so many draws, each by a nonce of its own."""
    nonces = random.Random(5)
    return [{*draw_lanes(LANES, ROUTES, count, nonces.randbytes(8).hex()).lanes} for _ in range(times)]


@looped(("lanes", "changed", "drawn"), [(6, 2, 2), (7, 1, 3), (5, 5, 1), (6, 2, 0), (6, 2, 5)])
def test_odds_are_counted_by_hand(lanes, changed, drawn):
    draws = [*itertools.combinations(range(lanes), drawn)]
    met = sum(any(lane < changed for lane in draw) for draw in draws) / len(draws)
    assert meeting_odds(lanes, changed, drawn) == pytest.approx(met)


@pytest.mark.parametrize("count", [None, 12])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.label)
def test_whatever_lanes_of_a_way_were_changed_they_are_met_as_often_as_is_said(route, count):
    """More often where a lane is of two ways, or drawn among all."""
    promised = next(
        each.odds for each in draw_lanes(LANES, ROUTES, count, "ab" * 8).routes if each.label == route.label
    )
    for changed in (route.lanes[: route.changed], route.lanes[-route.changed :]):
        met = np.mean([not lanes.isdisjoint(changed) for lanes in simulated(count)])
        assert met > promised - 4 * math.sqrt(promised * (1 - promised) / len(simulated(count)))
    assert count is not None or promised >= ODDS


def test_a_default_draw_has_no_lane_too_many_on_the_way_that_needs_most():
    draw = draw_lanes(LANES, ROUTES, None, "ab" * 8)
    for route in draw.routes:
        assert meeting_odds(route.lanes, route.changed, route.drawn) >= ODDS
        assert meeting_odds(route.lanes, route.changed, route.drawn - 1) < ODDS
    assert (
        "a forgery of 20 lanes that changes the verdict (greedy count; far, of 80 lanes that affect it) "
        "would be detected with probability 9" in str(draw)
    )


def test_so_many_lanes_are_drawn_as_are_asked_for_and_the_nonce_decides_which():
    for count in (1, 5, 30, 120, 500):
        assert len({*draw_lanes(LANES, ROUTES, count, "ab" * 8).lanes}) == min(count, 120)
    assert draw_lanes(LANES[::-1], ROUTES, 9, "ab" * 8) == draw_lanes(LANES, ROUTES, 9, "ab" * 8)
    assert draw_lanes(LANES, ROUTES, 9, "ab" * 8).lanes != draw_lanes(LANES, ROUTES, 9, "ac" * 8).lanes


def test_every_lane_can_be_drawn():
    """The last ten are of no way."""
    nonces = (f"{number:016x}" for number in range(200))
    drawn = {lane for nonce in nonces for lane in draw_lanes(LANES, ROUTES, 30, nonce).lanes}
    assert drawn == {*LANES}


def test_without_a_way_all_lanes_are_drawn_alike():
    many = [("confirm", "m", "t", "8", "ours", seed, "p") for seed in range(500)]
    draw = draw_lanes(many, [], None, "ab" * 8)
    assert len(draw.lanes) == turning_lanes.UNROUTED == math.ceil(math.log(0.05) / math.log(0.95))
    assert "all lanes were drawn with equal probability" in str(draw)


def test_six_lanes_of_many_thousand_are_met_by_a_small_default_draw():
    many = [("confirm", "m", "t", "8", "ours", seed, "p") for seed in range(12_772)]
    draw = draw_lanes(many, [Route("near", tuple(many[:300]), 6)], None, "ab" * 8)
    assert len(draw.lanes) < 150
    assert draw.routes[0].drawn == 117  # by hand: (1 - 117/300)^6 is about .05


def test_lanes_that_did_not_run_are_not_drawn():
    present = LANES[:35]
    draw = draw_lanes(present, ROUTES, None, "ab" * 8)
    assert {*draw.lanes} <= {*present}
    assert {route.lanes for route in draw.routes} == {35, 5}


@pytest.mark.parametrize(("typed", "count"), [(["--replay"], None), (["--replay", "7"], 7)])
def test_an_audit_passes_what_turns_the_verdict_to_the_replay(typed, count, confirmed, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(turning_lanes, "find_study_routes", lambda study: ROUTES)
    monkeypatch.setattr(
        replay, "check", lambda *given, **named: asked.append((given[2], named["routes"])) or "replayed"
    )
    assert audit.main([str(confirmed), *typed, "--details"]) == 0
    assert "replay: replayed" in capsys.readouterr().out
    assert asked == [(count, ROUTES)]


@pytest.mark.parametrize("typed", ["0", "-1", "some"])
def test_no_lane_at_all_cannot_be_asked_for(typed, confirmed):
    with pytest.raises(SystemExit) as refused:
        audit.main([str(confirmed), f"--replay={typed}"])
    assert refused.value.code == 2


def test_a_judgement_with_another_lane_changed_compares_the_contrasts_of_that_arm_alone(monkeypatch):
    """Of a shipped study: a search for lanes judges some ten times for each contrast and direction."""
    confirmed, selected = verify_judgement.read_for_judgement(Registration(ROOT / "registrations" / "quickstart"))
    compared, compare = [], family.resampled_units.compare_at_levels
    monkeypatch.setattr(
        family.resampled_units,
        "compare_at_levels",
        lambda method, difference, *rest, **how: (
            compared.append(difference) or compare(method, difference, *rest, **how)
        ),
    )
    family._compare_once.cache_clear()
    judged = judge_study(confirmed, selected)
    assert (first := len(compared)) >= len(judged["contrasts"]) > 1
    assert judge_study(confirmed, selected) == judged
    assert len(compared) == first
    (lane,) = np.flatnonzero(confirmed.lanes["arm"] == judged["contrasts"][0]["against"])[:1]
    correct = confirmed.lanes["correct"].astype(float)
    correct.iloc[lane] = 1 - correct.iloc[lane]
    changed = judge_study(confirmed._replace(lanes=confirmed.lanes.assign(correct=correct)), selected)
    assert changed["contrasts"][0]["difference"] != judged["contrasts"][0]["difference"]
    assert first < len(compared) < 2 * first
