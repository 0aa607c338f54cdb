"""What a study costs as it grows: synthetic lanes that are committed, sealed, judged and audited for real.

    python -m benchmarks.scale --at /tmp/scale

Two models, one task of 50 made-up problems or five of 100 or 1,000, and 105 cells of a model and task (ten
arms at two budgets beside the full cache, five seeds): 10,500, 105,000 and 1,050,000 lanes.
The registration, the claim, the records, the seal, the verdict, the report and the audit are those of any
study; the answers alone are made up here, by an executor that decodes nothing. Each step is a process of its
own. Prints processor and wall seconds, peak memory, bytes on disk, and lanes committed a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.formats import files

if TYPE_CHECKING:
    from protocol.run.executors import Job, JobResult

MODELS = ("chain-qwen2", "chain-llama")
ARMS: tuple[str, ...] = (
    "1d",
    "1d_div",
    "1d_div-1.0",
    "1d_div-1.5",
    "h2o",
    "r-kv",
    "snapkv_with_window",
    "kv-key",
    "kv-val",
    "tova",
)
BUDGETS = (64, 128)
SEEDS = (1, 2, 3, 4, 5)
# Tasks, and problems of each: sizes that the table of error rates has, so that registering simulates little.
SIZES = {"10k": (1, 50), "100k": (5, 100), "1M": (5, 1000)}
LONGEST = 320
BATCHES = (1, 24, 576)  # lanes of one write and fsync
STEPS = ("register", "commit", "seal", "judge", "report", "audit")

PROTOCOL = """\
title = "A study of {lanes} made-up lanes: nothing was decoded"
question = "What does a study of this size cost to keep?"
models = {models}
seeds = {seeds}
budgets = {budgets}
{tasks}[arms]
full = {{ policy = "full" }}
{arms}
[gate]
accuracy = 0.5
truncated = 0.5
[generation]
temperature = 0.6
dtype = "float32"
device = "cpu"
threads = 1
problems_per_batch = 5
lanes_per_batch = 1000
interval = 32
cadence = "slack"
preserve = {{ prompt = false, recent = "min(128, K/4)" }}
[decision]
rule = "superior"
subject = "1d_div"
against = ["h2o"]
at_least = {half}
alpha = 0.05
method = "restricted-likelihood"
memory = "slots"
cache_tolerance = 0.02
missing = "inconclusive"
"""


TASKS = """\
[[tasks]]
file = "{name}.jsonl"
grader = "boxed"
dev = 4
confirm = {problems}
query = "inside"
max_new_tokens = {longest}
"""


def written(folder: Path, tasks: int, problems: int) -> None:
    """The protocol, and its files of problems: chains of operators that end in a digit."""
    folder.mkdir(parents=True)
    draw = random.Random(21)
    arms = "\n".join(f'"{name}" = {{ policy = "{name}" }}' for name in ARMS)
    names = [f"made-up-{number}" for number in range(1, tasks + 1)]
    cells = len(SEEDS) * (1 + len(ARMS) * len(BUDGETS))
    text = PROTOCOL.format(
        lanes=len(MODELS) * tasks * problems * cells,
        models=json.dumps(MODELS),
        seeds=json.dumps(SEEDS),
        budgets=json.dumps(BUDGETS),
        tasks="".join(TASKS.format(name=name, problems=problems, longest=LONGEST) for name in names),
        half=len(MODELS) * tasks * len(BUDGETS) // 2 + 1,
        arms=arms,
    )
    (folder / "protocol.toml").write_text(text)
    for name in names:
        with (folder / f"{name}.jsonl").open("w") as file:
            for number in range(4 * problems + 40):
                words = [
                    f"{draw.choice(NAMES)} >{draw.choice(NAMES)} @{draw.choice(NAMES)} {draw.choice('+*')}"
                    f"{draw.randrange(1, 10)}"
                    for _ in range(draw.randrange(12, 40))
                ]
                row = {"id": f"{name}/{number:05}", "context": " ".join(words), "question": "find ?"}
                file.write(json.dumps(row | {"answer": str(draw.randrange(10))}) + "\n")


def register(folder: Path) -> None:
    from protocol.register import register as locked

    locked(folder, files.cache_home())


def commit(folder: Path) -> None:
    """The claim, the held-out problems and every record, as `confirm` writes them; then what the same records
    cost in batches of other sizes.
    """
    from protocol.evidence import claim
    from protocol.evidence.held_out_guard import HeldOutGuard
    from protocol.evidence.registration import Registration
    from protocol.models import load
    from protocol.run import runner
    from protocol.tasks import held_out_guard, prompting
    from protocol.workspace.study import open_study

    study = open_study(Registration(folder), files.cache_home())
    made = 0.0

    def execute(jobs: Iterable[Job]) -> Iterator[JobResult]:
        nonlocal made
        for job in jobs:
            started = time.process_time()
            done = produced(job, prompts, heads[job.model])
            made += time.process_time() - started
            yield done

    with claim.exclusive_run(study.registration):
        attempt = claim.take(study.registration)
        held_out = HeldOutGuard(study.lock, folder)
        problems = {task: held_out.ids(task, "confirm") for task in study.planned.tasks}
        prompts: dict[tuple[str, str], tuple[str, int, Any]] = {}
        for model in MODELS:
            tokenizer = load.tokenizer(model, study.planned.home)
            count = prompting.counter(tokenizer)
            for task, each in ((task, each) for task, own in problems.items() for each in own):
                problem = held_out_guard.build(study.planned.tasks[task], task, each, count, held_out)
                fed = prompting.render(problem, tokenizer, "inside", "")
                prompts[model, each] = (prompting.digest(*fed), len(fed[0]), problem.gold)
        heads = {model: kv_heads(model, study.planned.home) for model in MODELS}
        work = runner.split_into_units(study.cells(), problems, study.protocol.generation.problems_per_batch)
        started, used = time.perf_counter(), time.process_time()
        lanes = runner.record_units(
            folder,
            work,
            execute,
            phase="confirm",
            registration=study.lock.digest,
            attempt=attempt,
            report=lambda event: None,
        )
        wall, spent = time.perf_counter() - started, time.process_time() - used - made
    print(json.dumps({"lanes": lanes, "lanes_per_second": lanes / spent, "wall": wall, "made": made}))


def batches(folder: Path) -> None:
    """Lanes a second of committing 5,760 records of the study anew, by lanes a write: processor and wall."""
    from protocol.evidence import records

    place, found = folder.parent / "batches", []
    for record in records.read_records(folder / "records"):
        found.append((record["body"], record["costs"]))
        if len(found) == 5760:
            break
    rates = {}
    for size in BATCHES:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "trajectories").symlink_to(folder / "records" / "trajectories")
        lanes = found[: 1152 if size == 1 else len(found)]
        with records.ShardWriter(place) as shard:
            wall, used = time.perf_counter(), time.process_time()
            for at in range(0, len(lanes), size):
                shard.append(lanes[at : at + size])
            took = time.process_time() - used, time.perf_counter() - wall
        rates[size] = [len(lanes) / each for each in took]
    shutil.rmtree(place)
    print(json.dumps(rates))


def produced(job: Job, prompts: Mapping[tuple[str, str], tuple[str, int, Any]], heads: int) -> JobResult:
    """What an executor would give for some problems: answers of 100 to 320 words, three of four right with
    the whole cache, their memory as the engine measures it, and seconds that nobody took.
    """
    from protocol.evidence import records
    from protocol.formats import canonical
    from protocol.run.executors import JobResult

    bodies: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}
    sides: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    lanes = []
    batch = {"problems": list(job.problems), "lanes": len(job.problems) * len(job.cells), "joined": 0}
    for problem in job.problems:
        prompt, prompt_tokens, gold = prompts[job.model, problem]
        draw = random.Random(f"{job.model} {problem}")
        # An eighth of the cells end alike.
        lengths = [min(LONGEST, draw.randrange(100, 330)) for _ in range(8)]
        measured: dict[tuple[int, int | None], Any] = {}
        seconds = f"{0.02 * prompt_tokens:.3f}"
        hard = draw.random()
        for cell in job.cells:
            tokens = draw.choice(lengths)
            slots = None if cell.budget == "full" else int(cell.budget)
            if (tokens, slots) not in measured:
                measured[tokens, slots] = memory(prompt_tokens, tokens, slots, heads)
            held, allocated, events = measured[tokens, slots]
            right = draw.random() > (0.3 if slots is None else 0.3 + 8 / slots) * (0.5 + hard)
            digit = gold if right else str((int(gold) + draw.randrange(1, 10)) % 10)
            first = draw.randrange(len(PAGE) - LONGEST)
            body = {
                "cell": cell._asdict(),
                "problem": problem,
                "prompt": prompt,
                "prompt_tokens": prompt_tokens,
                "slots": slots,
                "batch": batch,
                "state": "ok",
                "reason": "",
                "text": " ".join([*PAGE[first : first + tokens - 1], f"\\boxed{{{digit}}}"]),
                "tokens": tokens,
                "stop": "length" if tokens == LONGEST else "eos",
                "cache": {
                    "mean": six(sum(held), len(held) * heads),
                    "peak": six(max(held), heads),
                    "prefill_end": six(held[0], heads),
                    "mean_bytes": sum(allocated) // len(allocated),
                    "peak_bytes": max(allocated),
                    "state_bytes": 0 if slots is None else 8 * slots * heads,
                    "events": events,
                    "granted": [slots] * len(events),
                },
                "answer": digit,
                "grade": "correct" if right else "wrong",
                "grade_reason": "" if right else "the boxed answer is not the gold answer",
            }
            lanes.append(sides.setdefault((tuple(held), tuple(allocated)), len(sides)))
            costs = {"prefill_seconds": seconds, "decode_seconds": f"{0.02 * len(held):.3f}"}
            bodies[cell, problem] = (body, costs)
    content = tuple({"held": list(h), "allocated": list(a), "heads": heads} for h, a in sides)
    name = canonical.digest(list(content))
    for place, (body, _) in zip(lanes, bodies.values(), strict=True):
        body["trajectory"] = records.make_citation(name, place)
    return JobResult(bodies, content)


SLOT = 64  # bytes of a slot of a head: keys and values of 8 numbers of 4 bytes
INTERVAL, ROOM = 32, 16
NAMES = [c + v for c in "bdfgklmnprst" for v in "aeio"]
PAGE = random.Random(1).choices([mark + name for mark in ("", ">", "@") for name in NAMES], k=1 << 16)


def memory(prompt: int, tokens: int, slots: int | None, heads: int) -> tuple[list[int], list[int], list[list[int]]]:
    """Slots held and bytes allocated after each forward, and the events: cut to the budget at the end of the
    prefill, and again whenever it is exceeded by the interval.
    """
    fed = tokens - (tokens == LONGEST)
    if slots is None:
        room = -(-(prompt + LONGEST) // ROOM) * ROOM * heads * SLOT
        return [heads * (prompt + at) for at in range(fed + 1)], [room] * (fed + 1), []
    level = min(prompt, slots)
    events, held, allocated = [[0, heads * prompt, heads * level]], [heads * level], []
    room = heads * (level + min(LONGEST, slots - level + INTERVAL)) * SLOT
    allocated.append(room)
    for step in range(1, fed + 1):
        level += 1
        if level >= slots + INTERVAL:
            events.append([step, heads * level, heads * slots])
            level = slots
            room = heads * (level + min(LONGEST, INTERVAL)) * SLOT
        held.append(heads * level)
        allocated.append(room)
    return held, allocated, events


def kv_heads(model: str, home: Path) -> int:
    """Of all layers."""
    from transformers import AutoConfig

    from protocol.models import sources

    config = AutoConfig.from_pretrained(sources.locate(model, home))
    return int(config.num_hidden_layers * config.num_key_value_heads)


def six(total: int, parts: int) -> str:
    return f"{Decimal(total) / Decimal(parts):.6f}"


def seal(folder: Path) -> None:
    from protocol.evidence import claim
    from protocol.evidence import seal as sealing
    from protocol.evidence.registration import Registration

    study = Registration(folder)
    with claim.exclusive_run(study):
        sealing.write(study)


def judge(folder: Path) -> None:
    from analysis.judge import judge as judged
    from protocol.evidence import verdict
    from protocol.evidence.registration import Registration

    verdict.write(Registration(folder), judged(folder))


def report(folder: Path) -> None:
    from figures.report import report as reported

    reported(folder)


def audit(folder: Path) -> None:
    from protocol import audit as auditing
    from protocol.evidence.registration import Registration

    found = auditing.audit(Registration(folder))
    print(json.dumps({"status": auditing.exit_status(found), "said": auditing.summarize(found)}))


RUN: Mapping[str, Callable[[Path], None]] = {
    "register": register,
    "commit": commit,
    "batches": batches,
    "seal": seal,
    "judge": judge,
    "report": report,
    "audit": audit,
}


def step(name: str, folder: Path) -> None:
    """Runs in a process of its own, whose last line says what it used."""
    started = time.perf_counter()
    RUN[name](folder)
    wall = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/status") as state:  # what getrusage says begins with the peak of the parent
        peak = next(int(line.split()[1]) for line in state if line.startswith("VmHWM"))
    print(json.dumps({"step": name, "seconds": used.ru_utime + used.ru_stime, "wall": wall, "MiB": peak / 1024}))


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--at", type=Path, required=True, help="an empty folder; a million lanes take some 4 GB")
    made.add_argument("--sizes", choices=SIZES, nargs="+", default=[*SIZES])
    made.add_argument("--step", choices=RUN, help="this one alone, of a study that is there")
    arguments = made.parse_args(argv)
    if arguments.step:
        step(arguments.step, arguments.at)
        return 0
    from benchmarks.report import processor, table  # with torch, which no step but the first two loads

    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}.\n")
    rows = []
    for size in arguments.sizes:
        folder = arguments.at / size / "registrations" / "study"
        if not folder.exists():
            written(folder, *SIZES[size])
        for name in ("register", "commit", "batches", *STEPS[2:]):
            command = [sys.executable, "-m", "benchmarks.scale", "--at", str(folder), "--step", name]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(name, done.stdout[-2000:], done.stderr[-3000:])
                return 1
            *said, last = done.stdout.strip().splitlines()
            used = json.loads(last)
            print(size, name, used, said[-1][:3000] if said else "", flush=True)
            rows.append([size, name, f"{used['seconds']:.1f}", f"{used['MiB']:.0f}"])
    print(table(["lanes", "step", "processor seconds", "MiB"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
