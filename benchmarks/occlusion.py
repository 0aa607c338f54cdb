"""Labelling traces by occlusion: occlusions a second beside `generate` that is asked one by one.

Both contenders are given the same traces of an embedded model, which it answered right, and the same windows
of 32 tokens, stride 16. One by one: for every window transformers' `generate` from a cache of its own, either
of the text with padding tokens in its place, or of the text, cut by index. Process time, in turns.
Then all that is recorded of so many traces: both readings, signals, the oracle, and the arms and budgets of
registrations/reasoning-field.

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
from protocol.locked import planned
from protocol.models import sources
from protocol.models.load import LoadedModel, load
from protocol.occlusion import body, occluded, traces
from protocol.occlusion.windows import Occlude, Reading, Span, span_of, windows
from splits import load as split

REGISTRATION = Path("registrations/reasoning-field")
WINDOW, STRIDE, BOXED = 32, 16, "\\boxed{"
FIRST, TEXTS = 70, 5  # problems of fewer steps are shorter than the traces that are wanted; traces compared


class Settings(NamedTuple):
    """Of one labelling."""

    window: int
    stride: int
    reading: Reading
    occlude: Occlude
    boundary: str | None
    tail: int | None
    cut: Decimal
    new_tokens: int


class Text(NamedTuple):
    token_ids: tuple[int, ...]
    span: Span
    windows: tuple[range, ...]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.occlusion",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--model", default="chain-qwen2")
    made.add_argument("--threads", type=int, default=1, help="of torch on the CPU; default 1")
    made.add_argument("--pairs", type=int, default=5, help="rounds of both contenders; default 5")
    made.add_argument("--traces", type=int, default=100, help="of the second part; default 100")
    arguments = made.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    _, design = planned.read_protocol(REGISTRATION)
    plan = planned.Planned(design, sources.home())
    model = load(arguments.model, plan.home)
    lines = [
        line
        for cut, new_tokens in (("1", 16), ("0.5", 160))
        for line in compared(plan, model, Fraction(cut), new_tokens, arguments.pairs)
    ]
    print(header(Setting(arguments.model, "cpu", "float32", arguments.threads), "occlusion", argv))
    columns = ("cut, reading", "occlusions", "one by one, a second", "together, a second", "times as many")
    print(table(columns, lines))
    print(f"\n{whole(plan, model, arguments.traces)}")
    return 0


def texts(plan: planned.Planned, model: LoadedModel, cut: Fraction) -> list[Text]:
    """Of the first traces of about 200 tokens that are answered right, where their windows lie."""
    task = next(one for one in plan.protocol.tasks)
    decode, found = traces.decoder(plan, model, None), list[Text]()
    for problem in split(task.name).dev[FIRST:]:
        built, prompt = traces.posed(plan, model, task, problem)
        grade = traces.grading_of(plan, task, built)
        trace = traces.traced(decode, built, prompt, task.max_new_tokens, grade)
        reasoning = traces.reasoning_of(model, trace.token_ids, BOXED, None)
        span = span_of("reasoning", len(prompt.context), len(prompt.query), reasoning, cut)
        if trace.graded.grade == "correct" and (lie := windows(span, WINDOW, STRIDE)):
            found.append(Text((trace.fed + trace.token_ids)[: span.tokens], span, lie))
        if len(found) == TEXTS:
            break
    return found


def compared(
    plan: planned.Planned, model: LoadedModel, cut: Fraction, new_tokens: int, pairs: int
) -> list[tuple[str, ...]]:
    """A line for each reading, of both contenders."""
    decode, given = traces.decoder(plan, model, None), texts(plan, model, cut)
    pad = occluded.padding(model)
    contenders: dict[str, Callable[[], object]] = {
        "padded alone": lambda: [padded_alone(model, one, pad, new_tokens) for one in given],
        "padded": lambda: [
            occluded.padded(decode, one.token_ids, one.windows, pad, new_tokens) for one in given
        ],
        "dropped alone": lambda: [dropped_alone(model, one, new_tokens) for one in given],
        "dropped": lambda: [dropped(decode, one, new_tokens) for one in given],
    }
    count = sum(len(one.windows) for one in given)
    times = alternate({name: processed(act) for name, act in contenders.items()}, pairs)
    return [
        (
            f"{cut}, {reading}",
            str(count),
            f"{count / times.median(f'{reading} alone'):.1f}",
            f"{count / times.median(reading):.1f}",
            ratio(times.ratio(f"{reading} alone", reading)),
        )
        for reading in ("padded", "dropped")
    ]


def processed(act: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        start = process_time()
        act()
        return process_time() - start

    return measure


def dropped(decode: traces.Decoder, text: Text, new_tokens: int) -> object:
    prompt = engine.Prompt(text.token_ids[: text.span.event], text.token_ids[text.span.event :])
    return decode.run("p", prompt, occluded.dropping(text.span.event, text.windows), new_tokens)


def padded_alone(model: LoadedModel, text: Text, pad: int, new_tokens: int) -> object:
    for window in text.windows:
        ids = [pad if at in window else token for at, token in enumerate(text.token_ids)]
        generated(model, ids, new_tokens)
    return None


def dropped_alone(model: LoadedModel, text: Text, new_tokens: int) -> object:
    from transformers import DynamicCache

    network: Any = model.network
    last = text.span.event
    for window in text.windows:
        cache = DynamicCache(config=network.config)
        with torch.no_grad():
            network(torch.tensor([text.token_ids[:last]]), past_key_values=cache, logits_to_keep=1)
        kept = [at for at in range(last) if at not in window]
        for layer in cache.layers:
            own: Any = layer
            own.keys, own.values = own.keys[:, :, kept], own.values[:, :, kept]
        ids = [text.token_ids[at] for at in (*kept, last)]
        places = torch.tensor([[*kept, last]])
        generated(model, ids, new_tokens, past_key_values=cache, position_ids=places)
    return None


def generated(model: LoadedModel, ids: list[int], new_tokens: int, **more: Any) -> None:
    network: Any = model.network
    network.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=sorted(model.stop_ids),
        pad_token_id=0,
        **more,
    )


def whole(plan: planned.Planned, model: LoadedModel, count: int) -> str:
    """What traces cost with all that is recorded of them."""
    task = next(one for one in plan.protocol.tasks)
    settings = Settings(WINDOW, STRIDE, "dropped", "reasoning", BOXED, None, Decimal(1), 16)
    start, tokens, states = process_time(), 0, dict[str, int]()
    for problem in split(task.name).dev[FIRST:][:count]:
        made = body.traced(plan, model, task.name, problem, settings).body
        states[made["state"]] = states.get(made["state"], 0) + 1
        tokens += made.get("tokens", 0)
    seconds = process_time() - start
    arms = sum(1 for arm in plan.protocol.arms if plan.protocol.policy(arm.name).evicts)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return (
        f"{count} traces of {tokens / count:.0f} tokens in the mean, with {arms} arms at "
        f"{len(plan.protocol.budgets)} budgets: {seconds:.1f} s of process time ({found})."
    )


if __name__ == "__main__":
    raise SystemExit(main())
