"""Run jobs in this process: one model at a time is held, every lane of a problem decodes in one batch."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import torch
import transformers

import policies
from protocol import engine, tasks
from protocol.evidence import canonical
from protocol.executors import Executor, Job, Produced
from protocol.grading import exact
from protocol.grid import budget_of
from protocol.models.load import LoadedModel, load
from protocol.spec import Protocol
from protocol.tasks import prompting

__all__ = ["executor"]


def executor(protocol: Protocol, home: Path) -> Executor:
    """An executor over the weights below `home`. Sets torch's thread count and deterministic mode for
    the process.
    """
    torch.set_num_threads(protocol.generation.threads)
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.disable_progress_bar()  # one display at a time: ours
    held: dict[str, LoadedModel] = {}
    registered = {task.name: task for task in protocol.tasks}
    policy_of = {arm.name: policies.get(arm.policy) for arm in protocol.arms}

    def execute(job: Job) -> Produced:
        if job.model not in held:
            held.clear()
            settings = protocol.generation
            held[job.model] = load(job.model, home, dtype=settings.dtype, device=settings.device)
        model, task = held[job.model], registered[job.task]
        problem = tasks.get(job.task).build(job.problem, prompting.counter(model.tokenizer))
        prompt = engine.Prompt(*map(tuple, prompting.render(problem, model.tokenizer, task.query)))
        lanes = [
            engine.Lane(
                key="/".join(map(str, cell)),
                policy=policy_of[cell.arm],
                budget=budget_of(protocol, cell, len(prompt.context)),
                seed=cell.seed,
            )
            for cell in job.cells
        ]
        ran = engine.run(
            model,
            prompt,
            lanes,
            problem=job.problem,
            max_new_tokens=task.max_new_tokens,
            temperature=float(protocol.generation.temperature),
        )
        costs = {
            "prefill_seconds": f"{ran.prefill_seconds:.3f}",
            "decode_seconds": f"{ran.decode_seconds:.3f}",
            "lanes": len(lanes),
        }
        heads = model.network.config.num_hidden_layers * model.network.config.num_key_value_heads
        shared = {
            "problem": job.problem,
            "prompt": canonical.digest([list(prompt.context), list(prompt.query)]),
            "prompt_tokens": len(prompt.context),
        }
        records, trajectories = {}, {}
        for cell, lane, outcome in zip(job.cells, lanes, ran.outcomes, strict=True):
            body: dict[str, Any] = {"cell": cell.content(), **shared, "slots": lane.budget}
            if isinstance(outcome, engine.LaneFailure):
                body |= _failed(outcome.reason)
            else:
                trajectory = {
                    "held": list(outcome.held),
                    "allocated": list(outcome.allocated),
                    "heads": heads,
                }
                digest = canonical.digest(trajectory)
                trajectories[digest] = trajectory
                body |= _answered(model, problem.gold, outcome, heads) | {"trajectory": digest}
            records[cell] = (body, costs)
        return Produced(records, tuple(trajectories.values()))

    return execute


def _answered(model: LoadedModel, gold: str, outcome: engine.Outcome, heads: int) -> dict[str, Any]:
    text = model.tokenizer.decode(outcome.token_ids, skip_special_tokens=False)
    grade = exact.grade(gold, text)
    held, allocated = outcome.held, outcome.allocated
    return {
        "state": "ok",
        "reason": "",
        "text": text,
        "tokens": len(outcome.token_ids),
        "stop": outcome.stop,
        "answer": grade.answer,
        "grade": grade.status,
        "grade_reason": grade.reason,
        "cache": {
            "mean": _six(sum(held), len(held) * heads),
            "peak": _six(max(held), heads),
            "prefill_end": _six(held[0], heads),
            "mean_bytes": sum(allocated) // len(allocated),
            "peak_bytes": max(allocated),
            "state_bytes": outcome.state_bytes,
            "events": [list(event) for event in outcome.events],
        },
    }


def _failed(reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))
    return {"state": "failed", "reason": reason, "text": "", "tokens": 0, "grade_reason": "", **nothing}


def _six(total: int, parts: int) -> str:
    return f"{Decimal(total) / Decimal(parts):.6f}"
