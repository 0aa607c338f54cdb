"""The example of docs/machines.md: what the page shows is what the command prints, and a reader counts."""

import json
import re

import pytest
import studies

PAGE = (studies.ROOT / "docs" / "machines.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("planned")
    (text,) = (text for kind, text in BLOCKS if kind == "toml" and "[decision]" in text)
    (made / "protocol.toml").write_text(text)
    return made


def rehearsed(folder, *arguments):
    return studies.here("rehearse", folder, "--on", "8xA100-80G", "--price", 15, "--prompt-tokens", 256, *arguments)


def test_the_page_prints_what_the_command_prints(folder):
    done = rehearsed(folder)
    assert done.returncode == 0, done.stderr
    (shown,) = (text for kind, text in BLOCKS if not kind and text.startswith("on 8 x"))
    printed = done.stdout.splitlines()
    assert [line for line in shown.splitlines() if line not in printed] == []


def test_the_derivation_of_the_page_gives_the_numbers_of_the_command(folder):
    """Steps 1 to 6 in plain numbers, none of them from the code."""
    values = json.loads(rehearsed(folder, "--json").stdout)
    part = next(each for each in values["parts"] if each["phase"] == "confirm" and "Qwen" in each["model"])
    steps, lanes = 2 * 4096, 60
    read, multiplied = 7_615_616_512 * 2, 6_525_288_448 + 544_997_376
    weights = max(read / (2.039e12 * 0.6), 2 * lanes * multiplied / (312e12 * 0.45))
    held = 6 * (256 + 2048)
    for budget in (256, 512, 1024):
        grows = budget + 128 - 256
        grown = sum(256 + step + 0.5 for step in range(grows)) + (4096 - grows) * (budget + 64)
        held += 18 * grown / 4096
    slots = 2 * held * 57_344 / (2.039e12 * 0.6)
    launches = 28 * 7e-4
    sampling = 152_064 * (lanes * 5e-9 + 6 * 2e-8)
    spent = part["spent"]
    assert spent["weights"] == pytest.approx(steps * weights, rel=1e-4)
    assert spent["slots"] == pytest.approx(steps * slots, rel=1e-4)
    assert spent["sampling"] == pytest.approx(steps * sampling, rel=1e-4)
    host = max(0, launches - weights - slots) + lanes * 28 * 2e-6
    assert spent["host"] == pytest.approx(steps * host, rel=1e-4)
    for said in (
        f"{1000 * weights:.2f} ms", f"{1000 * slots:.2f} ms", f"{1000 * sampling:.1f} ms",
        f"{round(held):,} slots", f"{1000 * launches:.1f} ms",
    ):  # fmt: skip
        assert said in PAGE, said
    batches = sum(16 * p["seconds_of_a_batch"]["expected"] for p in values["parts"] if p["phase"] == "confirm")
    probes = sum(2 * p["seconds_of_a_batch"]["expected"] for p in values["parts"] if p["phase"] == "probe")
    loading = 2 * 2 * (7_615_616_512 + 7_248_023_552) / 5e8
    assert values["hours"]["expected"] == pytest.approx((batches + probes + loading) / 3600, rel=1e-3)
    assert values["cost"]["expected"] == pytest.approx(15 * values["hours"]["expected"], rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tokens", 5), "--on: runs nothing"),
        (("--price", 0), "--price 0: write a number above 0"),
        (("--answer-tokens", 0), "--answer-tokens 0: write 1 to"),
        (("--shape", "a=b"), "--shape a=b: write MODEL=FILE"),
        (("--on", "8xA100"), "did you mean A100-40G or A100-80G?"),
    ],
)
def test_wrong_input_is_one_line_and_says_the_fix(folder, arguments, said):
    done = rehearsed(folder, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()[-1:]) == 1


def test_a_lane_that_does_not_fit_is_said_so(folder):
    done = rehearsed(folder, "--on", "A10G", "--json")
    parts = json.loads(done.stdout)["parts"]
    assert all(part["lanes_at_once"] == 60 for part in parts)
    assert not any(part["fits"] for part in parts if "Mistral" in part["model"])
    assert "of 60 lanes at once fit" in rehearsed(folder, "--on", "A10G").stdout


def test_slots_that_a_state_holds_apart_take_memory_in_every_lane(folder, tmp_path):
    """A packed slot of kivi-2 takes the bytes of one of token-2; 32 slots of 16 bits are apart, in each head."""
    text, at_once = (folder / "protocol.toml").read_text(), []
    for state in ("kivi-2", "token-2"):
        packed = re.sub(r'policy = "(r-kv|snapkv|streaming)"', rf'\g<0>, set = {{ state = "{state}" }}', text)
        (tmp_path / "protocol.toml").write_text(packed)
        parts = json.loads(rehearsed(tmp_path, "--json").stdout)["parts"]
        at_once.append(next(p["bytes"]["at_once"] for p in parts if p["phase"] == "confirm" and "Qwen" in p["model"]))
    full = 4 * 3  # of 60 lanes at once, four problems and three seeds
    assert at_once[0] - at_once[1] == (60 - full) * 28 * 4 * 32 * 2 * 128 * 2
