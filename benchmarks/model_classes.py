"""Which models of transformers are accepted, and whether those compute what transformers computes.

    python -m benchmarks.model_classes [NAME ...]

Every decoder that the installed transformers registers is built at a tiny width with random weights, and some are
built with settings that change attention: rotations by length, partial ones, windows, biases, multipliers, one KV head.
Each is checked as `register` checks it. An accepted one is asked by another way than the trial of `register`: its own
`generate`, with its own attention and cache, against lanes of the engine in one batch, prefilled in chunks and whole.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import policies
from protocol import engine
from protocol.formats.refusals import BadInput
from protocol.layers import unsupported
from protocol.preflight import layer_support, model_trial

WORDS = 61
SMALL = {
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "vocab_size": WORDS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "max_position_embeddings": 512,
}
LENGTHS = (3, 21, 40)  # of the prompts of a batch
NEW_TOKENS = 12
ROPE = {"rope_theta": 1e4}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0] * 4, "factor": 4.0, **ROPE}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **ROPE}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    **{"original_max_position_embeddings": 16, **ROPE},
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
INVENTED: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("llama", {"rope_parameters": {**LONG, "original_max_position_embeddings": 16}}),
    ("llama", {"rope_parameters": {**LONG, "original_max_position_embeddings": 400}}),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, **ROPE}, "max_position_embeddings": 16}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, **ROPE}}),
    ("llama", {"rope_parameters": YARN}),
    ("llama", {"rope_parameters": LLAMA3}),
    ("llama", {"num_key_value_heads": 1}),
    ("llama", {"num_key_value_heads": 6}),
    ("llama", {"head_dim": 20}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("llama", {"num_hidden_layers": 1}),
    ("llama", {"num_key_value_heads": 4}),
    ("mistral", {"sliding_window": 600}),
    ("mistral", {"sliding_window": 16}),
    ("mistral", {"sliding_window": None}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    ("qwen3", {"layer_types": MIXED, "sliding_window": 5}),
    ("qwen3", {"layer_types": ["full_attention", "future_attention", "full_attention"]}),
    ("phi3", {"rope_parameters": {**LONG, "original_max_position_embeddings": 16}, "sliding_window": None}),
    ("phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, **ROPE}}),
    ("stablelm", {"use_parallel_residual": True, "qk_layernorm": True}),
    ("gemma3_text", {"layer_types": MIXED, "sliding_window": 7}),
    ("gemma3_text", {"layer_types": MIXED, "sliding_window": 7, "use_bidirectional_attention": True}),
    ("gemma2", {"layer_types": MIXED, "attn_logit_softcapping": None}),
    ("gemma2", {"layer_types": MIXED, "attn_logit_softcapping": 5.0}),
    ("gpt_oss", {"layer_types": MIXED, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("granite", {"attention_multiplier": 0.5, "residual_multiplier": 0.3, "logits_scaling": 4.0}),
    ("cohere2", {"layer_types": MIXED, "sliding_window": 6}),
    ("smollm3", {"no_rope_layers": [1, 0, 1]}),
    ("exaone4", {"layer_types": MIXED, "sliding_window": 6}),
    ("olmo3", {"layer_types": MIXED, "sliding_window": 6}),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    ("gpt_neox", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, **ROPE}}),
    ("falcon", {"alibi": True}),
    ("mpt", {"n_heads": 6, "d_model": 48}),
    ("llama", {"is_causal": False}),
    ("llama", {"num_hidden_layers": 0}),
    ("llama", {"head_dim": 7}),
)


class Answer(NamedTuple):
    """outcome: refused, right, or WRONG. reason: why it is refused, or what differs."""

    outcome: str
    reason: str


def build_config(kind: str, changes: Mapping[str, Any]) -> Any:
    """Return a tiny configuration; settings that its class refuses are left as they are by default."""
    settings = {**SMALL, **changes}
    while True:
        try:
            return CONFIG_MAPPING[kind](**settings)
        except Exception as error:
            named = next((name for name in settings if name not in changes and name in str(error)), None)
            if named is None:
                raise
            del settings[named]


def check_model(config: Any) -> Answer:
    """Return the answer of `register` to a model, and of its own `generate` to an accepted one."""
    try:
        unsupported.refuse("this", config)
        if (bare := layer_support._build_meta_model("this", config)) is not None:
            layer_support._refuse_attention(bare)
        model_trial.refuse_unlike("this", config)
        return compare_generate(model_trial.SmallModel("this", build_network(config)))
    except BadInput as refusal:
        return Answer("refused", str(refusal).removeprefix("model this: "))


def build_network(config: Any) -> Any:
    """Return a random network of the very configuration, in float64, with its own attention."""
    torch.manual_seed(3)
    network: Any = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float64
    )
    for parameter in network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=2 / parameter.shape[-1] ** 0.5)
    network.generation_config.eos_token_id = None
    return network.eval().requires_grad_(False)


def compare_generate(model: Any) -> Answer:
    prompts = [[(31 * place + 7 * length) % (WORDS - 2) + 2 for place in range(length)] for length in LENGTHS]
    expected = []
    for prompt in prompts:
        tokens = model.network.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0, use_cache=True
        )
        expected.append(tuple(tokens[0, len(prompt) :].tolist()))
    for chunk in (None, 5):
        answers = decode(model, prompts, chunk)
        for length, answer, other in zip(LENGTHS, answers, expected, strict=True):
            if answer != other:
                return Answer("WRONG", f"prompt of {length} in chunks of {chunk}: {answer} where generate has {other}")
    return Answer("right", "")


def decode(model: Any, prompts: Sequence[Sequence[int]], chunk: int | None) -> list[Any]:
    lane = engine.Lane("full", policies.get("full"), None, 0)
    requests = [engine.Request(str(each), engine.Prompt(tuple(text), ()), (lane,)) for each, text in enumerate(prompts)]
    result = engine.run(model, requests, max_new_tokens=NEW_TOKENS, prefill_chunk=chunk)
    return [getattr(answer.outcomes[0], "token_ids", None) or answer.outcomes[0] for answer in result.answers]


def list_models(names: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        if not names or kind in names:
            yield kind, {}
    yield from ((kind, changes) for kind, changes in INVENTED if not names or kind in names)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="kinds of models; all without")
    args = parser.parse_args(argv)
    transformers.utils.logging.set_verbosity_error()
    counts: Counter[str] = Counter()
    print("| model | settings | outcome | |\n| --- | --- | --- | --- |")
    for kind, changes in list_models(args.names):
        outcome = "no such configuration"
        try:
            config, outcome = build_config(kind, changes), "BROKE"
            answer = check_model(config)
        except Exception as error:
            answer = Answer(outcome, f"{type(error).__name__}: {' '.join(str(error).split())[:150]}")
        counts[answer.outcome] += 1
        settings = ", ".join(f"{name} {value}" for name, value in changes.items())
        print(f"| {kind} | {settings} | {answer.outcome} | {answer.reason} |", flush=True)
    print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return int(counts["WRONG"] + counts["BROKE"] > 0)


if __name__ == "__main__":
    sys.exit(main())
