"""A rule is tried on studies whose full cache cannot do the task, before it is locked."""

import pytest
import study
from sampled import sampled

from analysis.judgement import gate, judgement
from analysis.rules import full_cache_gate
from analysis.simulation import self_test
from analysis.simulation.simulated_studies import StudyPlan

NEEDED = {"accuracy": "0.5", "truncated": "0.1"}
STUDIES = [
    "the full cache cannot do the task",
    "the full cache cannot do the task, and contrasts are lost",
    "the answers of the full cache are cut",
]


def plan(needed=NEEDED, problems: int = 40, **decision) -> StudyPlan:
    """Two models and two tasks: of four places one fails in each study."""
    content = study.content(**decision) | {"models": ["qwen", "llama"], "gate": needed}
    content["tasks"] = [{"name": name, "query": "inside", "max_new_tokens": 12} for name in ("needle", "chain")]
    ids = [f"p{number:03d}" for number in range(problems)]
    return StudyPlan(content, study.cells(content), study.items(content, ids))


def equivalent(**more) -> StudyPlan:
    return plan(rule="equivalent", margin="0.2", at_least=None, method="t", **more)


@pytest.mark.parametrize("made", [plan, equivalent])
def test_a_registered_gate_bites_in_every_rule(made):
    found = self_test.run_self_test(made())
    assert {name: found["gates"][name] for name in STUDIES} == dict.fromkeys(STUDIES, "INCONCLUSIVE")
    assert list(found["verdicts"].values()).count("CONFIRMED") == 1, "the made-up full cache passes elsewhere"


@pytest.mark.parametrize("published", sampled(["0.503", "0.95", "0.507"], of=3))
def test_a_published_number_is_reproduced_in_the_made_up_studies(published):
    place = {"model": "qwen", "task": "chain", "published": published, "margin": "0.02"}
    assert self_test.run_self_test(plan(NEEDED | {"places": [place]}))["gates"]


def test_a_published_number_that_no_share_of_the_problems_meets_is_refused():
    place = {"model": "qwen", "task": "chain", "published": "0.593", "margin": "0.004"}
    with pytest.raises(self_test.Vacuous, match=r"qwen chain: no number of correct answers among 80 .*0\.593 ± 0\.004"):
        self_test.run_self_test(plan(NEEDED | {"places": [place]}))  # 47 and 48 of 80 are 0.5875 and 0.6


def test_a_judge_without_the_gate_is_refused(monkeypatch):
    monkeypatch.setattr(judgement.gate, "judge_gate", lambda study: None)
    with pytest.raises(self_test.Vacuous, match=f"{STUDIES[0]}: says CONFIRMED, not INCONCLUSIVE"):
        self_test.run_self_test(plan())


def test_a_judge_that_does_not_look_at_what_was_cut_is_refused(monkeypatch):
    real = full_cache_gate.shortfalls
    monkeypatch.setattr(gate.full_cache_gate, "shortfalls", lambda seen, asked: real(seen._replace(cut=0), asked))
    with pytest.raises(self_test.Vacuous, match=f"{STUDIES[2]}: says CONFIRMED"):
        self_test.run_self_test(plan())
