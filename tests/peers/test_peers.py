"""lm-eval and inspect_ai run here on an embedded model: what they write is read, and what they find is found.

Few problems: what is compared with is each harness's own mean and its own reader, not a result.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import made_here
import pytest
import study

import analysis.compare.__main__
from analysis.judgement.judged_folder import judge
from protocol.adapters.engine_lm import cut
from protocol.formats.refusals import BadInput

FEW = 6
pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).resolve().parents[2]
SAME = ["difference", "low", "high", "low_simultaneous", "high_simultaneous", "p", "p_holm"]


@pytest.fixture(scope="module", autouse=True)
def offline():
    """Nothing is fetched; every warning here is a peer's."""
    own = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return made_here.written(tmp_path_factory.mktemp("task"), FEW)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, task):
    """The results of each policy by name, and where its files lie."""
    folder = tmp_path_factory.mktemp("lm_eval")
    return folder, {name: made_here.of_lm_eval(folder / name, arm, task) for name, arm in made_here.POLICIES.items()}


def compared(capsys, *arguments: object) -> dict:
    capsys.readouterr()
    assert analysis.compare.__main__.main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def by_the_study(folder: Path, own: list[float], other: list[float]) -> list[dict]:
    """The contrasts of a judged study whose lanes have these grades."""
    scores = {"crystal": own, "snapkv": other}

    def record(lane: study.Lane) -> dict[str, str]:
        right = scores.get(lane[3], own)[int(lane[5][1:])]
        return {"grade": "correct" if right else "wrong"}

    content = study.content(method="t", against=["snapkv"])
    return judge(study.write(folder, content, len(own), record))["contrasts"]


def own_scores(folder: Path) -> list[float]:
    (path,) = folder.rglob("samples_*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["exact_match"] for line in lines if line["filter"] == "strict"]


def test_files_of_lm_eval_say_what_it_says_and_what_a_study_would(runs, tmp_path, capsys):
    folder, results = runs
    found = compared(capsys, *(folder / name for name in results), "--filter", "strict", "--method", "t")
    for arm in found["arms"]:
        mean = results[arm["arm"]]["results"]["chain_dev"]["exact_match,strict"]
        assert (float(arm["score"]), arm["problems"]) == (pytest.approx(mean, abs=1e-6), FEW)
    ours = by_the_study(tmp_path / "study", own_scores(folder / "full"), own_scores(folder / "snapkv"))
    assert [[row[name] for name in SAME] for row in found["contrasts"]] == [
        [row[name] for name in SAME] for row in ours
    ]


def test_a_log_of_inspect_ai_says_what_it_says(tmp_path, capsys):
    """Packed with zstd, as it is written; and the same log in JSON."""
    from inspect_ai.log import read_eval_log, write_eval_log

    path = made_here.of_inspect(tmp_path, 130, FEW)
    log = read_eval_log(str(path))
    write_eval_log(log, str(tmp_path / "same.json"))
    found = compared(capsys, path, tmp_path / "same.json", "--cluster", "steps", "--method", "t")
    (mean,) = (metric.value for name, metric in log.results.scores[0].metrics.items() if name == "accuracy")
    assert [float(arm["score"]) for arm in found["arms"]] == [pytest.approx(mean, abs=1e-6)] * 2
    (row,) = found["contrasts"]
    assert (row["n"], row["clusters"], row["gains"], row["losses"]) == (
        FEW,
        len({problem["steps"] for problem in made_here.problems(FEW)}),
        0,
        0,
    )


def test_what_was_held_stands_in_the_results(runs):
    _, results = runs
    full, evicted = (results[name]["config"]["kv_prereg"] for name in made_here.POLICIES)
    assert full["label"] == evicted["label"] == "exploratory: nothing was registered"
    assert (full["budget"], evicted["budget"]) == (None, "40")
    assert evicted["policy"]["scoring"] == "policies.snapkv.WindowAttention()"
    assert full["memory"]["events"] == 0
    assert full["memory"]["requests"] == evicted["memory"]["requests"] == FEW
    # The full cache holds the prompt and every new token but the last, snapkv its budget in the place of the
    # prompt: on average it holds less by what it dropped, but for answers of other lengths.
    dropped = [max(0, token - 40) for token in prompt_tokens()]
    apart = full["memory"]["mean_slots"] - evicted["memory"]["mean_slots"]
    assert sum(dropped) / FEW == pytest.approx(apart, abs=8)
    assert evicted["memory"]["never_evicted"] == sum(one == 0 for one in dropped)


def prompt_tokens() -> list[int]:
    from protocol.formats.files import cache_home
    from protocol.models.load import tokenizer

    words = tokenizer(made_here.MODEL, cache_home())
    texts = (
        words.apply_chat_template(
            [{"role": "user", "content": problem["question"]}], tokenize=False, add_generation_prompt=True
        )
        for problem in made_here.problems(FEW)
    )
    return [len(words(text, add_special_tokens=False)["input_ids"]) for text in texts]


def test_the_engine_and_the_harness_own_model_answer_alike(runs, task, tmp_path):
    """The full cache of the engine against `hf` of lm-eval, which decodes with transformers."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    folder = str(made_here.EMBEDDED / made_here.MODEL)
    theirs = simple_evaluate(
        model="hf",
        model_args={"pretrained": folder, "dtype": "float32"},
        tasks=["chain_dev"],
        device="cpu",
        batch_size=1,
        apply_chat_template=True,
        task_manager=TaskManager(include_path=str(task), include_defaults=False),
        log_samples=True,
    )
    (path,) = (runs[0] / "full").rglob("samples_*.jsonl")
    ours = {(line["doc_id"], line["filter"]): line for line in map(json.loads, path.read_text().splitlines())}
    for sample in theirs["samples"]["chain_dev"]:
        line = ours[sample["doc_id"], sample["filter"]]
        assert line["prompt_hash"] == sample["prompt_hash"]
        assert [[one.strip() for one in texts] for texts in line["resps"]] == [
            [one.strip() for one in texts] for texts in sample["resps"]
        ]


@pytest.fixture(scope="module")
def model():
    from protocol.adapters.engine_lm import EngineLM

    return EngineLM(model=made_here.MODEL, policy="snapkv", budget=40, query=5)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "model_args: model: is missing"),
        ({"model": "chain-llama", "polcy": "h2o"}, "model_args: polcy: is unknown; did you mean 'policy'?"),
        ({"model": "chain-llama", "policy": "snapk"}, "did you mean 'snapkv'"),
        ({"model": "chain-llama", "policy": "snapkv"}, "budget: is missing"),
        ({"model": "chain-llama", "budget": 40}, "budget: the policy never evicts"),
        ({"model": "chain-llama", "policy": "snapkv", "budget": 1.5}, "a share of the prompt lies above 0 and below 1"),
        ({"model": "chain-llama", "policy": "snapkv", "budget": "0.5 of full"}, "can only be measured in a study"),
        (
            {"model": "chain-llama", "policy": "snapkv", "budget": "bytes of 64"},
            "a budget in bytes (bytes of 64) can only be converted",
        ),
        (
            {"model": "chain-llama", "policy": "snapkv", "budget": "48 KiB"},
            "a budget in bytes (48 KiB) can only be converted",
        ),
        ({"model": "chain-llama", "policy": "snapkv", "budget": 40, "set": "window"}, "set: is not an object"),
        ({"model": "chain-llama", "policy": "snapkv", "budget": 40, "set": {"scoring.windo": 8}}, "scoring.window"),
        ({"model": "chain-llama", "query": -1}, "query: -1 is not a whole number"),
        ({"model": "chain-llama", "batch_size": "many"}, "batch_size: 'many' is not a number of lanes"),
    ],
)
def test_arguments_are_refused_by_name(given, says):
    from protocol.adapters.engine_lm import EngineLM

    with pytest.raises(BadInput) as refused:
        EngineLM(**given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_no_evicted_cache_answers_is_refused(model):
    with pytest.raises(BadInput, match="loglikelihood: is computed in the prefill of the prompt"):
        model.loglikelihood([])
    with pytest.raises(BadInput, match="loglikelihood"):
        model.loglikelihood_rolling([])


def test_the_response_cache_is_refused_before_it_answers(model, tmp_path):
    """It would give one policy the answers of another: its keys are the requests alone."""
    from lm_eval.api.model import CachingLM

    with pytest.raises(BadInput, match="use_cache: caches answers by prompt only"):
        CachingLM(model, str(tmp_path / "cache.db"))


def test_requests_are_answered_in_their_order_and_cut(model):
    from lm_eval.api.instance import Instance

    asked = [problem["question"] for problem in made_here.problems(3)]
    settings = [
        {"until": ["}"], "max_gen_toks": 30, "do_sample": False},
        {"until": [";"], "max_gen_toks": 20, "temperature": 0.0},
        {"until": ["}"], "max_gen_toks": 30, "do_sample": False},
    ]
    every = [
        Instance("generate_until", {}, (text, given), number)
        for number, (text, given) in enumerate(zip(asked, settings, strict=True))
    ]
    together = model.generate_until(every)
    assert together == [model.generate_until([one])[0] for one in every]
    assert ";" not in together[1]
    assert ";" in together[0]
    for given, says in [
        ({"top_k": 5}, "gen_kwargs: top_k: is unknown to the engine"),
        ({"max_gen_toks": 10**6}, "prompts are never truncated"),
    ]:
        with pytest.raises(BadInput, match=says):
            model.generate_until([Instance("generate_until", {}, ("a", given), 0)])


def test_a_text_ends_before_the_first_string_that_ends_it():
    assert cut("one;two\n", ["\n", ";"]) == "one"
    assert cut("one", [";"]) == "one"
    assert cut(";", [";"]) == ""


def test_a_refusal_of_the_command_line_is_one_line_and_its_status(monkeypatch, capsys):
    import lm_eval.__main__ as theirs

    from protocol.adapters.lm_eval import main

    def refuse():
        raise BadInput("budget: no")

    monkeypatch.setattr(theirs, "cli_evaluate", refuse)
    monkeypatch.setattr(sys, "argv", ["lm_eval", "run"])
    assert main() == 2
    assert capsys.readouterr().err == "BadInput: budget: no\n"


def test_the_command_line_runs_it(task, tmp_path):
    """As docs/compare.md has it; the harness reads its index of tasks, which takes most of the time."""
    command = [sys.executable, "-m", "protocol.adapters.lm_eval", "run", "--model", "kv-prereg"]
    command += ["--include_path", str(task), "--tasks", "chain_dev", "--limit", "2", "--log_samples"]
    command += ["--apply_chat_template", "--output_path", str(tmp_path / "out"), "--model_args"]
    own = ["model=chain-llama", "policy=snapkv", "budget=40", f"log={tmp_path / 'held.jsonl'}"]
    done = subprocess.run([*command, *own], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list((tmp_path / "out").rglob("samples_chain_dev_*.jsonl"))) == 1
    held = [json.loads(line) for line in (tmp_path / "held.jsonl").read_text().splitlines()]
    assert [line["request"] for line in held] == [0, 1]
    assert all(line["budget"] == 40 for line in held)
