"""One-time conversion from GGUF to safetensors, with the values that the quantised file encodes."""

import contextlib
import io
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, folder: Path) -> None:
    """Write model.safetensors, configuration, generation settings, tokenizer and chat template into `folder`.

    The weights are float32: a Q4_1 weight is d * q + m with half-precision d and m, and neither float16 nor
    bfloat16 holds every such value. Tied output weights are stored once. The same file gives the same
    model.safetensors each time, since dequantising is elementwise and safetensors orders tensors by name.

    Departs from what transformers reads out of the file: a GGUF names its pre-tokenizer ("smollm") and
    transformers does not translate it, so digits are split one by one here, as that pre-tokenizer does.
    """
    with contextlib.redirect_stderr(io.StringIO()):  # hundreds of progress bars
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.save_pretrained(folder)
        network = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
        )
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    if network.config.tie_word_embeddings:
        del state["lm_head.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    vars(network.config).pop(
        "quantization_config", None
    )  # not all versions set it; the saved weights are plain float32
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(folder)
    network.generation_config.save_pretrained(folder)
