"""No study is locked that could be run and not be judged, drawn or exported."""

import shutil

import generated_protocols
import pytest
import simulated_locks
import studies

from analysis.judgement.judged_folder import judge
from analysis.judgement.untrusted_files import RecordError
from protocol.formats.refusals import BadInput
from protocol.preflight import simulated_study
from protocol.workspace.planned_study import read_protocol

AGAINST_FULL_BESIDE = studies.ONE_TASK | {
    'rule = "superior"': 'rule = "equivalent"',
    'against = ["random", "streaming"]\nat_least = 1': 'against = ["full"]\nbeside = ["random"]\nmargin = 0.1',
    'method = "sign-flip"': 'method = "t"',
}


def content_of(design, problems=6, **checks):
    return simulated_locks.lock_content(design, simulated_locks.plain_items(design, problems), **checks)


def test_arms_beside_a_rule_about_the_full_cache_are_judged(tmp_path):
    _, design = read_protocol(studies.write(tmp_path / "study", "tiny", AGAINST_FULL_BESIDE))
    judged = simulated_study.judge_simulated(simulated_study.write_simulated(tmp_path / "made", content_of(design)))
    beside = judged["beside"]
    assert [(row["subject"], row["against"]) for row in beside["contrasts"]] == [("crystal", "random")]
    assert beside["auxiliary"] == []  # the full cache has no lanes at a budget


def test_a_simulated_study_has_every_registered_lane_and_the_answers_of_the_rule(tmp_path):
    _, design = read_protocol(studies.write(tmp_path / "study", "tiny", studies.SWEEP))
    content = content_of(design)
    folder = simulated_study.write_simulated(tmp_path / "made", content)
    judged = judge(folder)
    assert judged["missing"]["registered"] == len(content["grid"]) * 6
    assert judged["missing"]["lanes"] == 0
    assert judged["selected"]["arm"] in ("h2o", "random")
    failed = judge(simulated_study.write_simulated(tmp_path / "failed", content, simulated_study.Outcome(failed=1)))
    assert failed["missing"]["lanes"] == len(content["grid"])  # one problem of the only task


def test_a_study_that_cannot_be_judged_is_refused(tmp_path, monkeypatch):
    _, design = read_protocol(studies.write(tmp_path / "study", "tiny", studies.ONE_TASK))

    def lacking(folder):
        raise RecordError("lock: grid: lacks full")

    monkeypatch.setattr(simulated_study, "judge", lacking)
    with pytest.raises(BadInput, match=r"simulated study .* gets no verdict .*lacks full.*nothing was locked"):
        simulated_study.refuse_unjudgeable(content_of(design))


def test_registering_judges_a_simulated_study_first(tiny_model, tmp_path, monkeypatch):
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK | {"seed = 7": "seed = 8"})
    monkeypatch.setattr(simulated_study, "judge", lambda folder: {}["contrasts"])
    studies.refused(2, "a simulated study of exactly this grid gets no verdict", "register", folder, drawn=True)
    assert sorted(path.name for path in folder.iterdir()) == ["protocol.toml"]


EARLIER = {"name": "earlier", "lock": "0" * 64}
AMENDS = {"reason": "a fault", "diff": [], "seen": {}, "after_claim": True}
HISTORIES = (
    *({}, {}, {}, {}),
    {"opened": [EARLIER | {"problems": {"chain": ["easy/0"]}}]},
    {"opened": [EARLIER | {"lock": None, "problems": {}}]},
    {"amends": EARLIER | AMENDS},
)  # of a lock: what was opened before it, and what it amends


OUTCOMES = (
    simulated_study.Outcome(),
    simulated_study.Outcome(failed=1),
    simulated_study.Outcome(failed=10_000),
    simulated_study.Outcome(failed=10_000, failing_arms=("full",)),
    simulated_study.Outcome(failed=2, failing_arms=("one", "two", "three", "chosen")),
    simulated_study.Outcome(accuracy=0.0),
    simulated_study.Outcome(accuracy=1.0),
    simulated_study.Outcome(excess=16),
    simulated_study.Outcome(accuracy=0.9, evicts=False),
)


def drawn_protocols(count):
    seeds = iter(range(100_000))
    while count:
        if (drawn := generated_protocols.draw(seed := next(seeds))) is not None:
            count -= 1
            yield seed, drawn


def check_verdict(seed, drawn, folder, *, has_drawings):
    with generated_protocols.any_press():
        content = simulated_locks.lock_content(drawn.design, drawn.items, scored=drawn.scored) | HISTORIES[seed % 7]
    simulated_study.write_simulated(folder, content, OUTCOMES[seed % len(OUTCOMES)])
    judged = simulated_study.judge_simulated(folder, has_drawings=has_drawings)
    assert judged["family"] == len(judged["contrasts"]) == content["checks"]["tests"]
    assert len(judged["arms"]) == len({tuple(cell[:4]) for cell in content["grid"]})


def test_every_protocol_that_passes_its_checks_gets_a_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_study, "LANES", 40)
    for seed, drawn in drawn_protocols(3):
        check_verdict(seed, drawn, tmp_path / f"{seed}", has_drawings=seed == 0)


def test_of_a_task_with_clusters_no_lane_of_which_was_answered_nothing_is_told(tmp_path):
    _, design = read_protocol(studies.write(tmp_path / "study", "tiny", AGAINST_FULL_BESIDE))
    content = simulated_locks.lock_content(design, simulated_locks.plain_items(design, 6, clusters=6))
    judged = judge(simulated_study.write_simulated(tmp_path / "made", content, simulated_study.Outcome(failed=6)))
    assert judged["verdict"] == "SCREENED"
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert [row["n"] for row in judged["contrasts"]] == [0]


@pytest.mark.soak
def test_five_hundred_protocols_that_pass_their_checks_get_a_verdict_and_every_drawing(tmp_path):
    for seed, drawn in drawn_protocols(500):
        check_verdict(seed, drawn, tmp_path / f"{seed}", has_drawings=True)
        shutil.rmtree(tmp_path / f"{seed}")
