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
from protocol.evidence.lock import closure
from protocol.evidence.run.held_out import Judged
from protocol.locked import drift
from protocol.locked.planned import Planned
from protocol.locked.study import Study
from protocol.models.load import LoadedModel, load, tokenizer
from protocol.plan import grid
from protocol.plan.design import Design
from protocol.running.executors import Job
from protocol.running.executors.local import executor
from protocol.tasks import door, prompting
from protocol.tasks.door import Opened
from protocol.tasks.problem import Problem

__all__ = ["Decoder", "Shake", "other_weights", "shakes"]

PAIRS = 3
SHARE = {torch.float32: 8}  # noise in units of the dtype's epsilon, 1 for others


class Shake(NamedTuple):
    """Weight noise: the seed that draws it and its sign, +1 or -1."""

    seed: int
    sign: int


def shakes(nonce: str) -> Iterator[Shake]:
    """Yield the perturbations to try, in order: each noise is followed by its opposite."""
    for number in range(PAIRS):
        seed = int.from_bytes(hashlib.sha256(f"shake {nonce} {number}".encode()).digest()[:7])
        yield Shake(seed, 1)
        yield Shake(seed, -1)


def other_weights(study: Study, model: str) -> list[str]:
    """Return one line for each file of the model that differs from the locked one. Raises BadInput if the
    model or its statistics are not available.
    """
    planned = study.planned
    locked = study.lock.content["weights"].get(model, {})
    files = drift.files_of(model, planned.home, locked) | planned.measured(model)
    return closure.differences(locked, closure.weights(files))


class Decoder:
    """Decode lanes of a judged study as it was locked, each alone: batch composition changes no more than
    rounding.

    One model is loaded at a time. Held-out problems are built once and cached.
    """

    def __init__(
        self,
        study: Study,
        confirmed: Design | None,
        judged: Judged | None,
        watch: Callable[[grid.Cell, Policy], Policy] = lambda cell, policy: policy,
    ) -> None:
        """confirm_design: what confirm ran, for a sweep with its winner. It is None before the verdict, like
        `held_out`, and then only probe lanes are decoded. watch: as in `make_executor`.
        """
        self.designs = {"probe": study.protocol.probed()} | ({"confirm": confirmed} if confirmed else {})
        self.cells = {phase: frozenset(grid.cells(design)) for phase, design in self.designs.items()}
        self.items = study.lock.content["items"]
        self.door = judged
        self.planned = study.planned
        self.tasks = study.planned.tasks
        self.generation = study.protocol.generation._replace(
            first_event=study.first_event(),
            # More threads than processors do not help, whatever number the study registered.
            threads=min(study.protocol.generation.threads, os.cpu_count() or 1),
        )
        self._built: dict[tuple[str, str, str], Problem] = {}
        self._tokenizers: dict[str, PreTrainedTokenizerBase] = {}
        self._held: dict[tuple[str, Shake | None], LoadedModel] = {}
        self._shake: Shake | None = None
        opened = {"confirm": Opened(judged, judged.key(), self._built)} if judged else {}
        self._execute = {
            phase: executor(self._planned(design), {}, opened.get(phase), self._model, watch)
            for phase, design in self.designs.items()
        }

    def registered(self, body: Mapping[str, Any]) -> bool:
        """Whether the protocol has this lane in this phase."""
        phase, cell = body["phase"], grid.Cell(**body["cell"])
        split = {"probe": "dev", "confirm": "confirm"}[phase]
        return cell in self.cells[phase] and body["problem"] in self.items[cell.task][split]

    def decode(self, body: Mapping[str, Any], shake: Shake | None = None) -> dict[str, Any]:
        """Return the body that decoding the lane of this record gives. Raises as the executor does."""
        self._shake = shake
        (again,) = self.decode_together([body])
        return again

    def decode_together(self, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the bodies that decoding the lanes of these records gives. All are of one model, task,
        problem and phase, so their prompt is prefilled once.
        """
        first, cells = bodies[0], tuple(grid.Cell(**body["cell"]) for body in bodies)
        phase, problem, (model, task, *_) = first["phase"], first["problem"], cells[0]
        if phase == "confirm" and (model, task, problem) not in self._built:
            self._built[model, task, problem] = self._problem(first)
        produced = self._execute[phase](Job(model, task, (problem,), cells))
        return [produced.records[cell, problem][0] for cell in cells]

    def asked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return `prompt` and `prompt_tokens` of the problem of this record, without loading the model's
        weights.
        """
        context, query = self.fed(body)
        return {"prompt": prompting.digest(context, query), "prompt_tokens": len(context)}

    def fed(self, body: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """Return the token ids of this record's prompt: those before the first eviction step, and those after
        it.
        """
        design, cell = self.designs[body["phase"]], body["cell"]
        query = next(one.query for one in design.tasks if one.name == cell["task"])
        words = self.tokenizer(cell["model"])
        return prompting.render(self._problem(body), words, query, design.asks(cell["arm"]))

    def _problem(self, body: Mapping[str, Any]) -> Problem:
        count = prompting.counter(self.tokenizer(body["cell"]["model"]))
        held_out = self.door if body["phase"] == "confirm" else None
        name = body["cell"]["task"]
        return door.build(self.tasks[name], name, body["problem"], count, held_out)

    def tokenizer(self, model: str) -> PreTrainedTokenizerBase:
        if model not in self._tokenizers:
            self._tokenizers[model] = tokenizer(model, self.planned.home)
        return self._tokenizers[model]

    def _planned(self, design: Design) -> Planned:
        return self.planned._replace(protocol=replace(design, generation=self.generation))

    def _model(self, name: str) -> LoadedModel:
        wanted = (name, self._shake)
        if wanted not in self._held:
            self._held.clear()
            model = load(name, self.planned.home, dtype=self.generation.dtype, device=self.generation.device)
            if self._shake is not None:
                _shaken(model, self._shake)
            self._held[wanted] = model
        return self._held[wanted]


def _shaken(model: LoadedModel, shake: Shake) -> None:
    """Add to every weight a share of itself, drawn from a normal distribution."""
    generator = torch.Generator().manual_seed(shake.seed)
    for weight in model.network.parameters():
        share = SHARE.get(weight.dtype, 1) * torch.finfo(weight.dtype).eps * shake.sign
        noise = torch.randn(weight.shape, generator=generator).to(weight.device)
        weight.copy_(weight.float() * (1 + share * noise))
