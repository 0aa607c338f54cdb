"""What must hold between the fields of labelled traces: each absurd line breaks its relation, by name."""

import copy
import hashlib
import struct
import zlib

import labelled_traces as made
import pytest
import tamperings
from labelled_traces import CONTENT, LOCK, PROBLEMS, line
from looped import looped
from studies import ROOT

from protocol.evidence.measurement_journal import Bodies
from protocol.instruments.anatomy import fields, invariants, trace_file, windows
from protocol.instruments.anatomy.invariants import AnatomyContext

NAMES = [relation.name for relation in invariants.INVARIANTS]
CHOOSE = [problem for problem in PROBLEMS if made.half(problem) == "choose"]


def whole():
    """All that is due, a trace of each kind among them."""
    due = trace_file.expected_traces(CONTENT)
    states = dict(zip(due, ("labelled", "unmoved", "wrong", "short", "unreproduced", "failed"), strict=True))
    return [line(one.model, one.task, one.problem, state) for one, state in states.items()]


def broken(lines, content=CONTENT):
    asked = AnatomyContext(
        content, LOCK, Bodies([one.body for one in lines], "d" * 64, 0), trace_file.expected_traces(content)
    )
    held = {one.body["problem"]: one.values for one in lines}
    found = invariants.find_violations(asked, lambda body: zlib.decompress(held[body["problem"]]))
    return [violation.invariant.name for violation in found]


def test_an_honest_anatomy_breaks_nothing_and_is_well_formed():
    assert broken(whole()) == []
    assert [fields.find_fault(one.body) for one in whole()] == [None] * 6


def test_the_choosing_half_of_everything_is_due_before_the_other_and_halves_are_of_md5():
    content = copy.deepcopy(CONTENT)
    content["protocol"]["content"]["models"] = ["one", "two"]
    due = trace_file.expected_traces(content)
    number = len(CHOOSE)
    assert [(one.half, one.model) for one in due] == [
        *(("choose", model) for model in ("one", "two") for _ in range(number)),
        *(("test", model) for model in ("one", "two") for _ in range(6 - number)),
    ]
    assert [one.problem for one in due[:number]] == CHOOSE  # in the order of the split
    content["protocol"]["content"]["anatomy"] = made.ANATOMY | {"traces": 2}
    assert {one.problem for one in trace_file.expected_traces(content)} == set(PROBLEMS[:2])


def test_windows_by_hand():
    for span, expected in ((made.SPAN, made.WINDOWS), ([8, 11], [])):
        ranges = windows.windows(windows.Span(20, 20, *span), made.WINDOW, made.STRIDE)
        assert [(positions.start, positions.stop) for positions in ranges] == expected
    assert (made.WINDOW, made.STRIDE) == (4, 3)


def changed(*path, to):
    def change(body):
        for name in path[:-1]:
            body = body[name]
        body[path[-1]] = to

    return change


ABSURD = {
    "lock": [changed("registration", to="e" * 64)],
    "development": [changed("problem", to="held/1")],
    "halves": [changed("half", to="test")],
    "states": [
        changed("grade", to="wrong"),
        changed("control", "grade", to="wrong"),
        changed("state", to="unmoved"),
        changed("windows", "dropped", 2, 3, to="correct"),
    ],
    "span": [changed("span", to=[9, 19]), changed("span", to=[8, 20]), changed("tokens", to=7)],
    "pieces": [changed("pieces", to=["x"] * 19)],
    "windows": [changed("windows", "padded", 1, 0, to=10), changed("windows", "padded", to=[[8, 12, "", "correct"]])],
    "kept": [
        changed("kept", 0, "arm", to="full"),
        changed("kept", 1, "budget", to="7"),
        changed("values", "kept", to=3),
    ],
    "budget": [changed("kept", 0, "slots", to=5), changed("kept", 3, "slots", to=7)],
}


@looped(("name", "change"), [(name, change) for name, changes in ABSURD.items() for change in changes])
def test_an_absurd_line_is_refused_by_name(name, change):
    lines = whole()
    assert lines[0].body["state"] == "labelled"
    change(lines[0].body)
    assert name in broken(lines)


def test_a_state_that_hides_a_trace_is_refused():
    """A labelled trace cannot be told as one that has no label."""
    for state in ("wrong", "short"):
        lines = whole()
        body = {
            **line("tiny", "t", lines[0].body["problem"], state).body,
            "span": made.SPAN,
            "tokens": 20,
            "grade": "correct",
        }
        lines[0] = made.Line(body, b"")
        assert "states" in broken(lines)


def with_values(change):
    """An anatomy, the numbers of whose first trace are changed, and cited anew."""
    lines, numbers = whole(), made.rows()
    change(numbers)
    values = made.packed(numbers)
    lines[0].body["values"] = {**lines[0].body["values"], "sha256": hashlib.sha256(values).hexdigest()}
    return broken([lines[0]._replace(values=values), *lines[1:]])


def test_values_are_held_against_what_was_granted_and_against_themselves():
    def set_to(row, at, value):
        return lambda numbers: numbers[row].__setitem__(at, value)

    assert with_values(lambda numbers: None) == []
    assert with_values(set_to(0, 3, 4.0)) == ["position"]
    assert with_values(set_to(5, 3, 1.5)) == ["shares"]
    assert with_values(set_to(5, 3, -0.5)) == ["shares"]
    assert with_values(set_to(5, 12, 1.0)) == ["shares"]  # seven kept, six granted
    assert with_values(set_to(5, 3, float("nan"))) == ["shares"]
    assert with_values(lambda numbers: numbers.__setitem__(5, 20 * [float("nan")])) == []  # it had no event
    assert with_values(lambda numbers: numbers.__setitem__(6, 20 * [float("nan")])) == ["oracle"]  # it had one
    assert with_values(set_to(6, 14, 0.0)) == ["oracle"]
    assert with_values(set_to(1, 3, 0.3)) == ["rounding"]
    assert struct.unpack("<I", struct.pack("<f", 0.3))[0] & 0xFFF
    assert with_values(set_to(1, 3, float("nan"))) == []


def test_values_of_another_trace_are_not_those_of_these_windows():
    lines = whole()
    moved, unmoved = lines[:2]
    for one, other in ((moved, unmoved), (unmoved, moved)):
        changed = one._replace(body=one.body | {"values": other.body["values"]}, values=other.values)
        assert broken([changed if each is one else each for each in lines]) == ["oracle"]
    moved.body["windows"]["dropped"][0][3], moved.body["windows"]["dropped"][2][3] = "wrong", "correct"
    assert broken(lines) == ["oracle"]  # grades of two windows swapped


def test_arms_stand_in_the_order_of_the_grid_whatever_their_names():
    content, lines = copy.deepcopy(CONTENT), whole()[:1]
    content["protocol"]["content"]["arms"] = {"full": {}, "a": {}, "h2o": {}}  # sorted, as a lock has them
    content["grid"] += [["tiny", "t", "0.5", "a", 0], ["tiny", "t", "6", "a", 0]]
    body, numbers = lines[0].body, made.rows()
    first = [one | {"arm": "a"} for one in body["kept"][:2]]
    body["kept"][2:2] = first
    body["values"]["kept"] = len(body["kept"])
    lines[0] = made.Line(body, made.packed([*numbers[:6], *numbers[4:6], *numbers[6:]]))
    assert broken(lines, content) == []
    body["kept"] = [*first, *body["kept"][:2], *body["kept"][4:]]
    assert broken(lines, content) == ["kept"]
    content["protocol"]["content"]["sweep"] = {"candidates": ["a", "h2o"]}
    content["grid"] = [["tiny", "t", "full", "full", 0]]
    assert broken(lines, content) == []


def test_signals_are_the_models_and_the_scores_those_of_arms_that_evict():
    for signals in (
        [["key_norm", 0], *made.SIGNALS[:1], *made.SIGNALS[2:]],
        [["value_norm", 0], *made.SIGNALS[1:]],
        [*made.SIGNALS[:3], ["scoring:full", None]],
        [*made.SIGNALS[:2], *made.SIGNALS[1:3]],
    ):
        lines = whole()
        lines[1].body["values"] = {**lines[1].body["values"], "signals": signals}
        assert "signals" in broken(lines)


def with_slip(change, share="0.3"):
    """Labelled traces without a thought that was dropped, but for the first two, where it is registered."""
    content, lines = copy.deepcopy(CONTENT), whole()
    content["protocol"]["content"]["anatomy"]["slip"] = share
    for index, state in enumerate(("labelled", "unmoved")):
        lines[index] = line("tiny", "t", lines[index].body["problem"], state, slip=dict(made.SLIPPED))
    assert [fields.find_fault(one.body) for one in lines[:2]] == [None] * 2
    lines[0] = change(lines[0]) or lines[0]
    return broken(lines, content)


def test_slip_is_there_where_it_is_registered_and_what_the_answer_reads_is_a_share():
    def without(*names):
        def change(one):
            for name in names:
                if name == "slip":
                    del one.body["slip"]
                else:
                    one.body["values"]["signals"] = [*made.SIGNALS, ["key_norm", 7]]

        return change

    def set_to(at, value):
        def change(one):
            numbers = list(struct.unpack(f"<{9 * 20}f", zlib.decompress(one.values)))
            numbers[4 * 20 + at] = value
            return made.Line(one.body, made.packed([numbers]))

        return change

    assert with_slip(lambda one: None) == []
    assert "slip" in with_slip(without("slip"))
    assert "slip" in with_slip(without("signal"))
    assert sorted(with_slip(without("slip", "signal"))) == ["signals", "slip"]
    assert "slip" in with_slip(lambda one: None, "0.01")  # nothing of eleven tokens
    assert with_slip(set_to(3, 0.125)) == ["answer attention"]  # of the prompt
    assert with_slip(set_to(12, -0.125)) == ["answer attention"]
    assert with_slip(set_to(12, 0.5)) == ["answer attention"]  # more than all of it
    lines = whole()
    lines[0] = line("tiny", "t", lines[0].body["problem"], slip=dict(made.SLIPPED))
    assert "slip" in broken(lines)  # and nothing of it is registered


def test_order_and_attempts():
    lines = whole()
    assert broken([lines[1], lines[0], *lines[2:]]) == ["order"]
    assert broken([*lines[:1], *lines[2:]]) == ["order"]
    assert broken([*lines, lines[-1]]) == ["order"]
    assert broken(lines[:3]) == []  # it goes on there
    lines[0].body["attempt"] = 2
    assert broken(lines) == ["attempts"]


def test_a_question_outside_is_no_part_of_the_context():
    content = copy.deepcopy(CONTENT)
    content["protocol"]["content"]["tasks"][0]["query"] = "outside"
    lines = whole()
    for one in lines[:2]:
        one.body["kept"][0]["slots"] = 4
    assert broken(lines, content) == []
    lines[0].body["kept"][0]["slots"] = 5  # more than a share of the whole prompt
    assert broken(lines, content) == ["budget"]


@pytest.mark.parametrize("state", ["labelled", "unmoved"])
def test_other_forms_are_no_line_at_all(state):
    body = line("tiny", "t", CHOOSE[0], state).body
    assert fields.find_fault(body) is None
    for tampering in tamperings.generate(fields.TRACE, body):
        if tampering.breaks_form:
            assert fields.find_fault(tampering.applied(body)) is not None, tampering
    assert fields.find_fault(body | {"half": "both"}) is not None
    assert fields.find_fault(body | {"span": [8, 19, 20]}) is not None


def test_the_page_lists_every_relation():
    page = (ROOT / "docs" / "records.md").read_text()
    assert [one.name for one in invariants.INVARIANTS if f"| {one.name} | {one.sentence} |" not in page] == []


def test_every_relation_is_broken_above():
    others = {"order", "attempts", "signals", "rounding", "shares", "oracle", "position", "slip", "answer attention"}
    assert set(NAMES) == {*ABSURD, *others}
