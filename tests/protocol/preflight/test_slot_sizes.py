"""What registering refuses of arms that store their slots in unlike ways."""

import re
from pathlib import Path

import pytest
import studies
import torch

from policies import Bases
from protocol.formats.refusals import BadInput
from protocol.models import calibration, calibration_paths
from protocol.plan import toml_reader
from protocol.plan.slot_bytes import Widths
from protocol.preflight import feasibility, slot_sizes
from protocol.workspace.planned_study import PlannedStudy

MODEL = "path:/nowhere"
CRYSTAL = 'crystal = { policy = "crystal-token-level" }'
RANK_8 = 'crystal = { policy = "subspace", set = { "state.rank" = 8 } }'
SYN = 'crystal = { policy = "syn_mem" }'
WIDTHS = {MODEL: Widths(4, 32)}  # a slot takes 256 bytes in each of four heads; coded 160, with a weight 260


def planned(*changes, budgets="[64]", memory="slots", widths=WIDTHS):
    text = studies.PROTOCOL.format(model="/nowhere")
    given = {"[0.8]": budgets, 'memory = "slots"': f'memory = "{memory}"', **dict(changes)}
    for old, new in given.items():
        assert old in text, old
        text = text.replace(old, new)
    return PlannedStudy(toml_reader.parse(text.encode(), "here"), Path("nowhere"), widths=widths)


@pytest.mark.parametrize(("arm", "size"), [(RANK_8, 160), (SYN, 260)])
def test_slots_of_unlike_size_are_not_compared_by_their_number(arm, size):
    with pytest.raises(BadInput, match=r"decision.memory: a slot of .* so equal slots are not") as refused:
        slot_sizes.refuse_unequal_slots(planned((CRYSTAL, arm)))
    assert {"256", str(size)} <= set(re.findall(r"[0-9]+", str(refused.value)))
    for memory in ("bytes", "total"):
        slot_sizes.refuse_unequal_slots(planned((CRYSTAL, arm), memory=memory))


def test_an_arm_that_is_compared_with_none_may_store_its_slots_otherwise():
    more = ('full = { policy = "full" }', 'full = { policy = "full" }\nsyn = { policy = "syn_mem" }')
    slot_sizes.refuse_unequal_slots(planned(more))
    with pytest.raises(BadInput, match=r"decision.memory: a slot of"):
        slot_sizes.refuse_unequal_slots(planned(more, ("at_least = 1", 'at_least = 1\nbeside = ["syn"]')))


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ("1000 B", "1000 B is less than one slot of arm 'crystal' on path:/nowhere, which takes 1040 bytes"),
        ("bytes of 1", 'over all layers and heads; write "bytes of 2" or more'),
        ("bytes of 131", "bytes of 131 gives 131 slots for needle-256 (400 tokens), fewer than the 132"),
        ("100000 GiB", "slots of arm 'crystal' on path:/nowhere, over the limit of 16777216; write less"),
    ],
)
def test_a_budget_in_bytes_has_room_for_a_slot_and_for_what_is_protected(budget, says):
    of = planned((CRYSTAL, SYN), budgets=f'["{budget}"]', memory="bytes")
    lengths = {(MODEL, of.protocol.tasks[0], ""): [(400, 0)]}
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        feasibility.refuse_small_budgets(of, lengths, of.protocol.budgets)
    assert "\n" not in str(refused.value)


def test_two_budgets_that_are_the_same_slots_of_one_arm_are_one():
    of = planned((CRYSTAL, RANK_8), budgets='[64, "bytes of 64"]', memory="bytes")
    lengths = {(MODEL, of.protocol.tasks[0], ""): [(400, 0)]}
    with pytest.raises(BadInput, match=r"budgets: 64 and bytes of 64 are the same slots of 256 bytes"):
        feasibility.refuse_duplicate_budgets(of, lengths, of.protocol.budgets)
    apart = planned((CRYSTAL, RANK_8), budgets='[64, "bytes of 80"]', memory="bytes")
    feasibility.refuse_duplicate_budgets(apart, lengths, apart.protocol.budgets)


def bases(rank):
    return lambda path, kind: Bases(torch.zeros(2, 2, 32), torch.zeros(2, 2, 32, rank))


def test_a_state_has_to_fit_the_heads_and_what_was_calibrated(monkeypatch):
    monkeypatch.setattr(calibration_paths, "statistics_paths", lambda model, home: {"bases": home})
    monkeypatch.setattr(calibration, "read_value", bases(8))
    slot_sizes.refuse_unfit_states(planned((CRYSTAL, RANK_8)))
    with pytest.raises(
        BadInput, match=r"arms: 'crystal' does not fit path:/nowhere: state.rank: is 9, but 'bases' has 8 directions"
    ):
        slot_sizes.refuse_unfit_states(planned((CRYSTAL, RANK_8.replace("= 8", "= 9"))))
    with pytest.raises(BadInput, match=r"arms: 'crystal' does not fit .*: state.rank: 32 coefficients save"):
        slot_sizes.refuse_unfit_states(planned((CRYSTAL, RANK_8.replace("= 8", "= 32"))))
