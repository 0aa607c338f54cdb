"""The registered form on made-up folders: what is planted agrees, and what cannot be judged is said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import studies
from simulated_anatomy import named, settings, written

from protocol.formats.json_text import dumps
from protocol.instruments.anatomy.analysis import choose, judge
from protocol.instruments.anatomy.analysis.agreement import measure_agreement
from protocol.instruments.anatomy.analysis.traces import RecordError, read_anatomy, token_labels
from protocol.instruments.anatomy.trace_file import half_of

PLANTED = ("key_norm", 1)


def made(folder: Path, seed: int = 1, **how) -> Path:
    return written(folder / "study", np.random.default_rng(seed), **how)


def chosen(folder: Path) -> Path:
    (folder / "anatomy" / "chosen.json").write_text(dumps(choose(folder)))
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    return chosen(made(tmp_path_factory.mktemp("planted"), planted=PLANTED))


def test_what_is_planted_is_chosen_on_one_half_and_agrees_on_the_other(planted):
    (pair,) = judge(planted)["pairs"]
    assert (pair["signal"], pair["layer"], pair["sign"], pair["word"]) == ("key_norm", 1, 1, "AGREES")
    assert pair["beyond_position"]["word"] == "AGREES"
    # By hand: the mean over traces of scipy's rho is what the table of the testing half holds.
    anatomy = read_anatomy(planted)
    of = measure_agreement(anatomy, anatomy.pairs[0], "test")
    assert float(pair["rho"]["mean"]) == pytest.approx(of.rho[:, of.signals.index(PLANTED)].mean(), abs=1e-6)
    assert float(pair["pooled"]["rho"]) > 0.4
    assert pair["rho"]["units"] == pair["units"] == 12


def test_the_mean_is_that_of_correlations_taken_one_by_one(planted):
    from scipy import stats

    found = []
    for line in (planted / "anatomy" / "traces.jsonl").read_text().splitlines():
        body = json.loads(line)["body"]
        if body["half"] != "test":
            continue
        start, stop = body["span"]
        label = np.zeros(stop)
        for first, last, _, grade in body["windows"]["padded"]:
            label[first:last] = np.maximum(label[first:last], grade != "correct")
        import zlib

        raw = zlib.decompress((planted / "anatomy" / "values" / body["values"]["sha256"]).read_bytes())
        table = np.frombuffer(raw, "<f4").reshape(-1, body["tokens"])
        row = body["values"]["signals"].index(list(PLANTED))
        found.append(stats.spearmanr(table[row, start:stop], label[start:]).statistic)
    rho = judge(planted)["pairs"][0]["rho"]
    assert float(rho["mean"]) == pytest.approx(np.mean(found), abs=1e-6)
    assert float(rho["p"]) == pytest.approx(stats.ttest_1samp(found, 0, alternative="greater").pvalue, abs=1e-6)


def test_the_testing_half_chooses_nothing(planted, tmp_path):
    """Its side files may even be gone."""
    folder = shutil.copytree(planted, tmp_path / "study")
    for trace in read_anatomy(folder).traces:
        if trace.half == "test":
            trace.side.unlink()
    assert dumps(choose(folder)) == (planted / "anatomy" / "chosen.json").read_text()
    with pytest.raises(RecordError, match="values/"):
        judge(folder)


def test_every_trace_counts_and_a_wrong_or_unmoved_one_has_no_label(tmp_path):
    states = {0: "wrong", 1: "unmoved", 2: "short", 3: "unreproduced", 4: "failed"}
    folder = chosen(made(tmp_path, planted=PLANTED, problems=30, states=states))
    found = judge(folder)
    assert found["states"] == {
        "labelled": 25, "unmoved": 1, "wrong": 1, "short": 1, "unreproduced": 1, "failed": 1
    }  # fmt: skip
    assert choose(folder)["pairs"][0]["units"] == 12
    assert found["pairs"][0]["units"] == 13


def test_too_few_traces_in_either_half_are_that_verdict(tmp_path):
    for half, first in (("choose", 0), ("test", 1)):
        states = {number: "unmoved" for number in range(first, 24, 2) if number > 13}
        folder = chosen(made(tmp_path / half, planted=PLANTED, states=states))
        (pair,) = judge(folder)["pairs"]
        assert (pair["word"], pair["rho"]) == ("TOO FEW TRACES", None)
        assert (pair["signal"] is None) == (half == "choose")


def test_one_trace_is_too_few_and_no_fault(tmp_path):
    (pair,) = judge(chosen(made(tmp_path, problems=1)))["pairs"]
    assert (pair["word"], pair["units"]) == ("TOO FEW TRACES", 0)


def test_a_signal_in_one_model_alone_agrees_there_and_alpha_is_shared(tmp_path):
    folder = made(tmp_path, planted=PLANTED, only_model="a", models=("a", "b"), tasks=("chain", "needle"), problems=18)
    found = judge(chosen(folder))
    assert float(found["level"]) == 0.0125
    words = {(pair["model"], pair["task"]): pair["word"] for pair in found["pairs"]}
    assert [words["a", task] for task in ("chain", "needle")] == ["AGREES"] * 2
    assert [words["b", task] for task in ("chain", "needle")] == ["NOT SHOWN"] * 2


@pytest.mark.parametrize(("judging", "signal", "question"), [(3, 0.05, 0.025), (4, 0.025, 0.0125)])
def test_the_signal_and_the_questions_of_slip_share_alpha_from_judging_four_on(judging, signal, question, tmp_path):
    """By 4 one signal and two questions have 5 % together, by 3 each kind has 5 %."""
    folder = made(tmp_path, planted=PLANTED)
    lock = json.loads((folder / "lock.json").read_bytes())
    lock["judging"] = judging
    without = judge(chosen(folder))
    assert (float(without["level"]), "slip" in without["pairs"][0]) == (0.05, False)
    lock["protocol"]["content"]["anatomy"]["slip"] = "0.3"
    (folder / "lock.json").write_text(json.dumps(lock))
    verdict = judge(chosen(folder))
    assert float(verdict["level"]) == signal
    assert float(verdict["coverage"]) == 1 - 2 * signal
    assert float(verdict["pairs"][0]["slip"]["level"]) == question


def test_clusters_are_the_units_and_stand_in_one_half(tmp_path):
    (pair,) = judge(chosen(made(tmp_path / "apart", planted=PLANTED, problems=40, clusters=20)))["pairs"]
    assert (pair["varying"], pair["units"]) == (20, 10)
    few = made(tmp_path / "few", planted=PLANTED, problems=40, clusters=6)
    assert judge(chosen(few))["pairs"][0]["word"] == "TOO FEW TRACES"
    studies.edit(few / "anatomy" / "traces.jsonl", '"half":"choose"', '"half":"test"', 1)
    with pytest.raises(RecordError, match=r"half: .* belongs to the half 'choose'"):
        read_anatomy(few)


def test_the_same_bytes_each_time_and_no_floats(planted):
    assert dumps(judge(planted)) == dumps(judge(planted))
    json.loads(dumps(judge(planted)), parse_float=lambda text: pytest.fail(f"a float: {text}"))


def test_labels_are_an_or_over_windows():
    """Windows of 4 every 2 over 10 tokens; the second changed the answer."""
    found = token_labels([(5, 9, False), (7, 11, True), (9, 13, False), (11, 15, False)], (5, 15))
    assert found.tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    assert token_labels([(0, 8, True)], (5, 15)).tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_incomplete_and_edited_folders_are_refused_in_one_line(planted, tmp_path):
    traces = (planted / "anatomy" / "traces.jsonl").read_bytes().splitlines(keepends=True)

    def refused(name: str, why: str, act=judge, *, lines=traces, lock=None, choice=None) -> None:
        folder = shutil.copytree(planted, tmp_path / name)
        (folder / "anatomy" / "traces.jsonl").write_bytes(b"".join(lines))
        if lock:
            (folder / "lock.json").write_text(lock)
        if choice is not None:
            (folder / "anatomy" / "chosen.json").write_text(choice)
        with pytest.raises(RecordError, match=f"^[^\n]*{why}[^\n]*$"):
            act(folder)

    held = json.loads((planted / "lock.json").read_bytes())
    del held["protocol"]["content"]["anatomy"]
    refused("none", "registers no .anatomy.", choose, lock=json.dumps(held))
    refused("empty", "no trace has been labelled yet", choose, lines=[])
    refused("early", "1 traces of the half 'choose' are not labelled yet", choose, lines=traces[1:])
    refused("half", "1 traces of the half 'test'", lines=traces[:-1])
    refused("torn", "1 traces of the half 'test'", lines=[*traces[:-1], traces[-1][:-1]])
    refused("twice", "second trace", lines=[*traces, traces[-1]])
    refused("other", "not registered", lines=[*traces[:-1], traces[-1].replace(b"chain/023", b"chain/923")])
    refused("moved", "belongs to the half 'test'", lines=[*traces[:-1], traces[-1].replace(b'"test"', b'"choose"')])
    refused("json", "traces.jsonl:24: not of the documented format", lines=[*traces[:-1], b"{}\n"])
    refused("edited", "does not follow from the choosing half", choice="{}")
    other = json.loads((planted / "anatomy" / "chosen.json").read_text())
    other["pairs"][0]["chosen"] |= {"signal": "hidden_change"}
    refused("better", "does not follow from the choosing half", choice=json.dumps(other))
    folder = shutil.copytree(planted, tmp_path / "unchosen")
    (folder / "anatomy" / "chosen.json").unlink()
    with pytest.raises(RecordError, match="nothing can be tested before a signal was chosen"):
        judge(folder)


def test_ids_of_made_up_problems_fall_into_the_halves_in_turn():
    assert [half_of(named("chain", number)) for number in range(4)] == ["choose", "test"] * 2
    assert settings(alpha="0.1")["alpha"] == "0.1"
