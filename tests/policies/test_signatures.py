"""The set-conditioned selector in each head by itself, with other signatures, and with a moving weight."""

import pytest
import torch
from plain_selector import plain_diverse
from policy_prompts import MadeTensors, a_prompt, a_view
from torch.nn.functional import cosine_similarity

import policies
from policies import Diverse, Protect, Scores, View
from policies.selection import WINDOW
from policies.signals import MeanValues
from policies.signatures import (
    DiverseByHead,
    DiverseByLayer,
    DiverseEach,
    DiverseScheduled,
    UnitValues,
    concatenate_units,
)

# The example of `test_diverse`: weight 0.05 keeps 0, 1, 2 and 0.5 keeps 0, 1, 3, of the first head's scores.
SCORES = [[5, 4.9, 4.75, 4.7, 1.0], [1.0, 4.7, 4.75, 4.9, 5]]
VALUES = torch.tensor([[1, 0], [3, 0], [0.8, 0.6], [0, 2], [-1, 0]], dtype=torch.float64)


def test_two_heads_worked_out_by_hand():
    """The second has the scores of the first backwards, and its values too, all of other lengths."""
    values = torch.stack([VALUES, 7 * VALUES.flip(0)])
    filled = torch.ones(2, 5, dtype=torch.bool)
    signals = {UnitValues(): (UnitValues().summarise(0, values, values, filled),)}
    view = View(torch.arange(5), 1, 2, frozenset(), 0, signals)
    scores = Scores(torch.tensor([SCORES], dtype=torch.float64))
    none = torch.zeros(1, 1, 5, dtype=torch.bool)
    kept = DiverseEach(0.5).select(view, scores, none, torch.tensor([[3, 2]]))
    assert [row.nonzero().flatten().tolist() for row in kept[0]] == [[0, 1, 3], [1, 4]]
    plain = DiverseEach(0).select(view, scores, none, torch.tensor([[3, 2]]))
    assert [row.nonzero().flatten().tolist() for row in plain[0]] == [[0, 1, 2], [3, 4]]


def test_the_unit_value_of_what_no_head_holds_is_zero():
    values = torch.tensor([[[3.0, 4], [torch.nan, 1]]])
    found = UnitValues().summarise(0, values, values, torch.tensor([[True, False]]))
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.8], [0, 0]]]))


@pytest.mark.parametrize("name", ["1d-per-head_div", "ada-1d_div", "pyramid-1d_div"])
@pytest.mark.parametrize("held", [None, [[150, 90], [60, 149]]])
def test_each_head_keeps_what_algorithm_1_keeps_of_its_own_slots(name, held):
    """With the protected slots, which the plain selector is given by scores above all others."""
    prompt = a_prompt(150, dtype=torch.float64)
    policy = policies.get(name, protect=Protect(sinks=2, recent=5))
    view, filled = a_view(prompt, [policy]), torch.ones(2, 2, 150, dtype=torch.bool)
    if held:
        place = torch.arange(150).expand(2, 2, -1)
        filled = place < torch.tensor(held)[..., None]
        signals = {
            **view.signals,
            UnitValues(): tuple(
                UnitValues().summarise(0, *parts) for parts in zip(prompt.keys, prompt.values, filled, strict=True)
            ),
        }
        view = view._replace(stored=place.masked_fill(~filled, -1), signals=signals)
    kept = policy.keep(view, 40)
    scores = policy.scoring.score(view).slots
    if name == "ada-1d_div":
        assert kept.sum((1, 2)).tolist() == [80, 80]
    else:
        assert kept.sum() == 160
    assert len({tuple(row.tolist()) for row in kept.flatten(0, 1)}) == 4
    different = 0
    for layer in range(2):
        for head in range(2):
            count = int(filled[layer, head].sum())
            own = scores[layer, head, :count].clone()
            own[[0, 1, *range(count - 5, count)]] += 100
            values = prompt.values[layer, head, :count]
            k = int(kept[layer, head].sum())
            expected = plain_diverse(own, values / values.norm(dim=-1, keepdim=True), k, 0.5)
            assert kept[layer, head].nonzero().flatten().tolist() == expected.tolist()
            different += expected.tolist() != own.topk(k).indices.sort().values.tolist()
    assert different >= 1


@pytest.mark.parametrize("name", ["1d-per-head", "ada-1d", "pyramid-1d"])
def test_without_a_penalty_each_head_keeps_its_parent_s_slots(name):
    view = a_view(a_prompt(120), [policies.get(f"{name}_div")])
    child = policies.get(f"{name}_div", selection=DiverseEach(0))
    for budget in (20, 77):
        assert torch.equal(child.keep(view, budget), policies.get(name).keep(view, budget))
        assert not torch.equal(child.keep(view, budget), policies.get(f"{name}_div").keep(view, budget))


def test_no_matrix_of_all_slots_of_a_head_is_formed():
    n = 4 * WINDOW
    prompt = a_prompt(n, layers=1, q_heads=2, kv_heads=2, dim=4)
    view = a_view(prompt, [policies.get("ada-1d_div")])
    with MadeTensors() as made:
        policies.get("ada-1d_div").keep(view, WINDOW // 4)
    assert max(made.sizes) <= WINDOW * n < n * n / 3


@pytest.mark.parametrize(("selection", "by"), [(DiverseByLayer(), "layer"), (DiverseByHead(), "head")])
def test_the_cosine_is_the_mean_of_those_of_the_parts(selection, by):
    prompt = a_prompt(30, layers=3, dtype=torch.float64)
    view = a_view(prompt, [policies.get("1d", selection=selection)])
    parts = prompt.values.mean(1) if by == "layer" else prompt.values.flatten(0, 1)
    signatures = selection.signatures(view)
    torch.testing.assert_close(signatures.norm(dim=-1), torch.ones(30, dtype=torch.float64))
    for one in range(0, 30, 7):
        for other in range(30):
            expected = sum(cosine_similarity(part[one], part[other], dim=0) for part in parts) / len(parts)
            torch.testing.assert_close(signatures[one] @ signatures[other], expected, atol=1e-6, rtol=0)


def test_two_parts_of_opposite_minds_cancel_each_other():
    """In the first slots 0 and 1 point the same way, in the second against each other."""
    parts = torch.tensor([[[1.0, 0], [1, 0], [0, 1]], [[0, 1], [0, -1], [1, 0]]])
    found = concatenate_units(parts) @ concatenate_units(parts).T
    torch.testing.assert_close(found, torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))


@pytest.mark.parametrize("name", ["1d_div-per-layer", "1d_div-per-head"])
def test_a_shared_set_is_what_algorithm_1_keeps_with_these_signatures(name):
    prompt, policy = a_prompt(90, layers=3, dtype=torch.float64), policies.get(name)
    view = a_view(prompt, [policy, policies.get("1d_div")])
    values = prompt.values.mean(1) if name.endswith("layer") else prompt.values.flatten(0, 1)
    units = values / values.norm(dim=-1, keepdim=True)
    signatures = torch.cat(list(units), -1) / len(units) ** 0.5
    scores = policy.scoring.score(view).slots[0, 0]
    kept = policy.keep(view, 40)
    assert kept[1, 1].nonzero().flatten().tolist() == plain_diverse(scores, signatures, 40, 0.5).tolist()
    assert torch.equal(kept, kept[:1, :1].expand_as(kept))
    assert not torch.equal(kept, policies.get("1d_div").keep(view, 40))
    assert policy.selection.weight == policies.get("1d_div").selection.weight == 0.5


def test_layers_of_long_values_do_not_outvote_the_others():
    """Averaged first, the long layer decides alone; side by side each layer has one vote."""
    values = torch.tensor([[[1.0, 0], [0, 1]], [[100, 0], [100, 0]]])
    view = View(torch.arange(2), 2, 1, frozenset(), 0, {MeanValues(): tuple(values)})
    averaged, each = Diverse().signatures(view), DiverseByLayer().signatures(view)
    assert float(averaged[0] @ averaged[1]) > 0.999
    assert float(each[0] @ each[1]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("first", "last", "over", "weights"),
    [
        (1.0, 0.0, 100, {50: 1.0, 60: 0.9, 110: 0.4, 150: 0, 151: 0, 900: 0}),  # falls
        (0.5, 1.5, 4, {60: 0.5, 61: 0.75, 62: 1.0, 64: 1.5, 70: 1.5}),  # rises
    ],
)
def test_weights_of_a_schedule_worked_out_by_hand(first, last, over, weights):
    """Of a prompt of 60 tokens, 50 of which a context outside the question has."""
    prompt = 60 if 61 in weights else 50
    selection = DiverseScheduled(first, last, over)
    view = View(torch.arange(0), 1, 1, frozenset(), 0, {}, prompt=prompt)
    found = {seen: selection.weight_at(view._replace(token_ids=torch.arange(seen))) for seen in weights}
    assert found == pytest.approx(weights)


def test_a_scheduled_weight_is_that_of_a_fixed_one_at_each_event_and_none_at_the_end():
    policy = policies.get("1d_div-scheduled")
    assert policy.selection == DiverseScheduled(1.0, 0.0, 256)
    view = a_view(a_prompt(300), [policy])
    for answered, weight in ((0, 1.0), (64, 0.75), (128, 0.5), (256, 0.0), (280, 0.0)):
        later = view._replace(prompt=300 - answered)
        expected = policies.get("1d_div", selection=Diverse(weight)).keep(later, 90)
        assert torch.equal(policy.keep(later, 90), expected)
        assert torch.equal(expected, policies.get("1d").keep(later, 90)) == (weight == 0)


@pytest.mark.parametrize("name", ["1d_div-per-layer", "1d_div-scheduled"])
def test_one_keep_set_a_head_is_refused_by_the_name_of_the_selection(name):
    policy = policies.get("1d-per-head", selection=policies.get(name).selection)
    with pytest.raises(ValueError, match=rf"{type(policy.selection).__name__} keeps one set for all layers"):
        policy.keep(a_view(a_prompt(40), [policy]), 20)
