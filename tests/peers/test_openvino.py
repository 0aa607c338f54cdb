"""OpenVINO GenAI decodes arms of a study: the bytes that it reports are those of its blocks, evicted or not."""

import csv
import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from protocol import tasks
from protocol.adapters import openvino_arm
from protocol.formats.files import cache_home
from protocol.models import load
from protocol.tasks import prompting
from splits import manifest

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not find_spec("openvino_genai"), reason="openvino-genai is not installed"),
]
TASK, MODEL = "needle-topics-768", "smollm2-135m"
TOKEN_BYTES = 30 * 3 * 64 * 2 * 2  # of SmolLM2: layers, KV heads, numbers of a head; keys and values in 16 bits
KEEP, BLOCK = 96, 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three development problems of which two are released; fetches the model."""
    folder = tmp_path_factory.mktemp("openvino")
    count = prompting.counter(load.tokenizer(MODEL, cache_home()))
    names = sorted(manifest.load(TASK).dev)[:3]
    built = [tasks.get(TASK).build(name, count) for name in names]
    rows = [
        {"id": each.id, "context": each.context, "question": each.question, "answer": each.gold, "prefix": each.prefix}
        for each in built
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "released.json").write_text(json.dumps({"needles": names[1:]}))
    return folder


def decode(folder, name, *options):
    out = folder / f"{name}.csv"
    arguments = [folder / "problems.jsonl", "--released", folder / "released.json", "--out", out, *options]
    assert openvino_arm.main([*map(str, arguments)]) == 0
    with out.open() as file:
        return list(csv.DictReader(file))


def test_bytes_are_those_of_blocks_and_an_eviction_leaves_what_was_asked_for_and_one_block(folder):
    whole = decode(folder, "f16", "--precision", "f16")
    evicts = decode(folder, "evicts", "--precision", "f16", "--keep", str(KEEP))
    packed = decode(folder, "u8", "--precision", "u8")
    for row, cut, small in zip(whole, evicts, packed, strict=True):
        fed = int(row["prompt_tokens"]) + int(row["new_tokens"]) - 1
        assert int(row["last_cache_bytes"]) == pytest.approx(-(-fed // BLOCK) * BLOCK * TOKEN_BYTES, abs=9)
        assert int(cut["last_cache_bytes"]) == pytest.approx((KEEP + BLOCK) * TOKEN_BYTES, abs=9)
        assert int(cut["last_cache_bytes"]) < int(cut["mean_cache_bytes"]) < int(row["mean_cache_bytes"])
        assert 0.5 < int(small["mean_cache_bytes"]) / int(row["mean_cache_bytes"]) < 0.6
    assert {row["score"] for row in whole} <= {"0", "1"}
    assert len(whole) == 2


def test_a_process_that_is_killed_between_two_answers_is_continued_to_the_same_file(folder):
    out = folder / "killed.csv"
    unfinished = out.with_name("killed.csv.unfinished")
    whole = decode(folder, "whole", "--precision", "u8")
    command = [sys.executable, "-m", "protocol.adapters.openvino_arm", folder / "problems.jsonl"]
    command += ["--released", folder / "released.json", "--out", out, "--precision", "u8"]
    process = subprocess.Popen([*map(str, command)])
    while not unfinished.exists() or unfinished.read_bytes().count(b"\n") < 2:  # the settings, and a row
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    begun = unfinished.read_text().splitlines()
    assert json.loads(begun[1])["id"] == whole[0]["id"]
    assert decode(folder, "killed", "--precision", "u8") == whole
    assert not unfinished.exists()
