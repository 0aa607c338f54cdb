"""A budget below what an arm can come to protect is refused before anything is locked."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import studies
from looped import looped

import policies
from policies.crystal.policy import variants
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.preflight import feasibility
from protocol.workspace.planned_study import PlannedStudy


@looped(
    ("policy", "interval", "prompt", "query", "protected"),
    [
        ("random", None, None, 0, 40),  # a prompt of 40 tokens is kept whole
        ("random", 16, None, 0, 132),  # of an answer that goes on
        ("random", None, "pinned", 0, 40),
        ("random", 16, "pinned", 0, 168),  # the prompt, and the last 128 of the answer
        ("random", 16, "pinned", 9, 177),  # and a question that stands outside
        ("random", None, "pinned", 9, 40),
        ("crystal", None, None, 0, 40),
        ("crystal", 16, None, 0, 40),  # while decoding it protects nothing
        ("crystal", 16, "pinned", 9, 80),  # a trunk of 32 may begin with the last token of the question
        ("crystal-token-level", 16, "pinned", 9, 49),
    ],
)
def test_what_may_come_to_be_protected_counts_before_anything_runs(policy, interval, prompt, query, protected):
    policy = policies.pin_prompt(policies.get(policy)) if prompt else policies.get(policy)
    policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
    assert feasibility._max_protected(policy, 40, query, 64) == protected


def refuse(protocol, lengths):
    feasibility.refuse_small_budgets(PlannedStudy(protocol, Path("nowhere")), lengths, protocol.budgets)


def check(policy, budget, prompt, settings="threads = 1"):
    """Whether an arm of this policy fits a budget on a prompt of (context, query) tokens."""
    text = studies.PROTOCOL.format(model="/nowhere")
    text = text.replace("threads = 1", settings).replace('"crystal-token-level"', f'"{policy}"')
    protocol = toml_reader.parse(text.replace("budgets = [0.8]", f"budgets = [{budget}]").encode(), "here")
    refuse(protocol, {("model", protocol.tasks[0], ""): [prompt]})


@looped(
    ("recent", "interval", "query", "protected"),
    [
        ('"min(128, K/4)"', None, 0, 40),  # a prompt of 40 tokens is kept whole
        ('"min(128, K/4)"', 16, 0, 56),  # and 64 // 4 of the answer
        ('"min(12, K/4)"', 16, 9, 61),  # and a question that stands outside
        ("30", 16, 0, 70),
        ("0", 16, 0, 40),
    ],
)
@looped("policy", ["snapkv_with_window", "streaming", "random"])
def test_what_one_rule_preserves_counts_in_every_arm(policy, recent, interval, query, protected):
    text = studies.PROTOCOL.format(model="/nowhere").replace('"crystal-token-level"', f'"{policy}"')
    rule = f"preserve = {{ prompt = true, recent = {recent} }}"
    text = text.replace("threads = 1", f"threads = 1\n{rule}")
    if interval:
        text = text.replace("threads = 1", f"threads = 1\ninterval = {interval}")
    found = toml_reader.parse(text.encode(), "here").policy("crystal")
    assert feasibility._max_protected(found, 40, query, 64) == protected


def test_a_budget_that_cannot_hold_prompt_and_recency_is_refused_with_both_fixes():
    """Of a prompt of 300 tokens 400 - 100 slots are the prompt's, 399 - 99 of 399 are, and 300 of 398 not."""
    settings = 'threads = 1\ninterval = 16\npreserve = { prompt = true, recent = "min(128, K/4)" }'
    check("random", 400, (300, 0), settings)
    check("random", 399, (300, 0), settings)
    with pytest.raises(BadInput) as refusal:
        check("random", 398, (300, 0), settings)
    assert str(refusal.value) == (
        "budgets: 398 gives 398 slots for needle-256 (300 tokens), fewer than the 399 that arm 'crystal' "
        "protects at most; raise the budget, or let generation.preserve protect less"
    )


@pytest.mark.parametrize("ends", ['sinks = "K/2", recent = "K/2"', "recent = 100", "sinks = 100, recent = 0"])
def test_ends_that_fill_the_budget_leave_no_arm_a_choice(ends):
    settings = f"threads = 1\ninterval = 16\npreserve = {{ prompt = false, {ends} }}"
    with pytest.raises(BadInput, match="protects all 100 slots of budget 100, so no arm has any slot to choose"):
        check("random", 100, (300, 0), settings)


def test_a_slot_that_the_ends_leave_is_a_choice():
    check("random", 100, (300, 0), "threads = 1\ninterval = 16\npreserve = { prompt = false, sinks = 49, recent = 50 }")


def test_a_budget_counts_by_the_smallest_of_its_rounds():
    """A pinned prompt of 300 tokens: a schedule leaves 250 of 500 slots in some rounds, 350 of 700."""
    settings = 'threads = 1\ninterval = 16\nprompt = "pinned"'
    with pytest.raises(BadInput, match=r"500 gives 250 slots .* fewer than the 300 that arm 'crystal'"):
        check("schedule-front", 500, (300, 0), settings)
    check("schedule-front", 700, (300, 0), settings)


@looped("policy", ["crystal", *variants()])
def test_trunks_count_by_what_a_text_can_make_of_them(policy):
    """4 sinks, 128 recent slots and, of a trunk of 32 at either, 31 more: what some texts take, not each."""
    least = 132 if policy in ("crystal-token-level", "crystal-over-budget") else 194
    check(policy, least, (400, 0))
    with pytest.raises(BadInput, match=f"fewer than the {least} that arm 'crystal' protects at most"):
        check(policy, least - 1, (400, 0))


def test_a_share_counts_on_the_shortest_prompt_and_a_pinned_prompt_on_the_longest():
    text = studies.PROTOCOL.format(model="/nowhere").replace('"crystal-token-level"', '"crystal"')
    protocol = toml_reader.parse(text.encode(), "here")  # 0.8 of the prompt
    prompts = [(400, 0), (243, 0), (900, 0)]
    refuse(protocol, {("model", protocol.tasks[0], ""): prompts})  # 194 of 243
    with pytest.raises(BadInput, match=r"0.8 gives 193 slots .* \(241 tokens\), fewer than the 194"):
        refuse(protocol, {("model", protocol.tasks[0], ""): [*prompts, (241, 0)]})
    text = text.replace("threads = 1", 'threads = 1\ninterval = 8\nprompt = "pinned"')
    protocol = toml_reader.parse(text.replace("[0.8]", "[1100]").encode(), "here")
    refuse(protocol, {("model", protocol.tasks[0], ""): prompts})
    with pytest.raises(BadInput, match=r"1100 gives .* \(899 tokens\), fewer than the 1127 that"):
        refuse(protocol, {("model", protocol.tasks[0], ""): [*prompts, (899, 100)]})


@looped(
    ("budgets", "prompts", "said"),
    [
        ("0.5, 0.51", [41, 39], "0.5 and 0.51 are the same slots for model on needle-256 (21 on a prompt of 41"),
        ("20, 0.5", [40], "20 and 0.5 are the same slots"),
        ("0.5, 0.51", [40, 400], ""),  # 200 and 204 of the longer
        ("20, 0.5", [40, 80], ""),
    ],
)
def test_two_budgets_of_the_same_slots_on_every_prompt_are_one(budgets, prompts, said):
    text = studies.PROTOCOL.format(model="/nowhere").replace("[0.8]", f"[{budgets}]")
    protocol = toml_reader.parse(text.encode(), "here")
    lengths = {("model", protocol.tasks[0], ""): [(tokens, 0) for tokens in prompts]}
    if said:
        with pytest.raises(BadInput, match=re.escape(said)):
            feasibility.refuse_duplicate_budgets(PlannedStudy(protocol, Path("nowhere")), lengths, protocol.budgets)
    else:
        feasibility.refuse_duplicate_budgets(PlannedStudy(protocol, Path("nowhere")), lengths, protocol.budgets)


@looped(
    ("budget", "is_idle", "policy"),
    [
        (311, False, "random"),
        (312, True, "random"),
        (9000, True, "random"),
        (623, False, "schedule-front"),  # half of it in some rounds
        (624, True, "schedule-front"),
        (9000, False, "crystal-kv"),  # which may leave less than fits
    ],
)
def test_a_budget_that_holds_the_longest_prompt_with_its_answer_is_refused(budget, is_idle, policy):
    """A context of 250 tokens, a question of 50 and an answer of 12 are 312 slots; the shorter prompt has 282."""
    text = studies.PROTOCOL.format(model="/nowhere").replace("budgets = [0.8]", f"budgets = [{budget}]")
    text = text.replace('"crystal-token-level"', f'"{policy}"').replace("threads = 1", "threads = 1\ninterval = 8")
    protocol = toml_reader.parse(re.sub("max_new_tokens = [0-9]+", "max_new_tokens = 12", text).encode(), "here")
    lengths = {("model", task, ""): [(250, 50), (260, 10)] for task in protocol.tasks}
    says = f"budgets: {budget} has room for every prompt with its answer, at most 312 tokens, so no arm would evict"
    with pytest.raises(BadInput, match=says) if is_idle else contextlib.nullcontext():
        feasibility._refuse_idle_budgets(PlannedStudy(protocol, Path("nowhere")), lengths, protocol.budgets)
