"""protocol.toml as values, and as it is locked: nothing is read two ways."""

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from studies import PROTOCOL, SWEEP, parse

import policies
from protocol.plan import design, grid
from protocol.plan.field_kinds import Recency

TEXT = PROTOCOL.format(model="/nowhere")


def test_a_share_is_a_decimal_and_rounds_up():
    budget = design.Budget(Decimal("0.3"), None)
    assert budget.count_slots(1000) == 300  # 0.3 as a binary float would give 300 by luck, 0.07 would not:
    assert design.Budget(Decimal("0.07"), None).count_slots(100) == 7  # ceil(0.07 * 100.0) is 8 in binary floats
    assert design.Budget(Decimal("0.3"), None).count_slots(1001) == 301
    assert str(design.Budget(Decimal("0.50"), None)) == "0.5"
    assert str(design.Budget(None, 128)) == "128"


def test_an_arm_that_never_evicts_has_one_cell_whatever_the_budgets():
    protocol = parse(TEXT.replace("budgets = [0.8]", "budgets = [0.8, 0.9, 200]"))
    found = [(cell.arm, cell.budget) for cell in grid.cells(protocol)]
    evicting = [(arm, budget) for arm in ("crystal", "random", "streaming") for budget in ("0.8", "0.9", "200")]
    assert found == 2 * [("full", "full"), *evicting]  # two tasks


@pytest.mark.parametrize("state", ["q8_0", "quest"])
def test_an_arm_that_holds_all_otherwise_than_computed_has_the_budgets_and_is_no_full_cache(state):
    text = TEXT.replace(
        'random = { policy = "random" }', f'random = {{ policy = "full", set = {{ state = "{state}" }} }}'
    )
    protocol = parse(text)
    assert {cell.budget for cell in grid.cells(protocol) if cell.arm == "random"} == {"0.8"}
    assert (protocol.is_full("random"), protocol.is_full("full")) == (False, True)
    assert not protocol.policy("random").evicts


def test_the_content_that_is_locked_has_no_floats():
    def floats(value):
        if isinstance(value, dict):
            return [leaf for inner in value.values() for leaf in floats(inner)]
        if isinstance(value, list):
            return [leaf for inner in value for leaf in floats(inner)]
        return [value] if isinstance(value, float | Decimal) else []

    content = parse(TEXT).content()
    assert floats(content) == []
    assert content["decision"]["alpha"] == "0.05"


def test_what_may_be_left_out_of_generation_is_not_locked_unless_written():
    assert set(parse(TEXT).content()["generation"]) == {"temperature", "dtype", "device", "threads"}
    written = parse(TEXT.replace("threads = 1", "threads = 1\nproblems_per_batch = 3\nprefill_chunk = 256"))
    assert written.content()["generation"]["problems_per_batch"] == 3
    assert written.content()["generation"]["prefill_chunk"] == 256


@pytest.mark.parametrize(("cadence", "slack"), [("", True), ('cadence = "slack"', True), ('cadence = "exact"', False)])
def test_a_registered_interval_is_that_of_every_arm_that_evicts(cadence, slack):
    text = TEXT.replace("threads = 1", f"threads = 1\ninterval = 8\n{cadence}")
    protocol = parse(text.replace('policy = "crystal-token-level"', 'policy = "snapkv"'))
    for name in ("crystal", "random", "streaming"):
        found = protocol.policy(name).cadence
        assert (found.at_prefill, found.interval, found.slack) == (True, 8, slack)
    assert protocol.policy("full").cadence.interval is None
    assert parse(TEXT).policy("random").cadence.interval is None


# ---------------------------------------------------------------- sweep, prompt, memory, beside

SWEPT = TEXT
for old, new in SWEEP.items():
    SWEPT = SWEPT.replace(old, new)


def test_a_protocol_without_a_sweep_is_locked_as_before():
    content = parse(TEXT).content()
    assert "sweep" not in content
    assert set(content["decision"]) == {
        "rule",
        "subject",
        "against",
        "alpha",
        "method",
        "draws",
        "seed",
        "cache_tolerance",
        "memory",
        "missing",
        "at_least",
    }


LOSSLESS = TEXT.replace("at_least = 1", "margin = 0.03").replace('method = "sign-flip"', 'method = "t"')


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
def test_a_margin_is_locked_as_it_was_written(rule):
    decision = parse(LOSSLESS.replace('"superior"', f'"{rule}"')).content()["decision"]
    assert (decision["rule"], decision["margin"], "at_least" in decision) == (rule, "0.03", False)


def test_the_exact_bootstrap_has_no_draws_and_no_seed():
    drawn = TEXT.replace('method = "sign-flip"', 'method = "exact-bootstrap"')
    text = re.sub(r"^(draws|seed) = .*\n", "", drawn, flags=re.MULTILINE)
    assert parse(text).decision.draws is parse(text).decision.seed is None
    assert not {"draws", "seed"} & parse(text).content()["decision"].keys()


def test_max_t_is_a_method_for_families():
    text = TEXT.replace('method = "sign-flip"', 'method = "max-t"')
    assert parse(text).decision.method == "max-t"


def test_a_sweep_is_locked_as_it_was_written():
    content = parse(SWEPT).content()
    assert content["sweep"] == {
        "name": "chosen",
        "candidates": ["h2o", "random"],
        "baseline": "streaming",
        "seeds": [3, 4],
        "tolerance": "0.005",
    }
    assert content["decision"]["beside"] == ["snapkv"]
    assert content["decision"]["memory"] == "slots"


@pytest.mark.parametrize("winner", ["h2o", "random"])
def test_confirm_runs_the_winner_under_the_sweeps_name_and_no_candidate(winner):
    protocol = parse(SWEPT)
    confirmed = protocol.confirm_design(winner)
    assert [arm.name for arm in confirmed.arms] == ["full", "chosen", "streaming", "snapkv"]
    assert confirmed.policy("chosen") == protocol.policy(winner)
    assert grid.cells(confirmed) == grid.cells(protocol), "the grid is the same whoever wins"
    assert {cell.seed for cell in grid.cells(protocol)} == {0}


def test_a_probe_of_a_sweep_runs_its_candidates_and_the_baseline_twice_with_its_own_seeds():
    probed = parse(SWEPT).probe_design()
    assert [arm.name for arm in probed.arms] == ["h2o", "random", "streaming", "streaming (again)"]
    assert probed.policy("streaming (again)") == probed.policy("streaming")
    assert {cell.seed for cell in grid.cells(probed)} == {3, 4}


def test_a_probe_without_a_sweep_runs_every_arm_and_the_first_comparator_twice():
    probed = parse(TEXT).probe_design()
    assert [arm.name for arm in probed.arms] == ["full", "crystal", "random", "streaming", "random (again)"]
    assert probed.seeds == (0,)


def test_a_pinned_prompt_is_protected_by_every_arm_that_evicts_and_by_no_other():
    pinned = parse(TEXT.replace("threads = 1", 'threads = 1\nprompt = "pinned"'))
    assert pinned.content()["generation"]["prompt"] == "pinned"
    for name in ("crystal", "random", "streaming"):
        assert pinned.policy(name) == policies.pin_prompt(parse(TEXT).policy(name))
        assert pinned.policy(name) != parse(TEXT).policy(name)
    assert pinned.policy("full") == parse(TEXT).policy("full")
    competing = parse(TEXT.replace("threads = 1", 'threads = 1\nprompt = "competes"'))
    assert competing.policy("random") == parse(TEXT).policy("random")


RULE = "threads = 1\npreserve = {{ prompt = {prompt}, recent = {recent} }}"


def test_one_rule_of_preservation_replaces_what_every_arm_that_evicts_protects():
    protocol = parse(TEXT.replace("threads = 1", RULE.format(prompt="true", recent='"min(128, K/4)"')))
    assert protocol.content()["generation"]["preserve"] == {"prompt": True, "recent": "min(128, K/4)"}
    for name in ("crystal", "random", "streaming"):
        before, policy = parse(TEXT).policy(name), protocol.policy(name)
        assert policy == replace(before, protect=policies.Preserve(True, "min(128, K/4)"))
        assert policy != before
    assert protocol.policy("full") == parse(TEXT).policy("full")
    fewer = parse(TEXT.replace("threads = 1", RULE.format(prompt="false", recent="16")))
    assert fewer.content()["generation"]["preserve"] == {"prompt": False, "recent": 16}
    assert fewer.policy("streaming").protect == policies.Preserve(False, 16)
    boundary = parse(TEXT.replace("threads = 1", RULE.format(prompt="false", recent='"K/10", sinks = 4')))
    assert boundary.content()["generation"]["preserve"] == {"prompt": False, "recent": "K/10", "sinks": 4}
    assert boundary.policy("random").protect == policies.Boundary(False, "K/10", 4)


def test_a_protocol_and_a_policy_take_the_same_rules_of_recency():
    """The first is read without torch, and has a declaration of its own."""
    rules = [0, 16, 2**24, -1, True, 1.5, "K/4", "K/1", "K/0", "K", "min(128, K/4)", "min(128,K/4)", "K/1000000"]
    rules += ["min(0, K/3)", "min(K/4, 128)", "min(128, K/0)", "min(-1, K/4)", "min(12345678, K/2)", "k/4", "K/4 "]
    taken = []
    for rule in rules:
        try:
            policies.Preserve(recent=rule)
        except ValueError:
            assert not Recency().accepts(rule), rule
            continue
        assert Recency().accepts(rule), rule
        taken.append(rule)
    assert len(taken) == 8


def test_draws_from_a_nucleus_and_events_while_thinking_are_registered():
    assert not {"top_p", "think_only", "preserve"} & parse(TEXT).content()["generation"].keys()
    settings = "threads = 1\ninterval = 4\ntop_p = 0.95\nthink_only = true"
    protocol = parse(TEXT.replace("temperature = 0", "temperature = 0.6").replace("threads = 1", settings))
    content = protocol.content()["generation"]
    assert (content["top_p"], content["think_only"]) == ("0.95", True)
    assert protocol.generation.top_p == Decimal("0.95")
    for name in ("crystal", "random"):  # events end by what is said, which no policy sees
        plain = parse(TEXT.replace("threads = 1", "threads = 1\ninterval = 4"))
        assert protocol.policy(name) == plain.policy(name)


def test_workers_are_written_where_they_were_registered():
    assert "workers" not in parse(TEXT).content()["generation"]
    assert parse(TEXT.replace("threads = 1", "threads = 1\nworkers = 2")).generation.workers == 2


# ---------------------------------------------------------------- late randomness, exclusions

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + 43 * "x"


def with_tables(*tables):
    return TEXT + "\n".join(("", *tables))


@pytest.mark.parametrize(
    ("table", "content"),
    [
        (f'source = "nonce"\nauditor = "{KEY}"', {"source": "nonce", "auditor": KEY}),
        (
            'source = "beacon"\nname = "drand quicknet"\nround = 12',
            {"source": "beacon", "name": "drand quicknet", "round": 12},
        ),
        ('source = "anchor"', {"source": "anchor"}),
    ],
)
def test_a_late_source_is_locked_as_it_was_written(table, content):
    assert parse(with_tables("[randomness]", table)).content()["randomness"] == content


def test_a_protocol_without_late_source_and_exclusions_is_locked_as_before():
    assert list(parse(TEXT).content()) == [
        "title",
        "question",
        "models",
        "seeds",
        "budgets",
        "tasks",
        "arms",
        "generation",
        "decision",
        "gate",
    ]


def test_a_protocol_of_before_there_were_gates_is_locked_as_before():
    gate = "[gate]\naccuracy = 0.05\ntruncated = 0.5\n"
    assert gate in TEXT
    before, now = parse(TEXT.replace(gate, "")), parse(TEXT)
    assert before.gate is None
    assert before.content() == {name: part for name, part in now.content().items() if name != "gate"}


def test_a_prompt_above_the_limit_is_excluded_and_one_at_it_is_not():
    protocol = parse(with_tables("[exclude]", "prompt_tokens_above = 300"))
    assert protocol.content()["exclude"] == {"prompt_tokens_above": 300}
    assert protocol.exclusion_reason(300) is None
    assert protocol.exclusion_reason(301) == "prompt_tokens: 301, above 300"
    assert protocol.probe_design().exclusion_reason(301), "in the probe as well"
    assert parse(TEXT).exclusion_reason(2**20) is None


def test_a_missing_lane_may_count_as_wrong():
    old = 'missing = "inconclusive"'
    assert parse(TEXT.replace(old, 'missing = "wrong"')).content()["decision"]["missing"] == "wrong"


# ---------------------------------------------------------------- the gate


PLACE = '[[gate.places]]\nmodel = "path:/nowhere"\ntask = "needle-256"\n'


def with_places(*added: str) -> str:
    return TEXT + "".join(PLACE + each for each in added)


def test_a_gate_is_locked_as_it_was_written():
    text = with_places("published = 0.503\nmargin = 0.03\n").replace("accuracy = 0.05", "accuracy = 0.40")
    assert parse(text).content()["gate"] == {
        "accuracy": "0.40",
        "truncated": "0.5",
        "places": [{"model": "path:/nowhere", "task": "needle-256", "published": "0.503", "margin": "0.03"}],
    }
