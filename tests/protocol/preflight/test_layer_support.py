"""A model in which the layers that a policy reads are not there, or are one, is refused when registering; so
is one that has no positions for what a policy feeds behind the text.
"""

import json
from types import SimpleNamespace

import pytest
import studies
import transformers

from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.preflight import feasibility, layer_support


@pytest.fixture
def check(tmp_path):
    """Whether an arm of this policy fits a model of so many layers, which has no weights."""
    (tmp_path / "model.safetensors").touch()

    def refuse(policy, layers, generation="", **heads):
        transformers.LlamaConfig(num_hidden_layers=layers, **heads).save_pretrained(tmp_path)
        text = studies.PROTOCOL.format(model=tmp_path).replace('"crystal-token-level"', policy)
        text = text.replace("[generation]\n", f"[generation]\n{generation}\n")
        planned = SimpleNamespace(protocol=toml_reader.parse(text.encode(), "here"), home=tmp_path)
        layer_support.refuse_unfit_layers(planned)
        return planned

    return refuse


@pytest.mark.parametrize(
    ("policy", "layers"), [("epikv", 3), ("epikv", 1), ("hs-variance", 3), ("band-adaptive", 3), ("band-adaptive", 5)]
)
def test_bands_that_share_a_layer_are_refused_with_the_arm_the_model_and_the_fix(check, policy, layers):
    with pytest.raises(BadInput) as refused:
        check(f'"{policy}"', layers)
    told = str(refused.value)
    assert "\n" not in told
    for part in ("arms: 'crystal' does not fit path:", f"a model of {layers} layers", "scoring.depth"):
        assert part in told


@pytest.mark.parametrize("policy", ["epikv", "hs-variance", "band-adaptive", "attn-x-hs", "kv-key"])
@pytest.mark.parametrize("layers", [2, 4, 6, 28, 32])
def test_models_whose_layers_can_be_told_apart_fit(check, policy, layers):
    check(f'"{policy}"', layers)


def test_methods_that_set_no_layers_against_others_fit_every_model(check):
    for policy in ("attn-x-hs", "kv-key", "kv-val", "lagkv-causal", "h2o"):
        check(f'"{policy}"', 1)


NATIVE = 'kernel = "native"'


@pytest.mark.parametrize(
    ("policy", "heads", "reason"),
    [
        ("h2o", {"head_dim": 80}, "a head size of 32, 64 or 128, but the model's is 80 (model path:"),
        (
            "syn_mem",
            {},
            "slots that are stored as computed and all read, but StaticHybrid changes that (arm 'crystal')",
        ),
        ("subspace", {}, "slots that are stored as computed and all read, but Subspace changes that (arm 'crystal')"),
    ],
)
def test_what_the_native_kernel_lacks_is_told_at_registration(check, policy, heads, reason):
    check(f'"{policy}"', 2, "" if reason.startswith("slots") else NATIVE, head_dim=128)
    with pytest.raises(BadInput) as refused:
        check(f'"{policy}"', 2, NATIVE, **{"head_dim": 128, **heads})
    told = str(refused.value)
    for part in ('generation.kernel: "native" needs', reason, 'write "eager", or leave kernel out'):
        assert part in told


def test_the_native_kernel_is_recommended_where_it_could_decode_all_of_a_study(check, monkeypatch):
    could_be = [
        layer_support.could_be_native(check('"h2o"', 2, generation, head_dim=head_dim))
        for generation, head_dim in (("", 128), (NATIVE, 128), ('kernel = "eager"', 128), ("", 80))
    ]
    assert could_be == [True, False, False, False]  # who has chosen is told nothing
    planned = check('"h2o"', 2, head_dim=128)
    assert not layer_support.could_be_native(check('"syn_mem"', 2, head_dim=128))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert not layer_support.could_be_native(planned)
    monkeypatch.undo()
    assert layer_support.could_be_native(planned)
    (planned.home / "config.json").unlink()  # the model is not on this machine
    assert not layer_support.could_be_native(planned)


@pytest.mark.parametrize("heads", [{"head_dim": 32}, {"hidden_size": 128, "num_attention_heads": 4}])
def test_a_rank_that_saves_nothing_of_a_value_is_refused_with_the_arm_and_the_model(check, heads):
    """32 directions, in heads of 32 numbers; of heads of 64 they are half."""
    with pytest.raises(BadInput) as refused:
        check('"subspace"', 2, **heads)
    told = str(refused.value)
    assert "\n" not in told
    assert "arms: 'crystal' does not fit path:" in told
    assert "state.rank: 32 coefficients save nothing for a value of 32 numbers; set fewer" in told
    check('"subspace"', 2, head_dim=64)
    check('"subspace", set = { "state.rank" = 8 }', 2, **heads)


@pytest.mark.parametrize(
    ("policy", "text", "reach"), [("kvzip", 60, 2 * 60), ("kvzip", 5000, 5000 + 2056), ("epicache", 60, 60 + 4)]
)
def test_what_is_fed_behind_a_text_has_positions_or_is_refused(tmp_path, policy, text, reach):
    """By hand: a short text once more; of a long one 2048 tokens and the 8 before; 4 sentences of a token."""
    (tmp_path / "model.safetensors").touch()
    written = studies.PROTOCOL.format(model=tmp_path).replace('"crystal-token-level"', f'"{policy}"')
    protocol = toml_reader.parse(written.encode(), "here")
    planned = SimpleNamespace(protocol=protocol, home=tmp_path)
    lengths = {(protocol.models[0], protocol.tasks[0], ""): [(20, 0), (text, 7)]}
    transformers.LlamaConfig(max_position_embeddings=reach).save_pretrained(tmp_path)
    feasibility._refuse_long_passages(planned, lengths)
    transformers.LlamaConfig(max_position_embeddings=reach - 1).save_pretrained(tmp_path)
    with pytest.raises(BadInput) as refused:
        feasibility._refuse_long_passages(planned, lengths)
    told = str(refused.value)
    assert "\n" not in told
    assert f"arms: 'crystal' feeds extra tokens after texts of {text} tokens of " in told
    assert f"up to position {reach}, but path:" in told
    assert f" has only {reach - 1}; shorten the task" in told


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": None}, "transformers cannot read its configuration: Unrecognized model"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}, "transformers cannot read its configuration"),
        ({"num_hidden_layers": "four"}, "transformers cannot read its configuration: Validation error"),
        ({"layer_types": ["full_attention"]}, "must be equal to the number of `layer_types`"),
        ({"num_hidden_layers": 0, "layer_types": []}, "with num_hidden_layers 0; it must be at least 1"),
        ({"num_attention_heads": 0}, "with num_attention_heads 0; it must be at least 1"),
        ({"num_key_value_heads": 0}, "with num_key_value_heads 0; it must be at least 1"),
        ({"num_key_value_heads": 3}, "with 4 attention heads for 3 KV heads"),
        ({"head_dim": 0}, "with head_dim 0; it must be at least 1"),
    ],
)
def test_a_configuration_that_is_broken_is_refused_in_one_line(tmp_path, changes, says):
    (tmp_path / "model.safetensors").touch()
    made = transformers.Qwen3Config(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    table = {key: value for key, value in {**made.to_dict(), **changes}.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(table))
    written = studies.PROTOCOL.format(model=tmp_path).replace('"crystal-token-level"', '"h2o"')
    planned = SimpleNamespace(protocol=toml_reader.parse(written.encode(), "here"), home=tmp_path)
    with pytest.raises(BadInput) as refused:
        layer_support.refuse_unsupported(planned)
    told = str(refused.value)
    assert "\n" not in told
    assert says in told
