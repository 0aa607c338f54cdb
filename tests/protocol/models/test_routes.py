"""Routes of heads: what each way captures of the attention that follows; their file, and what is refused."""

import json

import pytest
import torch

import policies
from policies import Calibrated, Routes, Statistics, View
from policies.signals import Keys
from protocol.formats.refusals import BadInput
from protocol.models import calibration, calibration_paths, routes
from protocol.models.load import load
from protocol.run import statistics_measurement as measuring

MODELS = ("chain-llama", "chain-qwen2")


def test_the_way_that_captures_more_is_taken_and_a_tie_goes_to_the_scores():
    """Of two heads whose errors are 0.2 and 0.4 by score, 0.3 and 0.1 at even distances; and of equals."""
    by_score, evenly = torch.tensor([[0.8, 0.6, 0.5]]), torch.tensor([[0.7, 0.9, 0.5]])
    assert routes.choose_routes(by_score, evenly).attention.tolist() == [[True, False, True]]


def test_a_text_is_cut_at_the_end_of_its_prompt_and_every_step_to_fewer_slots_than_there_are():
    assert list(routes.cuts(40, 140)) == [(72, 64), (104, 64), (136, 64), (136, 128)]
    assert list(routes.cuts(65, 66)) == [(65, 64)]
    assert list(routes.cuts(20, 60)) == []


def test_attention_captured_by_hand():
    """Two query heads that see two slots alike, then three, of which the first alone is kept."""
    queries, keys = torch.zeros(2, 4, 2), torch.randn(1, 4, 2)
    kept = torch.tensor([[True, False]])
    found = routes.retained_attention(queries, keys, kept, 1.0)
    assert found.tolist() == pytest.approx([1 / 3 + 1 / 4])
    queries[1, 3] = torch.tensor([1e4, 0])
    keys[0] = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 0]])
    assert routes.retained_attention(queries, keys, kept, 1.0).tolist() == pytest.approx([1 / 3 + (1 / 4 + 1) / 2])


def test_measured_is_the_attention_of_the_next_queries_of_whole_texts(tmp_path):
    """Against the attention that transformers itself forms, and the slots that `1d-per-head` keeps."""
    model = load("chain-llama", tmp_path)
    random = torch.Generator().manual_seed(0)
    texts = [
        measuring.Text(torch.randint(5, 40, (n,), generator=random).tolist(), prompt)
        for n, prompt in ((230, 80), (60, 10), (170, 100), (150, 120))
    ]
    found = measuring.measure_routes(model, iter(texts), 400)  # the third is cut short, the last not reached
    assert found.tokens == 400
    model.network.set_attn_implementation("eager")
    totals, queries = torch.zeros(2, 2, 2, dtype=torch.float64), 0
    for text, n in ((texts[0], 230), (texts[2], 110)):
        ids = text.token_ids[:n]
        with torch.no_grad():
            made = model.network(torch.tensor([ids]), output_attentions=True, use_cache=True)
        keys = [layer.keys[0] for layer in made.past_key_values.layers]
        for start in range(text.prompt, n, 32):
            for budget in (64, 128):
                if budget >= start:
                    continue
                signals = {Keys(): tuple(own[:, :start] for own in keys), Calibrated("text"): model.statistics["text"]}
                seen = View(torch.tensor(ids[:start]), 2, 2, frozenset(), 0, signals)
                by_score = policies.get("1d-per-head").keep(seen, budget)
                even = torch.zeros_like(by_score)
                even[:, :, torch.linspace(0, start - 1, budget).round().long()] = True
                rows = range(start, min(start + 128, n))
                queries += len(rows)
                for way, kept in enumerate((by_score, even)):
                    for layer, weights in enumerate(made.attentions):
                        for head in range(4):
                            mass = weights[0, head, rows.start : rows.stop, :start][:, kept[layer, head // 2]]
                            totals[way, layer, head // 2] += float(mass.sum()) / 2
    assert found.details["queries"] == str(queries)
    for way, name in enumerate(("by_score", "evenly")):
        torch.testing.assert_close(
            torch.tensor(json.loads(found.details[name])).double(), totals[way] / queries, atol=2e-3, rtol=0
        )
    assert found.value.attention.shape == (2, 2)
    assert torch.equal(found.value.attention, totals[0] >= totals[1])


def test_answers_that_end_too_soon_tell_nothing(tmp_path):
    model = load("chain-llama", tmp_path)
    with pytest.raises(BadInput, match="no measured answer is longer than 65 tokens; raise --tokens"):
        measuring.measure_routes(model, iter([measuring.Text(list(range(5, 35)) * 2, 20)]), 100)


def test_a_file_gives_back_what_was_written_and_says_no_other_kind(tmp_path):
    written, path = Routes(torch.tensor([[True, False], [False, False]])), tmp_path / "routes.safetensors"
    calibration.write_value(path, written, {"model": "tiny"})
    assert torch.equal(calibration.read_value(path, Routes).attention, written.attention)
    assert calibration.read_metadata(path) == {"model": "tiny"}
    with pytest.raises(BadInput, match="contains no statistics"):
        calibration.read_value(path, Statistics)
    calibration.write_value(path, Routes(torch.ones(2, 2)), {})
    with pytest.raises(BadInput, match="contains no statistics"):
        calibration.read_value(path, Routes)


def test_routes_of_another_model_are_refused(tiny_model, tmp_path):
    source = f"path:{tiny_model}"
    place = calibration_paths.statistics_paths(source, tmp_path)["routes"]
    config = load(source, tmp_path).network.config
    heads = config.num_hidden_layers, config.num_key_value_heads
    calibration.write_value(place, Routes(torch.zeros(heads) > 0), {})
    assert not load(source, tmp_path).statistics["routes"].attention.any()
    calibration.write_value(place, Routes(torch.zeros(heads[0] + 1, heads[1]) > 0), {})
    message = (
        rf"has the shape \[{heads[0] + 1}, {heads[1]}\] .layers, KV heads., but the model needs .*; delete it and run"
    )
    with pytest.raises(BadInput, match=message):
        load(source, tmp_path)


@pytest.mark.parametrize("model", MODELS)
def test_routes_of_embedded_models_are_what_was_captured_on_calibration_problems(model, tmp_path):
    path = calibration_paths.statistics_paths(model, tmp_path)["routes"]
    about, own = calibration.read_metadata(path), calibration.read_value(path, Routes)
    assert (about["split"], about["task"], about["tokens"]) == ("calibration", "chain", "32768")
    captured = [torch.tensor(json.loads(about[way])) for way in ("by_score", "evenly")]
    assert torch.equal(own.attention, captured[0] >= captured[1])
    assert all(((way > 0) & (way < 1)).all() for way in captured)
    levels = (6, 7, 8, 9, 10, 12, 14, 16, 20, 24)
    assert {problem.split("/")[1] for problem in json.loads(about["problems"])} == {f"{one:02}" for one in levels}
