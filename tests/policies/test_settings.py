"""Settings of a policy, changed by their paths."""

from dataclasses import dataclass, is_dataclass, replace
from decimal import Decimal

import pytest
from policy_prompts import a_later_view, a_prompt, a_view, up_to

import policies
from policies import BudgetError, Chunks, Policy, Protect, RecentHalf
from policies.crystal.breath import Breath
from policies.crystal.scoring import TrunkScoring
from policies.settings import setting_paths, with_settings
from policies.snapkv import WindowAttention, snapkv
from policies.structure import structure
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
    ("snapkv", "scoring", 8): "scoring: is a part .* set what is in it: scoring.window, scoring.kernel",
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
    ("1d_div", "selection.weight", Decimal("0.1") + Decimal("1e-20")): "more digits than a float; write 0.1",
    ("1d_div", "selection.weight", 2**60 + 1): "selection.weight: 1152921504606846977 has more digits",
    ("1d_div", "selection.weight", -1): "selection.weight: weight must be 0",
    ("crystal", "selection.fusion", "sum"): "selection.fusion: write one of maximum, average, product, imp",
    ("1d", "scoring.offsets", 3): "scoring.offsets: write a list, each a whole number, not 3",
    ("1d", "scoring.offsets", (1, 2.0)): "scoring.offsets: write a list, each a whole number, not",
    ("1d", "scoring.offsets", (0,)): "scoring.offsets: offsets must be one or more tokens ahead",
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
    ("snapkv", "cadence.slack", 1): "cadence.slack: write true or false, not 1",
    ("snapkv", "cadence.interval", "8"): "cadence.interval: write a whole number or None, not the text '8'",
}


@pytest.mark.parametrize(("name", "path", "given"), REFUSED, ids=str)
def test_what_cannot_be_set_is_refused_in_one_line_that_begins_with_the_path(name, path, given):
    with pytest.raises(ValueError, match=REFUSED[name, path, given]) as refusal:
        policies.get(name, {path: given})
    said = str(refusal.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


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
    with pytest.raises(ValueError, match=r"scoring.breath: is set, and so is what is in it"):
        policies.get("crystal", {"scoring.breath": None, "scoring.breath.hops": 1})


@pytest.mark.parametrize("name", policies.names())
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


@pytest.mark.parametrize(("name", "path"), parts())
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
