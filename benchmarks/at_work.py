"""What an accelerator is asked beside the other scripts: bytes freed, the most lanes, company.

Used by `benchmarks.accelerator`; the same functions run on the CPU, at sizes that a test can wait for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import psutil
import torch

import policies
from benchmarks.device_steps import as_executed
from benchmarks.report import table
from benchmarks.setting import Setting, Subject, context, lane_of, open_subject, outcomes
from protocol import engine
from protocol.engine import Lane, Progress, Prompt, Request
from protocol.instruments.planning import roofline, shapes
from protocol.instruments.planning.estimate import USABLE_SHARE

MIB = 2**20
SHARE = 0.3
EVICTING = ("snapkv", "ada-snapkv")  # heads of one size, and heads of sizes of their own
MOST_LANES = 512
TRIES = 6


class Reading(NamedTuple):
    """Bytes of the device: in tensors, and kept by torch for tensors."""

    allocated: int
    reserved: int


def read(device: str) -> Reading:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return Reading(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    resident = psutil.Process().memory_info().rss
    return Reading(resident, resident)


def freed(chosen: Setting, tiny: bool) -> str:
    """While a lane decodes its first tokens, alone: what the device holds beyond the weights, and what the
    engine says of the lane. On the CPU the device's columns are the process's resident bytes.
    """
    subject = open_subject(chosen)
    rows = []
    for length in (128,) if tiny else (4096, 16384, 32768):
        prompt = Prompt(context(subject, length), ())
        held = {}
        for name in ("full", *EVICTING):
            lane = lane_of(name, None if name == "full" else SHARE, prompt)
            held[name] = while_decoding(subject, prompt, lane, chosen.device)
        full = held["full"]
        for name, own in held.items():
            shares = [
                f"{each / MIB:.1f}" + (f" ({100 * (1 - each / whole) / (1 - SHARE):.1f} % of nominal freed)"
                                      if name != "full" and whole > 0 else "")
                for each, whole in zip(own, full, strict=True)
            ]  # fmt: skip
            rows.append([f"{name}, n = {length}", *shares])
    return table(("MiB of a lane", "allocated", "reserved", "slots, as the engine counts"), rows)


def while_decoding(subject: Subject, prompt: Prompt, lane: Lane, device: str) -> tuple[int, int, int]:
    before, seen = read(device), list[Reading]()

    def note(doing: Progress) -> None:
        if doing.phase == "decoding" and not seen:
            seen.append(read(device))

    ran = engine.run(subject, [Request("freed", prompt, (lane,))], max_new_tokens=4, max_concurrent=1, report=note)
    (outcome,) = outcomes(ran, [lane])
    now = seen[0]
    return now.allocated - before.allocated, now.reserved - before.reserved, outcome.allocated[0]


def most(fits: int, act: Callable[[int], object], limit: int = MOST_LANES) -> tuple[int, int]:
    """(lanes that ran, times that memory was not enough): from the number that arithmetic says, down by a
    tenth while memory is not enough; else up by a tenth once, to see whether arithmetic was too careful.
    """
    lanes, short = max(1, min(fits, limit)), 0
    for _ in range(TRIES):
        if attempt(act, lanes):
            break
        short += 1
        if lanes == 1:
            return 0, short
        lanes = max(1, lanes * 9 // 10)
    else:
        return 0, short
    more = min(limit, lanes + -(-lanes // 10))
    if short == 0 and more > lanes and attempt(act, more):
        lanes = more
    return lanes, short


def attempt(act: Callable[[int], object], lanes: int) -> bool:
    try:
        act(lanes)
    except torch.OutOfMemoryError:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return False
    return True


def throughput(chosen: Setting, tiny: bool) -> str:
    """Of each budget: the lanes that arithmetic says, those that ran, tokens a second of their steps."""
    subject = open_subject(chosen)
    length, new, budgets = (96, 6, (None, 48)) if tiny else (8192, 48, (None, 4096, 1024, 256))
    prompt, limit = Prompt(context(subject, length), ()), 4 if tiny else MOST_LANES
    rows = []
    for budget in budgets:
        lane = Lane("a lane", policies.get("full" if budget is None else "snapkv"), budget, 0)
        fits = lanes_by_arithmetic(subject, prompt, lane, new, chosen)

        def run(lanes: int, lane: Lane = lane) -> engine.Run:
            request = Request("p", prompt, tuple(lane._replace(seed=seed) for seed in range(lanes)))
            ran = engine.run(subject, [request], max_new_tokens=new, max_concurrent=lanes)
            outcomes(ran, request.lanes)
            return ran

        lanes, short = most(fits, run, limit)
        speed = ""
        if lanes:  # the first of the new tokens comes of the prefill
            ran = run(lanes)
            speed = f"{lanes * (new - 1) / (ran.seconds - ran.answers[0].prefill_seconds):,.0f}"
        rows.append(["all" if budget is None else str(budget), str(min(fits, limit)), str(lanes), str(short), speed])
    columns = ("slots a head", "lanes by arithmetic", "lanes that ran", "times out of memory", "tokens a second")
    return f"{length} tokens of context, {new} new ones, at most {limit} lanes.\n\n{table(columns, rows)}"


def lanes_by_arithmetic(subject: Subject, prompt: Prompt, lane: Lane, new: int, chosen: Setting) -> int:
    """The weights are there already, so that what is free is for everything else."""
    shape = shapes.shape_of(subject.network.config, chosen.dtype)
    most = len(prompt.context) + new if lane.budget is None else lane.budget + new
    capacity = -(-most // roofline.QUANTUM) * roofline.QUANTUM
    kind = roofline.LaneKind(lane.key, 0, most - new, None, 0, capacity, shape.slot_bytes, 0, lane.budget is not None)
    needed = roofline.memory_need(
        shape, len(prompt.context), None, [kind] * MOST_LANES, signals=1, watches=False, raw=False
    )
    if chosen.device == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
    else:
        free = psutil.virtual_memory().available
    return roofline.lanes_that_fit(needed._replace(weights=0), USABLE_SHARE * free)


def company(chosen: Setting, tiny: bool) -> str:
    """The tokens of a lane alone, once more and among others: where the first one differs, if one does."""
    subject = open_subject(chosen)
    with as_executed():
        return table(
            ("a lane of", "twice alone", f"among {len(LENGTHS) * 4} lanes"),
            [compared(subject, name, *((96, 8) if tiny else (2048, 128))) for name in ("full", *EVICTING)],
        )


LENGTHS = (1.0, 0.75, 0.5)


def compared(subject: Subject, name: str, length: int, new: int) -> list[str]:
    ids = context(subject, length)
    prompts = [Prompt(ids[: int(length * share)], ()) for share in LENGTHS]
    budget = None if name == "full" else max(40, length // 4)
    policy = policies.get(name, None if name == "full" else {"scoring.window": 8})

    def texts(requests: Sequence[Request], lanes: int) -> tuple[int, ...]:
        ran = engine.run(subject, requests, max_new_tokens=new, max_concurrent=lanes, temperature=0.6)
        return outcomes(ran, requests[0].lanes)[0].token_ids

    def request(place: int, lanes: int) -> Request:
        own = tuple(Lane(f"lane {seed}", policy, budget, seed) for seed in range(lanes))
        return Request(f"p{place}", prompts[place], own)

    alone = texts([request(0, 1)], 1)
    again = texts([request(0, 1)], 1)
    among = texts([request(place, 4) for place in range(len(prompts))], 4 * len(prompts))
    return [name, apart(alone, again), apart(alone, among)]


def apart(one: Sequence[int], other: Sequence[int]) -> str:
    places = (place for place, pair in enumerate(zip(one, other, strict=False), 1) if pair[0] != pair[1])
    first = next(places, None)
    return "equal" if first is None and len(one) == len(other) else f"differ from token {first}"
