"""What all scripts share: the options, the model, the prompts."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

import policies
from policies import Calibrated, HiddenSignal, MeasuredSignal, Signal, Statistics
from policies.contract import Mark
from policies.signals import AttentionSums, HiddenChange, Norms
from protocol.engine import Lane, LaneFailure, Outcome, Prompt, Run
from protocol.formats import files
from protocol.models.load import DTYPES, load
from protocol.plan.budget import Budget
from protocol.tasks import prompting
from protocol.tasks.needle import Needle

RANDOM, TINY = "random-8b", "random-tiny"
QUERY = 16  # tokens of a random prompt that are fed after the compression


@dataclass(frozen=True)
class Setting:
    model: str
    device: str
    dtype: str
    threads: int


class Subject(NamedTuple):
    """A model for the engine that never stops by itself, so that every contender makes as many tokens.

    tokenizer: None of a model with random weights, whose prompts are random tokens.
    """

    name: str
    network: PreTrainedModel
    sentence_ends: frozenset[int]
    tokenizer: PreTrainedTokenizerBase | None
    stop_ids: frozenset[int] = frozenset()
    statistics: Mapping[str, Statistics] = MappingProxyType({})

    def lines(self, token_ids: Sequence[int], mark: Mark) -> tuple[range, ...]:
        """No answer here is looked at."""
        return ()


def options(script: str, doc: str | None, *, repetitions: int | None = None) -> argparse.ArgumentParser:
    """repetitions: the default; None for a script whose measure repeats exactly."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{script}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--model",
        default="smollm2-135m",
        help=f"a source as in a registration, or {RANDOM}: random weights in the shape of Llama 3.1 8B; "
        f"{TINY}: four narrow layers, for trying a script out",
    )
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    made.add_argument("--threads", type=int, default=2, help="of torch on the CPU; default 2")
    if repetitions is not None:
        made.add_argument(
            "--repetitions", type=int, default=repetitions, help=f"measured rounds; default {repetitions}"
        )
    return made


def setting(arguments: argparse.Namespace) -> Setting:
    return Setting(arguments.model, arguments.device, arguments.dtype, arguments.threads)


def open_subject(setting: Setting) -> Subject:
    """The model of this setting. Sets torch's thread count for the process."""
    torch.set_num_threads(setting.threads)
    transformers.utils.logging.disable_progress_bar()  # progress is ours to tell
    if setting.model in SHAPES:
        rope = {"rope_type": "default", "rope_theta": 500000.0}
        config = LlamaConfig(**SHAPES[setting.model], max_position_embeddings=131072, rope_parameters=rope)
        return random_llama(config, setting)
    model = load(setting.model, files.cache_home(), dtype=setting.dtype, device=setting.device)
    never_stops(model.network)
    return Subject(model.name, model.network, model.sentence_ends, model.tokenizer, statistics=model.statistics)


SHAPES = {
    RANDOM: {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    TINY: {
        "vocab_size": 512,
        "hidden_size": 128,  # heads of 32 numbers, a block of packed slots
        "intermediate_size": 96,
        "num_hidden_layers": 4,  # as many as policies that read bands of them need
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


def random_llama(config: Any, setting: Setting) -> Subject:
    """Random weights, made on the device. One token in twenty ends a sentence, as in plain text."""
    torch.manual_seed(0)
    with torch.device(setting.device):
        network = AutoModelForCausalLM.from_config(config, dtype=DTYPES[setting.dtype], attn_implementation="sdpa")
    network.eval().requires_grad_(False)
    never_stops(network)
    return Subject(setting.model, network, frozenset(range(config.vocab_size // 20)), None)


def never_stops(network: Any) -> None:
    network.generation_config.eos_token_id = None


def prompt(subject: Subject, length: int) -> Prompt:
    """A needle prompt of at most `length` tokens, whose question is the query; random tokens without a tokenizer."""
    if subject.tokenizer is None:
        ids = random_ids(subject, length)
        return Prompt(ids[:-QUERY], ids[-QUERY:])
    task = Needle(length, repetitions=1, depths=("0.5",))
    problem = task.build(task.ids()[0], prompting.counter(subject.tokenizer))
    before, after = prompting.render(problem, subject.tokenizer, "outside")
    return Prompt(tuple(before), tuple(after))


def context(subject: Subject, length: int) -> tuple[int, ...]:
    """Exactly `length` tokens: the beginning of a needle prompt that is longer."""
    longer = prompt(subject, length + 256)
    return longer.context[:length]


def random_ids(subject: Subject, length: int) -> tuple[int, ...]:
    drawn = torch.randint(subject.network.config.vocab_size, (length,), generator=torch.Generator().manual_seed(0))
    return tuple(drawn.tolist())


def lane_of(name: str, share: float | None, prompt: Prompt) -> Lane:
    """share: of the context's tokens that are kept, counted as a registration counts it; None keeps all."""
    budget = None if share is None else Budget(Decimal(str(share)), None).count_slots(len(prompt.context))
    return Lane(f"{name} {share}", policies.get(name), budget, seed=0)


def outcomes(ran: Run, lanes: Sequence[Lane]) -> list[Outcome]:
    """Of the lanes of the only request. One that failed was not measured, so the script ends."""
    found = []
    for lane, outcome in zip(lanes, ran.answers[0].outcomes, strict=True):
        if isinstance(outcome, LaneFailure):
            raise SystemExit(f"lane {lane.key} failed: {outcome.reason}")
        found.append(outcome)
    return found


def needs_by_policy(subject: Subject) -> dict[str, frozenset[MeasuredSignal]]:
    """What each policy of the catalogue measures; those that need statistics which the model lacks are left out."""
    found = {}
    for name in policies.names():
        policy = policies.get(name)
        if {signal.name for signal in policy.calibrated} <= subject.statistics.keys():
            found[name] = frozenset(one for one in policy.needs if not isinstance(one, Calibrated))
    return found


def every_signal(subject: Subject) -> tuple[MeasuredSignal, ...]:
    """What these policies measure, and the signals of the library that none of them needs yet."""
    middle = subject.network.config.num_hidden_layers // 2
    library: set[MeasuredSignal] = {AttentionSums(), Norms(), HiddenChange((middle,), None)}
    return tuple(sorted(library.union(*needs_by_policy(subject).values()), key=repr))


def hidden_layers(subject: Subject, signals: Iterable[Signal]) -> set[int]:
    """Layers whose output the engine must be shown for these signals."""
    layers = subject.network.config.num_hidden_layers
    shown = (signal.layers_in(layers) for signal in signals if isinstance(signal, HiddenSignal))
    return {layer for own in shown for layer in own}
