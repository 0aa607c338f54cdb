"""SlipKV: the sets by hand, the attention by a plain loop over the unmodified network, the test by counting."""

import hashlib
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import labelled_traces
import numpy as np
import pytest
import torch
from test_layer_rows import shown
from tiny_networks import LAYERS, Q_HEADS, tiny, words

from protocol.instruments.anatomy import slip, windows
from protocol.instruments.anatomy.analysis import data_flow, slip_test
from protocol.instruments.anatomy.analysis.traces import Anatomy, Trace, Values
from protocol.instruments.anatomy.audit import recompute
from protocol.instruments.anatomy.run import trace_record
from protocol.instruments.anatomy.run.answer_attention import measure_answer_attention

PAIR = ("m", "t")


def test_sets_by_hand():
    attention = [9, 9, 9, 0.2, 0.1, 0.2, 0.5, 0.4, 0.2, 0.3, 9]
    sets = slip.thought_sets("p/1", attention, 3, 10, Decimal("0.3"))  # two of seven
    assert sets["bottom"] == {4, 3}
    assert sets["top"] == {6, 7}
    digests = sorted(range(3, 10), key=lambda at: hashlib.sha256(f"p/1/{at}".encode()).hexdigest())
    assert sets["random"] == set(digests[:2])
    assert {len(own) for own in slip.thought_sets("p/1", attention, 3, 10, Decimal("0.1")).values()} == {0}


@pytest.mark.parametrize("chunk", [None, 11])
def test_attention_of_the_answer_and_returns_of_the_thought_by_a_plain_loop(chunk):
    model, token_ids, thought, n = tiny("Qwen2", torch.float32), words(43, seed=3), range(9, 38), 43
    _, attention, *_ = shown(model, token_ids)
    end, heads = thought.stop, [group for own in attention for group in own.view(-1, 2, n, n)]
    assert len(heads) == LAYERS * Q_HEADS // 2
    rows = measure_answer_attention(model, token_ids, thought, chunk)
    assert [row.name for row in rows] == ["answer_attention", "attention_gap", "attention_last"]
    for at in range(end):
        values = [float(row.values[at]) for row in rows]
        if at not in thought:
            assert np.isnan(values).all()
            continue
        paid = [float(own[head, row, at]) for own in attention for head in range(Q_HEADS) for row in range(end, n)]
        gaps, lasts = [], []
        for group in heads:
            times = [at]
            for row in range(at + 1, end):
                weights = group[:, row, : row + 1].mean(0).tolist()
                order = sorted(range(row + 1), key=lambda slot: (-weights[slot], slot))
                before = sum(weights[slot] for slot in order[: order.index(at)])
                times += [row] if before < 0.9 * (1 - 1e-6) * sum(weights) else []
            gaps.append(max([later - earlier for earlier, later in pairwise(times)], default=0))
            lasts.append(times[-1] - at)
        assert values[0] == pytest.approx(np.mean(paid), rel=1e-4)
        assert values[1] == pytest.approx(np.mean(gaps))
        if at < end - 1:
            assert values[2] == pytest.approx(np.mean(lasts) / (end - 1 - at))


def test_an_audit_grades_what_is_said_without_each_set_again():
    slipped = {"answer": 2, **{name: {"text": name, "grade": "wrong"} for name in ("bottom", "random", "top")}}
    body = labelled_traces.line("m", "t", "p/1", slip=slipped).body
    graded = [(where, text, grade) for where, text, grade in recompute.graded_texts(body) if where.startswith("slip")]
    assert graded == [(f"slip.{name}", name, "wrong") for name in ("bottom", "random", "top")]
    without = labelled_traces.line("m", "t", "p/1").body
    assert len(list(recompute.graded_texts(without))) == len(list(recompute.graded_texts(body))) - 3


def test_an_answer_without_a_thought_has_no_sets_where_a_question_is_fed_after_the_eviction():
    asked = SimpleNamespace(fed_tokens=tuple(range(42)), token_ids=(7, 8), prompt=SimpleNamespace(tokens=42))
    span = windows.span_of("reasoning", 30, 12, 0, Fraction(1))
    assert (span.tokens, span.event) == (42, 30)
    assert trace_record.measure_slip(None, asked, span, Decimal("0.3")) is None


def trace(number, outcome, state="labelled", cluster=None, **more):
    """outcome: whether the answer is right without the bottom, without as many by chance, without the top."""
    name = f"p/{number}"
    right = dict(zip(("bottom", "random", "top"), outcome, strict=True))
    one = Trace(*PAIR, name, cluster or name, "test", state, (0, 6), (), {}, (), (), None, 2, right)
    return one._replace(**more)


def anatomy(traces):
    return Anatomy("", {"reading": "dropped", "slip": "0.5"}, (PAIR,), {}, {}, (), tuple(traces))


def test_ahead_and_behind_are_counted_over_units_and_right_and_wrong_answers_apart():
    right = [trace(number, (1, 0, 0)) for number in range(9)] + [trace(9, (0, 1, 0)), trace(10, (1, 1, 1))]
    wrong = [trace(20 + number, (number == 0, 0, 0), "wrong") for number in range(8)]
    result = slip_test.test_slip(anatomy([*right, *wrong]), PAIR, 0.025)
    spared, repaired = result["right"], result["wrong"]
    assert [spared[name] for name in ("traces", "bottom", "random", "top", "ahead", "behind")] == [11, 10, 2, 1, 9, 1]
    assert spared["p"] == pytest.approx(11 / 2**10)  # 9 or 10 heads of ten throws
    assert spared["word"] == "SPARES"
    assert [repaired[name] for name in ("traces", "bottom", "random", "ahead", "behind")] == [8, 1, 0, 1, 0]
    assert (repaired["p"], repaired["word"]) == (0.5, "NOT SHOWN")
    assert slip_test.test_slip(anatomy(right), PAIR, 0.01)["right"]["word"] == "NOT SHOWN"
    assert slip_test.test_slip(anatomy(wrong[1:]), PAIR, 0.025)["wrong"]["word"] == "TOO FEW TRACES"


def test_traces_of_one_cluster_are_one_unit_and_no_difference_is_no_evidence():
    many = [trace(number, (1, 0, 0), cluster=f"c/{number % 3}") for number in range(30)]
    result = slip_test.test_slip(anatomy(many), PAIR, 0.025)["right"]
    assert (result["units"], result["ahead"], result["word"]) == (3, 3, "TOO FEW TRACES")
    alike = slip_test.test_slip(anatomy([trace(number, (1, 1, 0)) for number in range(20)]), PAIR, 0.025)["right"]
    assert (alike["p"], alike["word"]) == (1.0, "NOT SHOWN")


def test_sets_are_held_against_labels_and_exact_needs(monkeypatch):
    """Six tokens, four of them the thought: half of it is two. Its third token is needed by the flow of data."""
    rows = np.array([[np.nan, np.nan, 0.1, 0.4, 0.3, 0.05], [np.nan, np.nan, 1, 5, 3, 1], [0, 0, 0, 1, 0.5, np.nan]])
    signals = tuple((name, None) for name in slip.SLIP_SIGNALS)
    windows = {"padded": ((2, 4, True),), "dropped": ((0, 1, True),)}
    one = trace(1, (1, 1, 1), windows=windows, signals=signals)
    monkeypatch.setattr(Trace, "values", lambda self: Values(rows.astype(np.float32), np.zeros((0, 6), np.float32)))
    monkeypatch.setattr(data_flow, "exact_labels", lambda of: np.array([1, 0, 0, 0, 1, 0], dtype=np.int8))
    labels = slip_test.slip_labels(anatomy([one]), one)
    assert {name: np.flatnonzero(label).tolist() for name, label in labels.items()} == {"top": [3, 4], "bottom": [2, 5]}
    found = slip_test.compare_slip(anatomy([one]), PAIR)
    top, bottom = found["sets"]["top"], found["sets"]["bottom"]
    assert [top[name] for name in ("share", "gap", "last")] == pytest.approx([0.7, 4, 0.75])
    assert [bottom[name] for name in ("share", "gap", "last")] == pytest.approx([0.15, 1, 0])
    assert top["needed"] == {"padded": 0.5, "dropped": None, "data flow": 1.0}
    assert slip_test.compare_slip(anatomy([trace(1, (1, 1, 1), "wrong")]), PAIR) is None
