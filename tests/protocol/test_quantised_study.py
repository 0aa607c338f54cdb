"""A study of quantised slots at equal bytes, from its registration to its audit, and what is refused of one."""

import json

import pytest
import studies

from analysis.judge import judge
from protocol.evidence import records

pytestmark = pytest.mark.usefixtures("same_environment")

# A slot of 32 + 32 numbers in float32 takes 256 bytes; packed 2 x 34 or 2 x 18. Prompts have about 210 tokens.
PACKED = {
    **studies.ONE_TASK,
    "budgets = [0.8]": 'budgets = ["bytes of 48"]',
    'crystal = { policy = "crystal-token-level" }': 'both = { policy = "h2o", set = { state = "q4_0" } }',
    'random = { policy = "random" }': 'evicted = { policy = "h2o" }',
    'streaming = { policy = "streaming" }': (
        'kivi = { policy = "h2o", set = { state = "kivi-2" } }\n'
        'eighths = { policy = "full", set = { state = "q8_0" } }\n'
        'few = { policy = "full", set = { state = "quest", "state.tokens" = 48, "state.dense_layers" = 1 } }\n'
        'fourths = { policy = "streaming", set = { state = "q8_0", "state.keys" = "q4_0", "state.values" = "q4_0" } }'
    ),
    'subject = "crystal"': 'subject = "both"',
    'against = ["random", "streaming"]': 'against = ["evicted", "eighths", "few", "fourths", "kivi"]',
    'memory = "slots"': 'memory = "bytes"',
    "threads = 1": "threads = 1\ninterval = 16",
}
# 12,288 bytes over 36, 256, 68, 36, and less the 4,096 of 32 slots in 16 bits over 24.
SLOTS = {"both": 341, "evicted": 48, "fourths": 341, "kivi": 341}
APART = {"kivi": 4096}
HEADS = 2 * 2


def fed_tokens(body):
    return body["tokens"] - (body["stop"] == "length")


def test_a_study_at_equal_bytes_is_registered_confirmed_and_audited(tmp_path, wide_model):
    folder = studies.write(tmp_path / "registrations" / "packed", wide_model, PACKED)
    done = studies.ran(0, "register", folder)
    assert (
        "a slot of kivi takes 24 bytes in each head of a layer; its latest slots take another 4096 bytes" in done.stdout
    )
    assert "both, eighths, fourths, kivi unpack the slots of one layer at a time" in " ".join(done.stdout.split())
    locked = studies.content(folder / "lock.json")
    (sizes,) = (entry["arms"] for entry in locked["slot_bytes"].values())
    assert {arm: entry["slots"]["bytes of 48"] for arm, entry in sizes.items() if "slots" in entry} == SLOTS
    assert {cell[3] for cell in locked["grid"] if cell[2] == "full"} == {"full"}
    assert locked["policies"]["both"]["state.keys"] == "'q4_0'"
    studies.ran((10, 11, 12), "confirm", folder)
    cells = [json.loads(line)["body"] for line in studies.shard_text(folder).splitlines()]
    for body in cells:
        arm, cache = body["cell"]["arm"], body["cache"]
        if arm == "full":
            continue
        size, told = sizes[arm]["bytes"], records.read_trajectory(folder / "records", body["trajectory"])
        if arm not in SLOTS:  # never evicts: no budget, all slots, in whole blocks of 16 as computed
            assert (body["slots"], cache["events"], cache["granted"]) == (None, [], [])
            assert told["held"][-1] == (body["prompt_tokens"] + fed_tokens(body)) * HEADS
            assert size == {"eighths": 68, "few": 256}[arm]
            # Half of the layers read all; of the others 48 of some 210 slots and a bound for 16, in each head.
            assert ("reads" in cache) == (arm == "few")
            if arm == "few":
                assert 0.5 < float(cache["reads"]) / float(cache["mean"]) < 0.85
            continue
        assert max(told["held"]) <= HEADS * (SLOTS[arm] + 16 * 256 // size)  # and the tokens between two events
        # What fits is kept: 341 slots are more than a prompt and its answer.
        assert (cache["events"][0][2] == body["prompt_tokens"] * HEADS) == (arm in ("both", "fourths", "kivi"))
        # Allocated is, in each head, what fits of whole slots into a multiple of the 4,096 bytes of 16 as computed.
        for held, allocated in zip(told["held"], told["allocated"], strict=True):
            slots, rest = divmod(allocated - HEADS * APART.get(arm, 0), HEADS * size)
            assert rest == 0
            assert slots == -(-slots * size // 4096) * 4096 // size
            assert slots * HEADS >= held
    judged = judge(folder)
    reads = {row["arm"]: float(row["mean_reads"]) / float(row["mean_slots"]) for row in judged["arms"]}
    assert (reads.pop("few") < 0.85, {*reads.values()}) == (True, {1.0})
    assert {row["memory"]["by"] for row in judged["contrasts"]} == {"bytes"}
    studies.ran(0, "audit", folder)
    # An audit without torch reads the name of a state, and finds another format in the lock.
    studies.edit(folder / "protocol.toml", 'state = "q4_0"', 'state = "q5_0"')
    assert studies.here("audit", folder).returncode != 0


READ = {
    **studies.ONE_TASK,
    "budgets = [0.8]": "budgets = [150]\nneighbours = [140]",
    'crystal = { policy = "crystal-token-level" }': (
        'few = { policy = "full", set = { state = "quest", "state.tokens" = 48, "state.dense_layers" = 1 } }'
    ),
    'subject = "crystal"': 'subject = "few"',
    'memory = "slots"': 'memory = "reads"',
    "threads = 1": "threads = 1\ninterval = 4",
}


@pytest.mark.soak
def test_a_study_at_equal_reads_is_registered_confirmed_and_audited(tmp_path, wide_model):
    """Every lane has its reads. Those of an arm that evicts are what its trajectory gives, by a plain loop."""
    folder = studies.write(tmp_path / "registrations" / "read", wide_model, READ)
    studies.ran(0, "register", folder)
    studies.ran((10, 11, 12), "confirm", folder)
    bodies = [json.loads(line)["body"] for line in studies.shard_text(folder).splitlines()]
    assert {body["cell"]["arm"] for body in bodies} == {"full", "few", "random", "streaming"}
    for body in bodies:
        held, reads = records.read_trajectory(folder / "records", body["trajectory"])["held"], 0
        for step in range(fed_tokens(body)):
            reads += held[step] + HEADS
        expected = reads / (HEADS * fed_tokens(body))
        if body["cell"]["arm"] == "few":
            assert float(body["cache"]["reads"]) < 0.9 * expected
        else:
            assert float(body["cache"]["reads"]) == pytest.approx(expected, abs=1e-6)
    judged = judge(folder)
    means = {(row["arm"], row["budget"]): float(row["mean_reads"]) for row in judged["arms"]}
    for row in judged["contrasts"]:
        assert row["memory"]["by"] == "reads"
        ratio = means["few", "150"] / means[row["against"], "150"]
        assert float(row["cache_ratio"]) == pytest.approx(ratio, abs=1e-4)
    studies.ran(0, "audit", folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"bytes of 48"', '"bytes of 16"', 'including 16384 for its latest slots; write "bytes of 17" or more'),
        ('memory = "bytes"', 'memory = "slots"', "equal slots are not equal memory"),
        ('memory = "bytes"', 'memory = "reads"', "equal slots are not equal memory"),
    ],
)
def test_what_no_study_of_them_can_be_is_refused_in_one_line(tmp_path, wide_model, old, new, says):
    folder = studies.write(tmp_path / "registrations" / "refused", wide_model, PACKED)
    studies.edit(folder / "protocol.toml", old, new)
    refused = studies.ran(2, "register", folder)
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["protocol.toml"]
