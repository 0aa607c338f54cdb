"""What counts as memory is registered, and no tolerance lets in more than the charge was tried for."""

from pathlib import Path

import pytest
import studies

from analysis.judgement.contrasts import MEMORY
from protocol.evidence.invariants import planned_lanes
from protocol.formats.refusals import BadInput
from protocol.plan import checks, grid
from protocol.plan.budget import parse_budget
from protocol.plan.decision import DECISION
from protocol.preflight.neighbours import describe_charge, describe_equal_slots
from protocol.register import register

TEXT = studies.PROTOCOL.format(model="x")
HERE = Path("registrations/x/protocol.toml")


@pytest.mark.parametrize("kind", ["slots", "bytes", "total", "reads"])
def test_what_counts_is_locked_as_it_was_written(kind):
    design = studies.parse(TEXT.replace('memory = "slots"', f'memory = "{kind}"'))
    assert design.content()["decision"]["memory"] == kind
    checks.require_memory(design, HERE)


def test_every_kind_that_may_be_registered_is_judged():
    assert tuple(DECISION.fields["memory"].kind.options) == tuple(MEMORY)


@pytest.mark.parametrize("tolerance", ["0.5", "0.03", "0.0201"])
def test_a_tolerance_above_two_percent_is_refused(tolerance):
    design = studies.parse(TEXT.replace("cache_tolerance = 0.02", f"cache_tolerance = {tolerance}"))
    with pytest.raises(BadInput, match=rf"decision.cache_tolerance: {tolerance} is above 0.02"):
        checks.require_memory(design, HERE)


@pytest.mark.parametrize("tolerance", ["0.02", "0.005", "0"])
def test_a_tighter_one_is_not(tolerance):
    checks.require_memory(studies.parse(TEXT.replace("tolerance = 0.02", f"tolerance = {tolerance}")), HERE)


def test_a_protocol_that_does_not_say_what_counts_is_read_and_not_registered():
    design = studies.parse(TEXT.replace('memory = "slots"\n', ""))
    assert "memory" not in design.content()["decision"]
    with pytest.raises(BadInput, match=r'decision.memory: missing; write .* "slots", "bytes", "total" or "reads"'):
        checks.require_memory(design, HERE)


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        ({'memory = "slots"\n': ""}, "decision.memory: missing"),
        ({"cache_tolerance = 0.02": "cache_tolerance = 0.5"}, "decision.cache_tolerance: 0.5 is above 0.02"),
    ],
)
def test_registering_refuses_both_and_writes_nothing(tmp_path, replace, said):
    folder = studies.write(tmp_path / "registrations" / "mine", tmp_path / "model", replace)
    with pytest.raises(BadInput, match=said):
        register(folder, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["protocol.toml"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('against = ["random", "streaming"]', 'against = ["full"]'), 'decision.memory: "reads" compares arms'),
        (
            ("[generation]", '[claims.same]\narm = "random"\nsays = "worse"\nparent = "full"\n\n[generation]'),
            "claims.same.parent: the full cache reads all",
        ),
        (("[generation]", '[cite]\nrandom = "earlier"\n\n[generation]'), "cite: cited records may not have"),
    ],
)
def test_what_no_comparison_at_equal_reads_can_be(change, message):
    text = TEXT.replace(*change).replace('memory = "slots"', 'memory = "reads"')
    rule = 'rule = "non_inferior"\nmargin = 0.05\n'
    text = text.replace('rule = "superior"\n', rule).replace("at_least = 1\n", "").replace("sign-flip", "t")
    with pytest.raises(BadInput, match=message):
        raise_faults(text)
    assert not list(checks._reads(studies.parse(text.replace('"reads"', '"slots"')), lambda arm: arm != "full"))


# Neighbours: budgets at which comparators alone are decoded.
NEAR = TEXT.replace("budgets = [0.8]", "budgets = [0.6, 0.8]\nneighbours = [0.618, 0.824]")
SWEPT = f"""{NEAR.replace('subject = "crystal"', 'subject = "chosen"').replace('["random", "streaming"]', '["random"]')}
[sweep]
name = "chosen"
candidates = ["crystal", "streaming"]
baseline = "random"
seeds = [3]
tolerance = 0.005
"""


def test_comparators_alone_run_at_neighbours():
    design = studies.parse(NEAR)
    cells = grid.cells(design, lambda _, arm: arm == "full")
    by_arm = {arm: {cell.budget for cell in cells if cell.arm == arm} for arm in ("full", "crystal", "random")}
    assert by_arm == {"full": {"full"}, "crystal": {"0.6", "0.8"}, "random": {"0.6", "0.618", "0.8", "0.824"}}
    assert design.content()["neighbours"] == ["0.618", "0.824"]
    assert "neighbours" not in studies.parse(TEXT).content()


def test_a_sweep_chooses_at_budgets_and_confirms_at_neighbours_too():
    design = studies.parse(SWEPT)
    budgets = {
        phase: {cell.budget for cell in grid.cells(plan, lambda _, arm: arm == "full") if cell.arm == "random"}
        for phase, plan in design.designs_by_phase().items()
    }
    assert budgets == {"probe": {"0.6", "0.8"}, "confirm": {"0.6", "0.618", "0.8", "0.824"}}
    cells = [planned_lanes.Cell(budget, arm, 0) for arm in ("random", "chosen") for budget in budgets["confirm"]]
    probed = planned_lanes._probe_cells(design.content(), cells)
    assert {cell.budget for cell in probed} == budgets["probe"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("neighbours = [0.618, 0.824]", "neighbours = [0.8]"), "neighbours: 0.8 occurs twice; name each once"),
        (("neighbours = [0.618, 0.824]", "neighbours = []"), "neighbours: "),
        (('against = ["random", "streaming"]', 'against = ["full"]'), "neighbours: no arm in decision.against evicts"),
    ],
)
def test_what_neighbours_cannot_be(change, said):
    text = NEAR.replace(*change).replace('rule = "superior"', 'rule = "non_inferior"\nmargin = 0.05')
    with pytest.raises(BadInput, match=said):
        raise_faults(text.replace("at_least = 1\n", ""))


def raise_faults(text):
    raise BadInput("; ".join(checks.faults(studies.parse(text), lambda arm: arm != "full")))


@pytest.mark.parametrize(
    ("budget", "above"),
    [
        ("32", "33"),
        ("200", "206"),
        ("0.3", "0.309"),
        ("0.999999", "0.999999"),
        ("0.1 of full", "0.103 of full"),
        ("100 B", "103 B"),
        ("bytes of 64", "bytes of 66"),
    ],
)
def test_a_neighbour_that_is_suggested_lies_three_percent_above(budget, above):
    assert str(parse_budget(budget)) == budget
    assert str(parse_budget(budget).next_above()) == above


def test_registering_says_what_an_excess_may_cost_and_which_neighbours_would_free_it():
    def lines(neighbours, outcome=None, **decision):
        content = {"budgets": ["128", "0.3", "100 B"], "neighbours": neighbours}
        content |= {"outcome": outcome} if outcome else {}
        return describe_charge(content | {"decision": {"memory": "slots", "against": ["random"]} | decision})

    (line,) = lines([])
    assert line.startswith("memory at 128, 0.3, 100 B: ")
    assert 'neighbours = [132, 0.309, "103 B"]' in line
    (line,) = lines(["132", "0.5"])
    assert line.startswith("memory at 0.3, 100 B: ")
    assert lines(["132", "0.309", "103 B"]) == lines([], against=["full"]) == []
    assert lines([], outcome={"kind": "agreement"}) == []  # one text for all arms: equally many slots
    assert lines(["134", "0.309", "103 B"]) == []  # 128 x 1.05 = 134.4: the judge tests none that is further away
    (line,) = lines(["135", "0.309", "103 B"])
    assert line.startswith("memory at 128: ")


def test_registering_says_that_a_neighbour_in_bytes_has_room_for_no_slot_more():
    """Two heads of 100 bytes a slot: 2000 B are 10 slots, 2060 B too, 2200 B are 11."""
    content = {"budgets": ["2000 B"], "neighbours": ["2060 B", "2200 B"], "decision": {"against": ["full", "random"]}}
    slots = {"2000 B": 10, "2060 B": 10, "2200 B": 11}
    arms = {"full": {"bytes": 100}, "random": {"bytes": 100, "slots": slots}}
    lock = {"protocol": {"content": content}, "slot_bytes": {"m": {"heads": 2, "arms": arms}, "unread": None}}
    (line,) = describe_equal_slots(lock)
    assert line.startswith("neighbours: 2060 B has room for 10 slots of random on m, as many as 2000 B, ")
    assert line.endswith("one more slot takes 200 bytes")
    slots["2060 B"] = 11
    assert describe_equal_slots(lock) == describe_equal_slots(lock | {"slot_bytes": {}}) == []


def test_a_near_budget_is_not_suggested_and_serves_as_a_neighbour():
    content = {"budgets": ["128", "132"], "decision": {"memory": "slots", "against": ["random"]}}
    (line,) = describe_charge(content)
    assert "neighbours = [136] comparators" in line
    assert describe_charge(content | {"neighbours": ["136"]}) == []
