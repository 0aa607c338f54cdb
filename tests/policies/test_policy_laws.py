"""What holds for every policy of the catalogue."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from looped import looped
from policy_prompts import Given, Prompt, a_later_view, a_prompt, a_view, measured, of_model, preserves, up_to
from sampled import sampled
from torch.nn.functional import pad

import policies
from policies import (
    BudgetError,
    Cadence,
    Calibrated,
    Diverse,
    FedSignal,
    HiddenSignal,
    PerLayer,
    Policy,
    Protect,
    Scores,
    Shared,
    Signal,
    View,
)
from policies.crystal import CrystalConfig, crystal
from policies.crystal.policy import variants
from policies.expected_attention import QueryMoments
from policies.scissorhands import NeglectCounts
from policies.signals import Keys, Values
from policies.signatures import UnitValues
from policies.triattention import HeadStatistics, LayerStatistics, QueryStatistics, ValuePrior
from policies.uniform import draw_uniform
from protocol.engine.own_parts import iterate_tensors

N = 300
PROMPT = a_prompt(N)
EVICTING = tuple(name for name in policies.names() if policies.get(name).evicts)
MEASURING = tuple(name for name in EVICTING if policies.get(name).needs)
PRESERVING = tuple(name for name in EVICTING if preserves(policies.get(name)))
ASKED = 40  # tokens of the prompt, for a policy that evicts from the answer alone
CRYSTALS = ("crystal", *variants())
TRIATTENTIONS = tuple(name for name in EVICTING if isinstance(policies.get(name).scoring, QueryStatistics | ValuePrior))
# Of these, those with a score for each head or layer.
SEPARATE = tuple(name for name in EVICTING if isinstance(policies.get(name).scoring, HeadStatistics | LayerStatistics))
MERGING = tuple(name for name in EVICTING if policies.get(name).state.merges)
CRYSTAL_KVS = ("crystal-kv-lite", "crystal-kv")
BOUNDING = tuple(name for name in EVICTING if policies.get(name).routing.bounds)
EPIKVS = ("epikv", "hs-variance", "band-adaptive", "attn-x-hs", "kv-key", "kv-val", "lagkv-causal")
# One score for a token, whatever the head.
SHARED = (*(name for name in TRIATTENTIONS if name not in SEPARATE), "snapkv_with_window", *EPIKVS)
SNAPKV_WINDOWS = (
    *("snapkv", "pyramidkv", "chunkkv", "chunkkv-20", "ada-snapkv"),
    *("chunkkv-cumulative", "pyramidkv-cumulative", "defensivekv", "layer-defensivekv"),
)
ACROSS_LAYERS = (*("pyramidkv", "pyramidkv-cumulative", "pyramid-1d", "pyramid-1d_div", "layer-defensivekv", "kvzip"),)
ACROSS_HEADS = (*("ada-snapkv", "defensivekv", "ada-1d", "ada-1d_div", "epicache", "epicache-shared-budget"),)
every_policy = looped("name", policies.names())
every_evicting_policy = looped("name", EVICTING)
every_crystal = looped("name", CRYSTALS)


def view_for(policy: Policy, prompt: Prompt = PROMPT, *, seed: int = 5) -> View:
    """The first event at which a policy can evict."""
    asked = min(ASKED, len(prompt.token_ids)) if preserves(policy) else None
    return a_view(prompt, [policy], seed=seed, asked=asked)


def keep(policy: Policy, budget: int, prompt: Prompt = PROMPT, *, seed: int = 5) -> torch.Tensor:
    return policy.keep(view_for(policy, prompt, seed=seed), budget)


@looped(("name", "budget"), sampled(EVICTING, [200, 201, 257, 299], of=4))
def test_budgets_are_exact(name, budget):
    policy = policies.get(name)
    counts = keep(policy, budget).sum(-1)
    assert counts.shape == (2, 2)
    if name in ACROSS_LAYERS:
        assert counts.sum() == 4 * budget
    elif name in ACROSS_HEADS:
        assert (counts.sum(-1) == 2 * budget).all()
    elif name in BOUNDING:
        assert counts.sum() <= 4 * budget
    else:
        assert (counts <= budget).all()
        assert (counts >= budget - policy.selection.unused).all()
    assert policy.selection.unused == (2 if name in CRYSTALS else 0)


@looped(("name", "budget"), itertools.product(EVICTING, (1, 2, 5, 11)))
def test_a_budget_that_gives_some_head_nothing_is_kept_or_refused(name, budget):
    try:
        counts = keep(policies.get(name), budget, a_prompt(20)).sum(-1)
    except ValueError:
        return
    assert counts.sum() <= 4 * budget


@looped(("name", "budget"), sampled(EVICTING, [200, 10 * N], of=2))
def test_an_eviction_leaves_what_the_policy_promises(name, budget):
    promises, counts = policies.get(name).promises, keep(policies.get(name), budget).sum(-1)
    if budget < N:
        assert counts.sum() <= 4 * budget or not promises.leaves_at_most
        assert counts.sum() == 4 * budget or not promises.leaves_exactly
    else:
        assert counts.sum() == 4 * N or promises.may_leave_less


@every_policy
def test_eviction_steps_fire_when_the_policy_promises(name):
    """A lane of 10 slots whose budget is 8 gains one a step; an event leaves the budget."""
    policy = policies.get(name)
    promises = policy.promises
    assert (promises.fires == "never") == (not policy.evicts)
    assert (promises.interval is None) == (promises.fires in ("never", "prefill"))
    if not policy.evicts:
        return
    for interval, slack in ((4, True), (3, False)):
        cadence = replace(policy.cadence, interval=interval, slack=slack)
        word, held = replace(policy, cadence=cadence).promises.fires, 10
        expected = {"slack": slack, "interval": not slack, "every": True, "own": True}
        assert expected[word]
        for step in range(1, 30):
            held += 1
            on_time = step % interval == 0
            due = {"slack": held >= 8 + interval, "interval": on_time and held > 8, "every": on_time}
            assert due.get(word, cadence.due(step, held, 8)) == cadence.due(step, held, 8)
            held = 8 if cadence.due(step, held, 8) else held
    budgets = {policy.cadence.budget(64, step) for step in range(0, 200, 16)}
    assert budgets == {64} or not promises.grants_budget


def test_what_scissorhands_counts_is_of_a_prompt_and_all_else_is_measured_while_decoding_too():
    breathing = {name: policies.get(name, cadence=Cadence(interval=16)) for name in EVICTING}
    alone = {name: policy.prefill_only_signals for name, policy in breathing.items() if policy.prefill_only_signals}
    assert alone == {"scissorhands": (NeglectCounts(400),)}
    assert not NeglectCounts(400).carried


@every_policy
def test_a_slot_takes_the_bytes_that_the_policy_promises(name):
    policy = policies.get(name)
    assert (policy.state.slot_bytes(64, 4) == 2 * 64 * 4) == policy.promises.stores_as_computed


@looped(("name", "budget"), sampled(policies.names(), [N, N + 1, 10 * N], of=3))
def test_a_budget_that_covers_everything_keeps_everything(name, budget):
    """But for what a routing bounds, of an answer: then the answer is thinned by another measure."""
    kept = keep(policies.get(name), budget)
    assert kept.all() != (name in BOUNDING and name in PRESERVING)


def test_the_full_cache_is_kept_whatever_the_budget():
    policy = policies.get("full")
    assert not policy.evicts
    assert policy.needs == frozenset()
    assert keep(policy, 1).all()


@every_evicting_policy
def test_protected_slots_are_kept(name):
    policy = policies.get(name)
    whole, prompt = torch.ones(N, dtype=torch.bool), torch.arange(N) < ASKED
    later = name in PRESERVING
    protected = policy.protect.slots(whole, 200, decoding=later, prompt=prompt if later else None)
    assert keep(policy, 200)[..., protected].all()


@looped(
    ("name", "first", "last"),
    [
        ("random", 4, 128),
        *((name, 4, 128) for name in CRYSTALS),
        ("streaming", 4, 196),
        ("h2o", 0, 100),
        ("h2o-window", 0, 100),
        ("expected-attention", 4, 0),
        ("scissorhands", 0, 10),
        *((name, 0, 32) for name in (*SNAPKV_WINDOWS, "ahakv")),
        ("r-kv", 0, 8),
        ("snapkv-rkv", 0, 8),
        ("streamingllm-rkv", 4, 196),
        ("raas", 40, 1),
        ("lagkv", 4, 168),
        ("thinkv", 0, 50),
        *((name, ASKED, 50) for name in (*EPIKVS, "segment-hs")),
    ],
)
def test_each_policy_keeps_the_ends_that_it_promises(name, first, last):
    kept = keep(policies.get(name), 200)
    assert kept[..., :first].all()
    assert kept[..., N - last :].all()


@every_policy
def test_the_answer_owns_its_memory(name):
    kept = keep(policies.get(name), 210)
    before = kept[1, 1].clone()
    kept[0, 0] = False
    assert torch.equal(kept[1, 1], before)


@every_policy
def test_policies_are_hashable_values(name):
    assert hash(policies.get(name)) == hash(replace(policies.get(name)))
    assert all(hash(signal) == hash(replace(signal)) for signal in policies.get(name).needs)


@looped(("name", "dtype"), sampled(policies.names(), [torch.bfloat16, torch.float16, torch.float64], of=3))
def test_every_precision_works_and_scores_are_float32_or_better(name, dtype):
    policy = policies.get(name)
    prompt = a_prompt(N, dtype=dtype)
    scores = policy.scoring.score(view_for(policy, prompt))
    assert scores.slots.dtype in (torch.float32, torch.float64)
    assert keep(policy, 210, prompt).any()


@looped(("name", "heads"), sampled(policies.names(), [(9, 3), (4, 4), (2, 1)], of=3))
def test_query_heads_may_share_kv_heads(name, heads):
    q_heads, kv_heads = heads
    prompt = a_prompt(N, q_heads=q_heads, kv_heads=kv_heads, layers=4)
    assert keep(policies.get(name), 210, prompt).shape == (4, kv_heads, N)


@every_evicting_policy
def test_a_default_device_elsewhere_changes_nothing(name):
    """With `meta` as default, a tensor made without `device=` cannot be mixed with the inputs."""
    policy = policies.get(name)
    view = view_for(policy)
    expected = policy.keep(view, 210)
    with torch.device("meta"):
        assert torch.equal(policy.keep(view, 210), expected)
        again = view._replace(signals=view_for(policy).signals)
        assert torch.equal(policy.keep(again, 210), expected)


@looped(
    ("name", "held"),
    [
        ("random", 132),
        *((name, 132) for name in CRYSTALS),
        ("streaming", 4),
        ("h2o", 1),
        ("h2o-window", 1),
        ("expected-attention", 4),
        ("scissorhands", 10),
        *((name, 32) for name in (*SNAPKV_WINDOWS, "ahakv")),
        ("r-kv", 8),
        ("snapkv-rkv", 8),
        ("streamingllm-rkv", 4),
        ("lagkv", 4),
    ],
)
def test_a_budget_below_the_protected_set_is_refused_by_name(name, held):
    message = rf"budget of {held - 1} slots is below the \d+ protected slots of (Protect|RecentHalf)\("
    with pytest.raises(BudgetError, match=message):
        keep(policies.get(name), held - 1)


@looped(
    "name", ["random", "streaming", "scissorhands", "r-kv", "lagkv", "ahakv", "expected-attention", *SNAPKV_WINDOWS]
)
def test_a_budget_of_the_protected_set_keeps_just_that(name):
    policy = policies.get(name)
    protected = policy.protect.slots(torch.ones(N, dtype=torch.bool), N, decoding=False)
    assert torch.equal(keep(policy, int(protected.sum())), protected.expand(2, 2, N))


@looped("name", ["h2o", "h2o-window", "tova", "caote", "knorm", "keydiff", "longflow", *CRYSTAL_KVS])
def test_a_single_slot_is_a_budget_where_nothing_is_protected(name):
    assert (keep(policies.get(name), 1).sum(-1) == 1).all()


@every_evicting_policy
def test_a_prompt_of_protected_slots_only_is_kept_or_refused(name):
    policy = policies.get(name)
    prompt = a_prompt(20)
    assert keep(policy, 20, prompt).all()
    if policy.protect.slots(torch.ones(20, dtype=torch.bool), 19, decoding=False).all():
        with pytest.raises(BudgetError):
            keep(policy, 19, prompt)
    else:
        assert keep(policy, 19, prompt).sum() == 4 * 19


def test_protected_trunks_larger_than_the_budget_are_refused_by_name():
    """One sentence of 32 slots overlaps the recent ones by a single slot."""
    policy = crystal(CrystalConfig(sinks=0, recent=33))
    prompt = a_prompt(96)
    view = a_view(prompt, [policy], sentence_ends=())
    with pytest.raises(
        BudgetError, match="budget of 63 slots is below the 64 slots of the trunks that contain the 33 protected"
    ):
        policy.keep(view, 63)
    assert policy.keep(view, 64).sum(-1).tolist() == [[64, 64], [64, 64]]


def given(*values: float, **parts) -> torch.Tensor:
    budget = parts.pop("budget")
    policy = Policy(scoring=Given(values), protect=Protect(0, 0), **parts)
    view = View(torch.arange(len(values)), 1, 1, frozenset(), 0, {})
    return policy.keep(view, budget)[0, 0].nonzero().flatten().tolist()


def test_ties_go_to_the_lower_position():
    assert given(1, 2, 1, 2, 1, budget=3) == [0, 1, 3]
    assert given(0, 0, 0, 0, budget=2) == [0, 1]
    assert given(-0.0, 0.0, -0.0, 0.0, budget=2) == [0, 1]


def test_ties_of_long_prompts_go_to_the_lower_position():
    assert given(*[3.0, 1.0] * 2000, budget=2500) == sorted([*range(0, 4000, 2), *range(1, 1000, 2)])


def test_ties_of_every_policy_go_to_the_lower_position():
    """Uniform attention and one token repeated: what follows the protected slots is decided by position."""
    prompt = a_prompt(N, sharpness=0.0, vocabulary=1)
    kept = keep(policies.get("snapkv"), 100, prompt)
    # The last 32 queries see all slots before them alike; pooling lowers the two at each end.
    assert kept[0, 0].nonzero().flatten().tolist() == [*range(2, 70), *range(268, 300)]


@dataclass(frozen=True)
class Level:
    """Another scoring, whose scores are all the same number."""

    inner: Any

    @property
    def needs(self):
        return self.inner.needs

    def score(self, view: View) -> Scores:
        scores = self.inner.score(view)
        return scores._replace(slots=torch.zeros_like(scores.slots))


# Trunks of a crystal are ranked by what they hold, and Diverse by values too; spans stand in their middle,
# annealed segments go by their keys, and slots at even distances by nothing.
LEVEL = [
    name
    for name in EVICTING
    if name not in (*CRYSTALS, *MERGING, "thinkv-annealed", "static_route")
    and not isinstance(policies.get(name).selection, Diverse)
]


@looped("name", LEVEL)
def test_of_equal_scores_every_policy_keeps_the_lower_slots(name):
    """In each head, of what is not protected; of each segment of an answer, which here is all open."""
    policy = policies.get(name)
    prompt, asked = a_prompt(150), 100 if name in PRESERVING else None
    view = a_view(prompt, [policy], asked=asked)
    kept = replace(policy, scoring=Level(policy.scoring)).keep(view, 140)
    protected = policy.protect.slots(
        view.filled, 140, decoding=bool(asked), prompt=view.positions < 100 if asked else None
    )
    for row in kept.flatten(0, 1):
        free = row[~protected[0, 0]]
        assert len(free) > 0
        assert free.tolist() == sorted(free.tolist(), reverse=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="scores must be finite: layer 0, head 0, slot 2 is"):
        given(1, 2, bad, 4, budget=2)


@pytest.mark.parametrize("shape", [(4, 250), (1, 1, 4, 250), (4, 1, 249)], ids=str)
def test_scores_of_another_shape_are_refused_with_the_shape_that_they_want(shape):
    @dataclass(frozen=True)
    class Misshapen:
        needs: ClassVar = frozenset()

        def score(self, view):
            return Scores(torch.zeros(shape))

    with pytest.raises(ValueError, match=rf"\[layer, kv_head, 250\], .* not {re.escape(str(list(shape)))}"):
        keep(Policy(scoring=Misshapen()), 200, a_prompt(250))


# A stamp of RaaS is a whole number, which an attention that is no number does not renew; the engine fails a
# lane before its policy sees such keys.
@looped("name", [name for name in MEASURING if name != "raas"])
def test_what_is_not_finite_is_refused(name):
    prompt = a_prompt(N)
    for part in (prompt.keys[0, 0], prompt.values[0, 0], *prompt.hidden):
        part[170] = torch.nan
    with pytest.raises(ValueError, match="scores must be finite: layer 0"):
        keep(policies.get(name), 210, prompt)


@looped("name", CRYSTALS)
def test_co_attention_that_was_not_measured_is_refused_by_name(name):
    policy = policies.get(name)
    assert len(policy.needs) == (2 if policy.scoring.breath else 1)
    with pytest.raises(ValueError, match=type(policy.scoring.coattention).__name__):
        policy.keep(a_view(PROMPT, []), 210)


@looped("name", [name for name in MEASURING if name not in CRYSTALS])
def test_each_signal_is_refused_by_name_where_it_was_not_measured(name):
    policy, view = policies.get(name), view_for(policies.get(name))
    assert set(view.signals) == policy.needs
    for signal in policy.needs:
        signals = {other: state for other, state in view.signals.items() if other != signal}
        with pytest.raises(ValueError, match=type(signal).__name__):
            policy.keep(view._replace(signals=signals), 210)


@dataclass(frozen=True)
class Careless:
    """Keeps the first slots, as many as told."""

    many: int
    unused: int = 0
    needs: frozenset = frozenset()

    def select(self, view, scores, protected, allocation):
        return (torch.arange(scores.slots.shape[-1]) < self.many).expand(scores.slots.shape)


def test_a_selection_that_keeps_another_number_is_refused():
    assert given(1, 2, 3, 4, budget=2, selection=Careless(2)) == [0, 1]
    for many in (1, 3):
        with pytest.raises(ValueError, match=rf"selection kept \[\[{many}\]\] slots, but \[\[2\]\] were allocated"):
            given(1, 2, 3, 4, budget=2, selection=Careless(many))


def test_a_selection_that_drops_a_protected_slot_is_refused():
    policy = Policy(scoring=Given((1, 2, 3)), selection=Careless(2), protect=Protect(0, 1))
    with pytest.raises(ValueError, match="selection dropped a protected slot"):
        policy.keep(View(torch.arange(3), 1, 1, frozenset(), 0, {}), 2)


def test_random_draws_are_different_in_each_layer_and_head():
    kept = keep(policies.get("random"), 200, a_prompt(N, layers=4)).flatten(0, 1)
    assert len({tuple(row.tolist()) for row in kept}) == 8


def test_random_draws_follow_the_seed_and_nothing_else():
    torch.manual_seed(1)
    one = keep(policies.get("random"), 200, seed=1)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(one, keep(policies.get("random"), 200, seed=1))
    assert not torch.equal(one, keep(policies.get("random"), 200, seed=2))
    torch.manual_seed(1)
    keep(policies.get("random"), 200, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_random_accepts_every_64_bit_seed():
    for seed in (0, 2**63, 2**64 - 1):
        assert keep(policies.get("random"), 200, seed=seed).sum(-1).eq(200).all()


def test_streams_of_swapped_layer_and_head_differ():
    assert not torch.equal(draw_uniform(0, 1, 11, 50), draw_uniform(0, 11, 1, 50))
    assert not torch.equal(draw_uniform(0, 1, 2, 50), draw_uniform(1, 1, 2, 50))


@looped(
    "name",
    [
        "h2o",
        "snapkv",
        "knorm",
        "keydiff",
        "ada-snapkv",
        "scissorhands",
        "r-kv",
        "snapkv-rkv",
        "lagkv",
        "ahakv",
        *CRYSTAL_KVS,
        *("h2o-window", "caote", "expected-attention"),
    ],
)
def test_every_layer_and_head_is_scored_by_itself(name):
    policy = policies.get(name)
    parts = {part: getattr(PROMPT, part).flip(0, 1) for part in ("queries", "keys", "values")}
    flipped = PROMPT._replace(**parts)
    kept = keep(policy, 210)
    assert len({tuple(row.tolist()) for row in kept.flatten(0, 1)}) == 4
    assert torch.equal(keep(policy, 210, flipped), kept.flip(0, 1))


@pytest.mark.parametrize("asked", [None, ASKED])
def test_one_view_serves_every_policy(asked):
    """At the end of the prompt, and for those that keep all of it later on."""
    everyone = [policies.get(name) for name in policies.names() if (name in PRESERVING) == (asked is not None)]
    view = a_view(PROMPT, everyone, asked=asked)
    assert len(view.signals) < sum(len(policy.needs) for policy in everyone)  # equal ones are measured once
    for policy in everyone:
        assert torch.equal(policy.keep(view, 210), keep(policy, 210))


OF_TOKENS = sorted(
    {
        signal
        for name in MEASURING
        for signal in policies.get(name).needs
        if isinstance(signal, FedSignal | HiddenSignal)
    },
    key=repr,
)


@looped("signal", OF_TOKENS, ids=repr)
def test_a_signal_of_tokens_is_the_same_however_many_are_fed_at_once(signal):
    """In the prompt, where layers come one by one, and in the answer, where they come together."""
    prompt = a_prompt(210)
    found = [
        [flat(measured(signal, prompt, layer, block, asked=130)) for layer in range(2)] for block in (210, 64, 7, 1)
    ]
    assert any(layer for layer in found[0])
    assert all(tensor.isfinite().all() for layer in found[0] for tensor in layer)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-6, atol=1e-6)


@looped("signal", [signal for signal in OF_TOKENS if not isinstance(signal, QueryMoments)], ids=repr)
def test_a_signal_of_tokens_knows_nothing_of_later_ones(signal):
    """Whoever measures half of it measures the first half of it: scores can be frozen.

    A mean over all tokens has no half.
    """
    whole, half = (of_model(signal, up_to(PROMPT, n), 100) for n in (N, 170))
    for later, sooner in zip(map(flat, whole), map(flat, half), strict=True):
        assert len(later) == len(sooner)
        for one, other in zip(later[:1], sooner[:1], strict=True):
            torch.testing.assert_close(one[..., :170], other, rtol=1e-6, atol=1e-6)


def flat(state: Any) -> list[torch.Tensor]:
    """Every tensor of it."""
    if isinstance(state, tuple):
        return [tensor for part in state for tensor in flat(part)]
    return [] if state is None else [state]


def an_event(policy: Policy, held: list[list[int]], *, seed: int = 0) -> View:
    """A view of a later event: head h of layer l holds held[l][h] of the N slots, drawn at random."""
    random = torch.Generator().manual_seed(seed)
    if isinstance(policy.routing, Shared) and policy.scoring.needs:
        return a_shared_event(policy, held[0][0], random)
    stored = torch.full((len(held), len(held[0]), max(map(max, held))), -1)
    for layer, counts in enumerate(held):
        for head, count in enumerate(counts):
            stored[layer, head, :count] = torch.randperm(N, generator=random)[:count].sort().values
        if isinstance(policy.routing, PerLayer):  # whose heads hold the same slots
            stored[layer, :] = stored[layer, 0]
    signals = {
        signal: of_model(signal, PROMPT, asked_of(policy))
        if of_text(signal)
        else tuple(
            joined(
                [measured(signal, of_head(layer, head, row[row >= 0])) for head, row in enumerate(rows)],
                stored.shape[-1],
                1 if isinstance(signal, Keys | Values | UnitValues) else -1,
            )
            for layer, rows in enumerate(stored)
        )
        for signal in policy.needs
    }
    return a_view(PROMPT, [], asked=asked_of(policy))._replace(signals=signals, stored=stored)


def asked_of(policy: Policy) -> int:
    return ASKED if preserves(policy) else N


def of_text(signal: Signal) -> bool:
    """Whether it is of the tokens that were fed or of the model, whatever is left of the slots."""
    return isinstance(signal, Calibrated | FedSignal | HiddenSignal) or getattr(signal, "of_tokens", False)


def a_shared_event(policy: Policy, count: int, random: torch.Generator) -> View:
    """A view of a later event: every head holds the same `count` of the N slots."""
    left = torch.randperm(N, generator=random)[:count].sort().values
    asked, shorter = asked_of(policy), at(PROMPT, left)
    signals = {
        signal: of_model(signal, PROMPT, asked) if of_text(signal) else of_model(signal, shorter)
        for signal in policy.needs
    }
    return a_view(PROMPT, [], asked=asked)._replace(signals=signals, stored=left.expand(2, 2, -1))


def at(prompt: Prompt, positions: torch.Tensor) -> Prompt:
    """The prompt of the tokens at these positions; a key keeps its rotation."""
    parts = (part[:, :, positions] for part in prompt[1:4])
    return Prompt(prompt.token_ids[positions], *parts, prompt.scale, prompt.hidden[:, positions])


def of_head(layer: int, head: int, positions: torch.Tensor) -> Prompt:
    """What one KV head has left: its keys at these positions, and as many of the last queries."""
    group = slice(2 * head, 2 * head + 2)
    return PROMPT._replace(
        queries=PROMPT.queries[layer : layer + 1, group, N - len(positions) :],
        keys=PROMPT.keys[layer : layer + 1, head : head + 1, positions],
        values=PROMPT.values[layer : layer + 1, head : head + 1, positions],
    )


def joined(heads: Sequence[Any], n: int, axis: int = -1) -> Any:
    """States of single heads as the state of a layer of n slots, which are counted on this axis; 0 beyond the
    slots of a head.
    """
    if isinstance(heads[0], tuple):
        return type(heads[0])(*(joined(parts, n, axis) for parts in zip(*heads, strict=True)))
    whole = [pad(head.movedim(axis, -1), (0, n - head.shape[axis])).movedim(-1, axis) for head in heads]
    return torch.cat(whole)


def kept_at(view: View, policy: Policy, budget: int) -> torch.Tensor:
    """Kept slots, once seen to be there and to hold the protected slots of each head."""
    kept = policy.keep(view, budget)
    for row, positions in zip(kept.flatten(0, 1), view.stored.flatten(0, 1), strict=True):
        count = int((positions >= 0).sum())
        whole, prompt = torch.ones(count, dtype=torch.bool), positions[:count] < view.prompt
        protected = policy.protect.slots(whole, budget, decoding=True, prompt=prompt)
        assert row[:count][protected].all()
        assert not row[count:].any()
    return kept


LATER = [name for name in EVICTING if name not in CRYSTALS]
every_later_policy = looped("name", LATER)
HELD = ([[220, 220], [220, 220]], [[260, 220], [231, 247]])


@looped(("name", "budget", "held"), sampled(LATER, [140, 177, 219], HELD, of=4))
def test_a_later_event_meets_the_budget_with_slots_that_are_there(name, budget, held):
    policy = policies.get(name)
    kept = kept_at(an_event(policy, held), policy, budget).sum()
    assert kept == 4 * budget or (name in BOUNDING and kept < 4 * budget)


@every_later_policy
def test_a_later_event_with_room_for_all_keeps_what_is_there(name):
    """But for what a routing bounds, of an answer, as above."""
    view = an_event(policies.get(name), [[150, 150], [150, 150]])
    kept = torch.equal(policies.get(name).keep(view, 150), view.filled)
    assert kept != (name in BOUNDING and name in PRESERVING)


@looped("name", [name for name in EVICTING if name not in (*CRYSTALS, *PRESERVING, *MERGING)])
def test_slots_count_by_their_place_and_not_by_their_position(name):
    """Of a cache that holds every slot but one, what is kept is what a shorter prompt would keep.

    Some ask at which position the next query stands, so that their prompt is as long here. A span stands at
    the mean position of its tokens.
    """
    policy = policies.get(name)
    left = (torch.arange(N) != 100).nonzero().flatten()
    shorter = at(PROMPT, left)
    view = a_view(shorter if name in (*TRIATTENTIONS, "expected-attention") else PROMPT, [])
    later = view._replace(signals=a_view(shorter, [policy]).signals, stored=left.view(1, 1, -1))
    assert torch.equal(policy.keep(later, 200), keep(policy, 200, shorter))


# Spans of syn_mem-1 are of the first event alone, at which all heads hold the same.
@looped("name", [name for name in SHARED if name != "syn_mem-1"])
def test_heads_that_hold_different_slots_have_no_score_for_a_token(name):
    policy = policies.get(name)
    view = view_for(policy)
    stored = torch.arange(N).expand(2, 2, -1).clone()
    assert torch.equal(policy.keep(view._replace(stored=stored), 200), policy.keep(view, 200))
    stored[1, 0, -1] = N
    with pytest.raises(ValueError, match=r"heads contain different slots, .*; choose the routing Shared"):
        policy.keep(view._replace(stored=stored), 200)


@looped("budget", [60, 101, 139])
@looped("held", [[[250, 40], [140, 160]], [[300, 20], [139, 139]]])
def test_adaptive_heads_may_hold_less_than_the_budget(budget, held):
    """One of them holds less than the window, all of it protected."""
    policy = policies.get("ada-snapkv")
    kept = kept_at(an_event(policy, held), policy, budget)
    assert kept.sum((1, 2)).tolist() == [2 * budget, 2 * budget]


@pytest.mark.parametrize("budget", [60, 150, 169])
def test_layers_of_a_pyramid_may_hold_less_than_the_budget(budget):
    policy = policies.get("pyramidkv")
    kept = kept_at(an_event(policy, [[250, 250], [90, 90]]), policy, budget)
    assert kept.sum() == 4 * budget


@looped("name", BOUNDING)
def test_a_routing_that_bounds_leaves_at_most_the_budget_at_every_event(name):
    """Also once 200 and 400 tokens have moved what it gives to whom, and where there is room for all."""
    policy, routed, left = policies.get(name, cadence=Cadence(interval=60)), None, []
    for more in (0, 200, 400):
        view = an_event(policy, [[260, 220], [231, 247]])
        later = view._replace(token_ids=torch.arange(N + more) % 40, routing_state=routed)
        for budget in (240, 200):
            kept, _, routed, _ = policy.evict(later._replace(routing_state=routed), budget)
            assert not (kept & ~later.filled).any()
            assert kept.sum() <= 4 * budget
            left.append(int(kept.sum()) / 4 / budget)
    assert min(left) < 1


@cache
def at_a_breath(name: str) -> tuple[Policy, View]:
    """A crystal and its second event: 240 tokens cut down to 180 slots, and 60 tokens fed since."""
    policy = policies.get(name, cadence=Cadence(interval=60))
    first = a_view(up_to(PROMPT, 240), [policy])
    return policy, a_later_view(PROMPT, policy, first, policy.evict(first, 180), N)


@every_crystal
def test_a_breath_meets_the_budget_and_remembers_the_slots_it_keeps(name):
    policy, view = at_a_breath(name)
    for budget in (7, 140, 177, 201):
        kept, memory, *_ = policy.evict(view, budget)
        assert kept.shape == (2, 2, view.slots)
        assert torch.equal(kept, kept[:1, :1].expand_as(kept))
        assert 0 <= budget - int(kept[0, 0].sum()) <= policy.selection.unused
        assert [slot for span in memory.spans for slot in span] == list(range(int(kept[0, 0].sum())))
        assert len(memory.spans) == len(memory.crystallization) == len(memory.impact)
        assert torch.equal(memory.slots, policy.scoring.score(view).slots[0, 0][kept[0, 0]])
        assert memory.token_count == N


@every_crystal
def test_a_breath_with_room_for_all_keeps_what_is_there_and_remembers_it(name):
    policy, view = at_a_breath(name)
    kept, memory, *_ = policy.evict(view, view.slots)
    assert kept.all()
    assert len(memory.slots) == view.slots
    assert torch.equal(memory.crystallization, policy.scoring.score(view).trunks.crystallization)


@every_crystal
def test_a_breath_leaves_what_was_remembered_as_it_is(name):
    policy, view = at_a_breath(name)
    before = [tensor.clone() for tensor in iterate_tensors(view.memory)]
    one, other = policy.evict(view, 150), policy.evict(view, 150)
    assert torch.equal(one.retained, other.retained)
    assert all(map(torch.equal, iterate_tensors(one.memory), iterate_tensors(other.memory)))
    assert all(map(torch.equal, iterate_tensors(view.memory), before))


@every_crystal
def test_a_default_device_elsewhere_changes_nothing_at_a_breath(name):
    policy, view = at_a_breath(name)
    expected = policy.evict(view, 150)
    with torch.device("meta"):
        found = policy.evict(view, 150)
    assert torch.equal(found.retained, expected.retained)
    assert all(map(torch.equal, iterate_tensors(found.memory), iterate_tensors(expected.memory)))


@every_crystal
def test_no_slot_is_protected_at_a_breath(name):
    policy, view = at_a_breath(name)
    assert not policy.protect.slots(view.filled, 150, decoding=True).any()
    assert policy.keep(view, 1).sum() <= 4


@every_crystal
def test_a_breath_without_its_signals_is_refused_by_name(name):
    policy, view = at_a_breath(name)
    needed = [policy.scoring.coattention] if name == "crystal-still" else policy.needs
    for signal in needed:
        signals = {other: state for other, state in view.signals.items() if other != signal}
        with pytest.raises(ValueError, match=type(signal).__name__):
            policy.keep(view._replace(signals=signals), 150)


def test_a_breath_without_the_memory_of_the_last_event_is_refused():
    policy, view = at_a_breath("crystal")
    with pytest.raises(ValueError, match=r"but 0 of 2\d\d slots are in trunks"):
        policy.keep(view._replace(memory=None), 150)
    with pytest.raises(ValueError, match=r"view\.memory must be the TrunkTable of the last event, not Other"):
        policy.keep(view._replace(memory=Other()), 150)


class Other:
    """A memory of another scoring."""


def test_without_later_events_layers_may_dissolve_trunks_to_budgets_of_their_own():
    policy = policies.get("crystal", routing=policies.Pyramid(), protect=Protect(4, 20))
    counts = keep(policy, 200).sum(-1)
    assert (counts[0] > counts[1]).all()


def test_trunks_are_not_remembered_where_heads_keep_different_slots():
    _, view = at_a_breath("crystal")
    kept = torch.ones(2, 2, len(view.memory.slots), dtype=torch.bool)
    kept[1, 0, 3] = False
    with pytest.raises(ValueError, match="crystal needs one keep set for all heads"):
        view.memory.retain(kept)


@every_evicting_policy
def test_memory_is_for_later_events(name):
    """With room for all and no later event nothing is even scored; crystals begin theirs at the first."""
    policy, view = policies.get(name), view_for(policies.get(name))
    assert policy.evict(view, N).memory is None
    breathing = replace(policy, cadence=Cadence(interval=60))
    assert (breathing.evict(view, N).memory is not None) == (name in CRYSTALS)
    assert (breathing.evict(view, 210).memory is not None) == (name in CRYSTALS)


def test_the_twin_of_random_is_random_in_all_but_the_draws():
    """Each keeps every slot equally often, both keep a slot as two independent choices do, and no layer or head of
    the one draws what any layer or head of the other does.
    """
    random, twin = policies.get("random", protect=Protect(1, 1)), policies.get("random-twin", protect=Protect(1, 1))
    assert policies.diff(random, twin).keys() == {"scoring"}
    prompt = a_prompt(12, layers=50, kv_heads=2)
    kept = torch.stack([torch.stack([keep(p, 7, prompt, seed=seed) for p in (random, twin)]) for seed in range(40)])
    shares = kept.double().mean((0, 2, 3))
    assert shares[1, 1:-1].tolist() == pytest.approx([0.5] * 10, abs=0.04)
    both = kept.all(1)[..., 1:-1].double().sum(-1).mean()
    assert float(both) == pytest.approx(2.5, abs=0.06)  # of two independent choices of 5 from 10: hypergeometric
    streams = [
        {tuple(row.tolist()) for row in keep(policies.get(name), 200, a_prompt(N, layers=4)).flatten(0, 1)}
        for name in ("random", "random-twin")
    ]
    assert streams[0].isdisjoint(streams[1])
