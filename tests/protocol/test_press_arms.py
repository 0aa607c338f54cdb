"""A press as an arm, as far as it is told without kvpress: what is refused, and what a lock has to say of it.

tests/parity runs presses.
"""

import sys

import pytest
import studies

from analysis.judgement import arm_text, policy_namesakes
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.presses import supported_presses

PLAIN = studies.PROTOCOL.format(model="/nowhere")
RANDOM = 'random = { policy = "random" }'
PRESS = 'random = { press = "kvpress:SnapKVPress" }'


@pytest.fixture
def without_kvpress(monkeypatch):
    monkeypatch.setitem(sys.modules, "kvpress", None)


THREADS = "threads = 1"
REFUSED = {
    'random = { press = "SnapKVPress" }': 'arms.random.press: write "kvpress:" followed by the name of a press',
    "random = { }": 'arms.random.policy: missing; name one of policy = "..." and press = "kvpress:..."',
    'random = { policy = "random", press = "kvpress:KnormPress" }': "arms.random.policy: cannot be combined with press",
    'random = { press = "kvpress:FinchPress" }': "arms.random.press: FinchPress needs a delimiter token",
    'random = { press = "kvpress:KVzipPress" }': "arms.random.press: KVzipPress feeds the context again",
    'random = { press = "kvpress:SnapPress" }': "unknown press 'SnapPress'; did you mean 'SnapKVPress'?",
    PRESS: "arms.random.press: kvpress cannot be imported here (kvpress); run, in a separate environment: pip install",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_wrong_with_a_press_is_named_without_kvpress(line, without_kvpress):
    with pytest.raises(BadInput, match=r"^[^\n]+$") as refused:
        toml_reader.parse(PLAIN.replace(RANDOM, line).encode(), "protocol.toml")
    assert REFUSED[line] in str(refused.value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("interval = 16", "interval"),
        ('interval = 16\nprompt = "competes"', "interval"),
        ('prompt = "pinned"', "prompt"),
        ("preserve = { prompt = true, recent = 4 }", "preserve"),
    ],
)
def test_what_is_asked_of_every_arm_and_no_press_can_do_is_refused(given, field, without_kvpress):
    text = PLAIN.replace(RANDOM, PRESS).replace(THREADS, f"{THREADS}\n{given}")
    with pytest.raises(BadInput, match=rf"generation.{field}: applies to every arm, but arm 'random' is a"):
        toml_reader.parse(text.encode(), "protocol.toml")


def test_a_press_is_no_candidate_of_a_sweep(without_kvpress):
    text = PLAIN
    for old, new in studies.SWEEP.items():
        text = text.replace(old, new)
    with pytest.raises(BadInput, match=r"sweep.candidates: random is a press, but a sweep"):
        toml_reader.parse(text.replace(RANDOM, PRESS).encode(), "protocol.toml")


def test_registering_a_press_without_kvpress_writes_nothing(tmp_path, tiny_model, without_kvpress):
    folder = studies.write(tmp_path / "study", tiny_model, {RANDOM: PRESS})
    with studies.unchanged(folder):
        assert "pip install 'kvpress==0.5.5'" in studies.ran(2, "register", folder).stderr


def test_every_refusal_gives_a_reason():
    assert all(len(reason.split()) > 3 for reason in supported_presses.REFUSED.values())
    assert not set(supported_presses.REFUSED) & set(supported_presses.RUNNABLE)


# What a lock says of one

ARM = {"press": "kvpress:ChunkKVPress", "set": {"press": "SnapKVPress", "press.window_size": 16}}


def test_an_arm_is_told_by_its_press():
    assert arm_text.describe_arm(ARM) == "press kvpress:ChunkKVPress, press = SnapKVPress, press.window_size = 16"
    assert arm_text.policy_name(ARM) == "kvpress:ChunkKVPress"
    assert policy_namesakes.describe_namesakes({"protocol": {"content": {"arms": {"a": ARM}}}}) == []
