"""A Llama of a few thousand weights in a 4-bit GGUF file, made as a quantised checkpoint is made."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2


def write(path: Path) -> dict[str, np.ndarray]:
    """Write the file; returns the values that its quantised tensors encode, by their GGUF name."""
    rng = np.random.default_rng(5)
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *characters, "Ġ1", "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3, 3, 3] + [1] * (len(vocabulary) - 3))
    writer.add_token_merges(["Ġ 1", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}")
    shapes = {"token_embd.weight": (len(vocabulary), WIDTH)}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes |= {
            f"{block}.attn_q.weight": (WIDTH, WIDTH),
            f"{block}.attn_k.weight": (WIDTH * KV_HEADS // HEADS, WIDTH),
            f"{block}.attn_v.weight": (WIDTH * KV_HEADS // HEADS, WIDTH),
            f"{block}.attn_output.weight": (WIDTH, WIDTH),
            f"{block}.ffn_gate.weight": (INNER, WIDTH),
            f"{block}.ffn_up.weight": (INNER, WIDTH),
            f"{block}.ffn_down.weight": (WIDTH, INNER),
        }
    encoded = {}
    for name, shape in shapes.items():
        kind = gguf.GGMLQuantizationType.Q4_1
        data = gguf.quants.quantize(rng.normal(size=shape).astype(np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        encoded[name] = gguf.quants.dequantize(data, kind)
    norms = ["output_norm.weight"]
    norms += [f"blk.{layer}.{part}_norm.weight" for layer in range(LAYERS) for part in ("attn", "ffn")]
    for name in norms:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return encoded
