"""What is declared of policies is what they are."""

import pytest

import policies
from analysis.hypotheses import paper
from analysis.hypotheses.declared import DECLARED, STARTS, SURFACES, ancestors, gates, surface
from analysis.hypotheses.outcomes import COLLAPSE, FEW, WRONG, canonical
from analysis.studies import failure_modes, judgement
from policies.catalogue import CATALOGUE, COMPONENTS

HERE = [name for name in DECLARED if name in CATALOGUE]
PARENTS = {name: DECLARED[name].parent for name in HERE if DECLARED[name].parent in CATALOGUE}


def test_every_policy_is_declared_and_no_other():
    assert set(DECLARED) == set(CATALOGUE)


@pytest.mark.parametrize("name", PARENTS)
def test_a_policy_differs_from_what_it_starts_from_in_the_component_that_is_declared(name):
    differing = policies.diff(policies.get(name), policies.get(PARENTS[name]))
    assert list(differing) == ([DECLARED[name].component] if DECLARED[name].component else [])


def test_what_differs_is_a_component_and_five_of_these_are_families_of_intervention():
    assert {row.component for row in DECLARED.values()} - {""} <= set(COMPONENTS)
    assert set(SURFACES) < set(COMPONENTS)
    assert list(dict.fromkeys(SURFACES.values())) == ["state", "routing", "cadence", "decoding", "scoring"]


def test_gates_start_from_triattention_and_are_all_that_do_but_the_control_and_the_comparator():
    start = {name for name in DECLARED if {*ancestors(name)} & set(STARTS)}
    assert start - set(gates()) == {"state_ask", "snapkv_with_window", "syn_mem"}
    assert set(gates()) < start
    assert not [name for name in STARTS if DECLARED[name].parent]


def test_a_second_name_of_a_policy_counts_as_its_first():
    assert canonical("streamingllm-rkv") == "streaming"
    assert canonical("syn_mem") == "syn_mem-3"
    assert canonical("1d_div") == "1d_div"
    assert canonical("of-another-distribution") == "of-another-distribution"


def test_ancestors_are_named_from_the_parent_on():
    assert ancestors("pyramid-1d_div") == ["pyramid-1d", "1d-per-head"]
    assert ancestors("1d") == []


@pytest.mark.parametrize("name", DECLARED)
def test_a_hypothesis_is_one_sentence(name):
    said = DECLARED[name].hypothesis
    assert said[0].isupper() or said[0].isdigit()
    assert said.endswith(".")
    assert len(said) <= 110


def test_the_paper_killed_seven_gates_and_one_survived_it():
    killed = [one for one in paper.SAID if one.verdict.startswith("Killed")]
    assert len(killed) == 7
    assert [one.gate for one in paper.SAID if one not in killed] == ["alpha (lambda = 0.5)"]
    assert [one.verdict for one in killed].count("Killed") == 6  # one is a screening-grade kill
    modes = sorted(one.mode for one in killed)
    assert modes == sorted(
        ["Proxy-to-runtime drift"] * 3
        + ["Iso-cache under-performance"] * 2
        + ["Family-level bundling", "n = 50 instability"]
    )


def test_a_gate_of_the_paper_is_of_the_same_family_here():
    for one in paper.SAID:
        assert {surface(name) for name in one.ours} == {one.family.lower()}


def test_thresholds_are_those_of_the_judge_and_of_the_diagnostics():
    assert FEW == judgement.CONFIRMATORY
    assert (COLLAPSE, WRONG) == (failure_modes.COLLAPSE, failure_modes.FEW)
