"""Formats of packed keys and values: against gguf, byte by byte, and against their formulas in float64."""

from dataclasses import replace
from fractions import Fraction

import gguf
import numpy as np
import pytest
import torch
from gguf import quants
from looped import looped

import policies
from policies.quantised.channels import ByChannel
from policies.quantised.formats import FORMATS
from policies.quantised.states import STATES, Quantised
from policies.structure import structure
from protocol.lock.promises import state_settings

BLOCKS = {"q8_0": 34, "q5_0": 22, "q4_0": 18}  # bytes of 32 numbers


def numbers():
    """Rows of 64: random ones of every size, and those at which rounding and ties decide."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.exp(3 * torch.randn(600, 1, generator=generator))
    rows = torch.randn(600, 64, generator=generator) * sizes
    rows[0] = 0
    rows[1, :32] = 0
    rows[2, :2] = torch.tensor([9.0, -9.0]) * rows[2].abs().max()  # the first of two of largest size gives the sign
    rows[3, :2] = torch.tensor([-9.0, 9.0]) * rows[3].abs().max()
    rows[4] = torch.arange(64) / 2  # halves, once the scale is 1
    rows[4, 0] = rows[4, 32] = 127
    rows[5] = -rows[4]
    rows[6] = torch.arange(64) / 2
    rows[6, 0] = rows[6, 32] = -16
    rows[7] = (torch.arange(64) - 32) / 4
    rows[8] = 3e-8  # a scale below the smallest of float16
    return rows


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_those_of_gguf_to_the_byte(name):
    kind, ours = gguf.GGMLQuantizationType[name.upper()], FORMATS[name]
    expected = quants.quantize(numbers().numpy(), kind)
    packed = ours.encode(numbers())
    assert packed.dtype == torch.uint8
    assert packed.shape[-1] == ours.row_bytes(64) == 2 * BLOCKS[name]
    assert (packed.numpy() == expected).all()
    assert (ours.decode(packed).numpy() == quants.dequantize(expected, kind)).all()


@pytest.mark.parametrize("name", BLOCKS)
def test_every_byte_is_read_as_gguf_reads_it(name):
    drawn = torch.randint(0, 256, (500, 2, BLOCKS[name]), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    drawn[..., 1] &= 0x7B  # scales that are finite
    rows = drawn.flatten(1)
    read = quants.dequantize(rows.numpy(), gguf.GGMLQuantizationType[name.upper()])
    assert (FORMATS[name].decode(rows).numpy() == read).all()


@pytest.mark.parametrize(("name", "steps"), [("q8_0", 127), ("q5_0", 16), ("q4_0", 8)])
def test_a_number_is_off_by_what_its_formula_allows(name, steps):
    """In float64: half a step of its block, but a whole one at the far end of q5_0 and q4_0, which reach as far as
    their largest number on its side alone; and what float16 rounds of the scale.
    """
    rows = numbers()[:8].double()
    blocks, read = (part.view(-1, 2, 32) for part in (rows, FORMATS[name].decode(FORMATS[name].encode(rows)).double()))
    step = blocks.abs().amax(-1, keepdim=True) / steps
    reach = 0.5 if name == "q8_0" else 1
    assert ((read - blocks).abs() <= reach * step * (1 + 1e-6) + blocks.abs() * 2**-11 + 2**-24 * steps).all()


@pytest.mark.parametrize(("name", "bits"), [("token-4", 4), ("token-2", 2)])
def test_values_by_token_are_those_of_a_loop_over_the_formula_of_kivi(name, bits):
    """Number by number: the group's least number and step in float16, codes from the lowest bits of a byte up."""
    rows, most = numbers()[:60].clamp(-6e4, 6e4), 2**bits - 1
    packed, size = FORMATS[name].encode(rows), 4 + 4 * bits
    assert packed.shape[-1] == FORMATS[name].row_bytes(64) == 2 * size
    read = FORMATS[name].decode(packed)
    for row, (one, stored) in enumerate(zip(rows.numpy(), packed.numpy(), strict=True)):
        for group in range(2):
            own, block = one[32 * group :][:32], stored[size * group :][:size]
            least, step = np.float16(own.min()), np.float16((own.max() - own.min()) / np.float32(most))
            assert block[:4].view(np.float16).tolist() == [least, step]
            for place, number in enumerate(own):
                exact = 0 if step == 0 else round((float(number) - float(least)) / float(step))
                code = block[4 + place * bits // 8] >> place * bits % 8 & most
                near = 0 if step == 0 else (float(number) - float(least)) / float(step)
                assert code == min(max(exact, 0), most) or abs(abs(near - code) - 0.5) < 1e-4  # a tie of float32
                assert read[row, 32 * group + place] == pytest.approx(float(least) + float(step) * code, rel=1e-6)


@pytest.mark.parametrize("bits", [4, 2])
def test_keys_by_channel_are_those_of_a_loop_over_the_formula_of_kivi(bits):
    """Channel by channel over 32 slots: a slot's codes from the lowest bits up, then its 32nd part of the heads."""
    rows, most, width = numbers()[:64, :16].clamp(-6e4, 6e4), 2**bits - 1, 16
    packing = ByChannel(bits)
    packed = packing.encode(rows)
    assert packed.shape[-1] == packing.row_bytes(width) == width * bits // 8 + width // 8
    read = packing.decode(packed)
    for group, (own, stored) in enumerate(
        zip(rows.numpy().reshape(2, 32, -1), packed.numpy().reshape(2, 32, -1), strict=True)
    ):
        heads = stored[:, width * bits // 8 :].reshape(-1).view(np.float16)
        for channel in range(width):
            column = own[:, channel]
            least, step = np.float16(column.min()), np.float16((column.max() - column.min()) / np.float32(most))
            assert heads[2 * channel : 2 * channel + 2].tolist() == [least, step]
            for slot, number in enumerate(column):
                near = 0 if step == 0 else (float(number) - float(least)) / float(step)
                code = stored[slot, channel * bits // 8] >> channel * bits % 8 & most
                assert code == min(max(round(near), 0), most) or abs(abs(near - code) - 0.5) < 1e-4  # a tie of float32
                assert read[32 * group + slot, channel] == pytest.approx(float(least) + float(step) * code, rel=1e-6)


@pytest.mark.parametrize(("bits", "offset"), [(4, 60), (2, 300)])
def test_groups_that_lose_no_slot_keep_their_bytes_when_they_are_packed_anew(bits, offset):
    """Of every offset up to so many times the spread. float16 rounds a least number by up to 2^-11 of it, which is
    half a step at 2^11 / 30 = 68 and 2^11 / 6 = 341 times: far beyond, codes do change.
    """
    assert changed_bytes(bits, numbers()[:576]) == 0
    spread = torch.rand(20_000, 32, 8, generator=torch.Generator().manual_seed(3)) * torch.linspace(0.1, 1, 8)
    spread[:, 0], spread[:, 1] = 0, 1
    for sign in (1, -1):
        least = sign * offset * torch.rand(20_000, 1, 8, generator=torch.Generator().manual_seed(4))
        assert changed_bytes(bits, (least + spread).flatten(0, 1)) == 0
        assert changed_bytes(bits, (20 * least + spread).flatten(0, 1)) > 0


def changed_bytes(bits, keys):
    packed = ByChannel(bits).encode(keys)
    return int((ByChannel(bits).encode(ByChannel(bits).decode(packed)) != packed).sum())


def test_f16_is_the_number_of_16_bits():
    half = FORMATS["f16"]
    assert half.encode(numbers()).numpy().tobytes() == numbers().numpy().astype("<f2").tobytes()
    assert half.decode(half.encode(numbers())).equal(numbers().half().float())


def e4m3(code):
    """The number of a byte: 1 sign, 4 exponent, 3 mantissa bits, bias 7; None for NaN."""
    exponent, mantissa = code >> 3 & 15, Fraction(code & 7, 8)
    if code & 127 == 127:
        return None
    size = mantissa * Fraction(2) ** -6 if exponent == 0 else (1 + mantissa) * Fraction(2) ** (exponent - 7)
    return float(-size if code >> 7 else size)


def test_fp8_is_the_nearest_e4m3_and_the_largest_for_what_is_beyond():
    fp8, codes = FORMATS["fp8"], [code for code in range(256) if code & 127 != 127]
    known = torch.tensor([e4m3(code) for code in codes], dtype=torch.float64)
    assert fp8.decode(torch.tensor(codes, dtype=torch.uint8)).double().equal(known)
    drawn = numbers().double().clamp(-600, 600)
    nearest = (drawn[..., None].clamp(-448, 448) - known).abs().amin(-1)
    read = fp8.decode(fp8.encode(drawn)).double()
    assert ((read - drawn.clamp(-448, 448)).abs() - nearest).abs().max() < 1e-12
    assert fp8.decode(fp8.encode(torch.tensor([1e9, -torch.inf]))).tolist() == [448, -448]
    assert fp8.decode(fp8.encode(torch.tensor([torch.nan]))).isnan().all()  # the lane fails and does not go on


@looped("name", FORMATS)
def test_a_vector_is_packed_alone_whatever_stands_beside_it(name):
    """One by one, of several heads and lanes, as views, in every precision that a model has."""
    ours, rows = FORMATS[name], numbers()[:24]
    alone = torch.stack([ours.encode(row) for row in rows])
    assert ours.encode(rows.view(2, 3, 4, 64)).equal(alone.view(2, 3, 4, -1))
    assert ours.encode(rows.view(4, 6, 64).transpose(0, 1)).equal(alone.view(4, 6, -1).transpose(0, 1))
    wide = torch.zeros(24, 3, alone.shape[-1], dtype=torch.uint8)
    wide[:, 1] = alone
    assert ours.decode(wide[:, 1]).equal(ours.decode(alone))
    assert ours.encode(rows[:0]).shape == (0, ours.row_bytes(64))
    assert ours.decode(alone[:0]).shape == (0, 64)
    for dtype in (torch.float64, torch.bfloat16):
        assert ours.encode(rows.to(dtype)).equal(ours.encode(rows.to(dtype).float()))


@looped(("state", "size"), [("q8_0", 136), ("q5_0", 88), ("q4_0", 72), ("fp8", 128), ("token-4", 80), ("token-2", 48)])
def test_the_state_of_any_policy_is_set_by_its_name(state, size):
    parent = policies.get("1d")
    child = policies.get("1d", {"state": state})
    assert policies.diff(parent, child) == {"state": (parent.state, STATES[state])}
    assert not child.promises.stores_as_computed
    assert child.promises == parent.promises._replace(stores_as_computed=False)
    assert child.state.slot_bytes(64, 4) == child.state.slot_bytes(64, 2) == size
    assert policies.get("1d", {"state": "verbatim"}) == parent


@looped("state", STATES)
def test_an_audit_without_torch_knows_the_settings_of_a_state(state):
    settings = structure(policies.get("1d", {"state": state}))
    locked = {path: text.strip("'") for path, text in settings.items() if path.partition(".")[0] == "state"}
    assert state_settings(state) == locked


def test_keys_and_values_may_have_a_format_each():
    child = policies.get("snapkv", {"state": "q8_0", "state.values": "q4_0", "scoring.window": 8})
    assert child == replace(policies.get("snapkv", {"scoring.window": 8}), state=Quantised("q8_0", "q4_0"))
    assert child.state.slot_bytes(64, 4) == 68 + 36


@looped(
    ("name", "settings", "says"),
    [
        ("1d", {"state": "q80"}, "state: no state is named 'q80'; did you mean 'q8_0'"),
        ("1d", {"state": 4}, "state: no state is named 4; write one of"),
        ("1d", {"state": ["q8_0"]}, "state: no state is named"),
        ("1d", {"state": "q8_0", "state.keys": "int8"}, "state.keys: keys has no format 'int8'; write one of"),
        ("1d", {"state.keys": "q8_0"}, "state.keys: no setting of the policy"),
        ("syn_mem", {"state": "q8_0"}, "state: StaticHybrid is the subject of this policy"),
        ("subspace", {"state": "verbatim"}, "state: Subspace is the subject of this policy"),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(name, settings, says):
    with pytest.raises(ValueError, match=says.replace("[", r"\[")) as refusal:
        policies.get(name, settings)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("state", "recent", "apart"), [("kivi-2", 32, 8192), ("kivi-4", 128, 32768)])
def test_kivi_holds_its_latest_slots_in_sixteen_bits(state, recent, apart):
    policy = policies.get("full", {"state": state, "state.recent": recent})
    assert policy.recent_bytes(64) == recent * 2 * 64 * 2 == apart
    assert policies.get("full", {"state": "q4_0"}).recent_bytes(64) == policies.get("full").recent_bytes(64) == 0
    for setting, says in (({"state.recent": 48}, "write a multiple of 32"), ({"state.bits": 3}, "write 2 or 4")):
        with pytest.raises(ValueError, match=says):
            policies.get("full", {"state": state, **setting})


def test_a_head_of_no_whole_blocks_is_refused_by_its_width():
    with pytest.raises(ValueError, match=r"q4_0 packs blocks of 32 numbers, but a head has 80; choose fp8"):
        policies.get("full", {"state": "q4_0"}).refuse_width(80)
    policies.get("full", {"state": "fp8"}).refuse_width(80)
