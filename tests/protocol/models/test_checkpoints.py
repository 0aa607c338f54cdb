"""A checkpoint that is not the whole network, or that of another one, is refused before anything is locked."""

import json
import shutil

import pytest
import studies
import torch
import transformers
from safetensors.torch import load_file, save_file

from protocol.formats.refusals import BadInput
from protocol.layers import unsupported
from protocol.models import checkpoint, load, sources


@pytest.fixture
def folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model, tmp_path / "model")


def drop(*words):
    return lambda weights: {name: value for name, value in weights.items() if not any(word in name for word in words)}


def add(name, *shape):
    return lambda weights: weights | {name: torch.ones(shape)}


def cut(weights):
    return {
        name: value[:, :-1].contiguous() if name.endswith("0.mlp.down_proj.weight") else value
        for name, value in weights.items()
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("lm_head"), "has no weights for lm_head.weight; choose "),
        (drop("layers.1.mlp"), "has no weights for model.layers.1.mlp.down_proj.weight and 2 more; choose "),
        (add("score.weight", 2, 32), "has weights that its network does not use: score.weight; choose "),
        (add("model.layers.0.self_attn.q_norm.weight", 8), "does not use: model.layers.0.self_attn.q_norm.weight"),
        (cut, "has weights of another shape for model.layers.0.mlp.down_proj.weight; choose "),
    ],
)
def test_weights_that_are_not_those_of_the_network_are_refused_when_registering_and_loading(folder, change, says):
    """transformers would draw what is missing at random, anew at each load, and leave out what is too much."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})
    with pytest.raises(BadInput, match=says):
        checkpoint.refuse_unfit(f"path:{folder}", folder)
    if change is not cut:  # which transformers refuses by itself
        with pytest.raises(BadInput, match=says):
            load.load(f"path:{folder}", folder)
    study = studies.write(folder.parent / "registrations" / "study", folder, studies.ONE_TASK)
    studies.refused(2, says, "register", study)


def test_a_whole_checkpoint_is_not_refused_in_any_precision_and_nothing_is_printed(folder, capfd):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        path = folder / "model.safetensors"
        save_file({name: value.to(dtype) for name, value in load_file(path).items()}, path, {"format": "pt"})
        checkpoint.refuse_unfit(f"path:{folder}", folder)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_no_checkpoint_is_refused_in_one_line(folder):
    (folder / "model.safetensors").write_bytes(b"x" * 64)
    with pytest.raises(BadInput, match="transformers cannot load it: ") as refused:
        checkpoint.refuse_unfit(f"path:{folder}", folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("adapter_config.json", "has an adapter, which is not"),
        ("model.safetensors.index.json", "has two checkpoints, "),
    ],
)
def test_weights_that_would_be_hashed_and_not_used_are_refused(folder, name, says):
    (folder / name).write_text("{}")
    with pytest.raises(BadInput, match=says):
        sources.locate(f"path:{folder}", folder)


def test_quantised_weights_are_refused_by_their_method():
    config = transformers.LlamaConfig(quantization_config={"quant_method": "fp8"})
    assert unsupported.refusal_reason(config).startswith("stores quantised weights (fp8), which each machine computes")


def test_settings_of_generation_that_no_arm_applies_are_named(folder):
    path = folder / "generation_config.json"
    written = json.loads(path.read_text())
    assert checkpoint.describe_left_out(f"path:{folder}", folder) == []
    path.write_text(json.dumps(written | {"repetition_penalty": 1.3, "suppress_tokens": [5], "top_p": 0.9}))
    (line,) = checkpoint.describe_left_out(f"path:{folder}", folder)
    assert "sets repetition_penalty 1.3, suppress_tokens [5], which no arm applies" in line
    study = studies.write(folder.parent / "registrations" / "study", folder, studies.ONE_TASK)
    assert line in studies.ran(0, "register", study).stdout


def test_a_template_that_gives_another_prompt_each_time_is_refused(folder):
    (folder / "chat_template.jinja").write_text("{{ range(99999) | random }} {{ messages[0]['content'] }}")
    study = studies.write(folder.parent / "registrations" / "study", folder, studies.ONE_TASK)
    studies.refused(2, "its chat template gives one problem another prompt each time", "register", study)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_where_a_prompt_has_one(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    words = tokenizer["model"]["vocab"]
    words["user"], largest = len(words) + 7, len(words)
    path.write_text(json.dumps(tokenizer))
    study = studies.write(folder.parent / "registrations" / "study", folder, studies.ONE_TASK)
    says = f"its tokenizer gives token {largest + 7}, but the model has only {largest}; choose the tokenizer"
    studies.refused(2, says, "register", study)
