"""How much sooner divergence from the full cache tells two arms apart than right and wrong answers do.

Development problems of boundary-chain's task. Every arm answers freely, graded as ever, and is then fed the full
cache's own text: of each position, whether its likeliest token is the full cache's (agreement) and KL(full || arm) in
nats, averaged over the positions of a problem first. Of each pair of arms: z is the mean of the differences by problem
over its standard error, and (z of agreement / z of right and wrong)^2 is how many times fewer problems find as much.

    python -m benchmarks.divergence
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.report import header, table
from benchmarks.setting import Setting, options
from protocol.engine import sampling
from protocol.engine.sampling import Draw
from protocol.formats import files
from protocol.plan import grid
from protocol.run.executors import Job
from protocol.run.executors.local import make_executor
from protocol.workspace.planned_study import PlannedStudy, read_protocol
from splits import CONFIRM, assign_bucket

STUDY = Path(__file__).resolve().parent.parent / "registrations" / "boundary-chain"
OUTCOMES = ("right", "agreement", "KL")


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("divergence", __doc__)
    made.add_argument("--problems", type=int, default=30)
    made.add_argument("--budget", default="192")
    arguments = made.parse_args(argv)
    model = "programs-llama"
    measured = measure(model, arguments.budget, arguments.problems)
    means = [[arm, *(f"{values.mean():.3f}" for values in outcomes)] for arm, outcomes in measured.items()]
    pairs = {
        f"{one}, {other}": [standardise(a - b) for a, b in zip(measured[one], measured[other], strict=True)]
        for one, other in itertools.combinations(measured, 2)
    }
    print(header(Setting(model, "cpu", "float32", 1), "divergence", argv))
    print(table(("arm", *OUTCOMES), means))
    print(table(("pair, z of", *OUTCOMES), [[pair, *(f"{z:.1f}" for z in zs)] for pair, zs in pairs.items()]))
    right = [zs[0] for zs in pairs.values()]
    for place, name, sign in ((1, "agreement", 1), (2, "KL", -1)):  # a small KL is good
        own = [sign * zs[place] for zs in pairs.values()]
        both = list(zip(own, right, strict=True))
        gains = [(z / z_right) ** 2 for z, z_right in both if 1 < abs(z_right) < np.inf]
        against = sum(min(abs(z), abs(z_right)) > 2 and z * z_right < 0 for z, z_right in both)
        print(
            f"{name}: |z| > 2 in {sum(abs(z) > 2 for z in own)} of {len(pairs)} pairs, right and wrong in "
            f"{sum(abs(z) > 2 for z in right)}, both and one against the other in {against}; (z / z of right)^2 where "
            f"|z of right| > 1: median {median(gains):.1f} of {len(gains)}"
        )
    return 0


def measure(model: str, budget: str, problems: int) -> dict[str, list[NDArray[np.float64]]]:
    """Return by arm, of each of OUTCOMES, a number a problem."""
    design = read_protocol(STUDY)[1].designs_by_phase()["confirm"]
    design = replace(design, generation=replace(design.generation, workers=1))
    planned = PlannedStudy(design, files.cache_home(), folder=STUDY)
    dev = [each for each in planned.tasks["programs"].ids() if assign_bucket(each) not in CONFIRM][:problems]
    torch.set_num_threads(1)
    execute = make_executor(planned, {model: len(dev)})
    cells = [cell for cell in grid.cells(design) if cell.model == model and cell.budget in ("full", budget)]
    full: dict[Draw, Tensor] = {}
    measured = {}
    for cell in sorted(cells, key=lambda cell: cell.budget != "full"):
        job = Job(model, "programs", tuple(dev), (cell,))
        if cell.budget == "full":
            with watched(full, {}):
                execute(job)
            continue
        graded: Any = execute(job).records
        compared: dict[Draw, tuple[bool, float]] = {}
        with watched(full, compared):
            execute(job)
        right = {body["problem"]: float(body["grade"] == "correct") for body, _ in graded.values()}
        by_problem = [[value for draw, value in compared.items() if draw.problem == each] for each in dev]
        measured[cell.arm] = [
            np.array([right[each] for each in dev]),
            *(np.array([np.mean([value[part] for value in values]) for values in by_problem]) for part in (0, 1)),
        ]
        print(cell.arm, [values.mean() for values in measured[cell.arm]], file=sys.stderr, flush=True)
    return measured


@contextmanager
def watched(full: dict[Draw, Tensor], compared: dict[Draw, tuple[bool, float]]) -> Iterator[None]:
    """Note the logits of the full cache the first time, and how others differ from them, who then say its tokens."""
    choose, is_full = sampling.choose, not full

    def follow(logits: Tensor, draws: Sequence[Draw], *settings: Any) -> list[int]:
        if is_full:
            full.update(zip(draws, logits.double().log_softmax(-1), strict=True))
            return choose(logits, draws, *settings)
        shares = torch.stack([full[draw] for draw in draws])
        own = logits.double().log_softmax(-1)
        agree, diverge = own.argmax(-1) == shares.argmax(-1), (shares.exp() * (shares - own)).sum(-1)
        compared.update(zip(draws, zip(agree.tolist(), diverge.tolist(), strict=True), strict=True))
        return choose(shares, draws, *settings)  # the same noise on the same logits

    with patch.object(sampling, "choose", follow):
        yield


def standardise(differences: NDArray[np.float64]) -> float:
    """Return mean over standard error; 0 where nothing differs, infinite where all differ alike."""
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    mean = float(differences.mean())
    return mean / error if error else float(np.sign(mean) * np.inf) if mean else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
