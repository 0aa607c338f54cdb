"""Ablations and extensions of CrystalCache: one change each, and each what its formula says."""

import math
from dataclasses import fields, replace
from itertools import pairwise
from statistics import median

import crystal_by_hand as paper
import pytest
import torch
from looped import looped
from policy_prompts import Prompt, a_later_view, a_prompt, a_view, plain_attention, up_to

import policies
from policies import Cadence, Scores, Trunks
from policies.crystal import BranchDissolution
from policies.crystal.policy import variants
from policies.crystal.tiers import TieredDissolution, partial_count

CHANGES = {
    "crystal-uniform": ("scoring", {"impact"}),
    "crystal-no-rarity": ("scoring", {"impact"}),
    "crystal-token-level": ("scoring", {"max_trunk"}),
    "crystal-static-graph": ("scoring", {"breath"}),
    "crystal-still": ("scoring", {"breath"}),
    "crystal-adaptive-merge": ("scoring", {"merge_threshold"}),
    "crystal-rarity-inverse": ("scoring", {"impact"}),
    "crystal-rarity-exponential": ("scoring", {"impact"}),
    "crystal-rarity-document": ("scoring", {"impact"}),
    "crystal-chunk-128": ("scoring", {"coattention"}),
    "crystal-steepness-2": ("scoring", {"steepness"}),
    "crystal-d-only": ("selection", {"alpha"}),
    "crystal-impact-only": ("selection", {"fusion"}),
    "crystal-average": ("selection", {"fusion"}),
    "crystal-product": ("selection", {"fusion"}),
    "crystal-coverage": ("selection", {"coverage"}),
    "crystal-tiers": ("selection", set()),
    "crystal-over-budget": ("selection", set()),
}
"""Component, and the settings of it that change; the last two are other classes of the same settings."""

ONLY_LATER = ("crystal-static-graph", "crystal-still")
ALIKE_WITH_ROOM = (*ONLY_LATER, "crystal-over-budget")
"""Keep what crystal keeps at the end of a prefill whose protected trunks fit."""
N, ENDS = 420, (3, 4, 5)
every_variant = looped("name", CHANGES)


def test_every_variant_of_the_catalogue_is_in_the_table():
    assert variants().keys() == CHANGES.keys() | {"crystal-blog"}


@every_variant
def test_a_variant_differs_from_crystal_in_one_component_and_in_one_setting_of_it(name):
    component, changed = CHANGES[name]
    difference = policies.diff(policies.get("crystal"), policies.get(name))
    assert list(difference) == [component]
    one, other = difference[component]
    names = [field.name for field in fields(one)]
    assert {field for field in names if getattr(one, field) != getattr(other, field)} == changed
    assert (type(one) is not type(other)) == (name in ("crystal-tiers", "crystal-over-budget"))


def test_the_blog_differs_in_scoring_and_selection():
    parent, blog = policies.get("crystal"), policies.get("crystal-blog")
    difference = policies.diff(parent, blog)
    assert list(difference) == ["scoring", "selection"]
    one, other = difference["scoring"]
    names = [field.name for field in fields(one)]
    changed = {field for field in names if getattr(one, field) != getattr(other, field)}
    assert changed == {"coattention", "impact", "steepness", "breath"}
    assert replace(other.breath, renewal=0.0) == one.breath
    assert replace(other.coattention, chunk=1024) == one.coattention


def uneven(seed: int) -> Prompt:
    """Words of uneven frequency, clear favourites of attention."""
    found = a_prompt(N, layers=1, vocabulary=1000, sharpness=2.5, dtype=torch.float64, seed=seed)
    return found._replace(token_ids=(found.token_ids**3 * 60) // 1000**3)


@pytest.fixture(scope="module")
def prompt():
    return uneven(seed=11)


@pytest.fixture(scope="module")
def view(prompt):
    return a_view(prompt, [policies.get(name) for name in ("crystal", *variants())], sentence_ends=ENDS)


@pytest.fixture(scope="module")
def attention(prompt):
    return plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale).tolist()


@pytest.fixture(scope="module")
def edges(attention):
    return paper.edges(attention, 1024, 8, 0.3, 4, 0.02)


BUDGETS = (220, 260, 300, 340)


def kept(name, view, budget):
    return policies.get(name).keep(view, budget)[0, 0].nonzero().flatten().tolist()


@looped("name", [*(name for name in CHANGES if name not in ALIKE_WITH_ROOM), "crystal-blog"])
def test_a_variant_keeps_other_slots_than_crystal(name, view):
    assert any(kept(name, view, budget) != kept("crystal", view, budget) for budget in BUDGETS)


def test_no_two_variants_keep_the_same_slots(view):
    """But for what is decode time only, and what only a budget below the protected trunks tells apart."""
    names = [name for name in CHANGES if name not in ALIKE_WITH_ROOM] + ["crystal", "crystal-blog"]
    found = {name: tuple(tuple(kept(name, view, budget)) for budget in BUDGETS) for name in names}
    assert len(set(found.values())) == len(names)


@pytest.mark.parametrize("name", ALIKE_WITH_ROOM)
def test_some_variants_keep_what_crystal_keeps_at_a_prefill_with_room(name, view):
    assert all(kept(name, view, budget) == kept("crystal", view, budget) for budget in BUDGETS)


def kept_later(name):
    """Kept slots of four events after the first, on short sentences."""
    protect = policies.Protect(2, 20, always=False)
    policy = policies.get(name, cadence=Cadence(interval=20), protect=protect)
    prompt, found = uneven(seed=13), []
    view = a_view(up_to(prompt, 240), [policy], sentence_ends=range(6))
    for length in range(260, 340, 20):
        view = a_later_view(prompt, policy, view, policy.evict(view, 100), length)
        found.append(policy.keep(view, 100)[0, 0].tolist())
    return found


@pytest.mark.parametrize("name", ONLY_LATER)
def test_a_variant_of_decode_time_keeps_other_slots_later(name):
    assert kept_later(name) != kept_later("crystal")


def scored(name, view):
    return policies.get(name).scoring.score(view)


def rarities(form, ids, parts):
    """U_i of Eq. 21 in other forms, one token after the other."""
    result = []
    for token in ids:
        count = sum(other == token for other in ids)
        holding = sum(any(ids[i] == token for i in part) for part in parts)
        result.append(
            {
                "crystal": 1 / (1 + math.log(1 + count)),
                "crystal-rarity-inverse": 1 / (1 + count),
                "crystal-rarity-exponential": math.exp(-count),
                "crystal-rarity-document": math.log((1 + len(parts)) / (1 + holding)) / math.log(1 + len(parts)),
            }[form]
        )
    return result


@looped("name", ["crystal", "crystal-rarity-inverse", "crystal-rarity-exponential", "crystal-rarity-document"])
def test_impact_mixes_salience_with_the_rarity_of_its_form(name, view, attention):
    ids = view.token_ids.tolist()
    salient = paper.salience(attention, 1024, 0.1, 20.0)
    expected = [
        min(max(20 * (0.5 * s / 20 + 0.5 * u), 0.1), 20)
        for s, u in zip(salient, rarities(name, ids, paper.sentences(ids, ENDS)), strict=True)
    ]
    found = scored(name, view)
    assert found.slots[0, 0].tolist() == pytest.approx(expected, rel=1e-9)
    spans = [list(span) for span in found.trunks.spans]
    assert found.trunks.impact.tolist() == pytest.approx(paper.trunk_impact(expected, spans), rel=1e-9)


@pytest.mark.parametrize("name", ["crystal", "crystal-rarity-document"])
def test_rarity_of_decoded_tokens_counts_all_tokens_seen(name, prompt):
    """Also those that have left the cache: of 240 tokens 100 stay, 30 are fed, and 270 count."""
    policy = policies.get(name, cadence=Cadence(interval=20), protect=policies.Protect(2, 20, always=False))
    before = a_view(up_to(prompt, 240), [policy], sentence_ends=ENDS)
    view = a_later_view(prompt, policy, before, policy.evict(before, 100), 270)
    ids = view.token_ids.tolist()
    rarity = rarities(name, ids, paper.sentences(ids, ENDS))[-30:]
    (_, mass, _), *_ = view.signals[policy.scoring.coattention]
    expected = [10 * min(max(m, 0.1), 20) / 20 + 10 * u for m, u in zip(mass.tolist(), rarity, strict=True)]
    assert policy.scoring.score(view).slots[0, 0, -30:].tolist() == pytest.approx(expected, rel=1e-9)


def test_rarity_of_a_document_counts_sentences_by_hand():
    """Three sentences; a token is in all, in two or in one of them, however often."""
    ids = torch.tensor([7, 5, 5, 9, 7, 5, 9, 7, 9])
    expected = {7: 0.0, 9: 0.0, 5: math.log(4 / 3) / math.log(4)}
    found = policies.crystal.impact.RARITY["document"](ids, [range(4), range(4, 7), range(7, 9)])
    assert found.tolist() == pytest.approx([expected[token] for token in ids.tolist()])


def test_without_rarity_impact_is_salience(view, attention):
    found = scored("crystal-no-rarity", view).slots[0, 0].tolist()
    assert found == pytest.approx(paper.salience(attention, 1024, 0.1, 20.0), rel=1e-9)


def test_uniform_impact_is_one_for_every_token_and_trunk_so_that_d_alone_ranks(view):
    found = scored("crystal-uniform", view)
    assert found.slots.unique().tolist() == [1.0]
    assert found.trunks.impact.unique().tolist() == [1.0]
    d = scored("crystal", view).trunks.crystallization
    assert torch.equal(found.trunks.crystallization, d)
    assert torch.equal(BranchDissolution().fuse_scores(found.trunks, range(len(d))), d)


def test_at_token_level_every_token_is_a_trunk(view, edges):
    found = scored("crystal-token-level", view).trunks
    assert [list(span) for span in found.spans] == [[i] for i in range(N)]
    d = paper.crystallization(paper.weights(found.spans, edges, 0.05), N, 5.0)
    assert found.crystallization.tolist() == pytest.approx(d, rel=1e-8)
    assert torch.equal(found.impact, scored("crystal", view).slots[0, 0])


def test_a_steepness_of_two_bends_the_logistic_less(view):
    """logit(D) = s * z, so that it shrinks to two fifths."""
    one, other = (scored(name, view).trunks.crystallization for name in ("crystal", "crystal-steepness-2"))
    torch.testing.assert_close(other.logit(), 0.4 * one.logit(), rtol=1e-8, atol=1e-8)


def test_the_adaptive_merge_threshold_is_the_median_of_the_recorded_interfaces(view, edges):
    ids = view.token_ids.tolist()
    parts = paper.sentences(ids, ENDS)
    strengths = [paper.strength(a, b, edges) for a, b in pairwise(parts)]
    recorded = [strength for strength in strengths if strength > 0]
    assert len(recorded) > 0
    expected = paper.trunks(ids, ENDS, edges, median(recorded), 32)
    assert [list(span) for span in scored("crystal-adaptive-merge", view).trunks.spans] == expected
    assert expected != paper.trunks(ids, ENDS, edges, 0.3, 32)


def test_without_recorded_interfaces_nothing_merges_at_an_adaptive_threshold():
    """Attention on itself alone: no two tokens look alike, no edge is recorded."""
    prompt = a_prompt(40, layers=1, dtype=torch.float64)
    alone = torch.eye(40, dtype=torch.float64)[None, None] * 100
    prompt = prompt._replace(queries=alone, keys=alone, values=alone, scale=1.0)
    view = a_view(prompt, [policies.get("crystal-adaptive-merge")], sentence_ends=range(20))
    expected = paper.sentences(prompt.token_ids.tolist(), range(20))
    assert [list(span) for span in scored("crystal-adaptive-merge", view).trunks.spans] == expected


def spans_of(*sizes):
    stops = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True))


def units(sizes, d, impact=None):
    d = torch.tensor(d, dtype=torch.float64)
    worth = torch.ones_like(d) if impact is None else torch.tensor(impact, dtype=torch.float64)
    return Trunks(spans_of(*sizes), d, worth)


def dissolved(policy, sizes, d, budget, *, impact=None, worth=None, protected=()):
    """worth of slots falls with the position by default."""
    n = sum(sizes)
    held = torch.zeros(n, dtype=torch.bool)
    held[list(protected)] = True
    slots = torch.arange(n, 0, -1).double() if worth is None else torch.tensor(worth).double()
    return policy.selection.dissolve(slots, units(sizes, d, impact), held, budget)


D = (0.9, 0.5, 0.1, 0.4)
IMPACT = (math.e - 1, math.e**2 - 1, math.e**3 - 1, math.e**2 - 1)
# log(1 + impact) is 1, 2, 3, 2, scaled 0, .5, 1, .5.


@looped(
    ("name", "expected"),
    [
        ("crystal", (0.9, 0.5, 1.0, 0.5)),
        ("crystal-d-only", (0.9, 0.5, 0.1, 0.4)),
        ("crystal-impact-only", (0.0, 0.5, 1.0, 0.5)),
        ("crystal-average", (0.45, 0.5, 0.55, 0.45)),
        ("crystal-product", (0.0, 0.25, 0.1, 0.2)),
    ],
)
def test_d_and_impact_make_a_score_by_the_form_of_the_variant(name, expected):
    found = dissolved(policies.get(name), (3, 3, 3, 3), D, 12, impact=IMPACT)
    assert found.score.tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "order"),
    [("crystal-d-only", (2, 3, 1, 0)), ("crystal-impact-only", (0, 3, 1, 2)), ("crystal-product", (0, 2, 3, 1))],
)
def test_trunks_dissolve_in_the_order_of_the_form(name, order):
    """A trunk of three goes whole: at 9, 6 and 3 slots one more has gone. Ties keep the lower position."""
    gone = []
    for budget in (9, 6, 3):
        retention = dissolved(policies.get(name), (3, 3, 3, 3), D, budget, impact=IMPACT).retention.tolist()
        gone.append({g for g in range(4) if retention[g] == 0})
    assert gone == [set(order[: k + 1]) for k in range(3)]


def test_a_needle_and_a_hub_outlive_a_middling_trunk_under_maximum_and_neither_under_product():
    """Section 3.6: low D with high impact, high D with low impact, and .5 of both."""
    d, impact = (0.05, 0.95, 0.5), (math.e**2 - 1, 0.0, math.e - 1)
    by_maximum = dissolved(policies.get("crystal"), (4, 4, 4), d, 8, impact=impact)
    assert by_maximum.retention.tolist() == [1.0, 1.0, 0.0]
    by_product = dissolved(policies.get("crystal-product"), (4, 4, 4), d, 4, impact=impact)
    assert by_product.retention.tolist() == [0.0, 0.0, 1.0]


def test_coverage_spreads_a_tenth_of_the_unprotected_budget_evenly():
    # Of 50 free slots 5 are reserved: 45 for trunks of 10, so four stay whole and 5 slots of the fifth.
    d = [0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4, 0.5, 0.0]
    found = dissolved(policies.get("crystal-coverage"), (10,) * 10, d, 50)
    assert found.retention.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 0.5, 0]
    whole = [*range(0, 10), *range(20, 30), *range(40, 50), *range(60, 70), *range(80, 85)]
    gone = [slot for slot in range(100) if slot not in whole]
    # 55 slots have gone; the middles of five runs of 11 of them.
    assert found.retained == sorted([*whole, *(gone[k] for k in (5, 16, 27, 38, 49))])


TEN = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]  # D of ten trunks, the best first
TIERS = policies.get("crystal-tiers")


def test_tiers_are_those_of_the_blog_where_the_budget_allows_just_that():
    # Ranks .05 to .95. Shares of the middle: .8 - .75 * (rank - .3) = .7625, .6875, .6125, .5375.
    counts = [10, 10, 10, 8, 7, 6, 5, 0, 0, 0]
    found = dissolved(TIERS, (10,) * 10, TEN, sum(counts))
    assert found.retention.tolist() == [count / 10 for count in counts]
    assert found.retained == [10 * g + k for g, count in enumerate(counts) for k in range(count)]


def test_a_middle_trunk_keeps_its_highest_members():
    worth = [1.0] * 30 + [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] + [1.0] * 60
    kept_slots = dissolved(TIERS, (10,) * 10, TEN, 56, worth=worth).retained
    # The two that go are the ones; of 1 and 1 at places 1 and 3 both.
    assert [slot for slot in kept_slots if 30 <= slot < 40] == [30, 32, 34, 35, 36, 37, 38, 39]


def test_a_middle_trunk_below_the_least_goes_whole():
    # Of trunks of 4 the middle keeps round(4 * share) = 3, 3, 2, 2: the last two go.
    found = dissolved(TIERS, (4,) * 10, TEN, 18).retention.tolist()
    assert found == [1, 1, 1, 0.75, 0.75, 0, 0, 0, 0, 0]


def test_a_partial_trunk_keeps_what_the_worked_example_of_the_post_keeps():
    """ "The secret code for Project Aurora is 7492.": keep_ratio = 0.5 (5 of 9), keep_ratio = 0.3 (3 of 9)."""
    assert (partial_count(9, 0.5), partial_count(9, 0.3)) == (5, 3)


SIZES = (12, 3, 7, 1, 20, 9, 9, 32, 5, 14)


@looped("sizes", [(10,) * 10, SIZES, (2, 1, 1, 2, 2, 1, 2, 1, 2, 2), (30,)])
def test_tiers_meet_every_budget_within_two_slots_and_never_a_rest_below_the_least(sizes):
    total = sum(sizes)
    for budget in range(total + 1):
        found = dissolved(TIERS, sizes, TEN[: len(sizes)], budget)
        assert 0 <= budget - len(found.retained) <= TIERS.selection.unused
        counts = [round(share * size) for share, size in zip(found.retention.tolist(), sizes, strict=True)]
        assert all(count == 0 or count >= min(3, size) for count, size in zip(counts, sizes, strict=True))
    assert len(dissolved(TIERS, sizes, TEN[: len(sizes)], total).retained) == total


@pytest.mark.parametrize("sizes", [(10,) * 10, SIZES])
def test_tiers_keep_more_in_all_at_a_higher_budget(sizes):
    many = [len(dissolved(TIERS, sizes, TEN, budget).retained) for budget in range(sum(sizes) + 1)]
    assert all(more >= fewer for fewer, more in pairwise(many))


def test_protected_trunks_stand_outside_the_tiers():
    found = dissolved(TIERS, (7, *(10,) * 10, 6), (0.0, *TEN, 0.0), 69, protected=(2, 110))
    assert found.retention.tolist() == [1, *(count / 10 for count in (10, 10, 10, 8, 7, 6, 5, 0, 0, 0)), 1]


def scaled(values):
    return [(value - min(values)) / (max(values) - min(values)) for value in values]


def test_the_blog_is_what_its_text_says(view, attention):
    """Chunks of 128, impact scaled to 0..1 for tokens and trunks, steepness 2, tiers where they stand."""
    policy, ids = policies.get("crystal-blog"), view.token_ids.tolist()
    found = scored("crystal-blog", view)
    uniqueness = [1 / (1 + math.log(1 + ids.count(token))) for token in ids]
    salience = scaled(paper.received(attention, 128))
    worth = [0.5 * s + 0.5 * u for s, u in zip(salience, uniqueness, strict=True)]
    assert found.slots[0, 0].tolist() == pytest.approx(worth, rel=1e-9)

    edges = paper.edges(attention, 128, 8, 0.3, 4, 0.02)
    groups = paper.trunks(ids, ENDS, edges, 0.3, 32)
    assert [list(span) for span in found.trunks.spans] == groups
    means = scaled(paper.trunk_impact(worth, groups))
    assert found.trunks.impact.tolist() == pytest.approx(means, rel=1e-9, abs=1e-12)
    d = paper.crystallization(paper.weights(groups, edges, 0.05), len(groups), 2.0)
    assert found.trunks.crystallization.tolist() == pytest.approx(d, rel=1e-8)

    whole = paper.protected(groups, N, 4, 128)
    score = paper.scores(d, means, whole, 1.0)
    ranked = sorted((g for g in range(len(groups)) if not whole[g]), key=lambda g: (-score[g], g))
    expected = [slot for g, group in enumerate(groups) if whole[g] for slot in group]
    for place, g in enumerate(ranked):
        rank, size = (place + 0.5) / len(ranked), len(groups[g])
        share = 1 if rank < 0.3 else 0.8 - 0.75 * (rank - 0.3) if rank < 0.7 else 0
        count = size if share == 1 else round(size * share)
        count = 0 if share < 1 and count < 3 else count
        expected += sorted(groups[g], key=lambda i: (-worth[i], i))[:count]
    assert policy.keep(view, len(expected))[0, 0].nonzero().flatten().tolist() == sorted(expected)


def test_tiers_need_trunks_as_dissolution_does():
    with pytest.raises(ValueError, match="needs scores with trunks"):
        TieredDissolution().select(
            None, Scores(torch.zeros(1, 1, 4)), torch.zeros(1, 1, 4).bool(), torch.ones(1, 1).long()
        )
