"""Real runs of lm-eval and inspect_ai on an embedded model, in studies that were registered before: released by the
claim, run, read once, judged, audited. What was run before the claim is refused.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import made_here
import pytest
import studies

from protocol.evidence.registration import Registration
from protocol.outside import output_files

pytestmark = pytest.mark.filterwarnings("default")
POOL, DRAWN = 32, 24
PROTOCOL = """
title = "{harness}: an arm that is cut against one that is not"
question = "Is the one that is not cut better?"
models = ["{model}"]
seeds = [0]

[runner]
kind = "outside"
metric = "{metric}"
{filter}
[[tasks]]
name = "chains"
called = "chain_dev"
file = "pool.jsonl"
draw = 24
chance = 0.1

[arms]
whole = {{ command = "as made_here.py runs it" }}
cut = {{ command = "as made_here.py runs it, cut" }}

[decision]
rule = "superior"
subject = "whole"
against = ["cut"]
at_least = 1
alpha = 0.05
method = "restricted-likelihood"
missing = "inconclusive"

[randomness]
source = "local"
"""
Run = Callable[[Path, Sequence[str]], None]  # into a folder, on the problems of these ids


def run_lm_eval(outputs: Path, ids: Sequence[str]) -> None:
    task = made_here.written(outputs.parent / "task", POOL)
    for arm, policy in (("whole", "full"), ("cut", "snapkv")):
        made_here.of_lm_eval(outputs / arm, made_here.POLICIES[policy], task, [int(item) for item in ids])


def run_inspect(outputs: Path, ids: Sequence[str]) -> None:
    for arm, tokens in (("whole", "long"), ("cut", "short")):
        made_here.of_inspect(outputs / arm, made_here.TOKENS[tokens], POOL, ids)


LM_EVAL = {"harness": "lm-eval", "model": made_here.MODEL, "metric": "exact_match", "filter": 'filter = "strict"'}
INSPECT = {"harness": "inspect_ai", "model": "local", "metric": "pattern", "filter": ""}


@pytest.fixture(scope="module", autouse=True)
def offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.mark.parametrize(
    ("run", "fields", "ids"),
    [
        (run_lm_eval, LM_EVAL, [str(number) for number in range(POOL)]),
        (run_inspect, INSPECT, [problem["problem"] for problem in made_here.problems(POOL)]),
    ],
    ids=["lm-eval", "inspect_ai"],
)
def test_a_real_run_is_judged_and_audited_and_one_from_before_the_claim_is_not(tmp_path, run, fields, ids):
    run(tmp_path / "before", ids[:DRAWN])
    folder = tmp_path / "registrations" / "chains"
    folder.mkdir(parents=True)
    (folder / "pool.jsonl").write_text("".join(json.dumps({"id": item}) + "\n" for item in ids))
    (folder / "protocol.toml").write_text(PROTOCOL.format(**fields))
    studies.ran(0, "register", folder)
    assert studies.here("confirm", folder).returncode == 6
    released = [str(item) for item in json.loads((folder / "outside/released.json").read_text())["chain_dev"]]
    refused = studies.ran(2, "confirm", folder, "--outputs", tmp_path / "before")
    assert "released by the claim" in refused.stderr or "before the claim" in refused.stderr
    run(tmp_path / "out", released)
    studies.ran((0, 10, 11), "confirm", folder, "--outputs", tmp_path / "out")
    (contrast,) = json.loads((folder / "verdict.json").read_text())["judged"]["contrasts"]
    study = Registration(folder)
    answers = output_files.read_answers(output_files.read_stored(study), study.protocol)
    right = {arm: sum(row.answer.score for row in answers.rows if row.arm == arm) / DRAWN for arm in ("cut", "whole")}
    assert float(contrast["difference"]) == pytest.approx(right["whole"] - right["cut"], abs=1e-6)
    assert contrast["n"] == DRAWN
    assert right["whole"] > max(0.3, right["cut"])  # longer chains are cut in both
    assert {made.model.removeprefix("hf/") for runs in answers.runs.values() for made in runs} == {fields["model"]}
    assert studies.here("audit", folder).returncode == 0
