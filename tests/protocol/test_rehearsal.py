"""A rehearsal runs every cell of a written protocol on development problems, and leaves nothing behind."""

import json
import shutil

import pytest
import studies

import splits
from protocol import init
from protocol.evidence import records
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.plan import checks
from protocol.preflight import frozen_problems, rehearsal, rule_checks, written_study
from protocol.tasks import registry
from protocol.workspace import planned_study


@pytest.fixture
def written(tiny_model, tmp_path):
    """A swept study whose model is not on this machine."""
    folder = studies.write(tmp_path / "registrations" / "study", tiny_model, studies.SWEEP)
    text = (folder / "protocol.toml").read_text().replace(f"path:{tiny_model}", f"hf:a/b@{'0' * 40}")
    (folder / "protocol.toml").write_text(text)
    return folder


def rehearse(folder, *arguments):
    return studies.here("rehearse", folder, "--problems", 2, "--tokens", 5, *arguments)


def test_every_cell_of_probe_and_confirm_runs_on_the_stand_in(written, tiny_model, tmp_path):
    with studies.unchanged(written):
        stand_in = f"hf:a/b@{'0' * 40}=path:{tiny_model}"
        done = rehearse(written, "--stand-in", stand_in, "--out", tmp_path / "kept", "--json")
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    arms = {(row["phase"], row["arm"]): row["lanes"] for row in found["arms"]}
    # Two problems: two seeds of the sweep when probing, one when confirming.
    assert arms == {
        **{("probe", arm): 4 for arm in ("h2o", "random", "streaming", "streaming (again)")},
        **{("confirm", arm): 2 for arm in ("full", "chosen", "streaming", "snapkv")},
    }
    assert (found["lanes"], found["failed"]) == (24, 0)
    assert not found["could_be_native"]  # the stand-in could, and of the registered model nothing is known
    assert {row["model"] for row in found["arms"]} == {f"hf:a/b@{'0' * 40}"}
    bodies = [record["body"] for record in records.read_records(tmp_path / "kept" / "probe")]
    assert len({(*body["cell"].values(), body["problem"]) for body in bodies}) == len(bodies) == 24
    assert max(body["tokens"] for body in bodies) <= 5
    assert {body["problem"] for body in bodies} == set(splits.load("needle-256").dev[:2])


def test_the_whole_is_projected_from_its_lanes(written, tiny_model):
    done = rehearse(written, "--stand-in", f"hf:a/b@{'0' * 40}=path:{tiny_model}", "--json")
    manifest = splits.load("needle-256")
    whole = json.loads(done.stdout)["whole"]
    assert whole["probe"]["lanes"] == 4 * 2 * len(manifest.dev)  # arms, seeds
    assert whole["confirm"]["lanes"] == 4 * len(manifest.confirm)


def test_lanes_that_fail_are_counted_with_their_reason_and_the_status_says_so(broken_model, tmp_path):
    done = rehearse(studies.write(tmp_path / "study", broken_model, studies.ONE_TASK))
    assert done.returncode == 3
    assert "failed: logits: not finite at decode step 0" in done.stdout
    assert "nothing locked" in done.stdout


def test_a_model_that_is_not_finite_is_recorded_as_failed_in_every_arm(broken_model, tmp_path):
    """And never as an answer: not of the full cache either."""
    folder = studies.write(tmp_path / "study", broken_model)
    assert rehearse(folder, "--out", tmp_path / "kept").returncode == 3
    found = [record["body"] for record in records.read_records(tmp_path / "kept" / "probe")]
    assert {body["cell"]["arm"] for body in found} >= {"full", "crystal", "random", "streaming"}
    for body in found:
        assert body["state"] == "failed"
        assert body["reason"].startswith("logits: not finite at decode step 0")
        assert (body["text"], body["tokens"], body["grade"], body["cache"]) == ("", 0, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--stand-in", "nonsense"), "write MODEL=STAND-IN"),
        (("--stand-in", "other=path:/x"), "with MODEL one of hf:a/b@"),
        (("--problems", 0), "whole numbers of at least 1"),
        ((), "nothing at"),  # the registered model itself is not here
    ],
)
def test_what_cannot_be_rehearsed_is_refused_in_one_line(written, arguments, said):
    studies.refused(2, said, "rehearse", written, *arguments)


def test_each_arm_shows_three_answers_nothing_is_decoded_twice_and_the_folder_opens_in_show(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK)
    done = studies.ran(0, "rehearse", folder, "--problems", 4, "--tokens", 5, "--out", tmp_path / "kept")
    bodies = [record["body"] for record in records.read_records(tmp_path / "kept" / "probe")]
    assert len({(*body["cell"].values(), body["problem"]) for body in bodies}) == len(bodies)
    lines = done.stdout.splitlines()
    assert sum(line.startswith("both ") for line in lines) == len({body["cell"]["arm"] for body in bodies}) - 1
    for arm in ("full", "crystal", "random"):
        start = lines.index(f"{arm} answered:") + 1
        shown = [" ".join(line.split()) for line in lines[start : start + 3]]
        first = [body for body in bodies if body["cell"]["arm"] == arm][:3]
        for line, body in zip(shown, first, strict=True):
            assert line.startswith(f"{body['problem']}, budget {body['cell']['budget']}: {body['grade']}:")
            assert " ".join(body["text"].split())[:20].strip() in line
    studies.ran(0, "show", tmp_path / "kept")
    assert "crystal" in studies.ran(0, "show", tmp_path / "kept", "--problem", bodies[0]["problem"]).stdout
    refused = studies.here("show", tmp_path / "kept", "--problem", bodies[0]["problem"], "--kept")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


QUESTIONS = [{"id": f"p/{i}", "context": f"Fox {i}.", "question": "Which?", "answer": f"fox {i}"} for i in range(60)]
OWN = {'name = "needle-256"\n': 'file = "mine.jsonl"\ngrader = "contains"\nchance = 0\n'}


@pytest.mark.parametrize(
    ("rows", "method", "said"),
    [
        (
            [row | {"cluster": f"c{i // 3}"} for i, row in enumerate(QUESTIONS)],
            "restricted-likelihood",
            "decision.method: restricted-likelihood is valid only for answers that are right or wrong",
        ),
        ([row | {"cluster": f"c{i // 20}"} for i, row in enumerate(QUESTIONS)], "sign-flip", "cluster"),
        ([row | {"answer": "which"} for row in QUESTIONS], "sign-flip", "line 1: answer: is in the question"),
    ],
    ids=["a method that is for right and wrong answers, and clusters", "few clusters", "a gold that the question has"],
)
def test_files_are_refused_by_both_before_torch_is_loaded(tiny_model, tmp_path, monkeypatch, rows, method, said):
    change = (
        {'method = "sign-flip"\ndraws = 10000\nseed = 7\n': f'method = "{method}"\n'} if method != "sign-flip" else {}
    )
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK | OWN | change)
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(rehearsal, "fit_to_machine", None)  # the first thing that needs torch
    refusals = []
    for command in ("rehearse", "register"):
        done = studies.ran(2, command, folder)
        assert said in done.stderr
        refusals.append(done.stderr)
    assert refusals[0] == refusals[1]


def test_what_registering_would_refuse_is_refused(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK | {"budgets = [0.8]": "budgets = [0.1]"})
    done = rehearse(folder)
    assert done.returncode == 2
    assert "that arm 'crystal' protects" in done.stderr


def reasoning():
    """The shipped study for a GPU, and its two models."""
    _, protocol = planned_study.read_protocol(studies.ROOT / "registrations" / "alpha-math500")
    return protocol, protocol.models


def test_the_decision_speaks_of_the_stand_ins_in_their_roles():
    protocol, (first, second) = reasoning()
    playing = written_study.with_stand_ins(protocol, {first: "chain-qwen2", second: "chain-llama"})
    assert playing.models == ("chain-qwen2", "chain-llama")
    assert tuple(playing.decision.rule_settings[role] for role in ("primary_model", "transfer_model")) == playing.models


def test_one_model_cannot_play_two():
    protocol, models = reasoning()
    with pytest.raises(BadInput, match="one model stands in for two"):
        written_study.with_stand_ins(protocol, dict.fromkeys(models, "chain-llama"))


@pytest.mark.soak
def test_the_papers_protocol_rehearses_as_init_writes_it(tmp_path):
    """Sweep, branch table, the published method, two embedded models, events while decoding: nothing is swapped."""
    folder = init.create_registration(tmp_path / "study", "paper").paths[0].parent
    done = rehearse(folder, "--problems", 1, "--tokens", 60, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == 0
    # 5 arms x 2 budgets x 2 models in the probe; 3 arms x 2 budgets and the full cache, 3 seeds
    assert told["lanes"] == 5 * 2 * 2 + (3 * 2 + 1) * 3 * 2


@pytest.mark.soak
def test_the_study_on_math_500_rehearses_with_stand_ins_as_it_is_written(tmp_path):
    folder = studies.ROOT / "registrations" / "alpha-math500"
    try:
        registry.data_digests({"math500": registry.get("math500")})
    except BadInput:
        pytest.skip("MATH-500 was not fetched: kv-prereg tasks fetch math500")
    _, (first, second) = reasoning()
    stand_ins = ("--stand-in", f"{first}=chain-qwen2", "--stand-in", f"{second}=chain-llama")
    done = rehearse(folder, "--problems", 1, "--tokens", 40, "--json", *stand_ins)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["failed"], told["lanes"]) == (0, 62)


def long_model(tiny_model, folder, number):
    """The tiny model with positions for the longest prompt, and weights of its own."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 65_536}))
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += number / 8
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return f"path:{folder}"


@pytest.mark.soak
def test_the_retrieval_study_of_three_models_rehearses_with_stand_ins_as_it_is_written(tiny_model, tmp_path):
    """At its lengths of 4K to 32K, on models that know nothing."""
    folder = studies.ROOT / "registrations" / "crystal-retrieval-8b"
    _, protocol = planned_study.read_protocol(folder)
    players = [long_model(tiny_model, tmp_path / f"player-{number}", number) for number in range(len(protocol.models))]
    stand_ins = [part for pair in zip(protocol.models, players, strict=True) for part in ("--stand-in", "=".join(pair))]
    done = rehearse(folder, "--problems", 1, "--tokens", 4, "--json", *stand_ins)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # Of 3 models and 3 tasks: 13 arms at 2 budgets and the full cache; the first comparator is decoded again.
    assert (told["failed"], told["lanes"]) == (0, 9 * (13 * 2 + 1 + 2))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["alpha-math500", "crystal-retrieval-8b"])
def test_the_rules_of_studies_that_wait_for_a_gpu_pass_what_registering_asks(name):
    folder = studies.ROOT / "registrations" / name
    _, protocol = planned_study.read_protocol(folder)
    checks.require_gate(protocol, folder)
    checks.require_memory(protocol, folder)
    planned = planned_study.PlannedStudy(protocol, files.cache_home(), folder=folder)
    found = rule_checks.check_rule(protocol, frozen_problems.freeze_items(planned))
    assert {*found["rule"]["verdicts"].values()} == {"CONFIRMED", "REFUTED", "INCONCLUSIVE"}
