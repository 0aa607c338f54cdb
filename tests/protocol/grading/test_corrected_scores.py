"""The second opinion on LongBench and RULER, where the official scores are known to be moved by other things.

tests/peers/test_lm_eval_tasks.py holds what the official ones say of the same texts.
"""

import json

from looped import looped

from protocol.grading import corrected_scores
from protocol.tasks.lm_eval_task import CRYSTALCACHE

TREC = {"answers": ["Description of a person"], "all_classes": ["Description", "Description of a person", "Food"]}
CASES = [  # task, row, text, score
    ("longbench_qasper", {"answers": ["Paris", "in Paris"]}, "<think>Rome</think>In Paris", "1.000000"),
    ("longbench_qasper", {"answers": ["Paris"]}, "Paris " * 3, "0.500000"),  # 2 * 1 / (1 + 3)
    ("longbench_triviaqa", {"answers": ["Paris"]}, "\nParis\nQuestion: who?\nAnswer: him", "1.000000"),
    ("longbench_gov_report", {"answers": ["a b c d"]}, "a b c d", "1.000000"),
    ("longbench_samsum", {"answers": ["a b"]}, "a b\nDialogue: c d", "1.000000"),
    ("longbench_trec", TREC, "Description of a person", "1.000000"),
    ("longbench_trec", TREC, "\nDescription of a person\nType: Food", "1.000000"),
    ("longbench_trec", TREC, "Description", "0.000000"),
    ("longbench_trec", TREC, "", "0.000000"),
    ("longbench_passage_count", {"answers": ["12"]}, "12. Paragraphs 3, 4 and 5 are copies.", "1.000000"),
    ("longbench_passage_count", {"answers": ["12"]}, "1 2 12", "0.000000"),  # all of them is none of them
    ("longbench_passage_retrieval_en", {"answers": ["Paragraph 7"]}, "Paragraph 7, not 8 or 9", "1.000000"),
    ("longbench_passage_retrieval_en", {"answers": ["Paragraph 7"]}, "Paragraph 17", "0.000000"),
    ("longbench_lcc", {"answers": ["x = 1  # one"]}, "x = 1  # one", "1.000000"),
    ("longbench_qasper_e", {"answers": ["Paris"]}, "Paris", "1.000000"),
    ("niah_single_1", {"outputs": ["7654321"]}, " 7654321.", "1.000000"),
    ("niah_single_1", {"outputs": ["765"]}, "17654321", "0.000000"),
    ("niah_single_1", {"outputs": ["765"]}, "<think>765</think>none", "0.000000"),
    ("ruler_cwe", {"outputs": ["cat", "dog", "emu", "fox"]}, "1. cat 2. DOG 3. catfish 4. emus", "0.500000"),
]


@looped(("task", "row", "text", "score"), CASES)
def test_the_answer_alone_is_scored(task, row, text, score):
    assert corrected_scores.get_scorer(task).grade(json.dumps(row), text).score == score


def test_every_subset_that_crystalcache_reports_has_a_second_opinion():
    assert len(CRYSTALCACHE) == 11
    assert all(corrected_scores.get_scorer(task) for task in CRYSTALCACHE)


@looped("task", ["gsm8k_cot", "longbench_dureader", "longbench", "babilong_qa1", "qasper"])
def test_other_tasks_have_none(task):
    assert corrected_scores.get_scorer(task) is None
