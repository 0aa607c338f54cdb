"""Result files of lm-eval and inspect_ai, made by running both on an embedded model and development problems.

    .venv-peers/bin/python tests/peers/made_here.py tests/analysis/compare/made

writes the files that tests/analysis/results reads where neither is installed.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import splits
from protocol import tasks

PROBLEMS = 20
TOKENS = {"long": 130, "short": 90}  # arms of inspect_ai: one model, whose answers are cut sooner or later
MODEL = "chain-llama"
POLICIES = {"full": {"model": MODEL}, "snapkv": {"model": MODEL, "policy": "snapkv", "budget": 40}}
EMBEDDED = Path(tasks.__file__).parents[1] / "embedded"
TASK = """
task: chain_dev
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["}}"], max_gen_toks: 130, do_sample: false}}
filter_list:
  - name: strict
    filter:
      - {{function: regex, regex_pattern: 'boxed\\{{([0-9])'}}
      - {{function: take_first}}
  - name: flexible
    filter:
      - {{function: regex, regex_pattern: '([0-9])', group_select: -1}}
      - {{function: take_first}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1}}
"""


def problems(count: int = PROBLEMS) -> list[dict[str, str]]:
    """Development problems of the chain task, of all its levels; `steps` is the level."""
    task, dev = tasks.get("chain"), splits.load("chain").dev
    built = [task.build(one, len) for one in dev[:: len(dev) // count][:count]]
    return [
        {
            "problem": one.id,
            "steps": one.id.split("/")[1],
            "question": f"{one.context}\n{one.question}",
            "answer": str(one.gold),
        }
        for one in built
    ]


def written(folder: Path, count: int = PROBLEMS) -> Path:
    """The task of lm-eval and its data. Returns the folder to be included."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "chain.jsonl"
    data.write_text("".join(json.dumps(problem) + "\n" for problem in problems(count)))
    (folder / "chain_dev.yaml").write_text(TASK.format(data=data))
    return folder


def of_lm_eval(folder: Path, arm: dict[str, Any], task: Path, only: Sequence[int] | None = None) -> dict[str, Any]:
    """Run one arm into `folder` as the command line does, without its index of tasks. only: places of problems."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    from protocol.adapters.lm_eval import NAME, register

    register()
    tracker = EvaluationTracker(output_path=str(folder))
    results = simple_evaluate(
        model=NAME,
        model_args=arm,
        tasks=["chain_dev"],
        batch_size="auto",
        samples=None if only is None else {"chain_dev": list(only)},
        device="cpu",
        apply_chat_template=True,
        task_manager=TaskManager(include_path=str(task), include_defaults=False),
        evaluation_tracker=tracker,
        log_samples=True,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    tracker.save_results_samples(task_name="chain_dev", samples=samples["chain_dev"])
    return results


def of_inspect(folder: Path, tokens: int, count: int = PROBLEMS, only: Sequence[str] | None = None) -> Path:
    """Run the embedded model as inspect_ai runs a local one; its log (.eval). only: ids of problems."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import pattern
    from inspect_ai.solver import generate

    asked = [
        Sample(
            input=problem["question"],
            target=problem["answer"],
            id=problem["problem"],
            metadata={"steps": problem["steps"]},
        )
        for problem in problems(count)
        if only is None or problem["problem"] in only
    ]
    folder_of_model = os.path.relpath(EMBEDDED / MODEL)
    local = get_model(
        "hf/local",
        memoize=False,
        model_path=folder_of_model,
        tokenizer_path=folder_of_model,
        device="cpu",
        do_sample=False,
    )
    (log,) = eval(
        Task(dataset=asked, solver=generate(), scorer=pattern(r"boxed\{([0-9])"), name="chain_dev"),
        model=local,
        max_tokens=tokens,
        log_dir=str(folder),
        log_format="eval",
        display="none",
    )
    return Path(log.location.removeprefix("file://"))


def main(folder: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    made = folder / "work"
    task = written(made)
    for name, arm in POLICIES.items():
        of_lm_eval(made / name, arm, task)
        (samples,) = (made / name).rglob("samples_*.jsonl")
        (folder / name).mkdir(parents=True, exist_ok=True)
        samples.rename(folder / name / "samples_chain_dev.jsonl")
    for name, tokens in TOKENS.items():
        of_inspect(made, tokens).rename(folder / f"{name}.eval")
        log = read_eval_log(str(folder / f"{name}.eval"))
        for sample in log.samples or []:
            sample.events = []  # nine tenths of the bytes
        write_eval_log(log, str(folder / f"{name}.json"))
    (folder / "long.eval").unlink()  # one is enough to see that it is read, or refused where it cannot be
    shutil.rmtree(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
