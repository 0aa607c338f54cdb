"""Presses as arms: what kvpress' own pipeline answers with a press, our engine answers with it as an arm.

The pipeline of kvpress 0.5.5 feeds a context with the press, then the question and the answer, on the slots
that are left, with its own patch of attention where slots are masked.
"""

import ast
import copy
import json
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import studies
import torch
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import policies
from policies.structure import structure
from protocol import engine
from protocol.engine import sampling
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell
from protocol.models.load import load
from protocol.presses import press_settings, supported_presses
from protocol.presses.pressed import build_press_policy
from protocol.recompute import verify_lock

try:
    kvpress = press_settings.import_kvpress()
except ValueError:
    pytest.skip("kvpress is not installed here: run `make parity`", allow_module_level=True)

LAYERS, HEADS = 2, 2
N, BUDGET, NEW = 200, 75, 12
WINDOW = {"press": "SnapKVPress", "press.window_size": 16}
KNORM = {"press": "KnormPress"}
SETTINGS: dict[str, dict[str, Any]] = {
    "AdaKVPress": WINDOW,
    "BlockPress": KNORM,
    "ChunkKVPress": WINDOW,
    "ChunkPress": {**KNORM, "chunk_length": 64},
    "CriticalAdaKVPress": WINDOW,
    "CriticalKVPress": {**WINDOW, "first_stage_ratio": 0.25},
    "EntropyGatedChunkKVPress": WINDOW,
    "KeyRerotationPress": KNORM,
    "MergingPress": WINDOW,
    "PerLayerCompressionPress": {**KNORM, "compression_ratios": [0.25, 0.75]},
    "PyramidKVPress": {"window_size": 16},
    "SimLayerKVPress": {"lazy_threshold": 0.2, "n_recent": 40},
    "SnapKVPress": {"window_size": 16},
    "ThinKPress": {"key_channel_compression_ratio": 0.5},
}
HELD = {
    # The whole prompt: masked, or with channels that are zero.
    "AdaKVPress": N,
    "CriticalAdaKVPress": N,
    "ThinKPress": N,
    # int(10 chunks x 75.25 / 200) = 3 chunks of 20.
    "ChunkKVPress": 60,
    # Three chunks of 64 keep int(64 x .37625) = 24, and one of 8 keeps 3.
    "ChunkPress": 75,
}
"""Mean slots per KV head and layer where the budget is 75, of those that do not leave the budget."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load("chain-llama", tmp_path_factory.mktemp("home"), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def prompt(model):
    random = torch.Generator().manual_seed(5)
    ids = torch.randint(5, model.network.config.vocab_size - 5, (N + 6,), generator=random).tolist()
    return engine.Prompt(tuple(ids[:N]), tuple(ids[N:]))


@contextmanager
def patched():
    """transformers' attention as importing kvpress leaves it, which `installed` undoes."""
    function = ALL_ATTENTION_FUNCTIONS["sdpa"]
    ALL_ATTENTION_FUNCTIONS["sdpa"] = kvpress.attention_patch.attention_patch(function)
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = function


def by_kvpress(model, press, prompt, eager=False):
    """The token ids that kvpress' pipeline gives and the slots that it held after the context, over all."""
    network = model.network
    pipeline = kvpress.KVPressTextGenerationPipeline
    own: Any = SimpleNamespace(model=network)
    own.tokenizer = SimpleNamespace(decode=lambda ids, **_: ids.tolist())
    own.generate_answer = partial(pipeline.generate_answer, own)
    own._remove_answer_from_cache = lambda *_: None
    asked = {"context_ids": torch.tensor([prompt.context]), "questions_ids": [torch.tensor([prompt.query])]}
    cache, before = DynamicCache(), network.config._attn_implementation
    network.set_attn_implementation("eager" if eager else "sdpa")
    torch.manual_seed(sampling.derive_key("view", "p", 0, bits=64))
    with torch.no_grad(), patched():
        (answer,) = pipeline._forward(own, asked, NEW, press, cache)
    network.set_attn_implementation(before)
    ids = ast.literal_eval(answer)
    fed = len(prompt.query) + len(ids) - 1
    held = sum(HEADS * (layer.keys.shape[2] - fed) for layer in cache.layers)
    return tuple(ids), held


def by_us(model, arm, prompt, budget=BUDGET):
    request = engine.Request("p", prompt, (engine.Lane("a lane", arm, budget, 0),))
    (outcome,) = engine.run(model, [request], max_new_tokens=NEW).answers[0].outcomes
    return outcome


def test_every_press_of_kvpress_runs_or_is_refused_by_name():
    presses = {name for name in kvpress.__all__ if name.endswith("Press")}
    assert presses == {*supported_presses.RUNNABLE, *supported_presses.REFUSED}
    assert not set(supported_presses.RUNNABLE) & set(supported_presses.REFUSED)
    assert {*supported_presses.EAGER, *supported_presses.MASKING, *supported_presses.RENUMBERING} < set(
        supported_presses.RUNNABLE
    )


def test_layers_of_different_lengths_decode_here(model, prompt):
    """kvpress' pipeline masks all layers by the length of the first, and fails but for flash attention."""
    arm = build_press_policy("kvpress:PerLayerCompressionPress", SETTINGS["PerLayerCompressionPress"])
    outcome = by_us(model, arm, prompt)
    assert outcome.events == ((0, N * LAYERS * HEADS, HEADS * (150 + 50)),)
    assert outcome.token_ids


@pytest.mark.parametrize("name", [name for name in supported_presses.RUNNABLE if name != "PerLayerCompressionPress"])
def test_an_arm_answers_and_holds_what_the_pipeline_of_kvpress_does(name, model, prompt):
    arm = build_press_policy(f"kvpress:{name}", SETTINGS.get(name))
    press = press_settings.build_press(arm.press)
    if arm.by_budget:
        press.compression_ratio = 1 - (BUDGET + 0.25) / N
    expected, held = by_kvpress(model, press, prompt, eager=name in supported_presses.EAGER)
    for layer in model.network.model.layers:  # what kvpress leaves at a model
        vars(layer.self_attn).pop("masked_key_indices", None)
        layer.self_attn._modules.pop("rotary_emb", None)
    outcome = by_us(model, arm, prompt)
    length = len(outcome.token_ids)
    assert outcome.token_ids == expected[:length]
    assert length == NEW or expected[length] in model.stop_ids
    assert outcome.events == ((0, N * LAYERS * HEADS, held),)
    if name != "SimLayerKVPress":  # a layer is lazy or not
        assert held == HELD.get(name, BUDGET) * LAYERS * HEADS


def test_answers_differ_from_press_to_press(model, prompt):
    """What the comparison above compares is no constant."""
    arms = [build_press_policy(f"kvpress:{name}", SETTINGS.get(name)) for name in supported_presses.RUNNABLE]
    full = by_us(model, policies.get("full"), prompt, None)
    texts = [by_us(model, arm, prompt).token_ids for arm in arms]
    assert len(set(texts)) > 10
    assert sum(text != full.token_ids for text in texts) > 20


@pytest.mark.parametrize("name", [name for name in supported_presses.RUNNABLE if name not in ("ThinKPress",)])
def test_a_budget_of_the_whole_prompt_gives_the_text_of_the_full_cache(name, model, prompt):
    settings = {**SETTINGS.get(name, {})}
    if name == "PerLayerCompressionPress":
        settings["compression_ratios"] = [0, 0]
    if name == "SimLayerKVPress":
        settings["lazy_threshold"] = 1
    outcome = by_us(model, build_press_policy(f"kvpress:{name}", settings), prompt, N)
    assert outcome.token_ids == by_us(model, policies.get("full"), prompt, None).token_ids
    assert outcome.slots[0] == N * LAYERS * HEADS


def test_a_registered_ratio_is_not_moved_by_the_budget(model, prompt):
    arm = build_press_policy("kvpress:KnormPress", {"compression_ratio": 0.75})
    assert not arm.by_budget
    assert [by_us(model, arm, prompt, budget).slots[0] for budget in (20, 120)] == [50 * LAYERS * HEADS] * 2


@pytest.mark.parametrize("budget", range(1, N, 13))
@pytest.mark.parametrize("name", ["KnormPress", "StreamingLLMPress", "PyramidKVPress"])
def test_the_ratio_of_a_budget_leaves_the_budget(name, budget, model, prompt):
    """PyramidKVPress rounds each of its two layers by itself: a slot of the sum."""
    outcome = by_us(model, build_press_policy(f"kvpress:{name}", SETTINGS.get(name)), prompt, budget)
    if isinstance(outcome, engine.LaneFailure):
        assert (name, budget) == ("PyramidKVPress", 1)
    else:
        assert abs(outcome.slots[0] - budget * LAYERS * HEADS) <= (name == "PyramidKVPress") * HEADS


def test_importing_kvpress_changes_no_attention_function_of_transformers():
    assert "kvpress" in sys.modules
    for name, function in ALL_ATTENTION_FUNCTIONS.items():
        assert "kvpress" not in function.__module__, name


def test_a_press_leaves_the_network_as_it_was_and_draws_by_the_lane(model, prompt):
    network = model.network
    parts = {name: set(vars(module)) | set(module._modules) for name, module in network.named_modules()}
    weights = copy.deepcopy(network.state_dict())
    state = torch.get_rng_state()
    arms = [build_press_policy(f"kvpress:{name}", SETTINGS.get(name)) for name in ("RandomPress", "AdaKVPress")]
    texts = [[by_us(model, arm, prompt).token_ids for arm in arms] for _ in range(2)]
    assert texts[0] == texts[1]
    assert torch.equal(state, torch.get_rng_state())
    after = {name: set(vars(module)) | set(module._modules) for name, module in network.named_modules()}
    assert after == parts
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


def test_a_press_that_cannot_take_a_prompt_fails_its_lane(model):
    short = engine.Prompt(tuple(range(5, 25)), (7,))
    outcome = by_us(model, build_press_policy("kvpress:SnapKVPress", None), short, 10)
    assert outcome == engine.LaneFailure("SnapKVPress: Query length 20 should be greater than the window size 64")


REFUSALS = {
    ("SnapKVPres", ()): "unknown press 'SnapKVPres'; did you mean 'SnapKVPress'?",
    ("FinchPress", ()): "FinchPress needs a delimiter token",
    ("DecodingPress", ()): "DecodingPress compresses while decoding",
    ("QFilterPress", ()): "QFilterPress downloads what was trained",
    ("SnapKVPress", (("window", 3),)): "window: is not a setting of SnapKVPress; did you mean 'window_size'?",
    ("SnapKVPress", (("window_size", "a"),)): "window_size: write a whole number, not the text 'a'",
    ("SnapKVPress", (("window_size", 3.5),)): "window_size: write a whole number, not 3.5",
    ("SnapKVPress", (("compression_ratio", 1.5),)): "SnapKVPress: Compression ratio must be between 0 and 1",
    ("CURPress", (("leverage_type", "x"),)): "leverage_type: write one of key, value, kv_avg, kv_product",
    ("ChunkKVPress", ()): 'press: must name the press that ChunkKVPress wraps; write for example "SnapKVPress"',
    ("ChunkKVPress", (("press", "LUKVPress"),)): "press: LUKVPress downloads what was trained",
    ("ChunkKVPress", (("press", "SnapKV"),)): "press: unknown press 'SnapKV'; did you mean 'SnapKVPress'?",
    ("ChunkKVPress", (("press", "AdaKVPress"), ("press.press", "KnormPress"))): "ChunkKVPress requires a",
    ("ChunkKVPress", (("press", "SnapKVPress"), ("compression_ratio", 0.5))): "'press.compression_ratio'?",
    ("PerLayerCompressionPress", (("press", "KnormPress"),)): "compression_ratios: PerLayerCompressionPress",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_wrong_with_a_press_is_one_line(case):
    name, settings = case
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        build_press_policy(f"kvpress:{name}", dict(settings))
    assert REFUSALS[case] in str(refused.value)


def test_the_lock_says_the_press_its_version_and_every_setting():
    arm = build_press_policy("kvpress:AdaKVPress", {"press": "SnapKVPress", "press.window_size": 16})
    told = structure(arm)
    assert told["press"] == "kvpress.AdaKVPress()"
    assert told["press.alpha_safeguard"] == "0.2"
    assert told["press.press"] == "kvpress.SnapKVPress()"
    assert (told["press.press.window_size"], told["press.press.kernel_size"]) == ("16", "5")
    assert (told["version"], told["by_budget"]) == ("'0.5.5'", "True")


# Three presses beside our policies of the same name

PAIRS = {"snapkv": "snapkv-press", "streaming": "streaming-press", "keydiff": "keydiff-press"}
ARMS = """full = {{ policy = "full" }}
snapkv = {{ policy = "snapkv" }}
streaming = {{ policy = "streaming" }}
keydiff = {{ policy = "keydiff" }}
snapkv-press = {{ press = "kvpress:SnapKVPress", set = {{ window_size = 32 }} }}
streaming-press = {{ press = "kvpress:StreamingLLMPress" }}
keydiff-press = {{ press = "kvpress:KeyDiffPress" }}
ada-press = {{ press = "kvpress:AdaKVPress", set = {{ press = "SnapKVPress", "press.window_size" = 32 }} }}
loose-press = {{ press = "kvpress:KnormPress", set = {{ compression_ratio = 0.7 }} }}
"""


def protocol_of(folder: Path) -> Path:
    head, rest = studies.PROTOCOL.split("[arms]\n")
    text = f"{head}[arms]\n{ARMS}[generation]{rest.split('[generation]')[1]}"
    for old, new in {
        "path:{model}": "chain-llama",
        "budgets = [0.8]": "budgets = [0.5]",
        'subject = "crystal"': 'subject = "snapkv"',
        'against = ["random", "streaming"]': 'against = ["snapkv-press", "ada-press", "loose-press"]\n'
        'beside = ["streaming", "streaming-press", "keydiff", "keydiff-press"]',
        **studies.ONE_TASK,
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir(parents=True)
    (folder / "protocol.toml").write_text(text.format())
    return folder


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory):
    folder = protocol_of(tmp_path_factory.mktemp("presses") / "registrations" / "study")
    for act in ("register", "probe", "confirm"):
        done = studies.here(act, folder)
        assert done.returncode in (0, 10, 11), (act, done.stderr)
    return folder


@pytest.fixture(scope="module")
def lanes(confirmed):
    """By arm and problem, what each lane recorded."""
    (shard,) = (confirmed / "records").glob("*.jsonl")
    found: dict[str, dict[str, Any]] = {}
    for body in (json.loads(line)["body"] for line in shard.read_text().splitlines()):
        found.setdefault(body["cell"]["arm"], {})[body["problem"]] = body
    return found


@pytest.mark.parametrize("ours", PAIRS)
def test_where_both_define_one_rule_texts_and_memory_are_equal(ours, lanes):
    own, theirs = lanes[ours], lanes[PAIRS[ours]]
    assert len(own) == len(theirs) == 12
    for problem, body in own.items():
        assert theirs[problem]["text"] == body["text"]
        assert theirs[problem]["cache"] == body["cache"]


def test_texts_of_one_rule_are_not_those_of_another(lanes):
    texts = [tuple(body["text"] for body in lanes[arm].values()) for arm in (*PAIRS, "full", "loose-press")]
    assert len(set(texts)) == len(texts)


def test_what_a_press_holds_is_recorded_and_judged(confirmed, lanes):
    """Prompts of n tokens at a budget of ceil(n / 2): a mask holds all, a ratio of .7 keeps int(.3 n). The subject is
    never void for holding less than a comparator does.
    """
    for problem, body in lanes["ada-press"].items():
        n = body["prompt_tokens"]
        assert body["cache"]["events"] == [[0, 4 * n, 4 * n]]
        assert lanes["loose-press"][problem]["cache"]["events"] == [[0, 4 * n, 4 * (3 * n // 10)]]
        assert lanes["snapkv-press"][problem]["cache"]["events"] == [[0, 4 * n, 4 * -(-n // 2)]]
    judged = studies.content(confirmed / "verdict.json")["judged"]
    matched = {contrast["against"]: contrast["matched"] for contrast in judged["contrasts"]}
    assert matched == {"snapkv-press": True, "ada-press": True, "loose-press": False}


def test_the_study_audits_and_its_lanes_decode_again(confirmed):
    done = studies.here("audit", confirmed, "--replay", 6, "--json")
    items = {finding["item"]: finding["status"] for finding in json.loads(done.stdout)["findings"]}
    for name in ("lock", "registered", "policies", "sense", "grades", "judgement", "replay"):
        assert items[name] == "held", done.stdout


def test_another_version_of_kvpress_is_not_told_from_here(confirmed, monkeypatch):
    monkeypatch.setattr(press_settings, "kvpress_version", lambda: "0.5.6")
    with pytest.raises(CannotTell, match=r"snapkv-press, .*: is from kvpress '0\.5\.5', but another version is "):
        verify_lock.check_policies(Registration(confirmed))
