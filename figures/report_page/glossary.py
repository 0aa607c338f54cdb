"""Explanations in a report: verdicts, grades, rules, and the drawings."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.registry import load_attribute
from protocol.formats.terms import TERMS
from protocol.formats.vocabulary import VERDICT_WORDS

VERDICTS: Mapping[str, str] = MappingProxyType({word: TERMS[word] for word in VERDICT_WORDS})

GRADES: Mapping[str, str] = MappingProxyType(
    {
        "screening-grade": f"n < 200: {TERMS['n < 200']}",
        "uninformative": TERMS["uninformative"],
        "confirmatory-grade": f"n ≥ 200: {TERMS['n ≥ 200']}",
    }
)

GATE_PASSED = "The gate is passed: for every model and task, the full cache can do the task as registered."

SINGLE_MODEL = TERMS["for MODEL alone"]

UNPROVEN = (
    "UNANCHORED: no proof by an outside witness was verified when this page was made, so that whoever "
    "has the folder could have rewritten it."
)

PROVEN = "The proofs that the verdict line names were verified when this page was made."

# note before the drawings of a section
SECTION_NOTES: Mapping[str, str] = MappingProxyType(
    {
        "contrasts": (
            "Δ is the accuracy of the subject minus that of the comparator, on the same problems. The 95 % "
            "interval is for one contrast, the simultaneous one for the whole family. Gains and losses "
            "count the answers that only one of the two arms got right: gains are those of the subject. "
            "Click a row to read these answers."
        ),
        "cells": (
            "No rule uses these. Slots are per KV head and layer; truncated: stopped at the token limit; "
            "no answer: ended without an answer that a grader could find."
        ),
    }
)

# name of a drawing -> its caption and its alternative text
DRAWINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "forest": (
            "Registered contrasts, as differences in accuracy",
            "Forest plot: one line for each contrast, with its difference in percentage points, its 95 % "
            "interval and its simultaneous interval. The table of registered contrasts has the same numbers.",
        ),
        "ablation": (
            "What replacing one part of the policy does",
            (
                "Bars: accuracy of each variant minus that of the subject, with simultaneous intervals, on a "
                "shaded range of effects that are too small for the study to detect. The table of registered "
                "contrasts has the numbers."
            ),
        ),
        "accuracy": (
            "Accuracy of every arm (exploratory)",
            "Dots: accuracy of every arm in every cell with its 95 % interval, and the full cache as a "
            "dashed line. The table of accuracy and cost has the numbers.",
        ),
        "budget_curve": (
            "Exploratory: no rule uses this. The band is the full cache.",
            (
                "Lines: accuracy of every arm over its budgets, by measured memory, with 95 % intervals, and "
                "the full cache as a band. Rings: the smallest lossless budget, if the rule determines it. The "
                "table of accuracy and cost has the numbers."
            ),
        ),
        "cost_curve": (
            "Accuracy against slots read while decoding (exploratory)",
            (
                "Lines: accuracy of every arm over its budgets, by the slots that an answer read (its tokens "
                "times the slots in use), and the full cache as a band. The table of accuracy and cost has the "
                "numbers."
            ),
        ),
        "settings_map": (
            "Accuracy over two settings (exploratory)",
            "Heat map: share of correct answers of each arm by the two settings in which these arms differ. "
            "The table of accuracy and cost has the numbers.",
        ),
        "looks": (
            "Looks and their decision boundaries",
            ("Line plot: the test statistic of each contrast at every look, between the registered boundaries."),
        ),
        "needle": (
            "Accuracy by depth of the needle (exploratory)",
            "Heat map: share of correct answers of every arm, by the position of the needle in the prompt.",
        ),
        "levels": (
            "Accuracy by level of difficulty (exploratory)",
            "Lines: share of correct answers of every arm over the levels of the problems.",
        ),
        "divergence": (
            "Divergence from the full cache along its text (exploratory)",
            (
                "Lines: for each arm, along the positions of the full cache's text, the share of positions at "
                "which it would have chosen another token, and the divergence in nats. The table of accuracy "
                "and cost has the agreement."
            ),
        ),
        "trajectories": (
            "Cache size above the budget, step by step (exploratory)",
            (
                "A strip for each arm: its slots per KV head and layer above the budget after each decoded "
                "token, as the mean and a band over lanes, on a grey area whose height shows the share of "
                "lanes that still decode. The table of accuracy and cost has mean and peak."
            ),
        ),
        "collapse": (
            "How answers ended (exploratory)",
            (
                "Dots: for each arm the share of wrong answers that contain no answer at all, and the share of "
                "generations truncated at the token limit. The table of accuracy and cost has the counts."
            ),
        ),
        **{
            name: caption
            for instrument in INSTRUMENTS
            if instrument.captions
            for name, caption in load_attribute(instrument.captions).items()
        },
    }
)
