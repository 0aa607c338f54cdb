"""What registering says of scores and clusters: which methods take them, and at which size they are tried."""

import pytest
from looped import looped
from test_error_rates_of_a_protocol import design

from analysis.stats.methods import METHODS, effective_clusters, resampling_problems
from protocol import register
from protocol.formats.refusals import BadInput
from protocol.instruments.exports import lock_sentences
from protocol.preflight import planned_size, rule_checks

OTHERS = [name for name in METHODS if name != "betting"]


def items(problems: int, clusters: int | None = None) -> dict:
    ids = [f"p{number:04d}" for number in range(problems)]
    item = {"dev": [], "confirm": ids, "manifest": "0"}
    if clusters:
        item["clusters"] = {problem: str(place % clusters) for place, problem in enumerate(ids)}
    return {task: dict(item) for task in ("needle-256", "association-256")}


@looped("method", OTHERS)
@looped("what", ["scored answers", "clusters"])
def test_every_method_but_bets_is_refused_in_one_line_that_names_bets(method, what):
    clusters, task = (30, "needle-256") if what == "clusters" else (None, "association-256")
    scored = [task] if what == "scored answers" else []
    other = ", or take one problem of each cluster" if clusters else ""
    for refuse in (rule_checks.refuse_method, rule_checks.check_rule):
        with pytest.raises(BadInput) as refused:
            refuse(design(1, method), items(287, clusters), scored=scored)
        left_out = " and leave out draws and seed" if METHODS[method].draws else ""
        assert str(refused.value) == (
            f"decision.method: {method} is valid only for answers that are right or wrong and for independent "
            f"problems, but {task} has {what}; write betting{left_out}{other}"
        )


def test_one_cluster_of_two_problems_is_enough():
    given = items(200)
    given["needle-256"]["clusters"] = {"p0000": "a", "p0001": "a"}
    with pytest.raises(BadInput, match="needle-256 has clusters"):
        rule_checks.refuse_method(design(1, "t"), given, [])


@looped("method", METHODS)
def test_right_and_wrong_answers_are_taken_by_every_method_and_all_data_by_bets(method):
    rule_checks.refuse_method(design(1, method), items(287), [])
    rule_checks.refuse_method(design(1, method), items(287, 287), [])
    rule_checks.refuse_method(design(1, "betting"), items(287, 30), ["needle-256"])


def test_a_replication_keeps_the_method_of_its_parent(monkeypatch):
    monkeypatch.setattr(rule_checks.self_test, "run_self_test", lambda plan: {})
    found = rule_checks.check_rule(design(1, "t"), items(60, 12), is_replication=True)
    assert float(found["problems"]["12"]["type_one_over_nominal"]) > 2
    with pytest.raises(BadInput, match="auto is valid only for answers that are right or wrong"):
        rule_checks.refuse_method(design(1, "auto"), items(60, 12), [], is_replication=True)


def test_the_rule_is_tried_on_one_problem_of_each_cluster_and_the_method_on_the_clusters(monkeypatch):
    tried = []
    monkeypatch.setattr(rule_checks.self_test, "run_self_test", lambda plan: tried.append(plan.items) or {})
    found = rule_checks.check_rule(design(1, "betting"), items(280, 40))
    assert list(found["problems"]) == ["40"]
    assert "of a cluster" in found["problems"]["40"]["type_one_setting"]
    assert [len(one["needle-256"]["confirm"]) for one in tried] == [40]
    assert not any("clusters" in item for one in tried for item in one.values())


@pytest.mark.parametrize(("method", "verdict"), [("t", "holds"), ("bootstrap", "refused")])
def test_a_cluster_of_its_own_for_every_problem_changes_nothing(method, verdict, monkeypatch):
    """At 60 problems and 2 contrasts the bootstrap errs, and t does not: with labels as without."""
    monkeypatch.setattr(rule_checks.self_test, "run_self_test", lambda plan: {})
    found = []
    for given in (items(60), items(60, 60)):
        try:
            found.append(rule_checks.check_rule(design(1, method), given))
        except BadInput as refused:
            found.append(str(refused))
    assert found[0] == found[1]
    assert isinstance(found[0], str) == (verdict == "refused")


def test_of_a_task_with_clusters_the_first_problem_of_each_is_tried():
    item = {"confirm": ["d", "b", "c", "a"], "clusters": {"a": "x", "b": "y", "c": "y", "d": "x", "dev": "z"}}
    assert resampling_problems(item) == ["d", "b"]
    assert resampling_problems({"confirm": ["d", "b"]}) == ["d", "b"]


def test_uneven_clusters_are_tried_as_so_many_of_one_size_as_weigh_alike():
    """Sizes 6, 1, 1, 1, 1: 100 / 40 = 2.5."""
    item = {"confirm": list("abcdefghij"), "clusters": dict.fromkeys("abcdef", "x")}
    assert effective_clusters(item["clusters"].get(one, one) for one in item["confirm"]) == 2
    assert resampling_problems(item) == ["a", "g"]
    lock = {"items": {"mine": item}, "checks": {"tests": 1}, "protocol": {"content": {"decision": {"method": "t"}}}}
    said = " ".join(lock_sentences.analysis(lock))
    assert "mine come in 5 clusters (effective number 2): wherever problems are resampled" in said


@pytest.mark.parametrize("sizes", [(70, 70, 70, 70), (1000, *[1] * 200)])
def test_few_or_uneven_clusters_are_refused_in_one_line(sizes):
    given = items(sum(sizes))
    labels = [str(place) for place, size in enumerate(sizes) for _ in range(size)]
    given["needle-256"]["clusters"] = dict(zip(given["needle-256"]["confirm"], labels, strict=True))
    with pytest.raises(
        BadInput, match=r"^tasks\.needle-256: cluster: .* an effective number of [14] clusters, [^\n]*$"
    ):
        rule_checks.check_rule(design(1, "t"), given)
    with pytest.raises(BadInput, match=r"^tasks\.needle-256: cluster: "):
        planned_size.detectable_effects(design(1, "t"), given)


def test_signs_of_too_few_problems_are_no_matter_of_draws():
    """Of 6 problems the smallest p is 2 / 2^6."""
    with pytest.raises(BadInput, match=r"sign-flip with 6 problems cannot give a p below 0\.03125"):
        rule_checks.check_rule(design(1, "sign-flip"), items(6))


def lock(scored=(), clusters=None):
    checks = {
        "tests": 4,
        "corrected_alpha": "0.012500",
        "problems": {
            str(clusters or 280): {"type_one_over_nominal": "1.0", "minimal_detectable_effect": {"0.2": "0.1"}}
        },
    }
    decision = {"method": "t", "missing": "inconclusive"}
    return {
        "checks": checks | ({"scored": list(scored)} if scored else {}),
        "items": items(280, clusters),
        "protocol": {"content": {"decision": decision}},
    }


def test_a_registration_text_says_what_is_scored_and_of_what_its_numbers_are():
    made = lock(scored=["needle-256"])
    assert "their accuracy is the mean score" in " ".join(lock_sentences.outcomes(made))
    assert "every score counts as it is" in " ".join(lock_sentences.exclusions(made))
    assert "scores, such as those of needle-256, were not simulated" in " ".join(lock_sentences.power(made))
    plain = lock()
    every = [*lock_sentences.outcomes(plain), *lock_sentences.power(plain), *lock_sentences.analysis(plain)]
    assert not any("score" in said or "cluster" in said for said in every)


def test_a_registration_text_counts_clusters():
    made = lock(clusters=40)
    assert "With 40 clusters, the smallest difference" in " ".join(lock_sentences.power(made))
    assert "The problems of needle-256 come in 40 clusters" in " ".join(lock_sentences.analysis(made))


def test_registering_says_that_its_errors_do_not_know_scores():
    assert register.format_scored({}) == []
    assert register.format_scored({"scored": ["qasper"]}) == [
        "error rates and power are for right and wrong answers, but answers of qasper have scores"
    ]
