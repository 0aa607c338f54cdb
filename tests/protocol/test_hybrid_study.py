"""A study of a model with sliding-window layers, from its lock to its audit."""

import shutil

import pytest
import studies
import transformers

from protocol.evidence import records


@pytest.fixture
def hybrid(tiny_model, tmp_path):
    """The tiny model's tokenizer, a random Qwen3: two layers of full attention, one with a window of 20."""
    folder = tmp_path / "hybrid"
    shutil.copytree(tiny_model, folder)
    known = transformers.AutoConfig.from_pretrained(tiny_model)
    config = transformers.Qwen3Config(
        vocab_size=known.vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=known.max_position_embeddings,
        bos_token_id=known.bos_token_id,
        eos_token_id=known.eos_token_id,
        use_sliding_window=True,
        sliding_window=20,
        max_window_layers=2,
    )
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.soak
def test_windows_are_locked_recorded_and_audited(hybrid, tmp_path):
    text = {**studies.ONE_TASK, "max_new_tokens = 24": "max_new_tokens = 2"}
    folder = studies.write(tmp_path / "registrations" / "study", hybrid, text)
    done = studies.ran(0, "register", folder)
    assert "2 layers of full attention. No budget covers its 1 sliding-window layers" in done.stdout
    lock = studies.content(folder / "lock.json")
    (one,) = lock["layers"].values()
    assert one == {"evictable": 2, "sliding": 1, "window": 20}
    studies.ran((0, 10, 11), "confirm", folder)
    found = [record["body"] for record in records.read_records(folder / "records")]
    windows = {body["cache"]["window_bytes"] for body in found}
    assert windows == {20 * 2 * 2 * 8 * 4}  # tokens, KV heads, key and value, numbers, bytes of float32
    studies.ran(0, "audit", folder)
