"""What arms are chosen by beforehand: by hand on tiny tensors, and along a text against a plain forward."""

import math
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from plain_forward import plain_forward
from studies import ROOT
from tiny_networks import lane, outside, tiny, words

import policies
from protocol import engine
from protocol import proxies as command
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.instruments.proxies import measures
from protocol.instruments.proxies.measures import FirstEviction, Proxies
from protocol.workspace.study import open_study

# One layer, two heads, four slots.
RECEIVED = torch.tensor([[[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 5.0, 3.0]]])
KEPT = torch.tensor([[[True, False, True, False], [False, True, False, True]]])


def test_scores_of_each_head_are_ranked_with_what_that_head_receives():
    scores = torch.tensor([[[9.0, 8.0, 7.0, 6.0], [1.0, 2.0, 4.0, 3.0]]])
    # 1 of the first head; of the second ranks 1, 2, 4, 3 and 1.5, 1.5, 4, 3: 4.5 / sqrt(5 * 4.5)
    assert measures.agreement(scores, RECEIVED) == pytest.approx((1 + 4.5 / math.sqrt(22.5)) / 2)


def test_a_score_of_all_heads_is_ranked_with_what_they_receive_together():
    # Together 5, 4, 7, 4: ranks 3, 1.5, 4, 1.5, less their mean 0.5, -1, 1.5, -1; those of the scores -1.5,
    # -0.5, 0.5, 1.5. Products -0.75 + 0.5 + 0.75 - 1.5 = -1; squares 4.5 and 5.
    shared = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert measures.agreement(shared, RECEIVED) == pytest.approx(-1 / math.sqrt(22.5))


def test_a_score_that_is_the_same_everywhere_agrees_with_nothing():
    assert math.isnan(measures.agreement(torch.zeros(1, 1, 4), RECEIVED))


def test_the_oracle_keeps_as_many_slots_of_each_head_and_of_equal_ones_the_earlier():
    told = measures.select_oracle(KEPT, RECEIVED)
    assert told.tolist() == [[[True, True, False, False], [False, False, True, True]]]
    three = torch.tensor([[[True] * 3 + [False], [True] * 3 + [False]]])
    assert measures.select_oracle(three, RECEIVED)[0, 1].tolist() == [True, False, True, True]


def test_overlap_and_capture_are_shares_and_means_over_heads():
    assert measures.overlap(KEPT, RECEIVED) == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert measures.captured_share(KEPT, RECEIVED) == pytest.approx(float(Fraction(6, 10) + Fraction(4, 10)) / 2)
    best = measures.captured_share(measures.select_oracle(KEPT, RECEIVED), RECEIVED)
    assert best == pytest.approx(float(Fraction(7, 10) + Fraction(8, 10)) / 2)
    assert measures.overlap(measures.select_oracle(KEPT, RECEIVED), RECEIVED) == 1


def test_the_cosine_is_of_mean_values_and_of_heads_that_drop_a_slot():
    values = torch.tensor([[[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]], [[1.0, 1.0]] * 4]])
    # the first head keeps a mean of (2, 0) and drops one of (0, 3); the second keeps what it drops
    assert measures.value_cosine(KEPT, values) == pytest.approx((0 + 1) / 2)
    whole = KEPT.clone()
    whole[0, 1] = True
    assert measures.value_cosine(whole, values) == pytest.approx(0)


SETTINGS = {"snapkv": {"scoring.window": 4, "protect.recent": 4}}


@pytest.mark.parametrize("name", ["1d", "h2o", "snapkv"])
def test_along_a_text_everything_is_what_a_plain_forward_says(name):
    model, prompt = tiny("Qwen2"), outside(30)
    noted: list[FirstEviction] = []
    watched = measures.record_first_eviction(policies.get(name, SETTINGS.get(name)), noted)
    lanes = (lane(policies.get("full")), engine.Lane("b", watched, 12, 0))
    request = engine.Request("p", prompt, lanes)
    ran = engine.run(model, [request], max_new_tokens=9)
    whole = ran.answers[0].outcomes[0]
    text = (*prompt.context, *whole.token_ids)
    (first,) = noted
    assert first.token_ids == prompt.context
    told = measures._measure_evictions(model, text, {("12", name): first}, None)["12", name]

    network = model.network
    plain = plain_forward(network, text)
    total, kept_share, best, cosines, both = 0.0, 0.0, 0.0, 0.0, 0.0
    for layer, attention in enumerate(plain.weights):
        for head in range(2):
            received = [
                sum(float(attention[q, row, slot]) for q in (2 * head, 2 * head + 1) for row in range(30, len(text)))
                for slot in range(30)
            ]
            kept = [slot for slot in range(30) if first.retained[layer, head, slot]]
            most = sorted(range(30), key=lambda slot: -received[slot])[: len(kept)]
            kept_share += sum(received[slot] for slot in kept) / sum(received)
            best += sum(received[slot] for slot in most) / sum(received)
            both += len({*kept} & {*most}) / len(kept)
            values = plain.values[layer, head, :30]
            dropped = [slot for slot in range(30) if slot not in kept]
            cosines += float(torch.cosine_similarity(values[dropped].mean(0), values[kept].mean(0), dim=0))
            total += 1
    assert len(first.retained[0, 0]) == 30
    assert told.captured == pytest.approx(kept_share / total)
    assert told.best == pytest.approx(best / total)
    assert told.overlap == pytest.approx(both / total)
    assert told.cosine == pytest.approx(cosines / total, abs=1e-6)
    assert -1 <= told.agreement <= 1


def test_a_watched_policy_keeps_what_it_kept_and_notes_its_first_loss_alone():
    model, prompt = tiny(), outside(20)
    cadence = policies.Cadence(interval=4)
    policy = policies.get("h2o", cadence=cadence, protect=policies.Protect(0, 2))
    noted: list[FirstEviction] = []
    watched = measures.record_first_eviction(policy, noted)
    lanes = (engine.Lane("a", policy, 24, 0), engine.Lane("b", watched, 24, 0))
    request = engine.Request("p", prompt, lanes)
    one, other = engine.run(model, [request], max_new_tokens=20).answers[0].outcomes
    assert (one.token_ids, one.events) == (other.token_ids, other.events)
    assert len(one.events) > 2
    (first,) = noted
    step = next(step for step, before, after in one.events if after < before)
    assert len(first.token_ids) == 20 + step
    assert first.token_ids == (*prompt.context, *one.token_ids[:step])
    assert int(first.retained.sum()) == 24 * first.retained[..., 0].numel()


def test_an_event_off_the_text_or_at_its_end_says_nothing():
    model, text = tiny(), words(12)
    kept = torch.ones(3, 2, 8, dtype=torch.bool)
    kept[..., 0] = False
    scores = torch.arange(8.0).view(1, 1, 8)
    other = (text[0] + 1) % 97, *text[1:8]
    events = {("8", "off"): FirstEviction(other, kept, scores), ("8", "on"): FirstEviction(text[:8], kept, scores)}
    assert list(measures._measure_evictions(model, text, events, None)) == [("8", "on")]
    assert measures._measure_evictions(model, text[:8], events, None) == {}


def lane_of(arm: str, problem: str, grade: str, state: str = "ok") -> dict:
    cell = {"model": "m", "task": "t", "budget": "64", "arm": arm, "seed": 0}
    return {"body": {"cell": cell, "problem": problem, "grade": grade, "state": state, "stop": "eos", "text": ""}}


def test_accuracies_are_those_of_the_verdict_or_of_the_probe():
    split, found = measures.read_accuracies(Registration(ROOT / "registrations" / "alpha-chain"))
    assert split == "held out"
    arms = {arm for _, _, budget, arm in found if budget == "64"}
    assert arms == {"1d", "1d_div-0.5", "snapkv_with_window"}  # the winner, by the name of the candidate
    assert found["chain-qwen2", "chain", "64", "1d"] == pytest.approx(0.18, abs=0.01)  # findings: 13 to 18 %
    probed = [lane_of("a", "p", "correct"), lane_of("a", "q", "wrong"), lane_of("a", "r", "correct", "excluded")]
    probed += [lane_of("b", "p", "wrong"), lane_of("b (again)", "p", "correct")]
    split, found = measures.read_accuracies(SimpleNamespace(has=lambda name: False, probe_records=probed))
    assert split == "development"
    assert found == {("m", "t", "64", "a"): 0.5, ("m", "t", "64", "b"): 0.0}
    assert measures.read_accuracies(SimpleNamespace(has=lambda name: False, probe_records=[])) == ("development", {})


def row(arm, accuracy, budget="64", **told):
    each = dict.fromkeys(Proxies._fields, 0.5) | told
    return {"model": "m", "task": "t", "budget": budget, "arm": arm, "problems": 3, "accuracy": accuracy} | each


def test_proxies_are_ranked_with_accuracy_within_a_cell():
    listed = [row(f"a{i}", i / 10, captured=value) for i, value in enumerate((0.2, 0.1, 0.4, 0.3, 0.5))]
    listed += [row("left out", None, captured=0.9), row("alone", 0.3, budget="128")]
    told = {(one["budget"], one["proxy"]): one for one in measures.correlate_with_accuracy(listed)}
    assert told["64", "captured"]["rho"] == pytest.approx(0.8)
    assert told["64", "captured"]["n"] == 5
    assert told["64", "overlap"]["rho"] is None  # all alike
    assert (told["128", "captured"]["rho"], told["128", "captured"]["n"]) == (None, 1)
    values = {"accuracy": "held out", "arms": listed, "ranked": list(told.values())}
    lines = command.format_proxies(values).splitlines()
    assert lines[0].startswith("exploratory, on development problems; accuracy: held out; nothing may be concluded")
    assert any(line.endswith("+0.80 [-0.46, +0.99], n = 5 arms") for line in lines)
    assert sum("too few arms, or all have the same value" in line for line in lines) == 7


def test_means_leave_out_what_is_no_number():
    nothing = Proxies(math.nan, 0.5, 0.5, 0.5, 0.5)
    found = {("m", "t", "64", "a"): [nothing, nothing._replace(agreement=0.3)], ("m", "t", "64", "b"): [nothing]}
    one, other = measures.mean_rows(found, {("m", "t", "64", "a"): 0.25})
    assert (one["agreement"], one["accuracy"], one["problems"]) == (0.3, 0.25, 2)
    assert (other["agreement"], other["accuracy"]) == (None, None)


def test_rows_stand_cell_by_cell():
    nothing = [Proxies(*[0.5] * 5)]
    places = [("m", "t", budget, arm) for arm in "ab" for budget in ("128", "64")]
    listed = measures.mean_rows(dict.fromkeys(places, nothing), {})
    assert [(one["budget"], one["arm"]) for one in listed] == [*(("128", "a"), ("128", "b"), ("64", "a"), ("64", "b"))]


def test_no_held_out_problem_is_built(monkeypatch):
    study = open_study(Registration(ROOT / "registrations" / "alpha-chain"), files.cache_home())
    held_out = study.lock.content["items"]["chain"]["confirm"]
    monkeypatch.setattr(type(study), "development", lambda self: {"chain": held_out})
    with pytest.raises(BadInput, match="is held out; only confirm may read it"):
        measures.measure_proxies(study, 1)


def test_a_number_of_problems_below_one_is_refused(capsys):
    assert command.main([str(ROOT / "registrations" / "alpha-chain"), "--limit", "0"]) == 2
    assert capsys.readouterr().err == "BadInput: --limit: write a whole number of at least 1\n"


@pytest.mark.soak
def test_a_shipped_study_is_measured_and_nothing_is_written(capsys):
    folder = ROOT / "registrations" / "alpha-chain"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert command.main([str(folder), "--limit", "2"]) == 0
    printed = capsys.readouterr().out
    assert "chain-qwen2, chain           64  1d  " in printed
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
