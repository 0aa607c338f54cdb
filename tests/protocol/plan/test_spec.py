"""protocol.toml is read strictly: every refusal names the field and the fix, and nothing is read two ways."""

import re
from decimal import Decimal

import pytest
from studies import PROTOCOL, SWEEP

import policies
from protocol.evidence.refusals import BadInput
from protocol.plan import design, grid, reading

TEXT = PROTOCOL.format(model="/nowhere")


def parse(text: str) -> design.Design:
    return reading.parse(text.encode(), "protocol.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'policy = "crystal"',
            'policy = "cristal"',
            "arms.crystal.policy: unknown policy 'cristal'; did you mean 'crystal'?",
        ),
        (
            'name = "needle-256"',
            'name = "neddle-256"',
            "tasks[0].name: unknown name 'neddle-256'; did you mean 'needle-256'?",
        ),
        ("alpha = 0.05", "alfa = 0.05", "decision.alpha: missing; 'alfa' is unknown"),
        ("seeds = [0]", "seeds = [0]\nseed = 1", "seed: unknown field 'seed'; did you mean 'seeds'?"),
        ("seeds = [0]", "seeds = [0]\nseeds = [1]", "not valid TOML"),
        ("budgets = [0.8]", "budgets = [1.2]", "budgets[0]: a share of the prompt lies in (0, 1)"),
        ("budgets = [0.8]", "budgets = [0.0]", "budgets[0]: a share"),
        ("budgets = [0.8]", "budgets = [-3]", "budgets[0]: -3 slots"),
        ("budgets = [0.8]", "budgets = [nan]", "budgets[0]: a share"),
        ("budgets = [0.8]", "budgets = [true]", "budgets[0]: write a number"),
        ("budgets = [0.8]", "budgets = []", "budgets: write a list with at least one entry"),
        ("budgets = [0.8]", "budgets = [0.8, 0.80]", "budgets: 0.8 stands twice"),
        ("alpha = 0.05", "alpha = inf", "decision.alpha: write a number"),
        ('subject = "crystal"', 'subject = "full"', "decision.subject: unknown evicting arm 'full'"),
        (
            'against = ["random", "streaming"]',
            'against = ["crystal"]',
            "decision.against: crystal is the subject",
        ),
        ("at_least = 1", "at_least = 9", "decision.at_least: 9 of 4 contrasts never hold"),
        ("seed = 7", f"seed = {2**53}", "decision.seed: write a whole number"),
        ("A study for the test suite", "TODO", "title: placeholder left unfilled"),
        ("A study for the test suite", "e\u0301tude", "title: text is not NFC"),
        (
            'query = "inside"',
            'query = "insde"',
            "tasks[0].query: unknown query 'insde'; did you mean 'inside'?",
        ),
        ("max_new_tokens = 24", "max_new_tokens = 0", "tasks[0].max_new_tokens: write a whole number from 1"),
        (
            "threads = 1",
            "threads = 1\nprefill_chunk = 0",
            "generation.prefill_chunk: write a whole number from 1",
        ),
        (
            "threads = 1",
            "threads = 1\nlanes_per_batch = 1.5",
            "generation.lanes_per_batch: write a whole number",
        ),
        (
            "threads = 1",
            "threads = 1\nlanes_per_bach = 4",
            "generation.lanes_per_bach: unknown field 'lanes_per_bach'; did you mean 'lanes_per_batch'?",
        ),
        ("threads = 1", 'threads = 1\ncadence = "exact"', "generation.cadence: needs an interval"),
        (
            'full = { policy = "full" }',
            '"random (again)" = { policy = "full" }',
            "arms.random (again): a name ending in ' (again)' is a probe's second run; rename it",
        ),
        (
            "threads = 1",
            'threads = 1\ninterval = 8\ncadence = "exakt"',
            "generation.cadence: unknown cadence 'exakt'; did you mean 'exact'?",
        ),
    ],
)
def test_a_mistake_is_refused_by_field_with_the_fix(old, new, said):
    assert old in TEXT
    with pytest.raises(BadInput) as refusal:
        parse(TEXT.replace(old, new))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(BadInput, match="not UTF-8"):
        reading.parse(b"title = '\xff'", "protocol.toml")


def test_a_share_is_a_decimal_and_rounds_up():
    budget = design.Budget(Decimal("0.3"), None)
    assert budget.of(1000) == 300  # 0.3 as a binary float would give 300 by luck, 0.07 would not:
    assert design.Budget(Decimal("0.07"), None).of(100) == 7  # ceil(0.07 * 100.0) is 8 in binary floats
    assert design.Budget(Decimal("0.3"), None).of(1001) == 301
    assert str(design.Budget(Decimal("0.50"), None)) == "0.5"
    assert str(design.Budget(None, 128)) == "128"


def test_an_arm_that_never_evicts_has_one_cell_whatever_the_budgets():
    protocol = parse(TEXT.replace("budgets = [0.8]", "budgets = [0.8, 0.9, 200]"))
    found = [(cell.arm, cell.budget) for cell in grid.cells(protocol)]
    evicting = [
        (arm, budget) for arm in ("crystal", "random", "streaming") for budget in ("0.8", "0.9", "200")
    ]
    assert found == 2 * [("full", "full"), *evicting]  # two tasks


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


def test_an_interval_is_refused_for_an_arm_that_cannot_be_measured_while_decoding():
    text = TEXT.replace('policy = "crystal"', 'policy = "scissorhands"')
    with pytest.raises(
        BadInput, match=r"generation\.interval: NeglectCounts, which arm 'crystal' needs, cannot"
    ):
        parse(text.replace("threads = 1", "threads = 1\ninterval = 8"))


@pytest.mark.parametrize(
    ("cadence", "slack"), [("", True), ('cadence = "slack"', True), ('cadence = "exact"', False)]
)
def test_a_registered_interval_is_that_of_every_arm_that_evicts(cadence, slack):
    text = TEXT.replace("threads = 1", f"threads = 1\ninterval = 8\n{cadence}")
    protocol = parse(text.replace('policy = "crystal"', 'policy = "snapkv"'))
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
        "missing",
        "at_least",
    }


LOSSLESS = TEXT.replace("at_least = 1", "margin = 0.03").replace('method = "sign-flip"', 'method = "t"')


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
def test_a_margin_is_locked_as_it_was_written(rule):
    decision = parse(LOSSLESS.replace('"superior"', f'"{rule}"')).content()["decision"]
    assert (decision["rule"], decision["margin"], "at_least" in decision) == (rule, "0.03", False)


@pytest.mark.parametrize(
    ("rule", "old", "new", "said"),
    [
        ("superior", "", "", "decision.at_least: missing"),
        ("superior", "margin = 0.03", "at_least = 1\nmargin = 0.03", "decision.margin: unknown field"),
        ("equivalent", "margin = 0.03", "", "decision.margin: missing"),
        ("equivalent", "margin = 0.03", "margin = 3", "decision.margin: write a number from 0.001 to 0.5"),
        ("equivalent", "margin = 0.03", "margin = 0", "decision.margin: write a number"),
        ("equivalent", '"t"', '"bootstrap"', "decision.method: bootstrap has no test of a margin here"),
        ("non_inferior", '"t"', '"max-t"', "decision.method: max-t has no test of a margin here; write t"),
    ],
)
def test_a_margin_stands_with_a_rule_that_needs_it_and_with_no_other(rule, old, new, said):
    text = LOSSLESS.replace('"superior"', f'"{rule}"')
    text = text.replace(old, new) if old else text
    with pytest.raises(BadInput) as refused:
        parse(text)
    assert said in str(refused.value)


def test_the_exact_bootstrap_has_no_draws_and_no_seed():
    drawn = TEXT.replace('method = "sign-flip"', 'method = "exact-bootstrap"')
    with pytest.raises(BadInput, match=r"decision\.draws: unknown field"):
        parse(drawn)
    text = re.sub(r"^(draws|seed) = .*\n", "", drawn, flags=re.MULTILINE)
    assert parse(text).decision.draws is parse(text).decision.seed is None
    assert not {"draws", "seed"} & parse(text).content()["decision"].keys()
    with pytest.raises(BadInput, match=r"decision\.draws: missing"):
        parse(text.replace("exact-bootstrap", "bootstrap"))


def test_max_t_is_a_method_for_families_and_not_for_a_branch():
    text = TEXT.replace('method = "sign-flip"', 'method = "max-t"')
    assert parse(text).decision.method == "max-t"
    branch = 'rule = "branch"\nprimary_model = "a"\ntransfer_model = "b"'
    text = text.replace('rule = "superior"', branch).replace("at_least = 1\n", "")
    with pytest.raises(BadInput, match=r"decision\.method: max-t is for whole families, and branch"):
        parse(text)


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
    confirmed = protocol.confirmed(winner)
    assert [arm.name for arm in confirmed.arms] == ["full", "chosen", "streaming", "snapkv"]
    assert confirmed.policy("chosen") == protocol.policy(winner)
    assert grid.cells(confirmed) == grid.cells(protocol), "the grid is the same whoever wins"
    assert {cell.seed for cell in grid.cells(protocol)} == {0}


def test_a_probe_of_a_sweep_runs_its_candidates_and_the_baseline_twice_with_its_own_seeds():
    probed = parse(SWEPT).probed()
    assert [arm.name for arm in probed.arms] == ["h2o", "random", "streaming", "streaming (again)"]
    assert probed.policy("streaming (again)") == probed.policy("streaming")
    assert {cell.seed for cell in grid.cells(probed)} == {3, 4}


def test_a_probe_without_a_sweep_runs_every_arm_and_the_first_comparator_twice():
    probed = parse(TEXT).probed()
    assert [arm.name for arm in probed.arms] == ["full", "crystal", "random", "streaming", "random (again)"]
    assert probed.seeds == (0,)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "chosen"', 'name = "full"', "sweep.name: 'full' is an arm; give the winner a name"),
        ('name = "chosen"', 'name = "h2o (again)"', "sweep.name: h2o (again): a name ending in ' (again)'"),
        ('subject = "chosen"', 'subject = "h2o"', "a sweep confirms its winner, 'chosen'"),
        ('["h2o", "random"]', '["h2o", "radom"]', "sweep.candidates: unknown evicting arm 'radom'"),
        ('["h2o", "random"]', '["h2o", "full"]', "sweep.candidates: unknown evicting arm 'full'"),
        ('["h2o", "random"]', '["h2o"]', "sweep.candidates: name at least two"),
        ('["h2o", "random"]', '["h2o", "h2o"]', "sweep.candidates: h2o stands twice"),
        ('baseline = "streaming"', 'baseline = "full"', "sweep.baseline: unknown evicting arm 'full'"),
        ('baseline = "streaming"', 'baseline = "h2o"', "sweep.baseline: h2o is a candidate"),
        ("seeds = [3, 4]", "seeds = [3, 3]", "sweep.seeds: 3 stands twice"),
        ("tolerance = 0.005", "tolerance = 0.5", "sweep.tolerance: write a number from 0 to 0.1"),
        ("tolerance = 0.005", "tolerence = 0.005", "sweep.tolerance: missing; 'tolerence' is unknown"),
        ("seeds = [3, 4]", "seeds = [3]\nsplit = 1", "sweep.split: unknown field 'split'"),
        (
            'against = ["streaming"]',
            'against = ["random"]',
            "decision.against: unknown evicting arm 'random'",
        ),
        ('beside = ["snapkv"]', 'beside = ["h2o"]', "decision.beside: unknown evicting arm 'h2o'"),
        ('beside = ["snapkv"]', 'beside = ["streaming"]', "decision.beside: streaming is in the family"),
        ('memory = "slots"', 'memory = "bytes"', "decision.memory: unknown memory 'bytes'"),
        ("threads = 1", 'threads = 1\nprompt = "pined"', "did you mean 'pinned'?"),
    ],
)
def test_a_mistaken_sweep_is_refused_by_field_with_the_fix(old, new, said):
    assert old in SWEPT
    with pytest.raises(BadInput) as refusal:
        parse(SWEPT.replace(old, new))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_pinned_prompt_is_protected_by_every_arm_that_evicts_and_by_no_other():
    pinned = parse(TEXT.replace("threads = 1", 'threads = 1\nprompt = "pinned"'))
    assert pinned.content()["generation"]["prompt"] == "pinned"
    for name in ("crystal", "random", "streaming"):
        assert pinned.policy(name) == policies.pinned(parse(TEXT).policy(name))
        assert pinned.policy(name) != parse(TEXT).policy(name)
    assert pinned.policy("full") == parse(TEXT).policy("full")
    competing = parse(TEXT.replace("threads = 1", 'threads = 1\nprompt = "competes"'))
    assert competing.policy("random") == parse(TEXT).policy("random")


def test_workers_are_written_where_they_were_registered_and_at_least_one():
    assert "workers" not in parse(TEXT).content()["generation"]
    assert parse(TEXT.replace("threads = 1", "threads = 1\nworkers = 2")).generation.workers == 2
    with pytest.raises(BadInput, match=r"generation\.workers: write a whole number from 1 to 256, not 0"):
        parse(TEXT.replace("threads = 1", "threads = 1\nworkers = 0"))


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
    ]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (("[randomness]", 'source = "dice"'), "randomness.source: unknown source 'dice'"),
        (("[randomness]", 'source = "nonce"'), "randomness.auditor: missing"),
        (("[randomness]", 'source = "nonce"', f'auditor = "{KEY} me"'), "without a comment"),
        (("[randomness]", 'source = "nonce"', f'auditor = "{KEY[:-1]}"'), "write the auditor's public key"),
        (("[randomness]", 'source = "nonce"', 'auditor = "ssh-rsa AAAA"'), "ssh-ed25519 AAAA..."),
        (("[randomness]", 'source = "nonce"', f'auditor = "{KEY}"', "round = 1"), "unknown field 'round'"),
        (("[randomness]", 'source = "beacon"', 'name = "drand"'), "randomness.round: missing"),
        (("[randomness]", 'source = "beacon"', 'name = "drand"', "round = 0"), "round: write a whole number"),
        (("[randomness]", 'source = "beacon"', "round = 1"), "randomness.name: missing"),
        (("[randomness]", 'source = "anchor"', 'name = "x"'), "randomness.name: unknown field 'name'"),
        (
            ("[exclude]", "prompt_tokens_above = 0"),
            "exclude.prompt_tokens_above: write a whole number from 1",
        ),
        (("[exclude]", "prompt_tokens_over = 9"), "exclude.prompt_tokens_above: missing"),
        (("[exclude]", "prompt_tokens_above = 9", 'grade = "wrong"'), "exclude.grade: unknown field"),
    ],
)
def test_a_mistaken_late_source_or_exclusion_is_refused_by_field(tables, said):
    with pytest.raises(BadInput) as refusal:
        parse(with_tables(*tables))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_prompt_above_the_limit_is_excluded_and_one_at_it_is_not():
    protocol = parse(with_tables("[exclude]", "prompt_tokens_above = 300"))
    assert protocol.content()["exclude"] == {"prompt_tokens_above": 300}
    assert protocol.excludes(300) is None
    assert protocol.excludes(301) == "prompt_tokens: 301, above 300"
    assert protocol.probed().excludes(301), "in the probe as well"
    assert parse(TEXT).excludes(2**20) is None


def test_what_a_missing_lane_does_is_one_of_two_words():
    old = 'missing = "inconclusive"'
    assert parse(TEXT.replace(old, 'missing = "wrong"')).content()["decision"]["missing"] == "wrong"
    with pytest.raises(BadInput, match=r"decision\.missing: unknown missing 'dropped'"):
        parse(TEXT.replace(old, 'missing = "dropped"'))
