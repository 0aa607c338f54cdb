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

GATE_PASSED = "The gate is passed: the full cache can do the task as registered, for every model and task."

SINGLE_MODEL = TERMS["for MODEL alone"]

UNPROVEN = (
    "UNANCHORED: this page was made without verifying a proof by an outside witness. Whoever holds the "
    "folder could have written it anew."
)

PROVEN = "The proofs that the verdict line names were verified when this page was made."

# note before the drawings of a section
SECTION_NOTES: Mapping[str, str] = MappingProxyType(
    {
        "contrasts": (
            "Δ is the accuracy of the subject minus that of the comparator, on the same problems. The 95 % interval is "
            "for one contrast, the simultaneous one for the family. Gains and losses count the answers that only one "
            "of the two got right: gains are the subject's. Click a row to read those answers."
        ),
        "cells": (
            "No rule reads these. Slots are per KV head and layer; truncated: stopped by the limit of "
            "tokens; no answer: ended without one that a grader could find."
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
            "Bars: accuracy of each variant minus that of the subject, with simultaneous intervals, over the "
            "effects that the study could not have found. The table of registered contrasts has the numbers.",
        ),
        "accuracy": (
            "Accuracy of every arm (exploratory)",
            "Dots: accuracy of every arm in every cell with its 95 % interval, and the full cache as a "
            "dashed line. The table of accuracy and cost has the numbers.",
        ),
        "budget_curve": (
            "Exploratory: no rule reads it. The band is the full cache.",
            "Lines: accuracy of every arm over its budgets, by the memory that it held, with 95 % intervals, "
            "and the full cache as a band. Rings: the smallest lossless budget, where the rule sought it. "
            "The table of accuracy and cost has the numbers.",
        ),
        "cost_curve": (
            "Accuracy against what decoding read (exploratory)",
            "Lines: accuracy of every arm over its budgets, by the slots that an answer read: its tokens times the "
            "slots held; and the full cache as a band. The table of accuracy and cost has the numbers.",
        ),
        "settings_map": (
            "Accuracy over two settings (exploratory)",
            "Heat map: share of correct answers of each arm by the two settings in which these arms differ. "
            "The table of accuracy and cost has the numbers.",
        ),
        "looks": (
            "Looks, and the boundaries at which they decide",
            "Line plot: the statistic of each contrast at every look, between the registered boundaries.",
        ),
        "needle": (
            "Accuracy by depth of the needle (exploratory)",
            "Heat map: share of correct answers of every arm by where in the prompt the needle lies.",
        ),
        "levels": (
            "Accuracy by level of difficulty (exploratory)",
            "Lines: share of correct answers of every arm over the levels of the problems.",
        ),
        "divergence": (
            "Divergence from the full cache along its text (exploratory)",
            "Lines: for each arm, over the positions of the full cache's text, the share at which it would have said "
            "another token, and the divergence in nats. The table of accuracy and cost has the agreement.",
        ),
        "trajectories": (
            "Cache held above the budget, step by step (exploratory)",
            "A strip for each arm: the slots that it held per KV head and layer above its budget after each "
            "decoded token, the mean and a band over lanes, on a ground as high as lanes still decode. The "
            "table of accuracy and cost has mean and peak.",
        ),
        "collapse": (
            "How answers ended (exploratory)",
            "Dots: for each arm the share of wrong answers that are no answer at all, and the share of "
            "generations truncated at the limit of tokens. The table of accuracy and cost has the counts.",
        ),
        **{
            name: caption
            for instrument in INSTRUMENTS
            if instrument.captions
            for name, caption in load_attribute(instrument.captions).items()
        },
    }
)
