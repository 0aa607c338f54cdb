"""Decode recorded lanes again, one at a time, with the model's weights or with weights perturbed by a few
roundings.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from policies import Policy
from protocol.evidence.held_out_guard import JudgedHeldOut
from protocol.lock import closure
from protocol.models.load import LoadedModel, load, tokenizer
from protocol.plan import grid
from protocol.plan.design import Design
from protocol.run.executors import Job
from protocol.run.executors.local import make_executor
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.problem import Problem
from protocol.workspace import run_inputs
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study

NOISE_PAIRS = 3
NOISE_SCALE = {torch.float32: 8}  # noise in units of the dtype's epsilon, 1 for others


class Perturbation(NamedTuple):
    """Weight noise: the seed that draws it and its sign, +1 or -1."""

    seed: int
    sign: int


def draw_perturbations(nonce: str) -> Iterator[Perturbation]:
    """Yield the perturbations to try, in order: each noise is followed by its opposite."""
    for number in range(NOISE_PAIRS):
        seed = int.from_bytes(hashlib.sha256(f"shake {nonce} {number}".encode()).digest()[:7])
        yield Perturbation(seed, 1)
        yield Perturbation(seed, -1)


def list_weight_differences(study: Study, model: str) -> list[str]:
    """Return one line for each file of the model that differs from the locked one. Raises BadInput if the
    model or its statistics are not available.
    """
    planned = study.planned
    locked = study.lock.content["weights"].get(model, {})
    files = run_inputs.model_files(model, planned.home, locked) | planned.statistics_files(model)
    return closure.differences(locked, closure.weights(files))


class Decoder:
    """Decode lanes of a judged study as it was locked, each alone: batch composition changes no more than rounding.

    One model is loaded at a time. Held-out problems are built once and cached.
    """

    def __init__(
        self,
        study: Study,
        confirm_design: Design | None,
        held_out: JudgedHeldOut | None,
        watch: Callable[[grid.Cell, Policy], Policy] = lambda cell, policy: policy,
    ) -> None:
        """confirm_design: what confirm ran, for a sweep with its winner. It is None before the verdict, like
        `held_out`, and then only probe lanes are decoded. watch: as in `make_executor`.
        """
        self.designs = {"probe": study.protocol.probe_design()} | (
            {"confirm": confirm_design} if confirm_design else {}
        )
        self.cells = {phase: frozenset(grid.cells(design)) for phase, design in self.designs.items()}
        self.items = study.lock.content["items"]
        self.held_out = held_out
        self.planned = study.planned
        self.tasks = study.planned.tasks
        self.generation = replace(
            study.protocol.generation,
            first_event=study.first_event(),
            # More threads than processors do not help, whatever number the study registered.
            threads=min(study.protocol.generation.threads, os.cpu_count() or 1),
        )
        self._problems: dict[tuple[str, str, str], Problem] = {}
        self._tokenizers: dict[str, PreTrainedTokenizerBase] = {}
        self._loaded: dict[tuple[str, Perturbation | None], LoadedModel] = {}
        self._perturbation: Perturbation | None = None
        problems_by_phase = {"confirm": HeldOutProblems(held_out, held_out.key(), self._problems)} if held_out else {}
        self._execute = {
            phase: make_executor(self._plan_phase(design), {}, problems_by_phase.get(phase), self._load_model, watch)
            for phase, design in self.designs.items()
        }

    def is_registered(self, body: Mapping[str, Any]) -> bool:
        """Whether the protocol has this lane in this phase."""
        phase, cell = body["phase"], grid.Cell(**body["cell"])
        split = {"probe": "dev", "confirm": "confirm"}[phase]
        return cell in self.cells[phase] and body["problem"] in self.items[cell.task][split]

    def decode(self, body: Mapping[str, Any], perturbation: Perturbation | None = None) -> dict[str, Any]:
        """Return the body that decoding the lane of this record gives. Raises as the executor does."""
        self._perturbation = perturbation
        (result,) = self.decode_batched([body])
        return result

    def decode_batched(self, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the bodies that decoding the lanes of these records gives. All are of one model, task,
        problem and phase, so their prompt is prefilled once.
        """
        first, cells = bodies[0], tuple(grid.Cell(**body["cell"]) for body in bodies)
        phase, problem, (model, task, *_) = first["phase"], first["problem"], cells[0]
        if phase == "confirm" and (model, task, problem) not in self._problems:
            self._problems[model, task, problem] = self._build_problem(first)
        job_result = self._execute[phase](Job(model, task, (problem,), cells))
        return [job_result.records[cell, problem][0] for cell in cells]

    def prompt_fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return `prompt` and `prompt_tokens` of the problem of this record, without loading the model's weights."""
        context, query = self.render_prompt(body)
        return {"prompt": prompting.digest(context, query), "prompt_tokens": len(context)}

    def render_prompt(self, body: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """Return the token ids of this record's prompt: those before the first eviction step, and those after it."""
        design, cell = self.designs[body["phase"]], body["cell"]
        query = next(task.query for task in design.tasks if task.name == cell["task"])
        model_tokenizer = self.tokenizer(cell["model"])
        return prompting.render(self._build_problem(body), model_tokenizer, query, design.extra_prompt(cell["arm"]))

    def _build_problem(self, body: Mapping[str, Any]) -> Problem:
        count = prompting.counter(self.tokenizer(body["cell"]["model"]))
        held_out = self.held_out if body["phase"] == "confirm" else None
        name = body["cell"]["task"]
        return held_out_guard.build(self.tasks[name], name, body["problem"], count, held_out)

    def tokenizer(self, model: str) -> PreTrainedTokenizerBase:
        if model not in self._tokenizers:
            self._tokenizers[model] = tokenizer(model, self.planned.home)
        return self._tokenizers[model]

    def _plan_phase(self, design: Design) -> PlannedStudy:
        return self.planned._replace(protocol=replace(design, generation=self.generation))

    def _load_model(self, name: str) -> LoadedModel:
        key = (name, self._perturbation)
        if key not in self._loaded:
            self._loaded.clear()
            model = load(name, self.planned.home, dtype=self.generation.dtype, device=self.generation.device)
            if self._perturbation is not None:
                _perturb_weights(model, self._perturbation)
            self._loaded[key] = model
        return self._loaded[key]


def _perturb_weights(model: LoadedModel, perturbation: Perturbation) -> None:
    """Add to every weight a share of itself, drawn from a normal distribution."""
    generator = torch.Generator().manual_seed(perturbation.seed)
    for weight in model.network.parameters():
        scale = NOISE_SCALE.get(weight.dtype, 1) * torch.finfo(weight.dtype).eps * perturbation.sign
        noise = torch.randn(weight.shape, generator=generator).to(weight.device)
        weight.copy_(weight.float() * (1 + scale * noise))
