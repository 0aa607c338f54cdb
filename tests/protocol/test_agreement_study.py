"""A study whose outcome is agreement with the full cache, from its registration to its audit and report."""

import json
from collections import defaultdict

import pytest
import studies

from analysis.compare.registered_study import study_rows
from analysis.judge import judge
from analysis.rules.sentences import significance_sentences
from figures.plots.accuracy import accuracy
from figures.plots.divergence import read_divergences
from figures.report_page import discordant_answers, report_sections, report_tables
from figures.report_page.judged_study import read_judged_study
from figures.study import list_drawings
from protocol import rehearse
from protocol.evidence.registration import Registration
from protocol.instruments.exports import every_eval_ever, lock_sentences
from protocol.preflight import development_results
from protocol.run import lane_comparison

pytestmark = pytest.mark.usefixtures("same_environment")

AGREEMENT = {
    **studies.ONE_TASK,
    "[generation]": '[outcome]\nkind = "agreement"\n[generation]',
    'random = { policy = "random" }': 'random = { policy = "random", set = { state = "q8_0" } }',
    'memory = "slots"': 'memory = "bytes"',
    "budgets = [0.8]": 'budgets = ["bytes of 150"]',
    "threads = 1": "threads = 1\ninterval = 8\nproblems_per_batch = 2\nlanes_per_batch = 10",
    'method = "sign-flip"\ndraws = 10000\nseed = 7': 'method = "betting"',
}


@pytest.mark.soak
def test_a_study_of_agreement_is_registered_confirmed_audited_and_drawn(tmp_path, wide_model):
    folder = studies.write(tmp_path / "registrations" / "agreement", wide_model, AGREEMENT)
    studies.ran(0, "register", folder)
    locked = studies.content(folder / "lock.json")
    assert locked["checks"]["scored"] == ["needle-256"]
    assert locked["chance"] == {}  # nobody knows what agreement a guess has
    studies.ran((10, 11, 12), "confirm", folder)
    bodies = [json.loads(line)["body"] for line in studies.shard_text(folder).splitlines()]
    full = {body["problem"]: body for body in bodies if body["cell"]["arm"] == "full"}
    agreement = defaultdict(list)
    for body in bodies:
        if body["cell"]["arm"] == "full":  # graded as ever
            assert body["grade"] in ("correct", "wrong", "no answer")
            assert "divergence" not in body
            continue
        assert (body["text"], body["stop"]) == (full[body["problem"]]["text"], full[body["problem"]]["stop"])
        digits = body["divergence"]["agrees"]
        assert len(digits) == len(body["divergence"]["nats"]) == body["tokens"] + (body["stop"] == "eos")
        assert body["score"] == f"{sum(map(int, digits)) / len(digits):.6f}"
        agreement[body["cell"]["arm"]].append(float(body["score"]))
    judged = judge(folder)
    for row in judged["arms"]:
        expected = agreement.get(row["arm"], [1.0])  # the full cache agrees with itself, whatever it answers
        assert float(row["accuracy"]) == pytest.approx(sum(expected) / len(expected), abs=1e-6)
    (gate,) = judged["gate"]["places"]
    assert gate["correct"] == sum(body["grade"] == "correct" for body in full.values())
    assert "AGREEMENT" in [qualifier["word"] for qualifier in judged["qualifiers"]]
    assert {row["scored"] for row in judged["contrasts"]} == {"agreement"}
    assert any(sentence.startswith("That more answers are right, or") for sentence in judged["does_not_prove"])
    for entry in read_divergences(folder, locked):
        lanes = [body["divergence"] for body in bodies if body["cell"]["arm"] == entry.arm]
        first = [divergence["nats"][0] / 1e6 for divergence in lanes]
        assert entry.positions[0] in (1, 1.5)  # bins of one or two positions, of 24
        if entry.positions[0] == 1:
            assert entry.nats[0] == pytest.approx(sum(first) / len(first))
    said_elsewhere(folder, judged, locked)
    assert "4 of 4 lanes drawn" in " ".join(studies.ran(0, "audit", folder, "--replay", "4").stdout.split())
    assert studies.here("regrade", folder).stdout.startswith("0 of 48 lanes now have a grade other than")


def said_elsewhere(folder, judged, locked):
    """No reader of its files takes agreement for right answers, or the full cache's text for that of an arm."""
    shown = studies.here("show", folder)
    assert "12 of 12 problems" in shown.stdout
    assert all(row.split()[2] == "0" for row in shown.stdout.splitlines() if row.startswith("needle/"))  # better
    one = " ".join(studies.here("show", folder, "--problem", judged_problem(folder)).stdout.split())
    assert "were fed the full cache's text and did not produce it" in one
    assert "better than the full cache" not in one
    (document,) = every_eval_ever.build_documents(Registration(folder))
    metrics = {entry["metric_config"]["metric_name"] for entry in document["evaluation_results"]}
    assert metrics == {"agreement with the full cache on its text"}
    registered = " ".join(
        " ".join(text) for text in (lock_sentences.hypothesis(locked), lock_sentences.conditions(locked))
    )
    assert "crystal agrees more with the full cache, on its text, than random, streaming" in registered
    assert "every arm is fed the full cache's answer to every held-out problem" in registered
    compared = study_rows(folder)
    assert any("scores are not right or wrong answers" in note for note in compared.notes)
    assert all("agreement" in dict(answer.question)["registered study"] for answer in compared.rows)
    files = read_judged_study(folder)
    assert [discordant_answers.find_discordant(files, row) for row in judged["contrasts"]] == [[], []]
    assert "the full cache under another name" not in report_sections.render_cells(files)  # random packs its slots
    told = {**judged, "witness": "UNANCHORED"}
    drawings = {drawing.__name__: data for drawing, *data in list_drawings(folder, told, files.study)}
    assert "divergence" in drawings
    assert "collapse" not in drawings  # no arm that was fed has a wrong answer
    (axes,) = accuracy(*drawings["accuracy"]).axes
    assert axes.get_xlabel() == "agreement with the full cache, %"
    numbers = str(report_tables.arms_table(judged, files.study.lanes))
    assert numbers.count('<td class="n"></td>') == len(judged["arms"]) - 1  # those that were fed gave no answers
    won = {**judged, "contrasts": [{**row, "better": True} for row in judged["contrasts"]]}
    assert significance_sentences(won)[0].startswith("crystal agreed with the full cache, on its text, significantly")


def judged_problem(folder):
    return json.loads(studies.shard_text(folder).splitlines()[0])["body"]["problem"]


def test_a_replay_says_what_rounding_may_move_and_what_it_may_not():
    body = {"prompt": "", "prompt_tokens": 9, "slots": 4, "state": "ok", "text": "a b", "tokens": 2, "stop": "length"}
    body |= {"cache": None, "grade": "scored", "score": "1.000000", "divergence": {"agrees": "11", "nats": [0, 90_000]}}

    def moved(**fields):
        other = {**body, **fields}
        return lane_comparison.find_difference(body, other, compare_bytes=True)

    assert moved() is None
    assert moved(divergence={"agrees": "11", "nats": [999, 90_900]}) is None
    assert moved(divergence={"agrees": "11", "nats": [1001, 90_000]}).may_be_rounding
    flipped = moved(divergence={"agrees": "10", "nats": [0, 90_000]}, score="0.500000")
    assert (flipped.field, flipped.may_be_rounding, flipped.position) == ("divergence.agrees", True, 3)
    assert not moved(score="0.500000").may_be_rounding
    assert not moved(divergence=None).may_be_rounding


def test_a_lane_that_ran_twice_agrees_at_the_same_places_and_is_said_to_have_been_fed():
    def lane(arm, agrees):
        cell = {"model": "m", "task": "t", "budget": "64", "arm": arm, "seed": 0}
        body = {"cell": cell, "problem": "p", "state": "ok", "grade": "scored", "score": "0.500000", "stop": "length"}
        return body | {"text": "a b", "divergence": {"agrees": agrees, "nats": [0, 0]}}

    cache = {"events": [[0, 9, 4]], "mean": "4.000000"}
    for other, alike in (("10", 1), ("01", 0)):  # all arms have one text
        arms = [{"body": {**lane(arm, agrees), "cache": cache}} for arm, agrees in (("a", "10"), ("b", other))]
        assert len(development_results.find_alike_arms(arms)) == alike
    for again, discordant in (("10", 0), ("01", 1)):
        bodies = [lane("a", "10"), lane("a (again)", again)]
        rows = development_results.summarize_cells([{"body": body} for body in bodies])
        assert [row.get("discordant") for row in rows] == [None, discordant]
    said = rehearse.format_answers({"probe": bodies})
    assert "a was fed the full cache's text; its agreement:" in said
    assert not any("answered" in line for line in said)
