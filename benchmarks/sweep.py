"""What a whole sweep costs: 12 policies at 2 kept shares on one needle prompt.

Contenders: the engine with all lanes in one run (the question fed to every lane after its event, as kvpress
does, by the network's own forward and, where it supports the model, by the native kernel; and the question
compressed with the rest), the engine one lane at a time, kvpress' pipeline one press after another for the
methods both have (and the engine on just these), and one full-cache `generate`. All make the same number of
tokens from the same prompt; ours include prefill, signals, events and decoding.

    python -m benchmarks.sweep
    PYTHONPATH=<kvpress and a transformers that it accepts> python -m benchmarks.sweep --kvpress
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks import presses
from benchmarks.pairs import Times, alternate, clocked
from benchmarks.report import at_least, at_most, header, span, table
from benchmarks.setting import Subject, lane_of, open_subject, options, outcomes, prompt, setting
from protocol import engine
from protocol.engine import Lane, Prompt, Request
from protocol.engine.native.network import obstacle_to_native

POLICIES = (
    "random",
    "streaming",
    "h2o",
    "snapkv",
    "crystal",
    "tova",
    "knorm",
    "keydiff",
    "pyramidkv",
    "chunkkv",
    "ada-snapkv",
    "scissorhands",
)
SHARES = (0.3, 0.5)
GENERATE = "one full-cache `generate`"
TOGETHER = "engine, all lanes in one run"
INSIDE = "engine, all lanes in one run, the question inside the compressed prompt"
NATIVE = "engine, all lanes in one run, by the native kernel"
ALONE = "engine, one lane at a time"
EQUAL = "engine, kvpress' methods in one run"
KVPRESS = "kvpress, one press after another"


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("sweep", __doc__, repetitions=5)
    made.add_argument("--length", type=int, default=1024, help="tokens of the prompt; default 1024")
    made.add_argument("--new-tokens", type=int, default=16, help="default 16")
    made.add_argument("--kvpress", action="store_true", help="kvpress is importable: measure it too")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    obstacle = presses.obstacle() if arguments.kvpress else None
    if obstacle:
        made.error(f"--kvpress: {obstacle}")
    subject = open_subject(chosen)
    if arguments.kvpress and subject.tokenizer is None:
        made.error("--kvpress: its pipeline needs a tokenizer; choose a model that has one")
    asked = prompt(subject, arguments.length)
    whole = Prompt((*asked.context, *asked.query), ())
    lanes = lanes_of(POLICIES, asked)
    contenders: dict[str, Callable[[], object]] = {
        GENERATE: generate(subject, asked, arguments.new_tokens),
        TOGETHER: together(subject, asked, lanes, arguments.new_tokens),
        INSIDE: together(subject, whole, lanes_of(POLICIES, whole), arguments.new_tokens),
        ALONE: alone(subject, asked, lanes, arguments.new_tokens),
    }
    sizes = {GENERATE: 1, TOGETHER: len(lanes), INSIDE: len(lanes), ALONE: len(lanes)}
    if chosen.device == "cpu" and chosen.dtype == "float32" and not obstacle_to_native(subject.network.config):
        contenders[NATIVE] = together(subject, asked, lanes, arguments.new_tokens, kernel="native")
        sizes[NATIVE] = len(lanes)
    if arguments.kvpress:
        names = list(presses.SHARED)
        equal = lanes_of(names, asked)
        contenders[EQUAL] = together(subject, asked, equal, arguments.new_tokens)
        contenders[KVPRESS] = presses.runs(subject, asked, names, list(SHARES), arguments.new_tokens)
    times = alternate({name: clocked(act, chosen.device) for name, act in contenders.items()}, arguments.repetitions)
    if arguments.kvpress:
        sizes |= dict.fromkeys((EQUAL, KVPRESS), len(equal))
    print(header(chosen, "sweep", argv, *(("kvpress",) if arguments.kvpress else ())))
    print(f"{len(asked.context)} + {len(asked.query)} tokens, {arguments.new_tokens} new ones.\n")
    print(table(("contender", "lanes", "seconds", "to `generate`", "target"), rows(times, sizes)))
    if not arguments.kvpress:
        print("\nkvpress was not measured (--kvpress).")
    return 0


def lanes_of(names: Sequence[str], prompt: Prompt) -> tuple[Lane, ...]:
    return tuple(lane_of(name, share, prompt) for name in names for share in SHARES)


def generate(subject: Subject, prompt: Prompt, new_tokens: int) -> Callable[[], object]:
    network: Any = subject.network
    ids = torch.tensor([[*prompt.context, *prompt.query]], device=network.device)
    seen = torch.ones_like(ids)

    def act() -> None:
        made = network.generate(ids, attention_mask=seen, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
        if made.shape[1] != ids.shape[1] + new_tokens:
            raise SystemExit(f"generate made {made.shape[1] - ids.shape[1]} tokens, not {new_tokens}")

    return act


def together(
    subject: Subject, prompt: Prompt, lanes: tuple[Lane, ...], new_tokens: int, kernel: str | None = None
) -> Callable[[], object]:
    def act() -> None:
        ran = engine.run(subject, [Request("sweep", prompt, lanes)], max_new_tokens=new_tokens, kernel=kernel)
        outcomes(ran, lanes)

    return act


def alone(subject: Subject, prompt: Prompt, lanes: tuple[Lane, ...], new_tokens: int) -> Callable[[], object]:
    each = [together(subject, prompt, (lane,), new_tokens) for lane in lanes]

    def act() -> None:
        for one in each:
            one()

    return act


def rows(times: Times, lanes: dict[str, int]) -> list[list[str]]:
    found = []
    for name, count in lanes.items():
        ratio = times.ratio(name, GENERATE)
        target = ""
        if name in (TOGETHER, INSIDE):
            target = at_most(ratio.median, 2.5)
        if name == NATIVE:
            target = at_most(ratio.median, 1.3)
        if name == KVPRESS:
            slower = times.ratio(KVPRESS, EQUAL)
            target = f"{span(slower)} x the engine's on equal lanes; {at_least(slower.median, 5)}"
        found.append([name, str(count), f"{times.median(name):.2f}", span(ratio), target])
    return found


if __name__ == "__main__":
    raise SystemExit(main())
