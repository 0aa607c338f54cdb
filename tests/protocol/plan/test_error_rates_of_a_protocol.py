"""What registering says of a method and a rule at the planned size, and what it refuses."""

import numpy as np
import pytest
import studies
from sampled import sampled

from analysis.stats.methods import METHODS
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.preflight import planned_size, rule_checks

TEXT = studies.PROTOCOL.format(model="x")


def design(seeds: int = 1, method: str = "sign-flip", **replace: str):
    text = TEXT.replace("seeds = [0]", f"seeds = {[*range(seeds)]}")
    text = text.replace(
        'method = "sign-flip"\ndraws = 10000\nseed = 7',
        f'method = "{method}"' + ("\ndraws = 200000\nseed = 7" if METHODS[method].draws else ""),
    )
    if seeds > 1:
        text = text.replace("temperature = 0", "temperature = 0.6")
    for old, new in replace.items():
        text = text.replace(old, new)
    return toml_reader.parse(text.encode(), "p.toml")


def items(problems: int) -> dict:
    ids = [f"p{number:04d}" for number in range(problems)]
    return {task: {"dev": [], "confirm": ids} for task in ("needle-256", "association-256")}


@pytest.fixture
def untried(monkeypatch):
    """Without the simulated studies, which other tests try."""
    monkeypatch.setattr(rule_checks.self_test, "run_self_test", lambda plan: {})


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("method", ["t", "sign-flip", "bootstrap", "max-t"])
def test_a_method_that_errs_somewhere_is_refused_by_its_setting_and_another_is_named(method):
    with pytest.raises(BadInput) as refused:
        rule_checks.check_rule(design(3, method), items(287))
    said = str(refused.value)
    assert said.startswith(f"decision.method: {method} at 287 problems and 3 seeds decides ")
    assert "of problems differ, the subject gains one seed in many and loses all in few" in said
    assert said.endswith("use restricted-likelihood, which is valid there")


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("case", sampled([(3, "restricted-likelihood"), (3, "auto"), (1, "sign-flip"), (1, "t")], of=2))
def test_a_method_that_holds_is_locked_with_the_setting_where_it_errs_most(case):
    seeds, method = case
    found = rule_checks.check_rule(design(seeds, method), items(287))
    (size,) = found["problems"].values()
    assert float(size["type_one_over_nominal"]) <= 1.2
    assert " differ, " in size["type_one_setting"]
    assert float(found["decision_errors"]["confirmed"]["share"]) < 0.05
    assert " differ, " in found["decision_errors"]["setting"]


@pytest.mark.usefixtures("untried")
def test_a_replication_decides_as_its_parent_did_and_says_how_often_that_errs():
    found = rule_checks.check_rule(design(3, "t"), items(287), is_replication=True)
    assert float(found["problems"]["287"]["type_one_over_nominal"]) > 2


@pytest.mark.usefixtures("untried")
def test_what_is_not_in_the_table_is_simulated_and_said(capsys):
    found = rule_checks.check_rule(design(4, "t"), items(320), is_replication=True)
    assert not capsys.readouterr().err  # between four entries that fail alike
    assert float(found["problems"]["320"]["type_one_over_nominal"]) > 2
    rule_checks.check_rule(design(7, "t"), items(320), is_replication=True)
    assert "is not in the table of error rates" in capsys.readouterr().err


def test_the_margin_of_a_rule_is_tried_at_its_own_levels(monkeypatch):
    asked = []
    real = rule_checks.type_one_error.worst_margin_error
    monkeypatch.setattr(rule_checks.type_one_error, "worst_margin_error", lambda *at: asked.append(at) or real(*at))
    margin = design(
        3, "restricted-likelihood", **{'rule = "superior"': 'rule = "non_inferior"', "at_least = 1": "margin = 0.05"}
    )
    units = planned_size.describe_units(items(40)["needle-256"], False)
    found = rule_checks._estimate_type_one(margin, "restricted-likelihood", units, 0.05 / 4, np.random.default_rng(0))
    assert [at[3:5] for at in asked] == [(0.05, (0.05, 0.0125))]
    assert not found.exceeds()
    assert found.setting.loss_kind
