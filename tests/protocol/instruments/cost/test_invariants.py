"""What must hold between the fields of measured time and memory: each absurd line breaks its relation."""

import copy

import measured_cost
import pytest
import tamperings
from measured_cost import CONTENT, LOCK, whole
from studies import ROOT

from protocol.instruments.cost import fields, invariants, measurement_file

NAMES = [relation.name for relation in invariants.INVARIANTS]


def broken(one, content=CONTENT):
    return [
        found.invariant.name
        for found in invariants.find_violations(content, LOCK, one, measurement_file.expected_lines(content))
    ]


def first(one, budget):
    return next(body for body in one.bodies if body["point"]["budget"] == budget)


def test_an_honest_measurement_breaks_nothing_and_is_well_formed():
    assert broken(whole()) == []
    assert all(fields.find_fault(body, 1) is None for body in whole().bodies)


def test_each_repetition_has_every_point_once_in_an_order_of_its_own_that_the_seed_draws():
    due = measurement_file.expected_lines(CONTENT)
    rounds = [[one.point for one in due if one.repetition == number] for number in (1, 2, 3)]
    expected = {
        ("tiny", 100, lanes, budget, arm)
        for lanes in (1, 4)
        for budget, arm in (("full", "full"), ("0.5", "h2o"), ("20", "h2o"))
    }
    assert [set(map(tuple, points)) for points in rounds] == 3 * [expected]
    assert all(len(points) == 6 for points in rounds)
    assert len({tuple(points) for points in rounds}) == 3
    other = copy.deepcopy(CONTENT)
    other["protocol"]["content"]["cost"]["seed"] = 8
    assert measurement_file.expected_lines(other) != due


ABSURD = {
    "rates": [("decode", "tokens_per_second", "99999.000"), ("prefill", "seconds", "0.000000000")],
    "tokens": [("decode", "tokens", 11), ("prefill", "tokens", 101)],
    "clocks": [("prefill", "cpu_seconds", "9.000000000")],
    "slots": [("memory", "held", 399), ("memory", "room", 1), ("memory", "room_peak", 100 * 4 * 64)],
    "peaks": [("decode", "rss_peak", 1), ("prefill", "allocated_peak", 10**9)],
}


@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, changes in ABSURD.items() for change in changes], ids=str
)
def test_an_absurd_line_that_is_well_formed_is_refused_by_name(name, change):
    one = whole()
    line = next(b for b in one.bodies if b["point"]["budget"] == "full" and b["point"]["lanes"] == 1)
    line[change[0]][change[1]] = change[2]
    assert fields.find_fault(line, 1) is None
    assert name in broken(one)


@pytest.mark.parametrize(
    ("field", "value"), [("seconds", "-0.500000000"), ("seconds", "0.5"), ("tokens", 0), ("tokens", 1.5)]
)
def test_negative_seconds_and_other_forms_are_no_line_at_all(field, value):
    line = whole().bodies[0]
    line["decode"][field] = value
    assert field in fields.find_fault(line, 1)


def test_a_line_without_a_field_with_an_unknown_one_or_with_another_kind_of_value_is_no_line_at_all():
    line, optional = whole().bodies[0], {"load", "rss_peak", "rss_before"}  # what some systems do not tell
    for tampering in tamperings.generate(fields.MEASURED, line):
        if tampering.breaks_form and (tampering.how != "removed" or tampering.path[-1] not in optional):
            assert fields.find_fault(tampering.applied(line), 1) is not None, tampering


def test_a_budget_gives_its_slots():
    one = whole()
    first(one, "0.5")["slots"] = 49
    assert "budget" in broken(one)


def test_what_was_not_registered_left_out_or_run_in_another_order_is_seen():
    one = whole()
    one.bodies[0], one.bodies[1] = one.bodies[1], one.bodies[0]
    assert broken(one) == ["order"]
    missing = whole()
    del missing.bodies[2]
    assert broken(missing) == ["order"]
    more = whole()
    more.bodies.append(more.bodies[-1])
    assert broken(more) == ["order"]
    cut = whole()
    del cut.bodies[7:]
    assert broken(cut) == []  # it goes on there


def test_arms_are_fed_the_same():
    one = whole()
    first(one, "20")["prompts"] = "c" * 64
    assert broken(one) == ["same work"]
    heavier = whole()
    heavier.bodies[-1]["memory"]["weights"] += 1
    assert broken(heavier) == ["same work"]


def test_a_file_is_of_its_lock_and_its_attempts_go_on():
    assert broken(whole()._replace(registration="c" * 64)) == ["lock"]
    one = whole()
    one.bodies[0]["attempt"] = 2
    assert broken(one) == ["attempts"]


def test_on_cuda_peaks_are_allocated_and_reserved_and_hold_weights_and_slots():
    content = copy.deepcopy(CONTENT)
    content["protocol"]["content"]["generation"]["device"] = "cuda"

    def on_cuda(allocated, reserved):
        one = whole()
        for line in one.bodies:
            for phase in ("prefill", "decode"):
                line[phase] |= {"allocated_peak": allocated, "reserved_peak": reserved}
        return broken(one, content)

    assert broken(whole(), content) == ["peaks"]
    assert on_cuda(10**7, 10**7) == []
    assert on_cuda(10**7, 10**7 - 1) == ["peaks"]
    assert on_cuda(measured_cost.WEIGHTS, 10**7) == ["peaks"]


def test_the_page_lists_every_relation():
    page = (ROOT / "docs" / "machines.md").read_text()
    assert [name for name in NAMES if f"| {name} |" not in page] == []


def test_every_relation_is_broken_above():
    assert set(NAMES) == {*ABSURD, "budget", "order", "same work", "lock", "attempts"}
