"""Bases of values: those of numpy, of what the model itself computes, kept in a file, refused where unfit."""

import json

import numpy as np
import pytest
import torch

from policies import Bases
from protocol.formats.refusals import BadInput
from protocol.models import bases, calibration, calibration_paths
from protocol.models.load import load
from protocol.run import statistics_measurement as measuring


def some_values(layers=2, heads=2, tokens=60, width=4):
    """Wide along some direction of each head, and far from 0."""
    random = torch.Generator().manual_seed(4)
    mixed = torch.randn(layers, heads, width, width, generator=random)
    return torch.randn(layers, heads, tokens, width, generator=random) @ mixed + 3


def test_directions_are_eigenvectors_of_the_covariance_whatever_the_pieces_that_were_summed():
    values = some_values()
    moments = bases.empty_moments(values)
    for piece in values.split((7, 50, 3), dim=2):
        moments = moments.add(piece)
    found = bases.fit_bases(moments)
    shares = []
    for layer in range(2):
        for head in range(2):
            own = values[layer, head].double().numpy()
            variance, vectors = np.linalg.eigh(np.cov(own.T, bias=True))
            shares.append(variance[-1] / variance.sum())
            basis = found.bases.basis[layer, head].double().numpy()
            np.testing.assert_allclose(found.bases.mean[layer, head], own.mean(0), rtol=1e-5)
            np.testing.assert_allclose(np.abs((basis * vectors[:, ::-1]).sum(0)), 1, atol=1e-5)
            np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-6)
            assert (basis[np.abs(basis).argmax(0), range(4)] > 0).all()
    assert found.quarter == pytest.approx(np.mean(shares))


def test_too_few_tokens_to_span_the_values_are_refused():
    values = some_values(tokens=4)
    with pytest.raises(BadInput, match="tokens: 4 were measured, too few for 4 directions; raise --tokens"):
        bases.fit_bases(bases.empty_moments(values).add(values))
    with pytest.raises(BadInput, match="texts: contain no token"):
        measuring.measure_bases(None, iter([]), 10)


def test_measured_are_the_values_of_whole_texts_as_the_projection_gives_them(tmp_path):
    model, seen = load("chain-llama", tmp_path), {0: [], 1: []}
    random = torch.Generator().manual_seed(0)
    lengths = ((40, 10), (30, 30))
    texts = [measuring.Text(torch.randint(189, (n,), generator=random).tolist(), p) for n, p in lengths]
    found = measuring.measure(model, "bases", iter(texts), 60)
    assert found.tokens == 60
    for token_ids in (texts[0].token_ids, texts[1].token_ids[:20]):
        with torch.no_grad():
            states = model.network(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
            for layer, block in enumerate(model.network.model.layers):
                values = block.self_attn.v_proj(block.input_layernorm(states[layer]))[0]
                seen[layer].append(values.view(-1, 2, 32).transpose(0, 1))
    values = torch.stack([torch.cat(seen[layer], 1) for layer in range(2)])
    torch.testing.assert_close(found.value.mean, values.mean(2), rtol=1e-4, atol=1e-5)
    centred = (values - values.mean(2, keepdim=True)).double()
    along = (centred @ found.value.basis.double()).square().mean(2)
    whole = centred.square().mean(2).sum(-1)
    assert (along[..., :-1] >= along[..., 1:] - 1e-9).all()
    assert float(found.details["variance in a quarter"]) == pytest.approx(
        float((along[..., :8].sum(-1) / whole).mean()), abs=1e-3
    )


def test_a_file_gives_back_what_was_written(tmp_path):
    written, path = Bases(torch.randn(2, 2, 4), torch.randn(2, 2, 4, 4)), tmp_path / "bases.safetensors"
    calibration.write_value(path, written, {"model": "tiny"})
    assert all(map(torch.equal, calibration.read_value(path, Bases), written))


def test_bases_of_another_shape_are_refused(tiny_model, tmp_path):
    source = f"path:{tiny_model}"
    place = calibration_paths.statistics_paths(source, tmp_path)["bases"]
    calibration.write_value(place, Bases(torch.zeros(2, 2, 8), torch.zeros(2, 2, 8, 8)), {})
    assert load(source, tmp_path).statistics["bases"].mean.shape == (2, 2, 8)
    calibration.write_value(place, Bases(torch.zeros(2, 2, 4), torch.zeros(2, 2, 4, 4)), {})
    with pytest.raises(BadInput, match=r"has the shape \[2, 2, 4, 4\] .*, but the model needs \[2, 2, 8, 8\]; delete"):
        load(source, tmp_path)


@pytest.mark.parametrize("model", ["chain-llama", "chain-qwen2"])
def test_bases_of_embedded_models_are_orthonormal_and_of_calibration_problems(model, tmp_path):
    path = calibration_paths.statistics_paths(model, tmp_path)["bases"]
    about, own = calibration.read_metadata(path), calibration.read_value(path, Bases)
    assert (about["split"], about["task"], about["tokens"]) == ("calibration", "chain", "8192")
    assert len({problem.split("/")[1] for problem in json.loads(about["problems"])}) == 10
    assert own.basis.shape == (2, 2, 32, 32)
    torch.testing.assert_close(own.basis.mT @ own.basis, torch.eye(32).expand(2, 2, 32, 32), rtol=0, atol=1e-5)
