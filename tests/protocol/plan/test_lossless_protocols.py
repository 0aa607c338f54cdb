"""What may be registered about the full cache, and what is said of the rest."""

import pytest
from studies import PROTOCOL

from analysis.rules.rule import arm_pairs
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from protocol.formats.refusals import BadInput
from protocol.plan import grid, toml_reader

PLAIN = (
    PROTOCOL.format(model="/nowhere")
    .replace("at_least = 1", "margin = 0.03")
    .replace('method = "sign-flip"', 'method = "t"')
    .replace('rule = "superior"', 'rule = "non_inferior"')
    .replace('against = ["random", "streaming"]', 'against = ["full"]')
)
SMALLEST = PLAIN.replace('"non_inferior"', '"smallest_lossless"').replace("budgets = [0.8]", "budgets = [96, 160]")
SHARED = SMALLEST + 'others = ["random", "streaming"]\n'


def read(text: str):
    return toml_reader.parse(text.encode(), "protocol.toml")


@pytest.mark.parametrize("rule", ["non_inferior", "equivalent"])
def test_a_lossless_rule_is_registered_against_the_full_cache(rule):
    design = read(PLAIN.replace('"non_inferior"', f'"{rule}"'))
    assert design.decision.against == ("full",)
    assert len(design.contrast_models()) == 2  # tasks


def test_others_are_left_out_or_counted_in_the_family():
    alone, shared = read(SMALLEST), read(SHARED)
    assert "others" not in alone.content()["decision"]
    assert shared.content()["decision"]["others"] == ["random", "streaming"]
    assert len(alone.contrast_models()) == 2 * 2  # tasks, budgets
    assert len(shared.contrast_models()) == 2 * 2 * 3
    assert arm_pairs(shared.content()["decision"]) == [("crystal", "full"), ("random", "full"), ("streaming", "full")]
    items = {task.name: {"confirm": ["p"] * 7} for task in shared.tasks}
    planned = planned_contrasts(StudyPlan(shared.content(), [list(cell) for cell in grid.cells(shared)], items))
    assert [one.model for one in planned] == shared.contrast_models()


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (PLAIN, '["full"]', '["full", "random"]', "decision.against: full holds more memory on purpose"),
        (
            PLAIN.replace("margin = 0.03", "at_least = 1"),
            '"non_inferior"',
            '"superior"',
            "decision.against: unknown evicting arm 'full'",
        ),
        (PLAIN, 'full = { policy = "full" }', 'full = { policy = "h2o" }', "full is no arm that never evicts; add"),
        (PLAIN.replace("full = {", "all = {"), '["full"]', '["all"]', "decision.against: unknown evicting arm 'all'"),
        (PLAIN, 'subject = "crystal"', 'subject = "full"', "decision.subject: unknown evicting arm 'full'"),
        (SMALLEST, '["full"]', '["random"]', "against: smallest_lossless is about the full cache; write against"),
        (SMALLEST, "[96, 160]", "[96]", "budgets: smallest_lossless goes from the largest down; give two or more"),
        (SMALLEST, "[96, 160]", "[96, 0.5]", "budgets: smallest_lossless puts them in order; give shares alone"),
        (SHARED, '["random", "streaming"]', '["random", "randon"]', "decision.others: unknown evicting arm 'randon'"),
        (SHARED, '["random", "streaming"]', '["random", "random"]', "decision.others: random stands twice"),
        (SHARED, '["random", "streaming"]', '["crystal"]', "decision.others: crystal is compared already"),
        (SHARED, '["random", "streaming"]', '["full"]', "decision.others: unknown evicting arm 'full'"),
        (SHARED, '["random", "streaming"]', "[]", "decision.others: write a list with at least one entry"),
        (SHARED, "others", 'beside = ["random"]\nothers', "decision.beside: random is in the family already"),
        (SHARED, '"smallest_lossless"', '"non_inferior"', "decision.others: unknown"),
    ],
)
def test_what_cannot_be_asked_of_the_full_cache_is_refused_with_the_fix(text, old, new, says):
    assert old in text
    with pytest.raises(BadInput) as refused:
        read(text.replace(old, new))
    assert says in str(refused.value)


@pytest.mark.parametrize("text", [PLAIN, SMALLEST], ids=["non_inferior", "smallest_lossless"])
def test_a_thousandth_of_the_memory_is_not_saved(text):
    assert "cache_tolerance = 0.02\n" in text
    read(text.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.01\n"))
    with pytest.raises(BadInput, match="would be called lossless"):
        read(text.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.001\n"))


CLAIMED = PROTOCOL.format(model="/nowhere") + "\n[claims]\n"


@pytest.mark.parametrize(
    "claim",
    [
        '{ arm = "random", parent = "full", says = "worse" }',
        '{ arm = "crystal", parent = "full", says = "same", margin = 0.03 }',
        '{ arm = "streaming", parent = "full", says = "better" }',
    ],
)
def test_a_claim_may_compare_an_arm_with_the_full_cache_beside_a_rule_that_may_not(claim):
    (read_back,) = read(f"{CLAIMED}lossy = {claim}\n").claims
    assert read_back.parent == "full"


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ('{ arm = "full", says = "better" }', "claims.lossy.arm: unknown evicting arm 'full'; write one of"),
        ('{ arm = "full", parent = "full", says = "worse" }', "claims.lossy.arm: unknown evicting arm"),
        (
            '{ arm = "random", parent = "fulll", says = "worse" }',
            "claims.lossy.parent: unknown arm 'fulll'; did you mean 'full'?",
        ),
    ],
)
def test_no_claim_is_about_the_full_cache_or_an_arm_that_is_not_there(claim, says):
    with pytest.raises(BadInput) as refused:
        read(f"{CLAIMED}lossy = {claim}\n")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_claim_about_a_thousandth_of_the_memory_is_refused():
    claimed = f'{CLAIMED}lossy = {{ arm = "random", parent = "full", says = "worse" }}\n'
    assert "cache_tolerance = 0.02\n" in claimed
    read(claimed.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.01\n"))
    small = claimed.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.001\n")
    with pytest.raises(BadInput, match=r"claims\.lossy would compare an arm that holds 99\.90 %"):
        read(small)
    read(small.replace('parent = "full"', 'parent = "crystal"'))
