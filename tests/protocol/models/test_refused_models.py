"""Models that cannot be evicted from honestly are refused by name when registering, from a configuration."""

import json
import re
from types import SimpleNamespace

import pytest
import studies
import torch
import transformers
from looped import looped
from transformers import configuration_utils, masking_utils

import policies
from protocol import engine
from protocol.engine.rotation import depends_on_company
from protocol.formats.refusals import BadInput
from protocol.layers import unsupported
from protocol.layers.layer_kinds import FULL, SLIDING, layer_position, layers_of
from protocol.messages import slot_sizes
from protocol.plan import toml_reader
from protocol.preflight import layer_support, model_trial

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 97,
    "pad_token_id": 0,
}


def config_of(family, **changes):
    return getattr(transformers, f"{family}Config")(**{**SMALL, **changes})


@looped(
    ("family", "changes", "says"),
    [
        ("Mistral", {"sliding_window": 8}, "has sliding-window attention in every layer"),
        ("Gemma2", {}, "bounds its attention logits by a softcap (attn_logit_softcapping)"),
        ("Qwen3Next", {"layer_types": ["linear_attention"] * 3 + [FULL]}, "layers of linear_attention, which carry"),
        ("Jamba", {}, "layers of linear_attention, which carry a state"),
        ("Mamba", {}, "layers of linear_attention, which carry a state"),
        ("FalconH1", {}, "has layers of hybrid, which attend and carry a state"),
        ("Llama4Text", {}, "layers of chunked_attention, which start over"),
        ("DeepseekV3", {}, "multi-head latent attention"),
        ("Gemma3n", {}, "is multimodal, and the engine feeds only text"),
        ("Gemma3nText", {"num_hidden_layers": 35}, "layers that share the slots of other layers"),
        ("T5", {}, "is an encoder-decoder"),
        ("GPT2", {}, "without num_key_value_heads"),
        ("Gemma3Text", {"use_bidirectional_attention": True}, "lets tokens attend to later ones"),
        (
            "Gemma3Text",
            {"sliding_window": None, "layer_types": [SLIDING, FULL] * 2},
            "has sliding-window layers but a sliding_window of None",
        ),
        ("Llama", {"add_cross_attention": True}, "has cross-attention to another sequence"),
    ],
)
def test_each_kind_is_refused_with_its_reason(family, changes, says):
    given = changes if family in ("T5", "Gemma3n", "GPT2", "Mamba", "Jamba", "FalconH1", "DeepseekV3") else None
    config = getattr(transformers, f"{family}Config")(**given) if given is not None else config_of(family, **changes)
    with pytest.raises(BadInput) as found:
        unsupported.refuse("a-model", config)
    told = str(found.value)
    assert told.startswith("model a-model: ")
    assert says in told
    assert "; choose " in told
    assert "\n" not in told


def test_a_kind_of_layer_that_nobody_knows_is_refused_as_unknown():
    config = config_of("Qwen3")
    config.layer_types = [FULL, "resonant_attention", FULL, FULL]
    assert unsupported.refusal_reason(config).startswith("has layers of the unknown kind resonant_attention")


def test_every_kind_that_transformers_knows_runs_or_has_its_reason():
    known = {*configuration_utils.ALLOWED_ATTN_LAYER_TYPES, *masking_utils.LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING}
    assert known - {FULL, SLIDING} <= unsupported.REASONS.keys()


@looped("family", ["Llama", "Qwen2", "Qwen3", "Gemma3Text", "GptOss", "Cohere2", "Olmo3"])
def test_models_of_full_and_sliding_attention_are_not_refused(family):
    assert (
        unsupported.refusal_reason(
            config_of(family, **({"layer_types": [SLIDING, FULL] * 2} if family == "Gemma3Text" else {}))
        )
        == ""
    )


def test_layers_are_counted_among_their_kind():
    config = config_of("Gemma3Text", layer_types=[SLIDING, FULL, SLIDING, FULL], sliding_window=12)
    assert layers_of(config).evictable == (1, 3)
    assert [tuple(layer_position(config, layer)) for layer in range(4)] == [
        (SLIDING, 0),
        (FULL, 0),
        (SLIDING, 1),
        (FULL, 1),
    ]
    plain = config_of("Mistral", sliding_window=None)
    assert layers_of(plain) == ((FULL,) * 4, None)


@pytest.fixture
def check(tmp_path):
    """Register a protocol whose arm `crystal` is this policy, as far as the models' layers go."""
    (tmp_path / "model.safetensors").touch()

    def refuse(policy, config):
        config.save_pretrained(tmp_path)
        text = studies.PROTOCOL.format(model=tmp_path).replace('"crystal-token-level"', json.dumps(policy))
        planned = SimpleNamespace(protocol=toml_reader.parse(text.encode(), "here"), home=tmp_path)
        layer_support.refuse_unsupported(planned)
        return layer_support.read_layers(planned)

    return refuse


@pytest.mark.parametrize(
    ("policy", "family", "changes", "says"),
    [
        ("defensivekv", "Phi", {}, "layer 0 has no linear o_proj for its 4 heads"),
        ("expected-attention", "Cohere", {}, "policy of arm 'crystal': rotates queries by the rotary embedding of"),
        ("expected-attention", "Exaone4", {}, "does not rotate the halves of a head alike in all layers"),
        ("caote", "GptOss", {}, "policy of arm 'crystal': OutputError assumes that attention weights of a query"),
        ("h2o", "Doge", {}, "the model's attention builds its own mask"),
    ],
)
def test_what_an_arm_reads_and_a_model_lacks_is_refused_before_anything_is_locked(check, policy, family, changes, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        check(policy, config_of(family, **changes))


def test_a_lock_says_of_hybrid_models_which_layers_budgets_are_of(check):
    config = config_of("Gemma3Text", layer_types=[SLIDING, SLIDING, SLIDING, FULL], sliding_window=12)
    found = check("h2o", config)
    (one,) = found.values()
    assert one == {"evictable": 1, "sliding": 3, "window": 12}
    (said,) = slot_sizes.describe_slots({"layers": found, "protocol": {"content": {"decision": {}}}})
    assert "the 1 layers of full attention. No budget covers its 3 sliding-window layers" in said
    assert check("h2o", config_of("Llama")) == {}


def test_a_network_without_weights_is_enough():
    bare = layer_support._build_meta_model("a-model", config_of("Gemma3Text"))
    assert {parameter.device for parameter in bare.network.parameters()} == {torch.device("meta")}


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("Nemotron", {}, "cannot be called as the engine calls models (TypeError: "),
        ("DiffLlama", {}, "calls attention"),
        ("Phi4Multimodal", {}, "is multimodal, and the engine feeds only text"),
    ],
)
def test_a_class_that_the_engine_cannot_call_is_refused_when_registering(check, family, changes, says):
    with pytest.raises(BadInput, match=re.escape(says)) as found:
        check("h2o", config_of(family, **changes))
    assert "; choose " in str(found.value)


@pytest.mark.parametrize("family", ["HunYuanDenseV1", "Apertus"])
def test_scores_of_query_statistics_are_refused_where_attention_turns_other_queries(check, family):
    with pytest.raises(BadInput, match="predicts logits from queries before their rotation"):
        check("1d", config_of(family))
    check("h2o", config_of(family))  # reads attention as it is


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Olmo2", "GptOss", "JetMoe", "Qwen2Moe"])
def test_a_family_that_runs_alike_is_not_refused(family):
    assert model_trial.find_fault("a-model", config_of(family)) == ""


LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {"rope_parameters": {**LONG, "original_max_position_embeddings": 64}}),
        ("Phi3", {"rope_parameters": {**LONG}, "original_max_position_embeddings": 64}),
        (
            "Llama",
            {
                "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
                "max_position_embeddings": 64,
            },
        ),
    ],
)
def test_angles_that_follow_the_longest_text_of_a_batch_are_found_at_the_length_where_they_do(family, changes):
    network = model_trial.small_network(config_of(family, **{"max_position_embeddings": 256, **changes}))
    assert [depends_on_company(network, tokens) for tokens in (1, 9, 64, 65, 200)] == [False] * 3 + [True] * 2


def test_a_run_of_such_lengths_is_refused_and_a_shorter_one_is_not():
    config = config_of(
        "Llama", max_position_embeddings=256, rope_parameters={**LONG, "original_max_position_embeddings": 64}
    )
    model = model_trial.SmallModel("a-model", model_trial.small_network(config))
    full = engine.Lane("full", policies.get("full"), None, 0)
    short = engine.Request("p", engine.Prompt(tuple(range(60)), ()), (full,))
    assert len(engine.run(model, [short], max_new_tokens=4).answers) == 1
    with pytest.raises(BadInput, match="angles depend on the longest text of a batch, here 65 tokens"):
        engine.run(model, [short], max_new_tokens=5)


def test_a_window_that_reaches_every_position_is_full_attention():
    config = config_of("Phi3", sliding_window=256, max_position_embeddings=256)
    assert layers_of(config) == ((FULL,) * 4, None)
    assert unsupported.refusal_reason(config) == ""
    assert model_trial.find_fault("a-model", config) == ""
    assert layers_of(config_of("Phi3", sliding_window=255, max_position_embeddings=256)).kinds == (SLIDING,) * 4


def test_a_trial_finds_a_network_that_computes_otherwise_in_the_engine(monkeypatch):
    network = model_trial.small_network(config_of("Llama"))
    rotary = network.base_model.rotary_emb
    turn = rotary.forward

    def turn_by_longest(hidden, position_ids):
        return turn(hidden, position_ids * (0 if position_ids.max() > 20 else 1))

    monkeypatch.setattr(rotary, "forward", turn_by_longest)
    monkeypatch.setattr(model_trial, "small_network", lambda config: network)
    assert model_trial.find_fault("a-model", config_of("Llama")) == (
        "computes different logits from a prompt in chunks than from the whole prompt"
    )
