"""Decoding steps on a device: what the host asks of it, whether they say what the CPU's say, how fast they are.

Used by `benchmarks.accelerator`. The functions know nothing of how the engine does it: copied into the tree of
another commit they measure that one.
"""

import contextlib
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

import policies
from benchmarks.report import table
from benchmarks.setting import Setting, Subject, context, open_subject, outcomes
from policies import Cadence, Policy
from protocol import engine
from protocol.engine import Lane, Outcome, Prompt, Request, sampling
from protocol.formats import files
from protocol.models.load import load
from protocol.tasks import prompting
from protocol.tasks.chain import Chain

QUIET = 10_000  # tokens between evictions: none in a run
STEP_POLICIES = ("full", "snapkv", "h2o", "ada-snapkv")
SEEDS = 2
TEXT_POLICIES = ("full", "streaming", "snapkv", "h2o", "1d_div", "ada-snapkv", "r-kv", "crystal")
ASKS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync",
        "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemsetAsync")  # fmt: skip


@contextlib.contextmanager
def as_executed(is_deterministic: bool = True) -> Iterator[None]:
    """As the executor sets torch, whose writes by index sort their targets then."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product on CUDA
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def decoding(name: str) -> Policy:
    """The policy, its signals carried on as if an eviction could come, which none does."""
    policy = policies.get(name)
    return replace(policy, cadence=Cadence(interval=QUIET)) if policy.evicts else policy


def lanes_of(name: str, count: int, budget: int) -> list[Lane]:
    policy = decoding(name)
    return [Lane(f"{name} {seed}", policy, budget if policy.evicts else None, seed) for seed in range(count)]


def timed(subject: Subject, prompt: Prompt, lanes: Sequence[Lane], new: int) -> list[float]:
    """The moments at which the steps ended."""
    moments = list[float]()
    ran = engine.run(
        subject,
        [Request("steps", prompt, tuple(lanes))],
        max_new_tokens=new,
        max_concurrent=len(lanes),
        temperature=0.6,
        report=lambda doing: moments.append(time.perf_counter()) if doing.phase == "decoding" else None,
    )
    outcomes(ran, lanes)
    return moments


def steps(chosen: Setting, tiny: bool) -> str:
    """Tokens a second of the median step without evictions, by shape, policy and lanes."""
    rows = []
    if tiny:
        settings, counts, length, new = [chosen], [2], 96, 6
    else:
        small = replace(chosen, model="chain-llama", dtype="float32")
        settings, counts, length, new = [small, chosen], [1, 16, 128], 1024, 24
    for own in settings:
        subject = open_subject(own)
        prompt = Prompt(tuple(np.random.default_rng(0).integers(3, 90, length).tolist()), ())
        for name in STEP_POLICIES:
            for count in counts:
                try:
                    with as_executed():
                        moments = timed(subject, prompt, lanes_of(name, count, length // 2), new)
                    median = float(np.median(np.diff(moments)[2:-1]))
                    cells = [f"{1000 * median:.2f}", f"{count / median:,.0f}"]
                except (RuntimeError, ValueError) as fault:
                    cells = [type(fault).__name__, " ".join(str(fault).split())[:120]]
                rows.append([f"{own.model}, {own.dtype}", name, str(count), *cells])
        del subject
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    columns = ("model", "policy", "lanes", "ms a step", "tokens a second")
    return f"{length} tokens of context, {new} new ones, temperature 0.6.\n\n{table(columns, rows)}"


def traffic(chosen: Setting, tiny: bool) -> str:
    """What the host asked of the device in a step, by torch's profiler; on the CPU the operations of torch."""
    from torch.profiler import ProfilerActivity, profile

    model = chosen if tiny else replace(chosen, model="chain-llama", dtype="float32")
    subject = open_subject(model)
    ids = context(subject, 96) if tiny else tuple(np.random.default_rng(0).integers(3, 90, 256).tolist())
    activities = [ProfilerActivity.CPU] if tiny else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    rows = []
    for name, is_deterministic in [(name, True) for name in STEP_POLICIES] + [("full", False)]:
        lanes, measured = lanes_of(name, 4, len(ids) // 2), 8
        profiler = profile(activities=activities)

        def note(doing: Any, profiler: Any = profiler, measured: int = measured) -> None:
            if doing.phase == "decoding" and doing.steps == 4:
                profiler.start()
            if doing.phase == "decoding" and doing.steps == 4 + measured:
                profiler.stop()

        request = Request("traffic", Prompt(ids, ()), tuple(lanes))
        with as_executed(is_deterministic):
            engine.run(subject, [request], max_new_tokens=16, temperature=0.6, max_concurrent=4, report=note)
        events: Any = profiler.events()  # type: ignore[no-untyped-call]
        calls = Counter(event.name for event in events)
        asked = [f"{sum(calls[each] for each in names) / measured:.1f}" for names in (ASKS[:4], ASKS[4:5], ASKS[5:7])]
        shown = name if is_deterministic else f"{name}, not deterministic"
        rows.append([shown, *asked, f"{sum(event.name.startswith('aten::') for event in events) / measured:.0f}"])
    columns = ("policy, 4 lanes", "kernels launched", "copies", "waits", "functions of torch")
    return f"A step of {model.model}, {model.dtype}, on average.\n\n{table(columns, rows)}"


def choices(chosen: Setting, tiny: bool) -> str:
    """Tokens drawn on the device beside those of the CPU, for logits of the width of a model, and seconds."""
    device, (lanes, size) = ("cpu", (4, 500)) if tiny else ("cuda", (126, 151_936))
    rows = []
    for temperature, top_p, draws_of_lanes in ((0.6, 1.0, 1), (0.6, 1.0, 18), (1.0, 0.95, 18), (0.0, 1.0, 18)):
        generator, equal, seconds = torch.Generator().manual_seed(1), 0, list[float]()
        for step in range(2):
            logits = 3 * torch.randn(lanes, size, generator=generator)
            draws = [sampling.Draw("p", lane // draws_of_lanes, step) for lane in range(lanes)]
            expected, there = sampling.choose(logits, draws, temperature, top_p), logits.to(device)
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            found = sampling.choose(there, draws, temperature, top_p)
            seconds.append(time.perf_counter() - start)
            equal += sum(one == other for one, other in zip(expected, found, strict=True))
        shown = f"{temperature}, {top_p}, {-(-lanes // draws_of_lanes)} draws"
        rows.append([shown, f"{equal} of {lanes * len(seconds)}", f"{1000 * min(seconds):.2f}"])
    return f"{lanes} lanes, {size} tokens.\n\n{table(('temperature, top_p', 'equal tokens', 'ms at best'), rows)}"


def texts(chosen: Setting, tiny: bool) -> str:
    """Lanes of chain arithmetic in float32 on the CPU and on the device: texts, and logits of equal beginnings."""
    devices = ["cpu", "cpu"] if tiny else ["cpu", "cuda"]
    names, problems, new = (TEXT_POLICIES[:3], 1, 24) if tiny else (TEXT_POLICIES, 4, 200)
    (here, logits, seconds), (there, other_logits, other_seconds) = (
        chain_run(device, names, problems, new) for device in devices
    )
    rows = []
    for number, name in enumerate(names):
        pairs = [(here[key], there[key]) for key in here if key[1] // SEEDS == number]
        equal = sum(one.token_ids == other.token_ids for one, other in pairs)
        alike = sum((one.slots, one.events) == (other.slots, other.events) for one, other in pairs)
        gaps = [
            float(np.abs(own - other_logits[draw]).max())
            for draw, own in logits.items()
            if draw.seed // SEEDS == number
            and here[draw[:2]].token_ids[: draw.step] == there[draw[:2]].token_ids[: draw.step]
            and draw in other_logits
        ]
        rows.append([name, f"{equal} of {len(pairs)}", f"{alike} of {len(pairs)}", f"{max(gaps):.1e}", str(len(gaps))])
    digest = hashlib.sha256(repr(sorted((key, one.token_ids) for key, one in there.items())).encode()).hexdigest()
    columns = ("policy", "equal texts", "equal slots and events", "largest difference of logits", "steps compared")
    return (
        f"chain-llama, float32, {devices[0]} and {devices[1]}, an eviction each 16 tokens. Seconds {seconds:.1f} and "
        f"{other_seconds:.1f}. SHA-256 of the texts of the second: {digest[:16]}.\n\n{table(columns, rows)}"
    )


class ChainRun(NamedTuple):
    """outcomes: by problem and seed, which numbers the policy too. logits: by these and the step."""

    outcomes: dict[tuple[str, int], Outcome]
    logits: dict[sampling.Draw, Any]
    seconds: float


def chain_run(device: str, names: Sequence[str], problems: int, new: int) -> ChainRun:
    model = load("chain-llama", files.cache_home(), dtype="float32", device=device)
    task, logits, choose = Chain((3, 5), problems, 0), dict[sampling.Draw, Any](), sampling.choose
    requests = []
    for problem_id in task.ids():
        problem = task.build(problem_id, prompting.counter(model.tokenizer))
        before, after = prompting.render(problem, model.tokenizer, "inside")
        lanes = []
        for number, name in enumerate(names):
            policy = policies.get(name)
            if policy.evicts:
                policy = replace(policy, cadence=Cadence(interval=16))
            budget = 64 if policy.evicts else None
            lanes += [Lane(name, policy, budget, SEEDS * number + seed) for seed in range(SEEDS)]
        requests.append(Request(problem_id, Prompt(tuple(before), tuple(after)), tuple(lanes)))

    def note(rows: torch.Tensor, draws: Sequence[Any], *how: Any) -> Any:
        logits.update(zip(draws, rows.float().cpu().numpy().copy(), strict=True))
        return choose(rows, draws, *how)

    sampling.choose = note  # type: ignore[assignment]
    start = time.perf_counter()
    try:
        with as_executed():
            ran = engine.run(model, requests, max_new_tokens=new, max_concurrent=512, temperature=0.6)
    finally:
        sampling.choose = choose
    seconds = time.perf_counter() - start
    found = dict[tuple[str, int], Outcome]()
    for request, answers in zip(requests, ran.answers, strict=True):
        for lane, outcome in zip(request.lanes, answers.outcomes, strict=True):
            if not isinstance(outcome, Outcome):
                raise SystemExit(f"a lane of {lane.key} failed: {outcome.reason}")
            found[request.problem, lane.seed] = outcome
    return ChainRun(found, logits, seconds)
