import contextlib
import gzip
import hashlib
import io
import json
import random
import subprocess
import sys

import finished_study
import pytest
import studies
from finished_study import body

from protocol.evidence import record_lines, records
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical, record_fields, shards
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock

COSTS = {"attempt": 1, "prefill_seconds": "0.1"}
CELL = body("0" * 64, "full", "p3")["cell"]
CACHE = body("0" * 64, "full", "p3")["cache"]

# Appends records one at a time for ever, and says so once each is on disk.
APPEND = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from finished_study import body
from protocol.evidence import records
from protocol.evidence.shard_writer import ShardWriter

with ShardWriter(Path(sys.argv[1])) as shard:
    number = 0
    while True:
        lane = body("0" * 64, "crystal", f"p{number}")
        if records.body_key(lane) not in shard:
            shard.append([(lane | {"text": "x" * 5000}, {"attempt": 1})])
            print(f"p{number}", flush=True)
        number += 1
"""


@pytest.fixture
def place(tmp_path):
    with ShardWriter(tmp_path / "records") as shard:
        shard.append([(body("0" * 64, "full", "p2"), COSTS), (body("0" * 64, "crystal", "p2"), COSTS)])
        shard.append([(body("0" * 64, "crystal", "p3"), COSTS)])
    return tmp_path / "records"


def test_hash_and_chain_are_what_the_documentation_says(place):
    chain = "0" * 64
    for line in (place / "shard-0.jsonl").read_bytes().splitlines():
        record = json.loads(line)
        signed = canonical.dumps({"body": record["body"], "costs": record["costs"]})
        assert record["sha256"] == hashlib.sha256(signed).hexdigest()
        chain = hashlib.sha256((chain + record["sha256"]).encode("ascii")).hexdigest()
        assert record["chain"] == chain
    assert len(records.read_records(place)) == 3


def test_no_acknowledged_record_is_lost_when_the_writer_is_killed(tmp_path):
    acknowledged = set()
    for round_ in range(4):
        command = [sys.executable, "-c", APPEND, str(tmp_path), finished_study.__file__.rpartition("/")[0]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(random.Random(round_).randrange(1, 30)):
                acknowledged.add(child.stdout.readline().strip())
            child.kill()
            acknowledged |= {line.strip() for line in child.stdout if line.endswith("\n")}
        found = [record["body"]["problem"] for record in records.read_records(tmp_path)]
        assert acknowledged <= set(found)
        assert len(found) == len(set(found))


LANES = [
    *(body("0" * 64, "full", f"p{number}") | {"text": f"answer {number}"} for number in range(100)),
    body("0" * 64, "full", "p100") | {"tokens": 2**53 - 1},  # valid, but not of the form of most lines
    *(body("0" * 64, "full", f"p{number}") for number in range(101, 200)),
]


@pytest.fixture(params=["parsed together", "one by one"])
def many(request, tmp_path, monkeypatch):
    """A shard of more lines than are parsed together, read from memory and from its file."""
    with ShardWriter(tmp_path / "records") as shard:
        shard.append([(lane, COSTS) for lane in LANES])
    if request.param == "one by one":
        monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)
    return tmp_path / "records" / "shard-0.jsonl"


def test_lines_that_are_parsed_together_are_what_each_is_alone(many):
    content = record_lines.read_shard(many)
    assert list(content.records) == [json.loads(line) for line in many.read_bytes().splitlines()]
    assert [record["body"] for record in content.records] == LANES
    assert (content.torn, content.size, content.sha256) == (
        0,
        many.stat().st_size,
        hashlib.sha256(many.read_bytes()).hexdigest(),
    )


@pytest.mark.parametrize("number", [1, 32, 33, 101, 102, 200])
@pytest.mark.parametrize(
    ("was", "now"), [(b'"stop":"eos"', b'"stop":"aha"'), (b'"text":"', b'"text":"\xff'), (b"{", b"[")]
)
def test_the_first_line_that_was_edited_is_named(many, number, was, now):
    lines = many.read_bytes().splitlines(keepends=True)
    for edited in sorted({number, 200}):
        assert was in lines[edited - 1]
        lines[edited - 1] = lines[edited - 1].replace(was, now, 1)
        many.write_bytes(b"".join(lines))
        with pytest.raises(Tampered, match=rf"^shard-0\.jsonl:{number}: "):
            record_lines.read_shard(many)


@pytest.mark.parametrize("number", [1, 33, 64])
def test_a_body_that_contradicts_its_state_is_named_among_many(many, number):
    chain, lines = "0" * 64, []
    for position, lane in enumerate(LANES, 1):
        changed = lane | {"reason": "none"} if position == number else lane
        line, chain = record_lines.format_line(canonical.dumps(changed), canonical.dumps(COSTS), chain)
        lines.append(line + b"\n")
    many.write_bytes(b"".join(lines))
    with pytest.raises(Tampered, match=rf"^shard-0\.jsonl:{number}: body\.reason: must be empty in the state ok$"):
        record_lines.read_shard(many)


@pytest.mark.parametrize("number", [1, 32, 33, 64, 101, 102])
def test_a_line_that_was_removed_is_missed_at_the_next(many, number):
    lines = many.read_bytes().splitlines(keepends=True)
    many.write_bytes(b"".join(lines[: number - 1] + lines[number:]))
    with pytest.raises(Tampered, match=rf"^shard-0\.jsonl:{number}: does not continue the line before"):
        record_lines.read_shard(many)


class Growing(io.BytesIO):
    """A file to which the rest of a torn line is appended as soon as that line is read."""

    rest = b""

    def readline(self, size=-1):
        line = super().readline(size)
        if not line.endswith(b"\n") and self.rest:
            end = self.tell()
            self.seek(0, io.SEEK_END)
            self.write(self.rest)
            self.seek(end)
            self.rest = b""
        return line


def test_a_torn_line_whose_rest_is_written_meanwhile_stays_torn(many, monkeypatch):
    whole = many.read_bytes()
    growing = Growing(whole[:-300])
    growing.rest = whole[-300:]
    monkeypatch.setattr(shards, "open_shard", lambda path: contextlib.nullcontext(growing))
    content = record_lines.read_shard(many)
    assert [record["body"] for record in content.records] == LANES[:-1]
    assert content.torn == len(whole.splitlines()[-1]) - 299


def test_lines_after_a_torn_tail_and_before_it(many):
    whole = many.read_bytes()
    for cut in (1, 300, len(whole) // 2):
        many.write_bytes(whole[:-cut])
        content = record_lines.read_shard(many)
        n_whole = whole[:-cut].count(b"\n")
        assert [record["body"] for record in content.records] == LANES[:n_whole]
        assert content.torn == len(whole[:-cut].rpartition(b"\n")[2])
        assert content.size == len(whole) - cut


@pytest.mark.parametrize("cut", [1, 2, 100, 700])
def test_a_torn_tail_is_truncated_and_the_rest_kept(place, cut):
    path = place / "shard-0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with ShardWriter(place) as shard:
        assert records.body_key(body("", "crystal", "p2")) in shard
        assert records.body_key(body("", "crystal", "p3")) not in shard
        shard.append([(body("0" * 64, "crystal", "p3"), COSTS)])
    assert path.read_bytes() == whole


def test_a_torn_tail_goes_even_when_nothing_is_left_to_record(place):
    whole = (place / "shard-0.jsonl").read_bytes()
    (place / "shard-0.jsonl").write_bytes(whole + b'{"body"')
    with ShardWriter(place):
        pass
    assert (place / "shard-0.jsonl").read_bytes() == whole


def test_a_lane_in_two_shards_is_tampering(place):
    (place / "shard-1.jsonl").write_bytes((place / "shard-0.jsonl").read_bytes())
    with pytest.raises(Tampered, match=r"shard-1\.jsonl: tiny/toy/full/full/0/p2 is recorded twice"):
        records.read_records(place)


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [lines[0].replace(b'"correct"', b'"no answer"'), *lines[1:]],
        lambda lines: [lines[0], lines[1][:-40] + b"\n", lines[2]],
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[2]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines, lines[2]],
        lambda lines: [*lines, b"\n"],
        lambda lines: [*lines, b'{"body":{}}\n', b'{"bo'],
    ],
)
def test_a_whole_line_that_does_not_verify_is_tampering_and_nothing_is_truncated(place, edit):
    path = place / "shard-0.jsonl"
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    with studies.unchanged(place), pytest.raises(Tampered, match=r"shard-0\.jsonl"), ShardWriter(place):
        pass


def test_a_finished_record_is_never_rewritten(place):
    with studies.unchanged(place):
        new, old = body("0" * 64, "full", "p3"), body("0" * 64, "full", "p2")
        with ShardWriter(place) as shard:
            for batch in ([old], [new, old], [new, new]):
                with pytest.raises(BadInput, match="never rewritten"):
                    shard.append([(each, COSTS) for each in batch])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"state": "not run"}, "body.state"),
        ({"cache": None}, "body.cache"),
        ({"state": "failed", "grade": None}, "body.reason"),
        ({"state": "failed", "reason": "budget", "cache": None}, "body.state"),
        ({"state": "failed", "reason": "budget", "grade": None}, "body.state"),
        ({"problem": 3}, "body.problem"),
        ({"speed": "1"}, "speed"),
        ({"tokens": 0.5}, "body.tokens: is 0.5"),
        ({"tokens": True}, "body.tokens"),
        ({"slots": -4}, "body.slots: is -4; it must be a whole number from 1, or null"),
        ({"prompt_tokens": 0}, "body.prompt_tokens"),
        ({"prompt": "E" * 64}, "body.prompt"),
        ({"prompt": "e" * 64 + "\n"}, "body.prompt"),
        ({"phase": "both"}, "body.phase"),
        ({"stop": "tired"}, "body.stop"),
        ({"stop": None}, "body.stop: is missing"),
        ({"grade": "right"}, "body.grade"),
        ({"grade": None}, "body.grade: is missing"),
        ({"grade_second": None}, "body.grade_second"),
        ({"reason": "late"}, "body.reason: must be empty"),
        ({"answer": ["7492"]}, "body.answer"),
        ({"trajectory": "e" * 64 + "#x"}, "body.trajectory"),
        ({"batch": {"problems": [], "lanes": 1}}, "body.batch.problems"),
        ({"batch": {"problems": ["p3"], "lanes": 0}}, "body.batch.lanes"),
        ({"cell": CELL | {"seed": -1}}, "body.cell.seed"),
        ({"cell": CELL | {"budget": "nan"}}, "body.cell.budget"),
        ({"cell": CELL | {"budget": "0.٣"}}, "body.cell.budget"),
        ({"cell": CELL | {"speed": 1}}, "body.cell: the fields ['speed']"),
        ({"cache": CACHE | {"mean": "nan"}}, "body.cache.mean"),
        ({"cache": CACHE | {"mean": "inf"}}, "body.cache.mean"),
        ({"cache": CACHE | {"peak": "1e999"}}, "body.cache.peak"),
        ({"cache": CACHE | {"peak": "-1"}}, "body.cache.peak"),
        ({"cache": CACHE | {"mean": 8}}, "body.cache.mean"),
        ({"cache": CACHE | {"mean_bytes": -1}}, "body.cache.mean_bytes"),
        ({"cache": CACHE | {"events": [[0, 32]]}}, "body.cache.events"),
        ({"cache": CACHE | {"events": [[0, 32, -1]]}}, "body.cache.events"),
        ({"trajectory": "e" * 64}, "store the trajectory"),
    ],
)
def test_a_malformed_record_is_refused_by_the_name_of_its_field(place, change, named):
    with studies.unchanged(place):
        with ShardWriter(place) as shard, pytest.raises(BadInput) as refusal:
            shard.append([(body("0" * 64, "full", "p3") | change, COSTS)])
        assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("costs", "named"),
    [
        ({}, "costs: the fields ['attempt']"),
        ({"attempt": 0}, "costs.attempt"),
        ({"attempt": True}, "costs.attempt"),
        ({"attempt": 1, "decode_seconds": "nan"}, "costs.decode_seconds"),
        ({"attempt": 1, "decode_seconds": "Infinity"}, "costs.decode_seconds"),
        ({"attempt": 1, "prefill_seconds": "-0.1"}, "costs.prefill_seconds"),
        ({"attempt": 1, "joules": "3"}, "costs: the fields ['joules']"),
        (None, "costs: must be an object with fields"),
    ],
)
def test_malformed_costs_are_refused_by_the_name_of_their_field(place, costs, named):
    with studies.unchanged(place):
        with ShardWriter(place) as shard, pytest.raises(BadInput) as refusal:
            shard.append([(body("0" * 64, "full", "p3"), costs)])
        assert named in str(refusal.value)


@pytest.mark.parametrize("extra", [{"grade": "wrong"}, {"grade_second": "wrong"}, {"stop": "eos"}])
@pytest.mark.parametrize("state", ["failed", "excluded"])
def test_a_lane_that_did_not_end_well_has_no_outcome(place, state, extra):
    nothing = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))
    ended = body("0" * 64, "full", "p3") | {"state": state, "reason": "because"} | nothing
    with ShardWriter(place) as shard:
        with pytest.raises(BadInput, match=f"'{state}' excludes the field {next(iter(extra))}"):
            shard.append([(ended | extra, COSTS)])
        shard.append([(ended, COSTS)])


def test_a_failed_lane_is_recorded_with_its_reason(place):
    failed = body("0" * 64, "full", "p3")
    failed |= {
        "state": "failed",
        "reason": "budget below the window",
        "stop": None,
        "grade": None,
        "cache": None,
        "text": "",
    }
    with ShardWriter(place) as shard:
        shard.append([(failed, COSTS)])
    assert records.read_records(place)[-1]["body"] == failed


def test_a_shard_has_one_writer(place):
    with ShardWriter(place), pytest.raises(AlreadyClaimed, match="another process"), ShardWriter(place):
        pass


def test_trajectories_are_named_by_their_content_and_read_back(place):
    content = [{"held": [16, 17, 18]}, {"held": [9]}]
    with ShardWriter(place) as shard:
        name = shard.keep_trajectories(content)
        assert shard.keep_trajectories(tuple(content)) == name
    assert name == hashlib.sha256(b'[{"held":[16,17,18]},{"held":[9]}]').hexdigest()
    assert records.read_side_file(place, name) == content


def test_a_side_file_of_one_trajectory_is_read_as_before(place):
    (place / "trajectories").mkdir(parents=True)
    data = b'{"held":[16]}'
    name = hashlib.sha256(data).hexdigest()
    (place / "trajectories" / f"{name}.json.gz").write_bytes(gzip.compress(data, mtime=0))
    assert records.read_side_file(place, name) == {"held": [16]}


def test_a_record_that_cites_a_place_beyond_its_side_file_is_tampering(place):
    with ShardWriter(place) as shard:
        name = shard.keep_trajectories([{"held": [16]}])
        for at in (0, 1):
            shard.append([(body("0" * 64, "full", f"q{at}", trajectory=records.make_citation(name, at)), COSTS)])
    with pytest.raises(Tampered, match="has no trajectory '1'"):
        records.hash_trajectories(place, records.read_records(place))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-9],
        lambda data: b"",
        lambda data: data[::-1],
        lambda data: gzip.compress(b'{"held":[17]}', mtime=0),
    ],
)
def test_a_damaged_trajectory_is_tampering(place, damage):
    with ShardWriter(place) as shard:
        name = shard.keep_trajectories([{"held": [16]}])
        path = place / "trajectories" / f"{name}.json.gz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(Tampered, match=name):
            records.read_side_file(place, name)
        with pytest.raises(Tampered, match=name):
            shard.keep_trajectories([{"held": [16]}])


def test_the_outcome_is_the_same_killed_and_resumed_or_undisturbed_in_any_order(tmp_path):
    folders = [tmp_path / name / "study" for name in ("undisturbed", "resumed", "backwards")]
    for folder in folders:
        folder.parent.mkdir()
        finished_study.locked(folder)
    undisturbed, resumed, backwards = folders
    finished_study.confirm(undisturbed)
    finished_study.confirm(resumed, stop_after=1)
    finished_study.confirm(resumed, stop_after=3)
    finished_study.confirm(resumed)
    finished_study.confirm(backwards, backwards=True)
    assert len({lock.read(folder).digest for folder in folders}) == 1
    contents = [Registration(folder).seal.content for folder in folders]
    assert len({content["outcome"] for content in contents}) == 1
    assert len({content["shards"]["shard-0.jsonl"]["sha256"] for content in contents}) == 3


def test_the_outcome_changes_with_any_answer(place):
    found = [*records.read_records(place)]  # without their lines, so that the bodies are digested
    before = records.outcome_digest(found)
    found[1]["body"]["text"] += " "
    assert records.outcome_digest(found) != before


TEXTS = ["plain", "naïve ∑ ½", 'a "quoted" \\boxed{7}\n\ttab', "\x7f\u2028\U0001f600", "1234567890123456789"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_line_as_it_was_written_is_read_alike_at_once_and_step_by_step(tmp_path, text):
    with ShardWriter(tmp_path) as shard:
        shard.append([(body("0" * 64, "full", "p2") | {"text": text}, COSTS)])
    (line,) = (tmp_path / "shard-0.jsonl").read_bytes().splitlines()
    (at_once,) = record_lines._parse_exact([line], "0" * 64)
    assert at_once == record_lines.parse_record(line, "shard-0.jsonl:1", "0" * 64) == records.read_records(tmp_path)[0]
    assert at_once["body"]["text"] == text


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b'"tokens":3', b'"tokens":3.0'),
        (b'"tokens":3', b'"tokens":3,"tokens":3'),
        (b'"tokens":3', b'"tokens":1000000000000000000000'),
        (b'"attempt":1', b'"attempt":NaN'),
        (b'"text":"', b'"text":"\\u0041'),
        (b'"text":"', b'"text":"\\ud800'),
        (b'{"body"', b'{ "body"'),
        (b'"chain":"', b'"chain":"0'),
    ],
)
def test_no_other_spelling_of_a_line_is_read_at_once(tmp_path, was, now):
    with ShardWriter(tmp_path) as shard:
        shard.append([(body("0" * 64, "full", "p2") | {"tokens": 3}, COSTS)])
    (line,) = (tmp_path / "shard-0.jsonl").read_bytes().splitlines()
    assert was in line
    assert record_lines._parse_exact([line.replace(was, now, 1)], "0" * 64) is None
    with pytest.raises(Tampered):
        record_lines.parse_record(line.replace(was, now, 1), "shard-0.jsonl:1", "0" * 64)


@pytest.mark.parametrize("text", TEXTS)
def test_what_the_form_of_a_line_allows_is_canonical_with_valid_fields(tmp_path, text):
    with ShardWriter(tmp_path) as shard:
        shard.append([(body("0" * 64, "full", "p2") | {"text": text}, COSTS)])
    (line,) = (tmp_path / "shard-0.jsonl").read_bytes().splitlines()
    draw, allowed = random.Random(text), 0
    for _ in range(6000):
        at, length = draw.randrange(len(line)), draw.choice((0, 1, 1, 2))
        put = draw.choice(
            (b"", b'"', b"\\", b"\\u00", b"\\n", b"\n", b"-", b"0", b"1", b".", b",", b"null", b"\x1f", b"\xe2")
        )
        changed = line[:at] + put + line[at + length :]
        if record_fields.line_pattern().fullmatch(changed) and changed.decode(errors="replace").encode() == changed:
            allowed += 1
            record = canonical.loads(changed, "line")
            assert record_fields.find_fault(record["body"], record["costs"]) == record_fields.find_state_fault(
                record["body"]
            )
    assert allowed > 100
