"""Machines: names as people write them, one line for what is none, a file of constants of one's own."""

import json
import re

import pytest

from protocol.formats.refusals import BadInput
from protocol.instruments.planning import machines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8xA100-80G", (8, "A100-80G")),
        ("2 x h100_80gb", (2, "H100-80G")),
        ("H200", (1, "H200")),
        ("RTX 4090", (1, "4090")),
        ("4xl40s", (4, "L40S")),
        ("CPU", (1, "CPU")),
    ],
)
def test_a_machine_is_known_however_it_is_spelled(text, found):
    made = machines.find_machine(text)
    assert (made.devices, made.name) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8xA100", "unknown machine 'A100'; did you mean A100-40G or A100-80G?"),
        ("B200", "did you mean 'H200'?"),
        ("0xH200", "0 devices; write 1 to 4096"),
        ("", "write a machine"),
        ("nothing.toml", "no such file"),
    ],
)
def test_what_is_no_machine_is_refused_in_one_line(text, said):
    with pytest.raises(BadInput) as refused:
        machines.find_machine(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


OWN = {"memory": 96e9, "bandwidth": 1.6e12, "flops": {"bfloat16": 250e12}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory": 0}, "memory: write a number above 0"),
        ({"bandwidth": "fast"}, "bandwidth: write a number above 0"),
        ({"flops": {"int8": 1}}, "flops: write flops"),
        ({"memry": 1}, "memry: unknown; did you mean 'memory'?"),
        ({"share": {"bandwidth": 0.5}}, "share: unknown"),
        ({"accelerator": "yes"}, "accelerator: write true or false"),
    ],
)
def test_a_file_of_constants_is_read_strictly(tmp_path, change, said):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({**OWN, **change}))
    with pytest.raises(BadInput, match=re.escape(said)):
        machines.find_machine(f"2x{path}")


def test_rates_are_shares_of_the_peaks_and_the_pessimistic_one_is_slower_in_everything(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(OWN))
    made = machines.find_machine(str(path))
    worst, middle, best = machines.machine_rates(made, "bfloat16")
    assert middle.bandwidth == pytest.approx(0.6 * 1.6e12)
    for name in ("flops", "bandwidth", "load"):
        assert getattr(worst, name) < getattr(middle, name) < getattr(best, name)
    for name in ("layer", "lane", "join", "event", "logit", "noise"):
        assert getattr(worst, name) > getattr(middle, name) > getattr(best, name)
    with pytest.raises(BadInput, match="flops: has no rate for float32"):
        machines.machine_rates(made, "float32")


def test_every_machine_has_its_peaks_and_a_source_before_it():
    text = machines.DATA.read_text()
    for name in machines.load_constants()["machines"]:
        made = machines.find_machine(name)
        assert made.memory > 1e9
        assert {"bfloat16", "float32"} == made.flops.keys()
    assert text.count("https://") >= 5
    assert machines.load_constants()["assumed"]["date"].isoformat() in text
