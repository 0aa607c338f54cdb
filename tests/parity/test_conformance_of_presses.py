"""`kv_prereg.conformance` on the presses of kvpress 0.5.5: which laws each keeps, and which it breaks by design."""

import pytest
import torch
import transformers

import policies
from kv_prereg.conformance import CacheLaws
from policies import Protect
from policies.snapkv import snapkv
from protocol.presses import press_settings, supported_presses

try:
    kvpress = press_settings.import_kvpress()
except ValueError:
    pytest.skip("kvpress is not installed here: run `make parity`", allow_module_level=True)


WRAPPING = {"AdaKVPress", "BlockPress", "ChunkKVPress", "ChunkPress", "CriticalAdaKVPress", "CriticalKVPress"}
WRAPPING |= {"EntropyGatedChunkKVPress", "KeyRerotationPress", "MergingPress"}
REFERENCES = {
    "KeyDiffPress": "keydiff",
    "KnormPress": "knorm",
    "SnapKVPress": snapkv(window=16, kernel=5),
    "StreamingLLMPress": "streaming",
    "TOVAPress": policies.get("tova", protect=Protect(sinks=0, recent=1)),
}
EXACT, MEMORY, ALIKE = (
    next(law for law in vars(CacheLaws) if part in law) for part in ("slots_of_the_full", "memory", "alike")
)
BROKEN = {
    "AdaKVPress": {EXACT, MEMORY},  # masks what it evicts
    "CriticalAdaKVPress": {EXACT, MEMORY},
    "ThinKPress": {EXACT, MEMORY},  # sets channels of keys to zero
    "ChunkKVPress": {EXACT},  # whole chunks of 20
    "PyramidKVPress": {EXACT, MEMORY},  # more slots for the first layers, and a slot too many
    "KeyRerotationPress": {EXACT},  # turns keys to new positions
    "MergingPress": {EXACT},  # averages
    "RandomPress": {ALIKE},  # draws from torch's stream
}
MAY_BREAK = {"CompactorPress": {ALIKE}}  # draws a sketch from it: on some processors the slots are the same ones


class PressLaws(CacheLaws):
    def __init__(self, name):
        self.name, self.reference = name, REFERENCES.get(name)

    def network(self):
        network = super().network()
        network.set_attn_implementation("eager" if self.name in supported_presses.EAGER else "sdpa")
        return network

    def compress(self, network, context, ratio):
        cache, fewer = transformers.DynamicCache(), 0.5 / context.shape[1]  # kvpress truncates in floats
        with torch.no_grad(), make_press(self.name, max(0, ratio - fewer))(network):
            network(context, past_key_values=cache)
        return cache


def make_press(name, ratio):
    if name == "ThinKPress":
        return kvpress.ThinKPress(key_channel_compression_ratio=ratio)
    if name == "PerLayerCompressionPress":
        return kvpress.PerLayerCompressionPress(kvpress.KnormPress(), [ratio, ratio])
    if name == "SnapKVPress":
        return kvpress.SnapKVPress(ratio, window_size=16)  # 64 slots of its own are more than the least budget
    press = getattr(kvpress, name)(*[kvpress.SnapKVPress(window_size=16)] * (name in WRAPPING))
    press.compression_ratio = ratio
    return press


@pytest.mark.parametrize("name", sorted({*supported_presses.RUNNABLE} - {"SimLayerKVPress"}))  # it has no ratio
def test_a_press_keeps_every_law_but_those_that_it_breaks_by_design(name):
    broken, always = PressLaws(name).broken().keys(), BROKEN.get(name, set())
    assert always <= broken <= always | MAY_BREAK.get(name, set())


def test_another_press_is_not_taken_for_the_reference():
    laws = PressLaws("SnapKVPress")
    laws.reference = snapkv(window=16, kernel=7)
    assert [*laws.broken()] == [next(law for law in vars(CacheLaws) if "the_reference" in law)]
