"""A loaded model is ready to run, and loading needs nothing but the folder."""

import socket
from typing import NamedTuple

import pytest
import torch

import splits
from protocol import tasks
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.grading import exact
from protocol.models.load import answer_marks, load
from protocol.tasks import prompting


def test_a_model_is_loaded_for_running_only(tiny_model, tmp_path):
    model = load(f"path:{tiny_model}", tmp_path)
    assert not model.network.training
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    assert model.network.config._attn_implementation == "sdpa"


def test_stop_and_sentence_tokens_are_those_of_the_tokenizer(tiny_model, tmp_path):
    model = load(f"path:{tiny_model}", tmp_path)
    vocabulary = model.tokenizer.get_vocab()
    assert model.stop_ids == {vocabulary["<|im_end|>"]}
    assert model.sentence_ends == {vocabulary[mark] for mark in ".!?\n" if mark in vocabulary}


class Vocabulary(NamedTuple):
    pieces: tuple[str, ...]

    def get_vocab(self):
        return {piece: number for number, piece in enumerate(self.pieces)}


@pytest.mark.parametrize(
    ("pieces", "marks"),
    [
        (("<think>", "a", "</think>"), {2}),
        (("\\boxed", "</think>", "\\boxed{7}"), {1}),  # where a model has a place to think in, its end alone
        (("<", "/", "think", ">", "boxed", "{"), set()),  # of several tokens it is none
        (("\\boxed{0}", "0", "\\boxed{7}", "so\\boxed"), {0, 2}),
        (("\u0120\\boxed", "\u2581\\boxed", " \\boxed{", "\\box", "\\Boxed"), {0, 1, 2}),
    ],
)
def test_a_mark_ends_the_thinking(pieces, marks):
    assert answer_marks(Vocabulary(pieces)) == marks


def test_a_model_says_its_marks(tiny_model, tmp_path):
    assert load(f"path:{tiny_model}", tmp_path).answer_marks == frozenset()
    chain = load("chain-llama", tmp_path)
    said = chain.tokenizer.convert_ids_to_tokens(sorted(chain.answer_marks))
    assert said == [f"\\boxed{{{digit}}}" for digit in range(10)]


def test_loading_opens_no_connection(tiny_model, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    load(f"path:{tiny_model}", tmp_path)


def test_weights_can_be_held_in_half_precision_and_in_nothing_unknown(tiny_model, tmp_path):
    half = load(f"path:{tiny_model}", tmp_path, dtype="bfloat16")
    assert {weight.dtype for weight in half.network.parameters()} == {torch.bfloat16}
    with pytest.raises(BadInput, match="dtype 'int8': write one of float32, bfloat16, float16"):
        load(f"path:{tiny_model}", tmp_path, dtype="int8")


@pytest.fixture(scope="module")
def smollm():
    try:
        return load("smollm2-135m", files.cache_home())
    except BadInput as refusal:
        pytest.skip(str(refusal))


def test_smollm2_has_30_layers_of_9_query_and_3_key_heads_of_64(smollm):
    config = smollm.network.config
    shape = (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    assert shape == (30, 9, 3, 64)
    assert config.max_position_embeddings == 8192
    assert sorted(smollm.tokenizer.decode([token]) for token in smollm.sentence_ends) == ["\n", "!", ".", "?"]
    assert smollm.stop_ids == set(smollm.tokenizer.convert_tokens_to_ids(["<|im_end|>"]))


def test_smollm2_splits_text_as_its_published_tokenizer_does(smollm):
    ids = smollm.tokenizer("  1 234\n\nHello's", add_special_tokens=False)["input_ids"]
    pieces = ["  ", "1", " ", "2", "3", "4", "\n", "\n", "Hello", "'s"]  # runs of blanks join, digits never do
    assert [smollm.tokenizer.decode([token]) for token in ids] == pieces


@pytest.mark.soak
def test_smollm2_answers_needles_from_its_full_cache(smollm):
    task = tasks.get("needle-256")
    development = [item for item in task.ids() if splits.assign_bucket(item) in splits.DEV][::2]
    right = 0
    for item in development:
        problem = task.build(item, lambda text: len(smollm.tokenizer(text)["input_ids"]))
        ids = torch.tensor([prompting.render(problem, smollm.tokenizer, "inside")[0]])
        out = smollm.network.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=7)
        right += exact.grade(problem.gold, smollm.tokenizer.decode(out[0, ids.shape[1] :])).status == "correct"
    assert (right, len(development)) == (4, 4)
