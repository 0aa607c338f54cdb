"""Labelling traces by occlusion: occlusions a second beside `generate` that is asked one by one.

Both contenders are given the same traces of an embedded model, which it answered right, and the same windows:
of as many traces as the command occludes together. One by one: transformers' `generate` from a cache of its
own, either of the text with padding tokens in the window's place, or of the text, cut by index; of at most
ALONE of the windows, spread evenly, since none is the cheaper for another. Process time of an occlusion, in
turns. Then all that is recorded of so many traces: both readings, signals, the oracle, and the arms and
budgets of registrations/reasoning-field.

    python -m benchmarks.occlusion
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import torch

from benchmarks.pairs import alternate
from benchmarks.report import header, table
from benchmarks.report import span as ratio
from benchmarks.setting import Setting
from protocol import engine
from protocol.formats import files
from protocol.instruments.anatomy.run import continuations, trace_record, traces
from protocol.instruments.anatomy.table import Occlusion
from protocol.instruments.anatomy.windows import Span, span_of, windows
from protocol.models.load import LoadedModel, load
from protocol.workspace import planned_study
from splits import load as split

REGISTRATION = Path("registrations/reasoning-field")
BOXED = "\\boxed{"
FIRST = 70  # problems of fewer steps are shorter than the traces that are wanted
ALONE = 32


STUDIES = {
    "windows of 32, at the answer": Occlusion(32, 16, "dropped", "reasoning", BOXED, None, Decimal(1), 16),
    "windows of 32, half way": Occlusion(32, 16, "dropped", "reasoning", BOXED, None, Decimal("0.5"), 160),
    "windows of 2, half way": Occlusion(2, 1, "dropped", "all", BOXED, None, Decimal("0.5"), 160),
}


class Cut(NamedTuple):
    """A trace as far as it is fed."""

    token_ids: tuple[int, ...]
    span: Span
    windows: tuple[range, ...]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.occlusion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--model", default="chain-qwen2")
    made.add_argument("--threads", type=int, default=1, help="of torch on the CPU; default 1")
    made.add_argument("--pairs", type=int, default=5, help="rounds of both contenders; default 5")
    made.add_argument("--traces", type=int, default=100, help="of each of the second part; default 100")
    arguments = made.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    _, design = planned_study.read_protocol(REGISTRATION)
    plan = planned_study.PlannedStudy(design, files.cache_home())
    model = load(arguments.model, plan.home)
    lines = [
        line for name, settings in STUDIES.items() for line in compared(plan, model, name, settings, arguments.pairs)
    ]
    print(header(Setting(arguments.model, "cpu", "float32", arguments.threads), "occlusion", argv))
    columns = ("windows", "reading", "together", "one by one, a second", "together, a second", "times as many")
    print(table(columns, lines))
    for name, settings in STUDIES.items():
        print(f"\n{name}: {whole(plan, model, settings, arguments.traces)}")
    return 0


def cuts(plan: planned_study.PlannedStudy, model: LoadedModel, settings: Occlusion) -> list[Cut]:
    """Of as many traces of about 200 tokens that are answered right as are occluded together."""
    task = next(one for one in plan.protocol.tasks)
    decode, found = traces.make_decoder(plan, model, None), list[Cut]()
    posed = [traces.pose_problem(plan, model, task, problem) for problem in split(task.name).dev[FIRST : FIRST + 64]]
    for trace in traces.decode_traces(decode, posed, task.max_new_tokens):
        prompt, reasoning = trace.prompt, traces.reasoning_length(model, trace.token_ids, BOXED, None)
        share = Fraction(settings.cut)
        span = span_of(settings.occlude, len(prompt.context), len(prompt.query), reasoning, share)
        lie = windows(span, settings.window, settings.stride)
        if trace.graded.grade == "correct" and lie:
            found.append(Cut((trace.fed_tokens + trace.token_ids)[: span.tokens], span, lie))
        if sum(len(one.windows) for one in found) >= trace_record.BATCH_WINDOWS:
            break
    return found


def compared(
    plan: planned_study.PlannedStudy, model: LoadedModel, name: str, settings: Occlusion, pairs: int
) -> list[tuple[str, ...]]:
    """A line for each reading, of both contenders."""
    decode, given, new_tokens = (
        traces.make_decoder(plan, model, None),
        cuts(plan, model, settings),
        settings.new_tokens,
    )
    pad = continuations.padding_token(model)
    every = [(one, window) for one in given for window in one.windows]
    some = every[:: -(-len(every) // ALONE)]
    fed = [continuations.OccludedText(one.token_ids, one.windows) for one in given]
    contenders: dict[str, tuple[int, Callable[[], object]]] = {
        "padded alone": (
            len(some),
            lambda: [padded_alone(model, one, window, pad, new_tokens) for one, window in some],
        ),
        "padded": (len(every), lambda: continuations.continue_padded(decode, fed, pad, new_tokens)),
        "dropped alone": (len(some), lambda: [dropped_alone(model, one, window, new_tokens) for one, window in some]),
        "dropped": (len(every), lambda: dropped(decode, given, new_tokens)),
    }
    times = alternate({one: processed(*act) for one, act in contenders.items()}, pairs)
    return [
        (
            name,
            reading,
            f"{len(every)} of {len(given)} traces",
            f"{1 / times.median(f'{reading} alone'):.1f}",
            f"{1 / times.median(reading):.1f}",
            ratio(times.ratio(f"{reading} alone", reading)),
        )
        for reading in ("padded", "dropped")
    ]


def processed(count: int, act: Callable[[], object]) -> Callable[[], float]:
    """Seconds of process time of each of so many occlusions."""

    def measure() -> float:
        start = process_time()
        act()
        return (process_time() - start) / count

    return measure


def dropped(decode: traces.Decoder, given: Sequence[Cut], new_tokens: int) -> object:
    requests = [
        engine.Request(
            str(number),
            engine.Prompt(one.token_ids[: one.span.event], one.token_ids[one.span.event :]),
            continuations.dropping_lanes(one.span.event, one.windows),
        )
        for number, one in enumerate(given)
    ]
    return decode.run(requests, new_tokens)


def padded_alone(model: LoadedModel, one: Cut, window: range, pad: int, new_tokens: int) -> object:
    ids = [pad if at in window else token for at, token in enumerate(one.token_ids)]
    return generated(model, ids, new_tokens)


def dropped_alone(model: LoadedModel, one: Cut, window: range, new_tokens: int) -> object:
    from transformers import DynamicCache

    network: Any = model.network
    last = one.span.event
    cache = DynamicCache(config=network.config)
    with torch.no_grad():
        network(torch.tensor([one.token_ids[:last]]), past_key_values=cache, logits_to_keep=1)
    kept = [at for at in range(last) if at not in window]
    for layer in cache.layers:
        own: Any = layer
        own.keys, own.values = own.keys[:, :, kept], own.values[:, :, kept]
    ids = [one.token_ids[at] for at in (*kept, last)]
    places = torch.tensor([[*kept, last]])
    return generated(model, ids, new_tokens, past_key_values=cache, position_ids=places)


def generated(model: LoadedModel, ids: list[int], new_tokens: int, **more: Any) -> object:
    network: Any = model.network
    return network.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=sorted(model.stop_ids),
        pad_token_id=0,
        **more,
    )


def whole(plan: planned_study.PlannedStudy, model: LoadedModel, settings: Occlusion, count: int) -> str:
    """What traces cost with all that is recorded of them."""
    task = next(one for one in plan.protocol.tasks)
    start, tokens, states = process_time(), 0, dict[str, int]()
    for made in trace_record.occlude_traces(plan, model, task.name, split(task.name).dev[FIRST:][:count], settings):
        states[made.body["state"]] = states.get(made.body["state"], 0) + 1
        tokens += len(made.body.get("text", "")) and made.body["prompt_tokens"] + fed(model, made.body["text"])
    seconds = process_time() - start
    arms = sum(1 for arm in plan.protocol.arms if plan.protocol.policy(arm.name).evicts)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return (
        f"{count} traces of {tokens / count:.0f} tokens in the mean, with {arms} arms at "
        f"{len(plan.protocol.budgets)} budgets: {seconds:.1f} s of process time, "
        f"{100 * seconds / count:.0f} s for 100 ({found})."
    )


def fed(model: LoadedModel, text: str) -> int:
    return len(model.tokenizer(text, add_special_tokens=False)["input_ids"])


if __name__ == "__main__":
    raise SystemExit(main())
