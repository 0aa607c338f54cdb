"""Exact labels: of a program that is written out by hand, and of what arms kept of its needed words."""

import numpy as np
import pytest

from protocol.instruments.anatomy.analysis import data_flow
from protocol.instruments.anatomy.analysis.traces import Anatomy, ArmOutcome, Trace, Values
from protocol.tasks.straight_line import Worked

PROMPT = "l1 ba = 3 ;\n# rain ;\nl2 ko = ba + 4 ;\nl3 du = ko - ba ;", "value of du ?"
TRACE = "l1 ba = 3 . so ba 3 . l2 ko = ba + 4 . 3 + 4 = 7 . so ko 7 . l3 du = ko - ba . 7 - 3 = 4 . so du 4 ."


def worked():
    """The words that are read for the last time where the trace states them: line 3 by its copy, ko and ba by "7 - 3".

    The prompt has 26 words. The copy of line 3 ends at word 58, "7 - 3" are the words 59 to 61.
    """
    needed = dict.fromkeys(range(15, 22), 58) | {32: 61, 33: 61, 49: 59, 50: 59, 24: 70}
    return Worked(*PROMPT, f"{TRACE} </think> du \\boxed{{4}}", "4", needed)


def trace_until(words, **changed):
    pieces = ["<s>", *" ".join(PROMPT).split(), "<think>", *TRACE.split()][:words]
    one = Trace(
        "m",
        "programs",
        "executed/10/000",
        "executed/10/000",
        "test",
        "labelled",
        (0, words - 1),
        tuple(pieces),
        {},
        (),
        (),
        None,
    )
    return one._replace(**changed)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    class Task:
        def worked(self, problem):
            return worked()

    monkeypatch.setattr(data_flow.registry, "TASKS", {"programs": Task(), "chain": object()})


def marked(trace):
    labels = data_flow.exact_labels(trace)
    return [piece for piece, label in zip(trace.pieces, labels, strict=False) if label]


def test_the_hand_count_of_positions_is_right():
    text = f"{worked().prompt()} {TRACE}".split()
    assert text[15:22] == ["l3", "du", "=", "ko", "-", "ba", ";"]
    assert (text[32:34], text[49:51], text[59:62], text[24]) == (["ba", "3"], ["ko", "7"], ["7", "-", "3"], "du")
    assert len(worked().prompt().split()) == 26


def test_what_is_read_after_the_cut_is_needed_and_nothing_else():
    after_line_two = 2 + 26 + 26  # "<s>", the prompt, "<think>", and the trace up to "so ko 7 ."
    assert marked(trace_until(after_line_two)) == ["l3", "du", "=", "ko", "-", "ba", ";", "du", "ba", "3", "ko", "7"]
    after_the_copy = after_line_two + 7
    assert marked(trace_until(after_the_copy)) == ["du", "ba", "3", "ko", "7"]
    assert marked(trace_until(after_the_copy + 1)) == ["du", "ba", "3"]  # "7" is written, "- 3" not yet
    assert marked(trace_until(after_the_copy + 3)) == ["du"]


def test_wrong_words_other_tasks_and_tasks_that_do_not_know_have_no_exact_labels():
    whole = trace_until(50)
    assert data_flow.exact_labels(whole) is not None
    other = ("9" if piece == "3" else piece for piece in whole.pieces)
    assert data_flow.exact_labels(whole._replace(pieces=tuple(other))) is None
    assert data_flow.exact_labels(whole._replace(task="chain")) is None
    assert data_flow.exact_labels(whole._replace(task="unknown")) is None


def test_shares_are_of_all_tokens_of_all_traces(monkeypatch):
    """Six tokens, two of them needed by the flow of data; occlusion labels one of these and one other."""
    trace = trace_until(6, span=(0, 6), windows={"padded": ((1, 3, True),), "dropped": ((0, 1, False),)})
    trace = trace._replace(outcomes=(ArmOutcome("h2o", "3", True, 3.0), ArmOutcome("1d", "3", False, 3.0)))
    kept = np.array([[1, 0, 1, 1, 0, 0], [0.5, 1, 1, 0.5, 0, 0]], dtype=np.float32)
    monkeypatch.setattr(data_flow, "exact_labels", lambda one: np.array([0, 1, 0, 1, 0, 0], dtype=np.int8))
    monkeypatch.setattr(Trace, "values", lambda self: Values(np.zeros((0, 6), np.float32), kept))
    anatomy = Anatomy("", {"reading": "dropped"}, (("m", "programs"),), {}, {}, (), (trace,))
    found = data_flow.compare_exact(anatomy, ("m", "programs"))
    assert (found["traces"], found["needed"]) == (1, pytest.approx(2 / 6))
    assert found["occlusion"]["padded"] == {"found": 0.5, "right": 0.5}
    assert found["occlusion"]["dropped"]["found"] == 0
    assert np.isnan(found["occlusion"]["dropped"]["right"])
    assert [(row["arm"], row["needed"], row["others"]) for row in found["arms"]] == [
        ("h2o", 0.5, 0.5),
        ("1d", 0.75, pytest.approx(1.5 / 4)),
    ]
    assert data_flow.compare_exact(anatomy, ("m", "chain")) is None
