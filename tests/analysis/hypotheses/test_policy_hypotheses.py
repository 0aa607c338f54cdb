"""What is declared of policies is what they are."""

from looped import looped

import policies
from analysis.hypotheses import paper_table
from analysis.hypotheses.policy_hypotheses import (
    FAMILY_OF_COMPONENT,
    HYPOTHESES,
    TRIATTENTION_MODES,
    family_of,
    list_ancestors,
    list_gates,
)
from analysis.hypotheses.study_outcomes import COLLAPSE, FEW, WRONG, canonical_name
from analysis.judgement import failure_modes, judgement
from policies.catalogue import CATALOGUE, COMPONENTS

HERE = [name for name in HYPOTHESES if name in CATALOGUE]
PARENTS = {name: HYPOTHESES[name].parent for name in HERE if HYPOTHESES[name].parent in CATALOGUE}


def test_every_policy_is_declared_and_no_other():
    assert set(HYPOTHESES) == set(CATALOGUE)


@looped("name", PARENTS)
def test_a_policy_differs_from_what_it_starts_from_in_the_component_that_is_declared(name):
    differing = policies.diff(policies.get(name), policies.get(PARENTS[name]))
    assert list(differing) == ([HYPOTHESES[name].component] if HYPOTHESES[name].component else [])


def test_what_differs_is_a_component_and_five_of_these_are_families_of_intervention():
    assert {row.component for row in HYPOTHESES.values()} - {""} <= set(COMPONENTS)
    assert set(FAMILY_OF_COMPONENT) < set(COMPONENTS)
    assert list(dict.fromkeys(FAMILY_OF_COMPONENT.values())) == ["state", "routing", "cadence", "decoding", "scoring"]


def test_gates_start_from_triattention_and_are_all_that_do_but_the_control_and_the_comparator():
    start = {name for name in HYPOTHESES if {*list_ancestors(name)} & set(TRIATTENTION_MODES)}
    assert start - set(list_gates()) == {"state_ask", "snapkv_with_window", "syn_mem"}
    assert set(list_gates()) < start
    assert not [name for name in TRIATTENTION_MODES if HYPOTHESES[name].parent]


def test_a_second_name_of_a_policy_counts_as_its_first():
    assert canonical_name("streamingllm-rkv") == "streaming"
    assert canonical_name("syn_mem") == "syn_mem-3"
    assert canonical_name("1d_div") == "1d_div"
    assert canonical_name("of-another-distribution") == "of-another-distribution"


def test_ancestors_are_named_from_the_parent_on():
    assert list_ancestors("pyramid-1d_div") == ["pyramid-1d", "1d-per-head"]
    assert list_ancestors("1d") == []


@looped("name", HYPOTHESES)
def test_a_hypothesis_is_one_sentence(name):
    said = HYPOTHESES[name].hypothesis
    assert said[0].isupper() or said[0].isdigit()
    assert said.endswith(".")
    assert len(said) <= 110


def test_the_paper_killed_seven_gates_and_one_survived_it():
    killed = [one for one in paper_table.QUOTED_GATES if one.verdict.startswith("Killed")]
    assert len(killed) == 7
    assert [one.gate for one in paper_table.QUOTED_GATES if one not in killed] == ["alpha (lambda = 0.5)"]
    assert [one.verdict for one in killed].count("Killed") == 6  # one is a screening-grade kill
    modes = sorted(one.mode for one in killed)
    assert modes == sorted(
        ["Proxy-to-runtime drift"] * 3
        + ["Iso-cache under-performance"] * 2
        + ["Family-level bundling", "n = 50 instability"]
    )


def test_a_gate_of_the_paper_is_of_the_same_family_here():
    for one in paper_table.QUOTED_GATES:
        assert {family_of(name) for name in one.policies} == {one.family.lower()}


def test_thresholds_are_those_of_the_judge_and_of_the_diagnostics():
    assert FEW == judgement.MIN_CONFIRMATORY
    assert (COLLAPSE, WRONG) == (failure_modes.COLLAPSE_SHARE, failure_modes.MIN_WRONG)
