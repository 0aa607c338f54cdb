"""The sentence that answers a study, by rule and verdict; answers.toml has them, written by hand."""

import itertools
import json
import tomllib
from pathlib import Path

import judgements
import reports
from looped import looped

from analysis.rules import RULES
from figures.drawing import formatting
from figures.report_page.answer import format_answer
from figures.table import verdict_table

# difference, its interval, the simultaneous interval, p, better, worse, matched
WON = ("0.081000", "0.040000", "0.120000", "0.020000", "0.140000", "0.000300", True, False, True)
LARGER = ("0.190000", "0.150000", "0.230000", "0.120000", "0.260000", "0.000001", True, False, True)
OPEN = ("0.036000", "0.003000", "0.070000", "-0.010000", "0.080000", "0.036000", False, False, True)
BEHIND = ("-0.015000", "-0.040000", "0.010000", "-0.050000", "0.020000", "0.240000", False, False, True)
HARMED = ("-0.030000", "-0.058000", "-0.002000", "-0.070000", "0.010000", "0.035000", False, False, True)
LOST = ("-0.200000", "-0.240000", "-0.160000", "-0.260000", "-0.140000", "0.000002", False, True, True)
FREE = ("0.300000", "0.250000", "0.350000", "0.220000", "0.380000", "0.000001", True, False, False)
NONE = (None,) * 6 + (False, False, False)
WHOLE = {"rule": "inconclusive", "registered": 672, "lanes": 0, "cells": []}
BIG = {"label": "confirmatory-grade", "missing": WHOLE}


def of(*kinds, **place):
    """A contrast for each, against a, b, ..."""
    return [
        judgements.contrast(name, *kind, **place) | {"n": 240} for name, kind in zip("abcdefgh", kinds, strict=False)
    ]


def two_models(primary, transfer):
    """One comparator; the first model is the primary one."""
    return [
        judgements.contrast("h2o", *kind, model=model) | {"n": 240}
        for model, kind in (("one", primary), ("two", transfer))
    ]


def margins(one, low, high, worse, better="0.000100"):
    """With limits about a margin, and p of a loss and of a gain by it."""
    return one | {"low_margin": low, "high_margin": high, "p_worse": worse, "p_better": better}


def within(against="a", **place):
    one = judgements.contrast(against, *BEHIND, **place) | {"n": 240}
    return margins(one, "-0.045000", "0.015000", "0.021000", "0.000200")


def far(against="a", **place):
    one = judgements.contrast(against, *LOST, **place) | {"n": 240}
    return margins(one, "-0.250000", "-0.150000", "1.000000", "0.000000")


def unsure(against="a", **place):
    one = judgements.contrast(against, *HARMED, **place) | {"n": 240}
    return margins(one, "-0.065000", "0.005000", "0.096000")


def superior(*kinds, at_least=2, **more):
    return judgements.judgement(of(*kinds), at_least=at_least, **BIG | more)


def branch(registered, symmetric, rows, **more):
    letters = {"registered": registered, "symmetric": symmetric}
    return judgements.judgement(rows, rule="branch", at_least=None, branch=letters, **BIG | more)


def margin(rule, *rows, **more):
    return judgements.judgement(list(rows), rule=rule, at_least=None, margin="0.050000", **BIG | more)


def lossless(steps, rows, **more):
    names = ("budget", "passed", "saves", "memory", "p", "model", "task")
    smallest = next((step for step in reversed(steps) if step[1] and step[2]), None)
    own = {"arm": "crystal", "level": "0.050000"}
    own["steps"] = [dict(zip(names, step, strict=True)) for step in steps]
    own |= {"smallest": smallest and smallest[0], "memory": smallest and smallest[3]}
    other = own | {"arm": "h2o", "steps": [{"passed": True}], "smallest": "16", "memory": "0.100000"}
    found = [row | {"saves": row["matched"]} for row in rows]
    return margin("smallest_lossless", *found, smallest_lossless=[own, other], **more)


AT = {"against": "full", "budget": "240"}
LOWER = {"against": "full", "budget": "128"}
MODELS = {"primary_model": "one", "transfer_model": "two"}
CASES = {
    # superior
    ("superior", "CONFIRMED"): superior(WON, LARGER, OPEN, verdict="CONFIRMED"),
    ("superior", "CONFIRMED", "one contrast"): superior(WON, at_least=1, verdict="CONFIRMED"),
    ("superior", "REFUTED"): superior(WON, LARGER, LOST, OPEN, at_least=4, verdict="REFUTED"),
    ("superior", "INCONCLUSIVE"): superior(OPEN, BEHIND, corrected_alpha="0.025000"),
    ("superior", "INCONCLUSIVE", "one contrast"): superior(OPEN, at_least=1, corrected_alpha="0.010000"),
    ("superior", "INCONCLUSIVE", "nothing ahead"): superior(BEHIND, HARMED),
    ("superior", "INCONCLUSIVE", "some won"): superior(WON, OPEN),
    ("superior", "INCONCLUSIVE", "harmed"): superior(WON, LARGER, HARMED),
    ("superior", "INCONCLUSIVE", "unmatched"): superior(WON, LARGER, FREE),
    ("superior", "INCONCLUSIVE", "max-t"): superior(OPEN, method="max-t")
    | {"contrasts": [one | {"p_adjusted": "0.053697"} for one in of(OPEN, BEHIND)]},
    ("superior", "SCREENED"): superior(WON, LARGER, verdict="SCREENED", rule_says="CONFIRMED")
    | {"contrasts": [one | {"n": 60} for one in of(WON, LARGER)]},
    ("superior", "DEVIATED"): superior(LOST, verdict="DEVIATED", rule_says="REFUTED", at_least=1),
    # branch
    ("branch", "CONFIRMED"): branch("A", "A", two_models(WON, OPEN), verdict="CONFIRMED"),
    ("branch", "REFUTED", "B"): branch("B", "B", two_models(WON, LOST), verdict="REFUTED"),
    ("branch", "REFUTED", "C"): branch("C", "C", two_models(LOST, OPEN), verdict="REFUTED"),
    ("branch", "INCONCLUSIVE", "A"): branch("A", "B", [*two_models(WON, OPEN), *of(HARMED, model="one")]),
    ("branch", "INCONCLUSIVE", "unmatched"): branch("A", "A", two_models(WON, FREE)),
    ("branch", "INCONCLUSIVE", "B"): branch("B", "B", two_models(WON, BEHIND)),
    ("branch", "INCONCLUSIVE", "C"): branch("C", "C", two_models(BEHIND, OPEN)),
    # the rules about a margin
    ("non_inferior", "CONFIRMED"): margin(
        "non_inferior", within("a"), within("b") | {"p_worse": "0.000100"}, verdict="CONFIRMED"
    ),
    ("non_inferior", "REFUTED"): margin("non_inferior", within("a"), far("b"), verdict="REFUTED"),
    ("non_inferior", "INCONCLUSIVE"): margin("non_inferior", within("a"), unsure("b")),
    ("equivalent", "CONFIRMED"): margin("equivalent", within("a"), verdict="CONFIRMED"),
    ("equivalent", "REFUTED"): margin(
        "equivalent",
        far("a"),
        margins(of(LARGER)[0] | {"against": "b"}, "0.130000", "0.250000", "0.000000", "1.000000"),
        verdict="REFUTED",
    ),
    ("equivalent", "INCONCLUSIVE"): margin("equivalent", within("a") | {"p_worse": "0.000100", "p_better": "0.300000"}),
    ("smallest_lossless", "CONFIRMED"): lossless(
        [
            ("240", True, True, "0.957000", "0.010000", "tiny", "needle-512"),
            ("128", False, True, "0.630000", "0.600000", "tiny", "needle-512"),
        ],
        [within(**AT), far(**LOWER)],
        verdict="CONFIRMED",
    ),
    ("smallest_lossless", "REFUTED"): lossless(
        [("240", False, True, "0.957000", "1.000000", "tiny", "needle-512")],
        [far(**AT), far(**LOWER)],
        verdict="REFUTED",
    ),
    ("smallest_lossless", "INCONCLUSIVE"): lossless(
        [("240", False, True, "0.957000", "0.096000", "tiny", "needle-512")], [unsure(**AT), far(**LOWER)]
    ),
    ("smallest_lossless", "INCONCLUSIVE", "saves nothing"): lossless(
        [("240", True, False, "1.000000", "0.010000", "tiny", "needle-512")], [within(**AT) | {"matched": False}]
    ),
}


SAID = {
    name: " ".join(said.split())
    for name, said in tomllib.loads(Path(__file__).with_name("answers.toml").read_text("utf-8")).items()
}


@looped("case", CASES, ids=" ".join)
def test_the_answer_of_every_rule_and_verdict(case):
    assert format_answer(CASES[case], MODELS) == SAID[" ".join(case)]


def test_every_rule_has_an_answer_for_each_of_its_words():
    asked = {case[:2] for case in CASES}
    assert asked >= set(itertools.product(RULES, ("CONFIRMED", "REFUTED", "INCONCLUSIVE")))


@looped("case", CASES, ids=" ".join)
def test_yes_is_said_of_a_confirmation_and_no_of_a_refutation_alone(case):
    judged = CASES[case]
    first = format_answer(judged).split(",")[0].split(":")[0]
    given = {"CONFIRMED": "Yes", "REFUTED": "No", "INCONCLUSIVE": "Not shown"}
    assert first == given.get(judged["verdict"], "Not decided")


# A large difference that decides nothing beside a smaller one that does: (more extreme, decisive)
NOISY_LOSS = ("-0.400000", "-0.900000", "0.100000", "-0.950000", "0.200000", "0.300000", False, False, True)
NOISY_WIN = ("0.400000", "-0.100000", "0.900000", "-0.200000", "0.950000", "0.300000", False, False, True)
JUST_ABOVE = ("0.036000", "0.003000", "0.070000", "-0.010000", "0.080000", "0.025004", False, False, True)
AHEAD_UNMATCHED = (*FREE[:6], False, False, False)


@looped(
    ("judged", "told", "untold"),
    [
        (superior(LOST, NOISY_LOSS, verdict="REFUTED"), "worst difference is -20.0 points", "-40.0"),
        (
            branch("B", "B", [*two_models(WON, LOST), *of(NOISY_WIN, model="one")], verdict="REFUTED"),
            "better on one, +8.1 points",
            "+40.0",
        ),
        (
            branch("C", "C", [*two_models(NOISY_LOSS, OPEN), *of(LOST, model="one")], verdict="REFUTED"),
            "one goes against it, -20.0 points",
            "-40.0",
        ),
        (
            branch("A", "B", [*two_models(WON, OPEN), *of(HARMED, NOISY_LOSS, model="one")]),
            "goes against it, -3.0 points",
            "-40.0",
        ),
        (superior(JUST_ABOVE, BEHIND, corrected_alpha="0.025000"), "p = 0.025004, above the 0.025", "p = 0.0250,"),
        (superior(BEHIND, AHEAD_UNMATCHED), "no contrast with matched memory favours it", "no contrast favours"),
        (superior(OPEN, AHEAD_UNMATCHED), "the best with matched memory was +3.6", "the best was"),
        (
            lossless(
                [("240", False, True, "0.957000", "1.000000", "tiny", "needle-512")],
                [far(**LOWER), far(**AT)],
                verdict="REFUTED",
            ),  # a grid may go upwards
            "already at 240 slots",
            "at 128",
        ),
        (
            lossless(
                [("240", True, True, "0.634000", "0.010000", "tiny", "needle-512")], [within(**AT)], verdict="CONFIRMED"
            ),
            "at most 64 % of",
            "63 %",
        ),
        (
            margin(
                "non_inferior",
                far(budget="bytes of 64"),
                within(budget="bytes of 128") | {"memory": {"decided": True}},
                verdict="REFUTED",
            ),
            "(at the bytes of 64 slots). Unequal memory may explain the difference in 1 of 2 contrasts, "
            "but in none of those that refute.",
            "budget bytes",
        ),
        (
            margin("non_inferior", far("a") | {"memory": {"decided": True}}, within("b"), verdict="REFUTED"),
            "explain the difference in 1 of 2 contrasts.",
            "but in none of those that",
        ),
    ],
)
def test_the_contrast_that_is_named_is_the_one_that_decides(judged, told, untold):
    said = format_answer(judged, MODELS).replace("\N{MINUS SIGN}", "-")
    assert told in said
    assert untold not in said


PLACE = {"model": "tiny", "task": "needle-512", "why": ["the full cache answers 0 of 287 (gate: 0.50)"]}
GATE = {"arm": "full", "passed": False, "places": [PLACE | {"passed": False}]}
VOID = {
    "gate": superior(WON, LARGER, gate=GATE),
    "lanes": superior(WON, LARGER, missing=WHOLE | {"lanes": 3}, gate=None),
    "not run": superior(WON, missing=WHOLE | {"rule": "wrong", "lanes": 3, "cells": [{"ended": "not run"}]}),
    "not estimated": superior(WON, NONE),
    "owed": superior(WON, missing=WHOLE | {"rule": "wrong", "lanes": 2, "owed": True}, at_least=1),
    "screened": superior(WON, gate=GATE, verdict="SCREENED", rule_says="INCONCLUSIVE")
    | {"contrasts": [one | {"n": 30} for one in of(WON)]},
    # of lanes that count as wrong, as registered, the rule does speak
    "wrong": superior(OPEN, missing=WHOLE | {"rule": "wrong", "lanes": 2, "cells": [{"ended": "failed"}]}),
}


@looped("case", VOID)
def test_a_rule_that_was_not_asked_says_nothing_of_the_policies(case):
    judged, said = VOID[case], SAID[f"void {case}"]
    assert format_answer(judged) == said
    judged = judged | {"rule": "branch", "branch": None, "at_least": None}  # which then has no letters
    assert case == "wrong" or format_answer(judged) == said


def test_what_limits_an_answer_stands_behind_it():
    rows = of(WON, LARGER)
    rows[0]["memory"] = {"decided": True, "by": "slots"}
    rows[1]["scored"] = True
    chosen = {"arm": "crystal-2", "selection": "ab"}
    judged = judgements.judgement(rows, verdict="CONFIRMED", selected=chosen, gate=None, at_least=2, **BIG)
    assert format_answer(judged).endswith(
        "significantly worse in none. crystal is crystal-2, selected on development problems. Unequal memory "
        "may explain the difference in 1 of 2 contrasts. Points are those of the mean score. No gate "
        "shows that the full cache can do the task."
    )


def test_an_answer_without_its_decision_names_no_model():
    assert format_answer(CASES["branch", "INCONCLUSIVE", "C"]) == (
        "Not shown: branch C, no contrast on its primary model favours crystal over h2o with p below 0.05."
    )


@looped("folder", reports.JUDGED, ids=lambda folder: folder.name)
def test_the_answer_of_a_shipped_study_begins_as_its_verdict_does_and_stands_over_its_table(folder):
    judged = json.loads((folder / "verdict.json").read_bytes())["judged"] | {"witness": formatting.WITNESS}
    begins = {"CONFIRMED": "Yes", "REFUTED": "No", "INCONCLUSIVE": "Not shown", "SCREENED": "Not decided"}
    assert format_answer(judged).startswith(begins[judged["verdict"]])
    assert "".join(format_answer(judged).split()) in "".join(verdict_table(judged).split())  # wrapped anywhere
