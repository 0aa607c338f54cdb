"""Settings of a policy, changed by their paths."""

import math
from dataclasses import dataclass, is_dataclass, replace
from decimal import Decimal

import pytest
from looped import looped
from policy_prompts import a_later_view, a_prompt, a_view, up_to

import policies
from policies import BudgetError, Chunks, Diverse, Policy, Protect, RecentHalf, Schedule
from policies.crystal import BranchDissolution
from policies.crystal.breath import Breath
from policies.crystal.impact import Impact
from policies.crystal.scoring import TrunkScoring
from policies.crystal_kv import Recency
from policies.defensivekv import Defensive
from policies.expected_attention import ExpectedAttention
from policies.raas import Stamps
from policies.settings import setting_paths, with_settings
from policies.signatures import DiverseScheduled
from policies.snapkv import WindowAttention, snapkv
from policies.structure import structure
from policies.syn_mem import PromptSpans
from policies.triattention import QueryStatistics, ValuePrior

PROMPT = a_prompt(60)
SHORT = up_to(PROMPT, 40)


def test_a_setting_is_changed_where_its_path_says_and_nowhere_else():
    changed = policies.get("snapkv", {"scoring.window": 64})
    assert policies.diff(policies.get("snapkv"), changed) == {
        "scoring": (WindowAttention(32, 5), WindowAttention(64, 5))
    }
    assert policies.get("snapkv") == snapkv()  # the catalogue is as before


def test_settings_of_several_parts_and_depths_are_changed_at_once():
    changed = policies.get("crystal", {"scoring.breath.hops": 1, "scoring.max_trunk": 8, "selection.fusion": "product"})
    parent = policies.get("crystal")
    expected = replace(
        parent,
        scoring=replace(parent.scoring, breath=Breath(hops=1), max_trunk=8),
        selection=replace(parent.selection, fusion="product"),
    )
    assert changed == expected
    assert hash(changed) == hash(expected)


def test_no_settings_leave_the_policy_as_it_is():
    assert policies.get("snapkv", {}) == policies.get("snapkv", None) == policies.get("snapkv")


def test_a_setting_may_be_one_of_a_part_that_is_replaced_with_it():
    child = policies.get("snapkv", {"selection.size": 4}, selection=Chunks(10))
    assert child.selection == Chunks(4)


@pytest.mark.parametrize("given", [Decimal("0.75"), 0.75])
def test_a_number_with_a_point_may_be_a_decimal(given):
    assert policies.get("1d_div", {"selection.weight": given}).selection.weight == 0.75


def test_a_number_with_a_point_may_be_whole():
    weight = policies.get("1d_div", {"selection.weight": 2}).selection.weight
    assert (type(weight), weight) == (float, 2.0)


def test_the_same_number_leaves_what_is_locked_as_it_was():
    """The catalogue has beta as 20, and locks hold it so."""
    same = policies.get("pyramidkv", {"routing.beta": Decimal("20")})
    assert structure(same) == structure(policies.get("pyramidkv"))


def test_a_list_is_a_tuple_where_the_field_is_one():
    assert policies.get("1d", {"scoring.offsets": [1, 2]}).scoring == QueryStatistics(offsets=(1, 2))


def test_a_setting_that_may_be_left_open_may_be_opened_and_closed():
    often = policies.get("streaming", {"cadence.interval": 8})
    assert often.cadence.interval == 8
    assert with_settings(often, {"cadence.interval": None}) == policies.get("streaming")


def test_a_number_may_stand_where_a_part_is_and_may_be():
    assert policies.get("crystal-adaptive-merge", {"scoring.merge_threshold": 0.5}).scoring.merge_threshold == 0.5


REFUSED = {
    ("snapkv", "scoring.windw", 8): "scoring.windw: no setting of the policy; did you mean 'scoring.window'",
    ("snapkv", "window", 8): "window: no setting of the policy; did you mean 'scoring.window'",
    ("snapkv", "scorng.window", 8): "scorng.window: no setting of the policy; did you mean 'scoring.window'",
    ("snapkv", "recent", 8): "recent: no setting of the policy; did you mean 'protect.recent'",
    ("snapkv", "scoring.window.size", 8): "scoring.window.size: no setting .* write one of scoring.window, ",
    ("snapkv", "", 8): ": no setting of the policy; write one of scoring.window, scoring.kernel, cadence",
    ("crystal", "scoring.coattention.sketch", 8): "sketch: no setting .* prints all",
    ("snapkv", "scoring", 8): "scoring: is a part .* set one of its settings: scoring.window, scoring.kernel",
    ("h2o", "protect", 8): "protect: is a part of the policy, not a setting; it has no settings",
    ("snapkv", "scoring.window", 8.0): "scoring.window: write a whole number, not 8.0",
    ("snapkv", "scoring.window", Decimal("8.0")): "scoring.window: write a whole number, not 8.0",
    ("snapkv", "scoring.window", "8"): "scoring.window: write a whole number, not the text '8'",
    ("snapkv", "scoring.window", True): "scoring.window: write a whole number, not True",
    ("snapkv", "scoring.window", None): "scoring.window: write a whole number, not None",
    ("snapkv", "scoring.window", 0): "scoring.window: window must be 1 or more",
    ("snapkv", "scoring.kernel", 4): "scoring.kernel: .*kernel odd",
    ("1d_div", "selection.weight", "0.5"): "selection.weight: write a number, not the text '0.5'",
    ("1d_div", "selection.weight", True): "selection.weight: write a number, not True",
    ("1d_div", "selection.weight", float("nan")): "selection.weight: write a number, not nan",
    ("1d_div", "selection.weight", Decimal("Infinity")): "selection.weight: write a number, not Infinity",
    ("1d_div", "selection.weight", Decimal("0.1") + Decimal("1e-20")): "more digits than a float can store; write 0.1",
    ("1d_div", "selection.weight", 2**60 + 1): "selection.weight: 1152921504606846977 has more digits",
    ("1d_div", "selection.weight", -1): "selection.weight: weight must be 0",
    ("crystal", "selection.fusion", "sum"): "selection.fusion: write one of maximum, average, product, imp",
    ("1d", "scoring.offsets", 3): "scoring.offsets: write a list, each a whole number, not 3",
    ("1d", "scoring.offsets", (1, 2.0)): "scoring.offsets: write a list, each a whole number, not",
    ("1d", "scoring.offsets", (0,)): "scoring.offsets: offsets must be at least one number of tokens",
    ("snapkv", "scoring.kernel", 4097): "scoring.kernel: kernel must be at most 4095, not 4097",
    ("scissorhands", "scoring.window", 0): "scoring.window: window must be 1 or more",
    ("variant_b", "scoring.weight", 2e6): "scoring.weight: weight must be from -1000000 to 1000000",
    ("crystal", "scoring.steepness", 0): "scoring.steepness: steepness must be above 0",
    ("crystal", "scoring.breath.scale", 0): "scoring.breath.scale: rate .* scale above 0, not 0.05, 2 and 0",
    ("crystal", "scoring.breath.rate", -1): "scoring.breath.rate: rate and hops must be 0 or more",
    ("crystal", "scoring.breath.hops", -1): "scoring.breath.hops: rate and hops must be 0 or more",
    ("crystal", "scoring.breath.edge_decay", 1.5): "breath.edge_decay: edge_decay must be from 0 to 1, not 1.5",
    ("crystal", "selection.alpha", -1): "selection.alpha: alpha and min_keep must be 0 or more",
    ("crystal", "selection.min_keep", -1): "selection.min_keep: alpha and min_keep must be 0 or more",
    ("crystal", "scoring.coattention.chunk", 0): "chunk, intra_k and cross_k must be 1 or more, not 0",
    ("crystal", "scoring.max_trunk", 0): "max_trunk must be 1 or more, not 0",
    ("crystal", "scoring.impact.rarity", "rare"): "write one of logarithmic, inverse, exponential, document",
    ("crystal", "selection.coverage", 1.1): "coverage from 0 to 1, not 'maximum' and 1.1",
    ("crystal", "selection.coverage", -0.1): "coverage from 0 to 1, not 'maximum' and -0.1",
    ("crystal", "protect.recent", -1): "sinks and recent must be 0 or more, not 4 and -1",
    ("crystal-kv", "scoring.p", 0): "p must be above 0 and at most 1",
    ("crystal-kv", "scoring.p", 1.01): "p must be above 0 and at most 1",
    ("crystal-kv", "scoring.decay", -0.1): "decay must be between 0 and 1, not -0.1",
    ("crystal-kv", "scoring.decay", 1.1): "decay must be between 0 and 1, not 1.1",
    ("crystal-kv", "routing.period", 0): "period and least must be 1 or more, not 0 and 16",
    ("crystal-kv", "routing.least", 0): "period and least must be 1 or more, not 128 and 0",
    ("pyramidkv", "routing.beta", 0.5): "beta must be 1 .* or more, not 0.5",
    ("ada-snapkv", "routing.floor", 1.2): "floor must be between 0 and 1, not 1.2",
    ("chunkkv", "selection.size", 0): "size of a chunk must be 1 or more, not 0",
    ("h2o-window", "scoring.window", 0): "window must be 1 or more, not 0",
    ("thinkv", "scoring.size", 0): "size must be 1 or more and slots 0 or more",
    ("thinkv", "scoring.reasoning", -1): "size must be 1 or more and slots 0 or more",
    ("thinkv", "scoring.least", -1): "size must be 1 or more and slots 0 or more",
    ("1d_div-scheduled", "selection.last", -0.1): "last must be 0",
    ("1d_div-scheduled", "selection.over", 0): "and over must be 1 token or more",
    ("1d_div-scheduled", "selection.weight", -1): "weight must be 0",
    ("1d", "scoring.offsets", ()): "offsets must be at least one number of tokens",
    ("state_ask", "decoding.asked", False): "both are off; set one of them",
    ("state_ask", "decoding.line", ""): "line: '' is not a line start; write the text with which a line begins",
    (
        "state_ask",
        "decoding.line",
        " State:",
    ): "line: ' State:' is not a line start; write the text with which a line begins",
    ("state_ask", "decoding.end", ""): "end: is empty",
    ("state_ask", "decoding.wording", "Think."): 'wording: does not contain the line; write "{line}"',
    ("state_ask", "decoding.share", 1.1): "share must be between 0 and 1, not 1.1",
    ("state_ask", "decoding.recent", -1): "recent must be 0 or more, not -1",
    ("expected-attention", "scoring.future", 0): "future must be from 1 to 1048576",
    ("expected-attention", "scoring.sinks", -1): "sinks 0 or more",
    ("expected-attention", "scoring.epsilon", -1): "epsilon from 0",
    ("schedule-front", "cadence.load", "middle"): "write one of front, back, inverted",
    ("schedule-front", "cadence.amplitude", 1): "amplitude must be between 0 and 1",
    ("schedule-front", "cadence.amplitude", 0): "amplitude must be between 0 and 1",
    ("schedule-front", "cadence.rounds", 0): "rounds even",
    ("schedule-front", "cadence.rounds", 3): "rounds even",
    ("schedule-front", "cadence.interval", 0): "interval must be 1 or more",
    ("hs-variance", "scoring.window", 0): "window must be 1 token or more, not 0",
    ("caote", "scoring.window", 0): "window must be 1 or more, or None for all queries, not 0",
    ("epicache", "cadence.episodes", 0): "episodes, window and medoids must be 1 or more",
    ("epicache", "cadence.window", 0): "episodes, window and medoids must be 1 or more",
    ("epicache", "cadence.medoids", 0): "episodes, window and medoids must be 1 or more",
    ("r-kv", "scoring.weight", -0.1): "weight must be between 0",
    ("r-kv", "scoring.weight", 1.1): "weight must be between 0",
    ("r-kv", "scoring.window", 0): "window must be 1 or more",
    ("r-kv", "scoring.kernel", 4): "kernel odd",
    ("lagkv", "scoring.lag", 1): "lag 2 or more",
    ("lagkv", "scoring.sinks", -1): "sinks must be 0 or more",
    ("ahakv", "scoring.kernel", 4): "kernel odd",
    ("raas", "scoring.threshold", 0): "threshold must be between 0 and 1",
    ("raas", "scoring.threshold", 1): "threshold must be between 0 and 1",
    ("defensivekv", "scoring.norms", "paper"): "write one of heads, tokens, plain, not the text 'paper'",
    ("syn_mem", "state.mean", "median"): "write one of uniform, attention, not the text 'median'",
    ("syn_mem", "state.share", 0): "share of the slots for spans must be above 0 and at most 1",
    ("syn_mem", "state.share", 1.5): "at most 1, not 1.5",
    ("syn_mem-2", "state.length", 0): "length of a span must be 1 or more, not 0",
    ("subspace", "state.rank", 0): "rank must be 1 or more, not 0",
    ("snapkv", "cadence.slack", 1): "cadence.slack: write true or false, not 1",
    ("snapkv", "cadence.interval", "8"): "cadence.interval: write a whole number or None, not the text '8'",
}


@looped(("name", "path", "given"), REFUSED, ids=str)
def test_what_cannot_be_set_is_refused_in_one_line_that_begins_with_the_path(name, path, given):
    with pytest.raises(ValueError, match=REFUSED[name, path, given]) as refusal:
        policies.get(name, {path: given})
    said = str(refusal.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


@looped(
    ("make", "message"),
    [
        (lambda: Impact(rarity="rare"), "rarity must be one of logarithmic, inverse, exponential, document"),
        (lambda: BranchDissolution(fusion="minimum"), "fusion must be one of maximum, average, product, impact"),
        (lambda: Recency(decay=math.nan), "decay must be between 0 and 1, not nan"),
        (lambda: Diverse(math.nan), "weight must be 0"),
        (lambda: DiverseScheduled(last=math.nan), "last must be 0"),
        (lambda: ExpectedAttention(512, 4, math.inf), "epsilon from 0"),
        (lambda: Stamps(math.nan), "threshold must be between 0 and 1"),
        (lambda: Defensive(norms="paper"), "norms must be one of heads, tokens, plain, not 'paper'"),
        (lambda: Schedule(load="middle"), "load must be one of front, back, inverted, not 'middle'"),
        (lambda: PromptSpans("median"), "mean must be uniform or attention, not 'median'"),
    ],
)
def test_what_python_alone_can_say_is_refused_by_the_part_itself(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_settings_that_only_fit_together_are_judged_together():
    both = {"scoring.impact.lowest": 30.0, "scoring.impact.highest": 40.0}
    impact = policies.get("crystal", both).scoring.impact
    assert (impact.lowest, impact.highest) == (30.0, 40.0)
    for item in both.items():
        if item[0].endswith("lowest"):
            with pytest.raises(ValueError, match=r"scoring.impact.lowest: impact needs 0 <= lowest < highest"):
                policies.get("crystal", dict([item]))
    with pytest.raises(ValueError, match=r"cadence.interval, cadence.at_prefill: interval needs at_prefill"):
        policies.get("snapkv", {"cadence.interval": 8, "cadence.at_prefill": False})


def test_a_part_and_what_is_in_it_cannot_both_be_set():
    with pytest.raises(ValueError, match=r"scoring.breath: is set, and a setting inside it is set too"):
        policies.get("crystal", {"scoring.breath": None, "scoring.breath.hops": 1})


@looped("name", policies.names())
def test_every_setting_that_is_printed_can_be_set_to_what_it_is(name):
    """All but the names of parts, and a setting that a class no longer has."""
    policy, printed = policies.get(name), structure(policies.get(name))
    settable = list(setting_paths(policy))
    held = {path: value for path in settable if not is_dataclass(value := at(policy, path))}
    assert with_settings(policy, held) == policy
    values = {path for path, text in printed.items() if not text.endswith("()")}
    assert values - set(settable) <= {"scoring.coattention.sketch", "scoring.breath"}
    assert {path for path in settable if path not in values} <= {"scoring.merge_threshold", "scoring.prompt"}


def at(policy: object, path: str) -> object:
    for name in path.split("."):
        policy = getattr(policy, name)
    return policy


HOSTILE = (0, -1, 3, 2**40, 2**40 + 1, -0.5, 1e-300, 1e300, 0.0, 2.5, True, False, "?", [], [0], [1, 2], [2**40])


def parts():
    """Each class that some policy has at some place, once, with the settings that stand in it."""
    found = {}
    for name in policies.names():
        policy = policies.get(name)
        for path in setting_paths(policy):
            found.setdefault((path, type(at(policy, path.rpartition(".")[0]))), name)
    return [(name, path) for (path, _), name in found.items()]


def set_or_refused(policy: Policy, path: str, given: object) -> Policy | None:
    try:
        return with_settings(policy, {path: given})
    except ValueError as refused:
        said = str(refused)
    assert said.startswith(f"{path}: ")
    return None


@looped(("name", "path"), parts())
def test_a_value_is_refused_by_its_path_or_the_policy_works_with_it(name, path):
    """At the end of a prefill and, of CrystalCache, at the event after it."""
    parent = policies.get(name)
    if isinstance(parent.protect, Protect) and path != "protect.recent":
        parent = with_settings(parent, {"protect.recent": 4})
    for given in HOSTILE:
        if (policy := set_or_refused(parent, path, given)) is None:
            continue
        try:
            view = a_view(SHORT, [policy])
            event = policy.evict(view, 30)
            assert event.retained.sum() <= 30 * event.retained[..., 0].numel() or policy.exceeds or not policy.evicts
            if isinstance(policy.scoring, TrunkScoring):
                again = with_settings(policy, {"cadence.interval": 4, "cadence.at_prefill": True})
                event = again.evict(a_view(SHORT, [again]), 30)
                again.evict(a_later_view(PROMPT, again, view, event, 44), 30)
        except BudgetError:
            continue


@dataclass(frozen=True)
class Elsewhere:
    """A part of another distribution, whose types cannot be read."""

    weight: "NotImported" = 0.5  # type: ignore[name-defined]  # noqa: F821
    needs: frozenset = frozenset()


def test_a_part_whose_types_cannot_be_read_takes_what_it_holds():
    policy = Policy(scoring=Elsewhere())
    assert with_settings(policy, {"scoring.weight": 1}).scoring.weight == 1.0
    with pytest.raises(ValueError, match=r"scoring.weight: write a number, not the text 'a'"):
        with_settings(policy, {"scoring.weight": "a"})


def test_parts_without_settings_have_no_paths():
    assert list(setting_paths(RecentHalf())) == []
    assert list(setting_paths(ValuePrior(QueryStatistics())))[:2] == ["base.statistics", "base.offsets"]
