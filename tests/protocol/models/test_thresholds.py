"""Thresholds between thoughts: found where a density is lowest, kept in a file, refused where unfit."""

import json
from dataclasses import replace

import pytest
import studies
import torch
from scipy import stats

import policies
from policies import Statistics, Thresholds
from policies.thinkv import SEGMENT
from protocol.formats.refusals import BadInput
from protocol.models import calibration, calibration_paths, sources, thresholds
from protocol.models.load import load
from protocol.plan import toml_reader
from protocol.plan.design import Design
from protocol.run import statistics_measurement as measuring
from protocol.workspace.planned_study import PlannedStudy


def normal(*parts, seed=0):
    """Values of several normal distributions, given as (mean, deviation, how many)."""
    random = torch.Generator().manual_seed(seed)
    drawn = [mean + deviation * torch.randn(count, generator=random) for mean, deviation, count in parts]
    return torch.cat(drawn).double()


THREE = normal((0.2, 0.02, 80), (0.5, 0.02, 120), (0.8, 0.02, 60))
ONE = normal((0.5, 0.05, 260), seed=1)


def test_the_density_is_scipy_s():
    at = torch.linspace(0, 1, 50).double()
    for values in (THREE, ONE):
        expected = stats.gaussian_kde(values.numpy())(at.numpy())
        assert thresholds.density(values, at).tolist() == pytest.approx(expected.tolist())


def test_thresholds_are_where_the_density_between_three_modes_is_lowest():
    found, how = thresholds.fit_thresholds(THREE[None])
    assert how == "minima"
    assert found.layers == (0,)
    density = stats.gaussian_kde(THREE.numpy())
    for threshold, (low, high) in zip(found[1:], ((0.2, 0.5), (0.5, 0.8)), strict=True):
        grid = torch.linspace(low, high, 3001).numpy()
        assert threshold == pytest.approx(grid[density(grid).argmin()], abs=1 / 512)


@pytest.mark.parametrize("values", [ONE, normal((0.2, 0.02, 90), (0.8, 0.02, 90)), torch.full((40,), 0.5).double()])
def test_terciles_where_there_are_not_three_modes(values):
    found, how = thresholds.fit_thresholds(values[None])
    assert how == "terciles"
    ordered = sorted(values.tolist())
    place = (len(ordered) - 1) / 3
    between = ordered[int(place)], ordered[int(place) + 1]
    assert found.low == pytest.approx(between[0] + (place - int(place)) * (between[1] - between[0]))
    assert sum(value < found.low for value in ordered) <= len(ordered) / 3 + 1
    assert sum(value > found.high for value in ordered) <= len(ordered) / 3 + 1


def test_of_many_layers_the_four_with_the_deepest_valleys_count():
    """Six of three modes, the narrower the deeper, and one of a single mode, however wide."""
    widths = (0.05, 0.02, 0.06, 0.03, 0.04, 0.01)
    order = [(0.2, 80), (0.5, 120), (0.8, 60)]
    rows = [normal(*((mean, width, count) for mean, count in order), seed=seed) for seed, width in enumerate(widths)]
    wide = normal((0.5, 0.9, 260), seed=9)
    found, how = thresholds.fit_thresholds(torch.stack([*rows, wide]))
    assert found.layers == (1, 3, 4, 5)
    assert how == "minima"
    # The thresholds are those of the mean of these layers.
    between = thresholds.find_valleys(torch.stack([rows[layer] for layer in found.layers]).mean(0))
    assert (found.low, found.high) == (between.low, between.high)


def test_where_no_layer_has_three_modes_those_that_spread_most_count():
    rows = [normal((0.5, width, 60), seed=seed) for seed, width in enumerate((0.01, 0.05, 0.02, 0.04, 0.03))]
    assert thresholds.fit_thresholds(torch.stack(rows))[0].layers == (1, 2, 3, 4)


def test_few_segments_tell_no_density():
    with pytest.raises(BadInput, match=r"have 29 whole segments, but thresholds need 30; raise --tokens"):
        thresholds.fit_thresholds(THREE[None, :29])


def test_a_file_gives_back_what_was_written_and_says_no_other_kind(tmp_path):
    written, path = Thresholds((0, 3), 0.25, 1 / 3), tmp_path / "thoughts.safetensors"
    calibration.write_value(path, written, {"model": "tiny"})
    assert calibration.read_value(path, Thresholds) == written
    assert calibration.read_metadata(path) == {"model": "tiny"}
    with pytest.raises(BadInput, match="contains no statistics"):
        calibration.read_value(path, Statistics)
    queries = sources.model_folder("chain-llama", tmp_path) / "statistics-text.safetensors"
    with pytest.raises(BadInput, match="contains no statistics"):
        calibration.read_value(queries, Thresholds)


def test_every_name_has_one_kind_and_its_way_into_a_file():
    assert calibration.CLASS_BY_NAME.keys() == set(calibration_paths.NAMES)
    assert set(calibration.CLASS_BY_NAME.values()) == calibration.FORMATS.keys()
    for name in policies.names():
        for signal in policies.get(name).calibrated:
            assert calibration.CLASS_BY_NAME[signal.name] is signal.kind


def test_thresholds_of_a_layer_that_the_model_has_not_are_refused(tiny_model, tmp_path):
    source = f"path:{tiny_model}"
    place = calibration_paths.statistics_paths(source, tmp_path)["thoughts"]
    calibration.write_value(place, Thresholds((0, 1), 0.2, 0.4), {})
    layers = load(source, tmp_path).network.config.num_hidden_layers
    assert load(source, tmp_path).statistics["thoughts"] == Thresholds((0, 1), 0.2, 0.4)
    calibration.write_value(place, Thresholds((0, layers), 0.2, 0.4), {})
    with pytest.raises(BadInput, match=rf"has the layers \[0, {layers}\], but the model has {layers}; delete it"):
        load(source, tmp_path)


@pytest.mark.parametrize("model", ["chain-llama", "chain-qwen2"])
def test_thresholds_of_embedded_models_are_of_calibration_problems_and_of_both_layers(model, tmp_path):
    path = calibration_paths.statistics_paths(model, tmp_path)["thoughts"]
    about, own = calibration.read_metadata(path), calibration.read_value(path, Thresholds)
    assert (about["split"], about["task"], about["thresholds"]) == ("calibration", "chain", "terciles")
    assert own.layers == (0, 1)
    assert 0 < own.low < own.high < 1
    used = json.loads(about["problems"])
    levels = (6, 7, 8, 9, 10, 12, 14, 16, 20, 24)
    assert {problem.split("/")[1] for problem in used} == {f"{level:02}" for level in levels}


def test_measured_are_whole_segments_of_answers_with_the_full_cache(tmp_path, monkeypatch):
    """Against the attention that transformers itself forms, row by row."""
    model = load("chain-llama", tmp_path)
    random = torch.Generator().manual_seed(0)
    lengths = ((300, 30), (200, 73), (150, 0), (170, 40))
    texts = [
        measuring.Text(torch.randint(189, (length,), generator=random).tolist(), prompt) for length, prompt in lengths
    ]
    seen = []

    def noted(sparsity):
        seen.append(sparsity)
        return thresholds.ThresholdFit(Thresholds((0,), 0.0, 1.0), "minima")

    monkeypatch.setattr(thresholds, "fit_thresholds", noted)
    found = measuring.measure(model, "thoughts", iter(texts), 770)
    assert found.tokens == 770
    # Two whole segments of 270 tokens, none of 127, one of 150; the last text is cut 80 behind its prompt.
    assert found.details == {"thresholds": "minima", "segments": "3"}
    model.network.set_attn_implementation("eager")
    expected = []
    for text, prompt, first in ((0, 30, 30), (0, 30, 158), (2, 0, 0)):
        assert texts[text].prompt == prompt
        with torch.no_grad():
            weights = model.network(torch.tensor([texts[text].token_ids]), output_attentions=True).attentions
        expected.append([mean_share(layer[0], range(first, first + SEGMENT)) for layer in weights])
    torch.testing.assert_close(seen[0], torch.tensor(expected).T)


def mean_share(weights, rows):
    """Of [q_head, row, slot], over heads and these rows; a row sees the slots up to its own."""
    seen = [head[row, : row + 1] for row in rows for head in weights]
    return sum(float((own < 0.01 * own.max()).double().mean()) for own in seen) / len(seen)


def test_a_policy_that_reads_what_nothing_calibrates_is_refused_by_name(tmp_path, tiny_model, monkeypatch):
    folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK)
    planned = PlannedStudy(toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml"), tmp_path)
    assert planned.required_statistics() == []
    for name, kind in (("mine", Thresholds), ("text", Thresholds)):
        base = policies.get("thinkv")
        asking = replace(base, scoring=replace(base.scoring, statistics=name))
        assert {signal.kind for signal in asking.calibrated} == {kind}
        monkeypatch.setattr(Design, "policy", lambda self, arm, asking=asking: asking)
        with pytest.raises(BadInput, match=f"needs Thresholds that were calibrated as '{name}', which"):
            planned.required_statistics()
