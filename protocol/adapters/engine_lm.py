"""The engine as a model of lm-eval: a prompt and its stop strings in, a text and its memory use out.

A prompt is one text; the harness has no question separate from its context, so the number of tokens fed after
the compression can only be counted from the end. It is tokenised by the tokenizer's defaults, with its
beginning-of-sequence token unless the text has it. A prompt that does not fit is refused, and never cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from lm_eval.api.model import LM

import policies
from policies.structure import structure
from protocol import engine
from protocol.formats import canonical
from protocol.formats.fields import Fault
from protocol.formats.files import cache_home
from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import suggest
from protocol.layers.layer_kinds import evictable
from protocol.models.load import load
from protocol.plan.budget import Budget, BudgetKind

LABEL = "exploratory: nothing was registered"
ARGUMENTS = ("model", "policy", "set", "budget", "query", "seed", "dtype", "log")
HARNESS_ARGUMENTS = ("batch_size", "max_batch_size", "device")
# Supported generation arguments of a request; any other is refused.
GENERATION_ARGUMENTS = ("until", "max_gen_toks", "do_sample", "temperature", "top_p")
DEFAULT_NEW_TOKENS = 256  # new tokens if a task sets no number, as in the harness's models


class RequestMemory(NamedTuple):
    """The memory use of one request. Slots per KV head and layer."""

    prompt_tokens: int
    tokens: int  # decoded, including those after the cut
    budget: int | None
    mean_slots: float
    peak_slots: float
    mean_bytes: int
    state_bytes: int
    events: tuple[tuple[int, int, int], ...]


class GenerationSettings(NamedTuple):
    """The generation settings that requests share to be decoded in one batch."""

    max_new_tokens: int
    temperature: float
    top_p: float
    stop_ids: frozenset[int]


class EngineLM(LM):  # type: ignore[misc]
    """generate_until under one policy and budget. Raises BadInput, in one line, for everything unsupported:
    log-likelihoods, which come from a prefill and never from an evicted cache, and the response cache, whose
    keys do not include the policy, so that one policy would get the answers of another.
    """

    def __init__(self, model: str = "", **arguments: Any):
        super().__init__()
        if not model:
            raise BadInput("model_args: model: is missing; write model=chain-llama, or another source")
        for name in arguments:
            if name not in (*ARGUMENTS, *HARNESS_ARGUMENTS):
                raise BadInput(f"model_args: {name}: is unknown; {suggest(name, ARGUMENTS)}")
        name, settings = str(arguments.get("policy", "full")), arguments.get("set") or {}
        if not isinstance(settings, Mapping):
            raise BadInput('model_args: set: is not an object; write {"scoring.window": 64} within JSON model_args')
        try:
            self.policy = policies.get(name, settings)
        except (ValueError, KeyError) as refusal:
            raise BadInput(f"model_args: {refusal}") from None
        if self.policy.evicts and self.policy.decoding.extra_prompt:
            raise BadInput(
                f"model_args: policy: {name} adds a question of its own to the prompt, but the harness writes "
                "the prompt; set decoding.asked to false, or choose another policy"
            )
        self.budget = _budget(arguments.get("budget"), self.policy.evicts)
        self.query, self.seed = _count(arguments, "query"), _count(arguments, "seed")
        self.lanes = _lanes(arguments.get("batch_size"))
        self.log = Path(arguments["log"]) if arguments.get("log") else None
        if self.log is not None and self.log.exists():
            raise BadInput(f"model_args: log: {self.log} exists; name a new file")
        dtype, device = str(arguments.get("dtype", "float32")), _device(arguments.get("device"))
        self.loaded = load(model, cache_home(), dtype=dtype, device=device)
        self.memories: list[RequestMemory] = []

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the texts, cut at the first of their `until` strings, in the order of the requests."""
        groups: dict[GenerationSettings, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(self._read_settings(request.args[1]), []).append(index)
        texts = [""] * len(requests)
        for settings, indices in groups.items():
            prompts = [self._prompt(requests[index].args[0], settings.max_new_tokens) for index in indices]
            result = engine.run(
                replace(self.loaded, stop_ids=self.loaded.stop_ids | settings.stop_ids),
                [
                    engine.Request(str(index), prompt, (self._lane(index, prompt),))
                    for index, prompt in zip(indices, prompts, strict=True)
                ],
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_concurrent=self.lanes,
            )
            for index, prompt, answers in zip(indices, prompts, result.answers, strict=True):
                outcome = answers.outcomes[0]
                if isinstance(outcome, engine.LaneFailure):
                    raise BadInput(
                        f"request {index}: failed: {outcome.reason}; the harness has no value for a missing "
                        "answer, so nothing is scored; choose another budget"
                    )
                text = self.loaded.tokenizer.decode(outcome.token_ids, skip_special_tokens=True)
                texts[index] = cut(text, _until(requests[index].args[1]))
                self._record(index, prompt, outcome, texts[index])
        return texts

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness adds to its results: the policy, and the memory use over all requests."""
        memories = self.memories
        memory: dict[str, Any] = {"requests": len(memories)}
        if memories:
            memory |= {
                "mean_slots": sum(request_memory.mean_slots for request_memory in memories) / len(memories),
                "peak_slots": max(request_memory.peak_slots for request_memory in memories),
                "mean_bytes": sum(request_memory.mean_bytes for request_memory in memories) // len(memories),
                "state_bytes": max(request_memory.state_bytes for request_memory in memories),
                "mean_prompt_tokens": sum(request_memory.prompt_tokens for request_memory in memories) / len(memories),
                "events": sum(len(request_memory.events) for request_memory in memories),
                "never_evicted": sum(
                    all(after >= before for _, before, after in request_memory.events) for request_memory in memories
                ),
            }
        about = {
            "label": LABEL,
            "model": self.loaded.name,
            "policy": structure(self.policy),
            "budget": None if self.budget is None else str(self.budget),
            "query_tokens": self.query,
            "memory": memory,
        }
        return {"kv_prereg": about}

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> NoReturn:
        raise BadInput(
            "loglikelihood: is computed in the prefill of the prompt, before anything is evicted, so every "
            "policy would get the same score; choose a task that generates text (output_type: generate_until)"
        )

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> NoReturn:
        self.loglikelihood(requests)

    def set_cache_hook(self, cache_hook: Any) -> NoReturn:
        raise BadInput(
            "use_cache: caches answers by prompt only, so a second policy would get the answers of the "
            "first; leave it out"
        )

    @property
    def tokenizer_name(self) -> str:
        return str(self.loaded.name)

    def chat_template(self, chat_template: bool | str = False) -> str:
        return str(self.loaded.tokenizer.chat_template or "") if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        if self.loaded.tokenizer.chat_template is None:
            raise BadInput(f"apply_chat_template: {self.loaded.name} has no chat template; leave it out")
        return str(
            self.loaded.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def _read_settings(self, arguments: Mapping[str, Any]) -> GenerationSettings:
        for name, value in arguments.items():
            if name not in GENERATION_ARGUMENTS and value is not None:
                raise BadInput(
                    f"gen_kwargs: {name}: is unknown to the engine; it takes {', '.join(GENERATION_ARGUMENTS)}"
                )
        samples = bool(arguments.get("do_sample", False)) or "do_sample" not in arguments
        temperature = float(arguments.get("temperature") or 0) if samples else 0.0
        ends = (self.loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in _until(arguments))
        stop_ids = frozenset(ids[0] for ids in ends if len(ids) == 1)
        top_p = arguments.get("top_p")
        return GenerationSettings(
            int(arguments.get("max_gen_toks") or DEFAULT_NEW_TOKENS),
            temperature,
            1.0 if top_p is None else float(top_p),
            stop_ids,
        )

    def _prompt(self, text: str, max_new_tokens: int) -> engine.Prompt:
        tokenizer = self.loaded.tokenizer
        has_bos = tokenizer.bos_token is not None and text.startswith(tokenizer.bos_token)
        ids = tuple(tokenizer(text, add_special_tokens=not has_bos)["input_ids"])
        max_positions = getattr(self.loaded.network.config, "max_position_embeddings", None)
        if max_positions is not None and len(ids) + max_new_tokens > max_positions:
            raise BadInput(
                f"prompt: {len(ids)} tokens and {max_new_tokens} new ones exceed the {max_positions} "
                f"positions of {self.loaded.name}; prompts are never truncated, so choose shorter problems"
            )
        if self.query >= len(ids):
            raise BadInput(f"model_args: query: {self.query} tokens, but the prompt has only {len(ids)}; write fewer")
        n_context = len(ids) - self.query
        return engine.Prompt(ids[:n_context], ids[n_context:])

    def _lane(self, index: int, prompt: engine.Prompt) -> engine.Lane:
        slots = None if self.budget is None else self.budget.count_slots(len(prompt.context))
        return engine.Lane(str(index), self.policy, slots, self.seed)

    def _record(self, index: int, prompt: engine.Prompt, outcome: engine.Outcome, text: str) -> None:
        config = self.loaded.network.config
        heads = evictable(config) * config.num_key_value_heads
        slots = None if self.budget is None else self.budget.count_slots(len(prompt.context))
        memory = RequestMemory(
            prompt_tokens=len(prompt.context) + len(prompt.query),
            tokens=len(outcome.token_ids),
            budget=slots,
            mean_slots=sum(outcome.slots) / len(outcome.slots) / heads,
            peak_slots=max(outcome.slots) / heads,
            mean_bytes=sum(outcome.allocated) // len(outcome.allocated),
            state_bytes=outcome.state_bytes,
            events=outcome.events,
        )
        self.memories.append(memory)
        if self.log is not None:
            prompt_digest = canonical.digest([list(prompt.context), list(prompt.query)])
            line = {"request": index, "prompt": prompt_digest, **memory._asdict(), "text": text}
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def cut(text: str, until: Sequence[str]) -> str:
    """Return the text before the first of the strings."""
    positions = [position for end in until if (position := text.find(end)) >= 0]
    return text[: min(positions)] if positions else text


def _until(arguments: Mapping[str, Any]) -> list[str]:
    """Return the stop strings without empty ones, which end every text at its start, as the harness does."""
    until = arguments.get("until") or []
    return [end for end in ([until] if isinstance(until, str) else until) if end]


def _budget(value: Any, evicts: bool) -> Budget | None:
    if value is None:
        if evicts:
            raise BadInput(
                "model_args: budget: is missing; write a number of slots, such as budget=64, or a share of the "
                "prompt, such as budget=0.3"
            )
        return None
    if not evicts:
        raise BadInput("model_args: budget: the policy never evicts; leave it out")
    try:
        budget = BudgetKind().read(Decimal(str(value)) if isinstance(value, float) else value, "budget")
    except Fault as fault:
        raise BadInput(f"model_args: {fault.author_message}") from None
    if budget.of_full is not None:
        raise BadInput(
            "model_args: budget: a share of the full cache's use can only be measured in a study; write a number "
            "of slots"
        )
    if budget.in_bytes:
        raise BadInput(
            f"model_args: budget: a budget in bytes ({budget}) can only be converted to slots in a study; write a "
            "number of slots"
        )
    return budget


def _count(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"model_args: {name}: {value!r} is not a whole number of at least 0")
    return value


def _device(requested: Any) -> str:
    """Return the device. The harness requests cuda:0 by default, also on machines without it; then it is the
    CPU.
    """
    name = str(requested or "cpu")
    return "cpu" if name.startswith("cuda") and not torch.cuda.is_available() else name


def _lanes(batch_size: Any) -> int | None:
    """Return the number of lanes at once; None (as many as fit) for "auto" and without a number."""
    text = str(batch_size or "auto")
    if text.partition(":")[0] == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"batch_size: {text!r} is not a number of lanes; write a whole number, or auto")
    return int(text)
