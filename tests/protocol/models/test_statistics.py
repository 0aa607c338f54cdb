"""What is measured of a model equals a plain loop, and comes back from its file as it was written."""

import shutil

import pytest
import studies
import torch
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from policies import Statistics
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.lock import closure, lock
from protocol.models import calibration, calibration_paths, query_statistics, sources
from protocol.models.load import load
from protocol.workspace import run_inputs

LAYERS, Q_HEADS, KV_HEADS, DIM = 2, 4, 2, 8
TEXTS = [[5, 9, 2, 30, 7, 7, 1], [12, 3], [8, 8, 8, 21]]


def network(family="Llama", **changes):
    settings = {
        "vocab_size": 40,
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": Q_HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    torch.manual_seed(1)
    made = getattr(transformers, f"{family}ForCausalLM")(config).double().eval().requires_grad_(False)
    for name, weight in made.named_parameters():
        if "bias" in name or "norm" in name:
            weight.normal_()  # as they come out of the box, they change nothing
    return made


def rotated_queries_and_values(model, text):
    """[layer, q_head, t, d] after RoPE and [layer, kv_head, t, d], as the attention gets them."""
    found = []

    def attention(module, query, key, value, mask, **rest):
        found.append((query[0], value[0]))
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=rest["scaling"], enable_gqa=True
        ).transpose(1, 2), None

    transformers.AttentionInterface.register("noting", attention)
    before = model.config._attn_implementation
    model.set_attn_implementation("noting")
    with torch.no_grad():
        model(torch.tensor([text]), use_cache=False)
    model.set_attn_implementation(before)
    return [torch.stack(column) for column in zip(*found, strict=True)]


def turned_back(queries, model):
    """Queries [layer, q_head, t, d] without their RoPE."""
    positions = torch.arange(queries.shape[2])[None]
    cos, sin = model.base_model.rotary_emb(queries, positions)
    return apply_rotary_pos_emb(queries, queries, cos, -sin)[0]


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_statistics_equal_a_plain_loop_over_tokens(family):
    model = network(family, **({"attention_bias": True} if family == "Llama" else {}))
    measured, counted = query_statistics.measure(model, TEXTS, 1000)
    mean = torch.zeros(LAYERS, Q_HEADS, DIM // 2, dtype=torch.complex128)
    magnitude, value = torch.zeros(LAYERS, Q_HEADS, DIM // 2, dtype=torch.float64), torch.zeros(DIM).double()
    for text in TEXTS:
        queries, values = rotated_queries_and_values(model, text)
        queries = turned_back(queries, model)
        for token in range(len(text)):
            for layer in range(LAYERS):
                for head in range(Q_HEADS):
                    for pair in range(DIM // 2):
                        q = queries[layer, head, token]
                        component = complex(q[pair], q[pair + DIM // 2])
                        mean[layer, head, pair] += component / 13
                        magnitude[layer, head, pair] += abs(component) / 13
                for head in range(KV_HEADS):
                    value += values[layer, head, token]
    assert counted == 13
    torch.testing.assert_close(measured.query_mean, mean.to(torch.complex64))
    torch.testing.assert_close(measured.query_magnitude, magnitude.float())
    torch.testing.assert_close(measured.value_direction, (value / value.norm()).float())
    expected = [10000.0 ** (-2 * pair / DIM) for pair in range(DIM // 2)]
    assert measured.frequencies.tolist() == pytest.approx(expected)
    assert measured.frequencies.dtype == torch.float64
    assert measured.scaling == 1.0


def test_tokens_weigh_alike_whatever_text_they_are_in():
    """So a text of two tokens counts twice as much as one of a single token."""
    model = network()
    first, _ = query_statistics.measure(model, [TEXTS[0][:2]], 10)
    second, _ = query_statistics.measure(model, [TEXTS[1][:1]], 10)
    both, counted = query_statistics.measure(model, [TEXTS[0][:2], TEXTS[1][:1]], 10)
    assert counted == 3
    torch.testing.assert_close(both.query_mean, (2 * first.query_mean + second.query_mean) / 3)
    torch.testing.assert_close(both.query_magnitude, (2 * first.query_magnitude + second.query_magnitude) / 3)


def test_the_last_text_is_cut_where_the_tokens_are_used_up():
    model = network()
    found, counted = query_statistics.measure(model, TEXTS, 8)
    expected, _ = query_statistics.measure(model, [TEXTS[0], TEXTS[1][:1]], 1000)
    assert counted == 8
    assert torch.equal(found.query_mean, expected.query_mean)
    read = iter(TEXTS)
    query_statistics.measure(model, read, 7)
    assert next(read) == TEXTS[1], "no text is asked for once there are enough tokens"


def test_a_text_is_cut_at_the_longest_that_the_model_reads():
    model = network(max_position_embeddings=5)
    assert query_statistics.measure(model, TEXTS, 1000)[1] == 5 + 2 + 4


def test_the_rotation_s_own_scaling_is_squared():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
    model = network(rope_parameters=yarn)
    factor = model.base_model.rotary_emb.attention_scaling
    assert factor > 1.1
    measured, _ = query_statistics.measure(model, TEXTS, 1000)
    assert measured.scaling == pytest.approx(factor**2)
    plain, _ = query_statistics.measure(network(), [[5]], 1000)
    one, _ = query_statistics.measure(model, [[5]], 1000)
    torch.testing.assert_close(one.query_mean, plain.query_mean)


def test_the_network_is_as_it_was_afterwards():
    model = network()
    query_statistics.measure(model, TEXTS, 1000)
    assert not any(module._forward_hooks for module in model.modules())


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(BadInput, match="texts: contain no token"):
        query_statistics.measure(network(), [[], []], 10)
    phi = network("Phi3", pad_token_id=0)
    with pytest.raises(BadInput, match="has no q_proj and v_proj"):
        query_statistics.measure(phi, TEXTS, 10)
    with pytest.raises(BadInput, match="does not rotate every pair"):
        query_statistics.measure(network("StableLm", partial_rotary_factor=0.5), TEXTS, 10)


def random_statistics(layers=LAYERS):
    random = torch.Generator().manual_seed(0)
    mean = torch.randn(layers, Q_HEADS, DIM // 2, dtype=torch.complex64, generator=random)
    direction = torch.randn(DIM, generator=random)
    return Statistics(mean, 2 * mean.abs(), direction, torch.rand(DIM // 2).double(), 1.0 / 3)


def test_a_file_gives_back_what_was_written_and_the_same_bytes_each_time(tmp_path):
    written = random_statistics()
    one, other = tmp_path / "deeper" / "one.safetensors", tmp_path / "other.safetensors"
    for path in (one, other):
        calibration.write_value(path, written, {"model": "tiny", "tokens": "13"})
    assert one.read_bytes() == other.read_bytes()
    found = calibration.read_value(one)
    assert all(map(torch.equal, found[:4], written[:4]))
    assert [part.dtype for part in found[:4]] == [part.dtype for part in written[:4]]
    assert found.scaling == written.scaling
    assert calibration.read_metadata(one) == {"model": "tiny", "tokens": "13", "scaling": repr(1.0 / 3)}


def test_a_file_of_something_else_is_refused_by_name(tmp_path):
    path = tmp_path / "text.safetensors"
    path.write_bytes(b"nothing of the kind")
    for reading in (calibration.read_value, calibration.read_metadata):
        with pytest.raises(BadInput, match=r"text\.safetensors: contains no statistics"):
            reading(path)


@pytest.mark.parametrize("model", ["chain-llama", "chain-qwen2"])
def test_the_statistics_of_embedded_models_are_of_the_weights_beside_them(model):
    expected = calibration.weights_digest(model, files.cache_home())
    for path in calibration_paths.statistics_paths(model, files.cache_home()).values():
        assert calibration.read_metadata(path)["weights"] == expected


def test_weights_are_other_weights_once_a_file_that_changes_outputs_is_another(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    before = calibration.weights_digest(f"path:{folder}", tmp_path)
    calibration.write_value(folder / "statistics-text.safetensors", random_statistics(), {})
    (folder / "README.md").write_text("A model.")
    assert calibration.weights_digest(f"path:{folder}", tmp_path) == before
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert calibration.weights_digest(f"path:{folder}", tmp_path) != before


def test_statistics_lie_beside_the_weights_of_an_embedded_model_and_below_home_for_others(tmp_path):
    embedded = calibration_paths.statistics_paths("chain-llama", tmp_path)
    assert embedded.keys() == {"text", "traces", "thoughts", "routes", "bases"}
    assert embedded["traces"].name == "statistics-traces.safetensors"
    assert embedded["traces"].parent.name == "chain-llama"
    hub = calibration_paths.statistics_paths(f"hf:owner/name@{40 * 'a'}", tmp_path)
    assert hub["text"] == tmp_path / "statistics" / f"hf--owner--name@{40 * 'a'}" / "text.safetensors"
    one, other = (calibration_paths.statistics_paths(f"path:{path}", tmp_path)["text"] for path in ("/a/b", "/a/c"))
    assert one != other


def test_a_loaded_model_has_the_statistics_that_are_there(tiny_model, tmp_path):
    source = f"path:{tiny_model}"
    assert dict(load(source, tmp_path).statistics) == {}
    place = calibration_paths.statistics_paths(source, tmp_path)["traces"]
    calibration.write_value(place, random_statistics(), {})
    found = load(source, tmp_path).statistics
    assert found.keys() == {"traces"}
    assert torch.equal(found["traces"].query_mean, random_statistics().query_mean)
    calibration.write_value(place, random_statistics(layers=3), {})
    with pytest.raises(BadInput, match=r"has the shape \[3, 4, 4\] .*, but the model needs \[2, 4, 4\]; delete it"):
        load(source, tmp_path)


def test_what_was_calibrated_is_no_file_of_the_model_itself(tmp_path):
    """A lock names of it what an arm reads: a new file beside the weights is no other model."""
    folder = sources.model_folder("chain-llama", tmp_path)
    embedded = ("text", "traces", "thoughts", "routes", "bases")
    assert {path.name for path in folder.glob("statistics-*")} == {
        f"statistics-{name}.safetensors" for name in embedded
    }
    assert not any(name.startswith("statistics-") for name in sources.model_files("chain-llama", tmp_path))


@pytest.mark.parametrize("study", ["alpha-chain", "lossless-chain"])
def test_studies_of_before_have_the_files_that_they_locked(study, tmp_path):
    """They locked all that lay beside the weights, which was less."""
    locked = lock.read(studies.ROOT / "registrations" / study).content["weights"]
    assert len(locked) == 2
    for model, digests in locked.items():
        assert "statistics-text.safetensors" in digests
        assert closure.weights(run_inputs.model_files(model, tmp_path, digests)) == digests
