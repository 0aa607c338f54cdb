"""What becomes of the slots of one layer that go on in others, and which states are refused."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from coded_and_merged import Coded, Gathered, Told
from tiny_networks import DIM, Noise, answer, lane, outside, tiny

from policies import Merging, PerHead, Protect, Rotation
from protocol.engine import LaneFailure, Outcome
from protocol.engine.merging import groups_of, merge_slots, sum_merger
from protocol.engine.rotation import rotation_of
from protocol.engine.slots import CachedSlots
from protocol.formats.refusals import BadInput
from protocol.presses.pressed import AsThePress, Pressed

QUARTER = Rotation(torch.tensor([torch.pi / 2, torch.pi / 4], dtype=torch.float64), 1.0)
"""The first pair turns by a quarter from one position to the next, the second by an eighth."""


def test_three_slots_become_one_at_the_place_of_the_last():
    """By hand. Positions 3, 4, 6; a slot at 4 - 6 is turned on by two steps: half a turn, and a quarter."""
    keys = torch.tensor([[[1.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [5, 5, 5, 5]]]).double()
    values = torch.tensor([[[6.0, 0], [0, 3], [3, 3], [7, 7]]]).double()
    weights = torch.tensor([[1.0, 4, 1, 1]])
    positions, into = torch.tensor([[3, 4, 6, 9]]), torch.tensor([[2, 2, 2, 3]])
    shares = torch.tensor([[1 / 6, 4 / 6, 1 / 6, 1.0]]).double()
    made = merge_slots(CachedSlots(keys, values, weights), positions, into, shares, QUARTER)
    # Pairs are (0, 2) and (1, 3). The first slot turns by 3 quarters: (1, 0) -> (0, -1). The second by 2
    # eighths: (2, 0) -> (0, 2). The third stays.
    key = torch.tensor([0, 0, -1 / 6 + 1 / 6, 4 / 6 * 2]).double()
    torch.testing.assert_close(made.keys[0, 2], key)
    torch.testing.assert_close(made.values[0, 2], torch.tensor([1 + 0 + 0.5, 0 + 2 + 0.5]).double())
    assert made.weights.tolist() == [[1, 4, 6, 1]]
    assert torch.equal(made.keys[0, 3], keys[0, 3])
    assert torch.equal(made.values[0, 3], values[0, 3])


def test_a_slot_that_goes_on_alone_is_in_no_group():
    groups = groups_of(torch.tensor([[1, 1, 2, -1], [0, 3, 3, 3]]))
    assert groups.members.tolist() == [0, 1, 5, 6, 7]
    assert (groups.sizes.tolist(), groups.targets.tolist()) == ([2, 3], [1, 7])


def test_turning_a_key_is_the_rotation_of_the_model():
    """A key of one token at position 5, turned on by 12, is its key at position 17: two forwards."""
    model = tiny("Qwen3")
    rotary, key = model.network.model.rotary_emb, torch.randn(1, 2, DIM, dtype=torch.float64)
    half = torch.cat([-key[..., DIM // 2 :], key[..., : DIM // 2]], -1)

    def at(position):
        cos, sin = rotary(key, torch.tensor([[position, position]]))
        return key * cos + half * sin

    early, late = at(5), at(17)
    both = torch.stack([early[0, 0], late[0, 1]])[None]
    into, shares = torch.tensor([[1, 1]]), torch.tensor([[1.0, 0.0]])
    cached = CachedSlots(both, torch.zeros(1, 2, DIM).double())
    made = merge_slots(cached, torch.tensor([[5, 17]]), into, shares, rotation_of(model.network))
    torch.testing.assert_close(made.keys[0, 1], late[0, 0], rtol=1e-5, atol=1e-5)  # float32 in the model's


def test_sums_of_members_are_added():
    into = torch.tensor([[[1, 1, 2], [0, 2, 2]]])
    sums = torch.arange(12.0).view(1, 4, 3)
    expected = [[0, 0 + 1, 2], [3, 3 + 4, 5], [6, 7, 7 + 8], [9, 10, 10 + 11]]
    kept = into == torch.arange(3)
    found, heads = sum_merger(into)(sums), kept.repeat_interleave(2, 1)
    assert found[heads].tolist() == torch.tensor(expected).float()[None][heads].tolist()
    with pytest.raises(ValueError, match="one state for all heads of a layer needs the same merged"):
        sum_merger(into)(torch.ones(1, 1, 3))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_rotation_that_depends_on_the_length_is_none(kind):
    network = tiny().network
    assert rotation_of(network) is not None
    network.base_model.rotary_emb.rope_type = kind
    assert rotation_of(network) is None


def keeping(state, **parts):
    return Told(Noise(1), routing=PerHead(), protect=Protect(0, 1), state=state, **parts)


@dataclass(frozen=True)
class Amiss(Gathered):
    """A merging with one thing wrong."""

    how: str = ""

    def merge(self, view, scores, protected, kept):
        _, into, shares = super().merge(view, scores, protected, kept)
        layer, head, slot = kept.nonzero()[0].tolist()
        if self.how == "beyond":
            into[layer, head, slot] = kept.shape[-1]
        elif self.how == "dropped":
            into[layer, head, slot] = (~kept[layer, head]).nonzero()[0]
        elif self.how == "elsewhere":
            into[layer, head, slot] = kept[layer, head].nonzero()[1]
        elif self.how == "half":
            shares[layer, head] /= 2
        elif self.how == "not a number":
            shares[layer, head, slot] = torch.nan
        return Merging(kept, into, shares)


@dataclass(frozen=True)
class Secretive(Gathered):
    """Merges without a weight."""

    merges: ClassVar[bool] = False
    keeps_counts: ClassVar[bool] = True


PLACE = "state merged a slot into one that is not kept, or that its head does not contain"
SHARES = "state merged slots by shares that do not sum to 1"
WRONG = {
    Amiss(how="beyond"): PLACE,
    Amiss(how="dropped"): PLACE,
    Amiss(how="elsewhere"): "state merged a kept slot into another one",
    Amiss(how="half"): SHARES,
    Amiss(how="not a number"): SHARES,
    Secretive(): "state merged slots although its `merges` is False; ",
}


def test_a_state_that_breaks_its_promise_fails_its_own_lane():
    lanes = [lane(keeping(state), 10) for state in (*WRONG, Gathered())]
    *failed, sound = answer(tiny(), outside(30), lanes, max_new_tokens=3)
    for outcome, reason in zip(failed, WRONG.values(), strict=True):
        assert isinstance(outcome, LaneFailure), outcome
        assert outcome.reason.startswith(reason)
        assert "\n" not in outcome.reason
    assert isinstance(sound, Outcome)


@dataclass(frozen=True)
class Uncoded(Coded):
    """Has no bases."""

    def codec(self, statistics):
        raise ValueError("bases of rank 6 are needed,\n  and there are none")


def refusal(model, policy):
    with pytest.raises(BadInput) as refused:
        answer(model, outside(30), [lane(policy, 10)], max_new_tokens=3)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_codec_that_does_not_fit_the_model_is_refused_in_one_line():
    assert refusal(tiny(), keeping(Uncoded())) == (
        "state of lane a lane: Uncoded has no codec for model tiny-Llama: bases of rank 6 are needed, and "
        "there are none; run kv-prereg calibrate"
    )


def test_merging_where_the_rotation_is_not_one_rule_is_refused_and_coding_is_not():
    model = tiny()
    model.network.base_model.rotary_emb.rope_type = "dynamic"
    said = refusal(model, keeping(Gathered()))
    assert said.startswith("state of lane a lane: Gathered merges slots")
    assert "choose another model" in said
    (outcome,) = answer(model, outside(30), [lane(keeping(Coded()), 10)], max_new_tokens=3)
    assert isinstance(outcome, Outcome)


def test_a_press_has_no_state():
    part = AsThePress()
    press = Pressed(part, selection=part, routing=part, state=Coded(), protect=part)
    assert refusal(tiny(), press) == (
        "state of lane a lane: Coded changes how slots are stored or read, but a press does not allow that; "
        "choose a policy of kv-prereg, or leave the state out"
    )
