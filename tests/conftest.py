"""What several test folders share: a tiny random Llama with a tokenizer of its own, saved as a user
would save one.
"""

import os
import re
from pathlib import Path

import pytest

import splits

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reaches for a hub is wrong

PIECE = r" ?[A-Za-z]+|[0-9]|[^A-Za-z0-9]"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def texts():
    """What the tokenizer learns: development problems, so that they fit the lengths they are named after."""
    from protocol import tasks

    for name in ("needle-256", "association-256"):
        for item in splits.load(name).dev:
            problem = tasks.get(name).build(item, lambda text: len(text.split()))
            yield f"user\n{problem.context}\n{problem.question}\nassistant\n{problem.prefix}"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A folder with a 2-layer random Llama (4 query heads, 2 KV heads of 8) and a word-level tokenizer."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = sorted({piece for text in texts() for piece in re.findall(PIECE, text)} | set("0123456789. \n"))
    vocabulary = {
        piece: number for number, piece in enumerate(["<unk>", "<|im_start|>", "<|im_end|>", *pieces])
    }
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    raw.decoder = decoders.Fuse()
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    network = LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def same_environment():
    """What is installed stays as it is while these tests run; hashing all of it takes seconds each time."""
    import studies

    from protocol.evidence.lock import closure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closure, "environment", studies.surroundings)
        yield
