"""A simulated study of a whole protocol: sealed, judged, drawn and exported before the protocol is locked.

The self-test of the rule simulates the family alone. This simulates every cell that a lock registers, with the
lanes of the probe if there is a sweep, so that a protocol whose verdict cannot be computed, printed or drawn is
refused while its held-out problems are unopened.
"""

import hashlib
import itertools
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from analysis import selection as selection_rule
from analysis.judgement import looks as judged_looks
from analysis.judgement.judged_folder import judge
from analysis.judgement.study_files import read_study
from analysis.stats.methods import resampling_problems
from figures import report, table
from figures.drawing import page
from figures.plots.forest import forest
from figures.study import list_drawings
from protocol.evidence import claim, ledger, looks, records, seal, selection, verdict
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats.citations import CITES
from protocol.formats.record_fields import format_reads
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.formats.runners import find_runner
from protocol.formats.vocabulary import FULL, READS, RERUN_SUFFIX
from protocol.instruments.exports import croissant, in_toto, preregistration
from protocol.lock import lock
from protocol.preflight.written_study import spread_ids

LANES = 1_000  # lanes at most, unless the fewest problems of the grid have more
LEAST = 4  # problems of a task at least: one excluded, one failed, and two that every contrast has
DRAWS = 1_000
PROMPT = 64  # slots of the smallest budget
HEADS = 4
BYTES = 64  # of a slot of one head
SPLITS = MappingProxyType({"probe": "dev", "confirm": "confirm"})  # whose problems a phase runs
UNANSWERED = MappingProxyType(  # in the record of any lane that did not end well
    {"text": "", "tokens": 0, **dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))}
)


class Outcome(NamedTuple):
    """How the lanes of a simulated study end.

    accuracy: the chance of a right answer. failed: how many problems of each task, the first ones, have failed lanes.
    failing_arms: the arms whose lanes fail; all of them if None. excess: slots that the subject holds and no other
    arm does. evicts: whether any slot is evicted.
    """

    accuracy: float = 0.5
    failed: int = 0
    failing_arms: tuple[str, ...] | None = None
    excess: int = 0
    evicts: bool = True

    def fails(self, arm: str) -> bool:
        return self.failing_arms is None or arm in self.failing_arms


USUAL = Outcome()


def refuse_unjudgeable(content: Mapping[str, Any]) -> None:
    """Raise BadInput for a lock whose study could be run and not judged, drawn or exported.

    content: of the lock that is about to be written.
    """
    for outcome in (USUAL, Outcome(failed=1)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                study = write_simulated(Path(folder) / str(content["name"]), content, outcome)
                judge_simulated(study, has_drawings=outcome == USUAL)
            except Exception as error:  # whatever it is, it would come after the held-out problems were opened
                place = traceback.extract_tb(error.__traceback__)[-1]
                raise BadInput(
                    "protocol.toml: a simulated study of exactly this grid gets no verdict "
                    f"({type(error).__name__}: {error}, in {Path(place.filename).name}:{place.lineno}); nothing was "
                    "locked; mend that line if it is yours, or report this protocol"
                ) from error


def judge_simulated(folder: Path, *, has_drawings: bool = True) -> dict[str, Any]:
    """Return the judgement of a sealed study, after composing every table, page, export and drawing of it."""
    study = Registration(folder)
    judged = judge(folder)
    verdict.write(study, judged)
    table.verdict_table(judged)
    report.render_without_drawings(folder)
    if has_drawings:
        lanes, judged_file = read_study(folder), page.read_judged(folder)
        for drawing, *data in ((forest, judged_file), *list_drawings(folder, judged_file, lanes)):
            page.compose_drawing(drawing, *data)
    study = study.reopen()
    in_toto.build_statement(study)
    croissant.describe_dataset(study)
    preregistration.format_osf(study.lock, study.entries)
    preregistration.format_as_predicted(study.lock, study.entries)
    return judged


def write_simulated(folder: Path, content: Mapping[str, Any], outcome: Outcome = USUAL) -> Path:
    """Write a sealed study with this lock into `folder`, which must not exist, and return it.

    Its problems are a part of the registered ones, and its lock registers no late value, no signature and no
    parent. Answers and slots are random. If the protocol excludes problems, the last one is excluded.
    """
    simulated = _simulated_lock(content)
    folder.mkdir(parents=True)
    digest = lock.write(folder, simulated)
    ledger.append(folder, "register", {"lock": digest})
    study, rng = Registration(folder), np.random.default_rng(0)
    if study.has_sweep:
        _write_lanes(study, "probe", _probe_cells(simulated), simulated["items"], rng, outcome._replace(failed=0))
        selection.write(study, selection_rule.select(folder))
    with claim.exclusive_run(study):
        claim.take(study)
        while not looks.has_stopped(study):
            problems = {task: {"confirm": looks.next_problems(study, task)} for task in simulated["items"]}
            _write_lanes(study, "confirm", simulated["grid"], problems, rng, outcome)
            study = study.reopen()
            if not looks.is_due(study):
                break
            looks.enter(study, judged_looks.advise(judge(folder)))
            study = study.reopen()
        seal.write(study)
    return folder


def _simulated_lock(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lock of the simulated study: fewer problems and draws, and nothing that needs an outside file."""
    protocol = content["protocol"]["content"]
    count = max(LEAST, LANES // len(content["grid"]))
    items = {
        task: item | {split: spread_ids(item[split], count) for split in ("dev", "confirm")}
        for task, item in content["items"].items()
    }
    sizes = {task: (_size(content["items"][task]), _size(item)) for task, item in items.items()}
    power = {size: content["checks"]["problems"][registered] for registered, size in sizes.values()}
    decision = protocol["decision"] | ({"draws": DRAWS} if "draws" in protocol["decision"] else {})
    decision |= {"looks": [count // 2, count]} if "looks" in decision else {}
    protocol = {name: value for name, value in protocol.items() if name != "randomness"} | {"decision": decision}
    return {
        **{name: value for name, value in content.items() if name != CITES},
        "parent": None,
        "signer": None,
        "bundle": content["bundle"] or "0" * 64,
        "items": items,
        "checks": content["checks"] | {"problems": power},
        "protocol": content["protocol"] | {"content": protocol},
    }


def _size(item: Mapping[str, Any]) -> str:
    return str(len(resampling_problems(item)))


def _probe_cells(content: Mapping[str, Any]) -> Iterator[list[Any]]:
    protocol = content["protocol"]["content"]
    sweep = protocol["sweep"]
    arms = [*sweep["candidates"], sweep["baseline"], sweep["baseline"] + RERUN_SUFFIX]
    tasks = [task["name"] for task in protocol["tasks"]]
    for cell in itertools.product(protocol["models"], tasks, protocol["budgets"], arms, sweep["seeds"]):
        yield list(cell)


def _write_lanes(
    study: Registration,
    phase: str,
    cells: Iterable[Sequence[Any]],
    items: Mapping[str, Mapping[str, Sequence[str]]],
    rng: np.random.Generator,
    outcome: Outcome,
) -> None:
    runner = find_runner(study.protocol)
    simulate = partial(_simulate_lane, outcome=outcome) if runner is None else load_attribute(runner.simulate)
    costs = {"attempt": 1, "prefill_seconds": "0.1", "decode_seconds": "0.2"}
    with ShardWriter(study.folder / records.FOLDERS[phase]) as shard:
        for cell in cells:
            lanes = [simulate(study.lock, cell, problem, rng) for problem in items[cell[1]][SPLITS[phase]]]
            bodies = [body | {"registration": study.lock.digest, "phase": phase} for body, _ in lanes]
            if all(trajectory for _, trajectory in lanes):
                name = shard.keep_trajectories([trajectory for _, trajectory in lanes])
                bodies = [
                    body | {"trajectory": records.make_citation(name, place)} for place, body in enumerate(bodies)
                ]
            failed = outcome.failed if outcome.fails(cell[3]) else 0
            bodies[:failed] = [
                _unanswered(body) | {"state": "failed", "reason": "simulated"} for body in bodies[:failed]
            ]
            if (exclude := study.lock.content["protocol"]["content"].get("exclude")) is not None:
                above = exclude["prompt_tokens_above"]
                reason = f"prompt_tokens: {above + 1}, above {above}"
                bodies[-1] = _unanswered(bodies[-1]) | {
                    "state": "excluded",
                    "reason": reason,
                    "prompt_tokens": above + 1,
                }
            shard.append([(body, costs) for body in bodies])


def _unanswered(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a lane without an answer."""
    rest = {name: value for name, value in body.items() if name not in ("score", "thought")}
    return rest | {name: value for name, value in UNANSWERED.items() if name in body}


def _simulate_lane(
    locked: lock.Lock, cell: Sequence[Any], problem: str, rng: np.random.Generator, outcome: Outcome
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body of a lane that ended well, and its trajectory."""
    protocol = locked.content["protocol"]["content"]
    model, task, budget, arm, seed = cell
    is_full = budget == FULL
    is_subject = arm == protocol["decision"]["subject"]
    budgets = [*protocol["budgets"], *protocol.get("neighbours", ())]
    slots = 4 * PROMPT if is_full else PROMPT + budgets.index(budget) + outcome.excess * is_subject
    moments = [HEADS * (slots + step + int(rng.integers(2))) for step in range(3)]
    grade: dict[str, str | None] = {"answer": "1", "grade": "correct" if rng.random() < outcome.accuracy else "wrong"}
    if task in locked.content["checks"]["scored"] and not (is_full and "outcome" in protocol):
        grade = {"answer": "1", "grade": "scored", "score": f"{rng.binomial(10, outcome.accuracy) / 10:.6f}"}
    compares_reads = protocol["decision"].get("memory") == READS
    is_truncated = grade["grade"] == "wrong" and rng.random() < 0.5
    if is_truncated:
        grade = {"answer": None, "grade": "no answer"}
    steps = [0, 1] if protocol["generation"].get("interval") else [0]
    if is_full or not outcome.evicts:
        steps = []
    body = {
        "cell": {"model": model, "task": task, "budget": budget, "arm": arm, "seed": seed},
        "problem": problem,
        "state": "ok",
        "reason": "",
        "prompt": hashlib.sha256(problem.encode()).hexdigest(),
        "prompt_tokens": 1,
        "slots": None if is_full else slots,
        "text": "1",
        "tokens": 2,
        **({"thought": 1} if protocol["generation"].get("think_only") else {}),
        "stop": "length" if is_truncated else "eos",
        **grade,
        "grade_reason": "",
        "cache": {
            "mean": f"{sum(moments) / (3 * HEADS):.6f}",
            "peak": f"{max(moments) / HEADS:.6f}",
            "prefill_end": f"{moments[0] / HEADS:.6f}",
            "mean_bytes": BYTES * sum(moments) // 3,
            "peak_bytes": BYTES * max(moments),
            "state_bytes": 0,
            **({"reads": format_reads(moments, HEADS, 2 - is_truncated)} if compares_reads else {}),
            "events": [[step, HEADS * (slots + 1), HEADS * slots] for step in steps],
            "granted": [slots] * len(steps),
        },
        "batch": {"problems": [problem], "lanes": 1, "joined": 0},
    }
    return body, {"held": moments, "allocated": [BYTES * moment for moment in moments], "heads": HEADS}
