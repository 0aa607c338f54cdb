"""Recorded lanes are decoded again: what was made up shows, and what rounding does is no forgery."""

import hashlib
import hmac
import json
import shutil
import sys

import pytest
import studies

from protocol.evidence import records
from protocol.evidence.registration import Registration
from protocol.formats.files import cache_home
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import installed_versions, version_1
from protocol.recompute import replay
from protocol.run import lane_comparison, redecode

NONCE = "0123456789abcdef"
GAVE = f"lanes drawn with the nonce {NONCE} gave the recorded text, memory and grade"


def check(study, count=4, nonce=NONCE):
    return replay.check(study, cache_home(), count, nonce, report=lambda line: None)


@pytest.fixture
def judged(confirmed, monkeypatch):
    """The study of the tiny model, opened; what a test writes into it stays in memory."""
    here = replay.drift.closure.sources(replay.drift.ROOT)
    monkeypatch.setattr(replay.drift.closure, "sources", lambda root: here)  # hashed once, not for each study
    return Registration(confirmed)


def drawn(study, count=4):
    everything = [*study.confirm_records, *study.probe_records]
    return [record["body"] for record in replay.draw_lanes(everything, count, NONCE)]


@pytest.fixture
def few(judged):
    """The same with four lanes; which ones a nonce draws of all depends on the folder of the model."""
    vars(judged)["confirm_records"] = judged.confirm_records[:3]
    vars(judged)["probe_records"] = judged.probe_records[:1]
    return judged


def lane_of(study):
    """One whose arm evicts."""
    return study.confirm_records[1]["body"]


# What is drawn


def test_the_nonce_draws_the_same_lanes_for_anybody(judged):
    everything = [*judged.confirm_records, *judged.probe_records]
    ranked = []
    for record in everything:
        cell = record["body"]["cell"]
        lane = [record["body"]["phase"], *(cell[name] for name in ("model", "task", "budget", "arm", "seed"))]
        written = json.dumps([*lane, record["body"]["problem"]], separators=(",", ":")).encode()
        ranked.append((hmac.new(bytes.fromhex(NONCE), written, hashlib.sha256).digest(), record["sha256"]))
    expected = [sha256 for _, sha256 in sorted(ranked)]
    assert [record["sha256"] for record in replay.draw_lanes(everything[::-1], 5, NONCE)] == expected[:5]
    assert [record["sha256"] for record in replay.draw_lanes(everything, 10**6, NONCE)] == expected
    other = [record["sha256"] for record in replay.draw_lanes(everything, 5, "ff" * 8)]
    assert other != expected[:5]


def test_lanes_of_both_phases_and_failed_ones_are_drawn_and_excluded_ones_are_not(judged):
    everything = [*judged.confirm_records, *judged.probe_records]
    first, second = (record["body"]["cell"]["arm"] for record in everything[:2])
    assert {body["phase"] for body in drawn(judged, 40)} == {"confirm", "probe"}
    everything[0]["body"]["state"], everything[1]["body"]["state"] = "excluded", "failed"
    lanes = replay.draw_lanes(everything, 10**6, NONCE)
    assert len(lanes) == len(everything) - 1
    assert everything[0] not in lanes
    assert everything[1] in lanes
    assert {first, second}


@pytest.mark.parametrize("nonce", ["", "0123", "0123456789ABCDEF", "0123456789abcde", "ü" * 16])
def test_a_nonce_that_is_none_is_refused(judged, nonce):
    with pytest.raises(BadInput, match="--nonce: write 16 to 128 lower-case hex digits"):
        check(judged, nonce=nonce)


def test_no_lane_is_no_replay(judged):
    with pytest.raises(BadInput, match="--replay 0: write at least 1 lane"):
        check(judged, count=0)


# An honest study


def test_honest_lanes_give_their_records_and_nothing_is_written(judged, confirmed):
    with studies.unchanged(confirmed):
        assert check(judged, 12) == f"12 of 12 {GAVE}; decoded with the locked sources"


@pytest.fixture
def shipped():
    """A sweep, sampled, with events while decoding, locked by code of another age: a few of its lanes."""
    study = Registration(studies.ROOT / "registrations" / "alpha-chain")
    for phase in ("confirm", "probe"):
        lines = studies.shard_text(study.folder, study.phase_folder(phase).name).splitlines()
        # Of a short chain on which the two arms of the question part.
        vars(study)[f"{phase}_records"] = [json.loads(line) for line in lines[234:242]]
    return study


def test_lanes_of_a_shipped_study_give_their_records_with_todays_engine(shipped):
    assert {body["phase"] for body in drawn(shipped)} == {"confirm", "probe"}
    slots = GAVE.replace("memory", "slots, events")  # whose bytes may be others
    assert check(shipped).startswith(f"4 of 4 {slots}; decoded by today's engine (")


def test_a_study_without_a_verdict_is_not_decoded_and_nothing_of_it_is_opened(probed, monkeypatch):
    monkeypatch.setattr(replay, "_decode_lanes", lambda *_: pytest.fail("a lane was decoded"))
    with studies.unchanged(probed), pytest.raises(NotRun, match="no verdict yet"):
        check(Registration(probed))


# Records that were made up


def other_text(study, body):
    texts = (record["body"]["text"] for record in Registration(study.folder).confirm_records)
    return next(text for text in texts if text != body["text"])


FORGED = {
    "the text of another lane": lambda study, body: {"text": other_text(study, body)},
    "one character of the text": lambda study, body: {"text": body["text"][:-1] + "~"},
    "a text that stops earlier": lambda study, body: {"text": body["text"][:3]},
    "memory": lambda study, body: {"cache": body["cache"] | {"mean": "10.000000"}},
    "bytes": lambda study, body: {"cache": body["cache"] | {"peak_bytes": 8}},
    "an event": lambda study, body: {"cache": body["cache"] | {"events": [[0, 2000, 1]]}},
    "the grade": lambda study, body: {"grade": "correct" if body["grade"] != "correct" else "wrong"},
    "an answer": lambda study, body: {"answer": "4711"},
    "the number of tokens": lambda study, body: {"tokens": body["tokens"] - 1},
    "how it stopped": lambda study, body: {"stop": "eos" if body["stop"] == "length" else "length"},
    "the prompt": lambda study, body: {"prompt": "0" * 64},
    "a failure": lambda study, body: (
        {"state": "failed", "reason": "it failed", "text": "", "tokens": 0}
        | dict.fromkeys(("stop", "answer", "grade", "cache"))
    ),
}


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_a_record_that_the_model_does_not_give_is_named(few, forged):
    vars(few)["confirm_records"], vars(few)["probe_records"] = few.confirm_records[:2], []
    body = lane_of(few)
    body.update(FORGED[forged](few, body))
    with pytest.raises(Tampered) as named:
        check(few)
    said = str(named.value)
    assert repr(str(records.body_key(body))) in said
    assert f"rounding cannot explain this; 1 of 2 {GAVE}; decoded with the locked sources" in said


def test_two_evicting_arms_swapped_throughout_show(shipped, monkeypatch):
    """Nothing else in the folder can tell: each arm's lanes hold what the other's budget allows."""
    other = {"1d": "1d_div", "1d_div": "1d"}
    for body in (record["body"] for record in shipped.confirm_records):
        body["cell"]["arm"] = other.get(body["cell"]["arm"], body["cell"]["arm"])
    today = {"sources": replay.drift.closure.sources(replay.drift.ROOT), "release": installed_versions.release()}
    vars(shipped)["_lock"] = shipped.lock._replace(content=shipped.lock.content | today)
    monkeypatch.setattr(version_1, "PROTOCOLS", {})
    vars(shipped)["probe_records"] = []
    with pytest.raises(Tampered, match=r"rounding cannot explain this; 3 of 8 lanes"):
        check(shipped, 8)


def test_what_a_record_says_is_shown_and_never_sent_to_the_terminal(few):
    body = lane_of(few)
    body["text"] = "\x1b[2J\x07" + body["text"]
    with pytest.raises(Tampered) as named:
        check(few)
    assert str(named.value).isprintable()
    assert r"text: differs from character 0 on: recorded '\x1b[2J\x07" in str(named.value)


def test_a_lane_that_no_protocol_has_is_named(few):
    body = lane_of(few)
    body["problem"] = "needle-256/nowhere"
    vars(few)["confirm_records"], vars(few)["probe_records"] = [{"body": body, "costs": {"attempt": 1}}], []
    with pytest.raises(Tampered, match="is not registered"):
        check(few)


# Excluded problems


def excluded(study):
    """Makes lanes of both phases excluded ones; of how many problems they are."""
    bodies = [record["body"] for record in (*study.confirm_records[3:], *study.probe_records[1:])]
    assert {body["phase"] for body in bodies} == {"confirm", "probe"}
    for body in bodies:
        body["state"] = "excluded"
    return len({(body["cell"]["task"], body["problem"]) for body in bodies})


@pytest.fixture
def some(judged):
    """A few lanes, of other problems than the first ones too."""
    problems = {record["body"]["problem"] for record in judged.confirm_records[:3]}
    others = [record for record in judged.confirm_records if record["body"]["problem"] not in problems]
    vars(judged)["confirm_records"] = [*judged.confirm_records[:3], *others[:2], *others[-2:]]
    vars(judged)["probe_records"] = [judged.probe_records[0], judged.probe_records[-1]]
    return judged


def test_every_excluded_prompt_is_built_again_and_none_is_decoded(some, monkeypatch):
    count = excluded(some)
    assert count > 2
    decode, decoded = redecode.Decoder.decode, []
    monkeypatch.setattr(redecode.Decoder, "decode", lambda self, body: decoded.append(body) or decode(self, body))
    said = f"4 of 4 {GAVE}; decoded with the locked sources; all {count} prompts that were excluded are as"
    assert check(some).startswith(said)
    assert {body["state"] for body in decoded} == {"ok"}


@pytest.mark.parametrize("phase", ["confirm", "probe"])
@pytest.mark.parametrize("name", ["prompt_tokens", "prompt"])
def test_a_problem_that_was_not_too_long_is_named(some, phase, name):
    """Whatever the nonce draws: the one false lane is the last of its phase."""
    excluded(some)
    body = getattr(some, f"{phase}_records")[-1]["body"]
    body[name] = {"prompt_tokens": 401, "prompt": "0" * 64}[name]
    with pytest.raises(Tampered, match=rf"{body['problem']}.*: {name}: recorded .*built .*the lane was excluded"):
        check(some, 1)
    vars(some)["_lock"] = some.lock._replace(content=some.lock.content | {"release": "9.9.9"})
    with pytest.raises(CannotTell, match=f"{name}: recorded .*perhaps because of a change in the code"):
        check(some, 1)


def test_a_problem_that_is_excluded_and_not_registered_is_named(some):
    excluded(some)
    some.confirm_records[-1]["body"]["problem"] = "needle-256/nowhere"
    with pytest.raises(Tampered, match=r"needle-256/nowhere.*is not registered"):
        check(some)


# What cannot be told


def test_where_other_code_decodes_a_difference_is_no_forgery(few):
    content = few.lock.content
    sources = content["sources"] | {"policies/knorm.py": "0" * 64}
    vars(few)["_lock"] = few.lock._replace(content=content | {"sources": sources, "release": "9.9.9"})
    assert "decoded by today's engine (1 of " in check(few)
    lane_of(few)["text"] += "?"
    with pytest.raises(CannotTell, match=r"rounding cannot explain this, but a change in the code may; 3 of 4"):
        check(few)


@pytest.mark.parametrize(
    "name", ["run/executors/local.py", "layers/layer_kinds.py", "presses/pressed.py", "executors/local.py"]
)
def test_every_room_that_decodes_is_compared(few, name):
    sources = few.lock.content["sources"] | {f"protocol/{name}": "0" * 64}
    vars(few)["_lock"] = few.lock._replace(content=few.lock.content | {"sources": sources})
    assert str(replay.compare_engine(few)).startswith("decoded by today's engine (1 of ")


def test_another_version_of_a_library_is_said(few):
    content = json.loads(json.dumps(few.lock.content))
    content["environment"]["distributions"]["transformers"]["version"] = "4.0\x1b"
    vars(few)["_lock"] = few.lock._replace(content=content)
    told = str(replay.compare_engine(few))
    assert "decoded by today's engine (transformers " in told
    assert r" for '4.0\x1b')" in told


def test_other_weights_are_not_run(few):
    content = json.loads(json.dumps(few.lock.content))
    (model,) = content["weights"]
    content["weights"][model]["model.safetensors"] = "0" * 64
    vars(few)["_lock"] = few.lock._replace(content=content)
    with pytest.raises(CannotTell, match=r"'model.safetensors: changed' since the lock \(1 files differ\)"):
        check(few)


def test_a_model_that_is_not_here_cannot_be_run(few, tmp_path):
    study = Registration(shutil.copytree(few.folder, tmp_path / "study"))
    vars(study)["_lock"] = few.lock
    body = lane_of(study)
    body["cell"]["model"] = "path:/nowhere"
    vars(study)["confirm_records"], vars(study)["probe_records"] = [{"body": body, "costs": {"attempt": 1}}], []
    with pytest.raises(CannotTell, match=r"model 'path:/nowhere': nothing at /nowhere; name an existing folder"):
        check(study)


def test_without_torch_it_is_said_what_to_install(few, monkeypatch):
    monkeypatch.setitem(sys.modules, "protocol.run.redecode", None)
    monkeypatch.delattr("protocol.run.redecode")
    with pytest.raises(CannotTell, match=r"to decode lanes: pip install '\.\[run\]'"):
        check(few)


def test_a_machine_that_lacks_memory_accuses_nobody(few, monkeypatch):
    def broke(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory\n\x1b[2J")

    monkeypatch.setattr(redecode.Decoder, "decode", broke)
    with pytest.raises(CannotTell, match=r"decoding failed on this machine: .*allocate memory \\x1b\[2J"):
        check(few)


# Rounding: weights that are shaken stand for another machine


def elsewhere(study, monkeypatch, share):
    """The record of one drawn lane is what a machine with other rounding gives; returns its name."""
    monkeypatch.setitem(redecode.NOISE_SCALE, redecode.torch.float32, share)
    body = lane_of(study)
    opened = replay.open_study(study, cache_home())
    decoder = redecode.Decoder(opened, opened.protocol, replay.JudgedHeldOut(study.lock, study.folder))
    shake = redecode.Perturbation(7, 1)
    body.update(decoder.decode(body, shake), trajectory=body["trajectory"])
    return body


def test_what_rounding_gives_is_no_forgery_and_what_it_cannot_give_is_one(few, monkeypatch):
    coarse = 2.0**22  # of the epsilon: every token is on an edge
    body = elsewhere(few, monkeypatch, coarse)
    told = check(few)
    assert told.startswith("3 of 4 lanes")
    assert "1 differ from it at places where rounding alone also changes them; decoded with the locked sources" in told
    vars(few)["confirm_records"], vars(few)["probe_records"] = [{"body": body, "costs": {"attempt": 1}}], []
    with pytest.raises(CannotTell, match="1 of 1 lanes differ from their records, at places where rounding alone"):
        check(few)
    monkeypatch.setitem(redecode.NOISE_SCALE, redecode.torch.float32, 8)
    with pytest.raises(Tampered, match="rounding cannot explain this"):
        check(few)


def test_a_lane_that_shaken_weights_give_counts_as_given(few, monkeypatch):
    monkeypatch.setattr(redecode, "draw_perturbations", lambda nonce: iter([redecode.Perturbation(7, 1)]))
    elsewhere(few, monkeypatch, 2.0**18)
    assert check(few) == (
        f"4 of 4 {GAVE}, 1 of them with weights perturbed by a few roundings; decoded with the locked sources"
    )


def test_each_noise_is_followed_by_its_opposite_and_the_nonce_draws_it():
    tried = list(redecode.draw_perturbations(NONCE))
    assert [shake.sign for shake in tried] == [1, -1] * 3
    assert [shake.seed for shake in tried[::2]] == [shake.seed for shake in tried[1::2]]
    assert len({shake.seed for shake in tried}) == 3
    assert tried != list(redecode.draw_perturbations("ff" * 8))


def test_weights_are_shaken_by_a_few_roundings_and_are_whole_again_afterwards(few):
    torch = redecode.torch
    opened = replay.open_study(few, cache_home())
    decoder = redecode.Decoder(opened, opened.protocol, replay.JudgedHeldOut(few.lock, few.folder))
    (model,) = opened.protocol.models
    weights = [weight.clone() for weight in decoder._load_model(model).network.parameters()]
    for sign in (1, -1):
        decoder._perturbation = redecode.Perturbation(3, sign)
        for weight, shaken in zip(weights, decoder._load_model(model).network.parameters(), strict=True):
            share = ((shaken - weight) / weight).abs()[weight.abs() > 1e-6]
            if len(share) > 100:
                assert 0.3 * 2**-20 < share.median() < 1.2 * 2**-20  # of |normal|: 0.67
    decoder._perturbation = None
    assert all(map(torch.equal, weights, decoder._load_model(model).network.parameters()))


# The rule itself, without a model


def body(text="abc", **own):
    cache = {"mean": "4.000000", "peak": "5.000000", "prefill_end": "4.000000", "state_bytes": 0}
    cache |= {"events": [[0, 9, 4]], "granted": [4], "mean_bytes": 64, "peak_bytes": 64}
    return {
        **{"prompt": "1" * 64, "prompt_tokens": 9, "slots": 4, "state": "ok", "text": text, "stop": "length"},
        **{"tokens": len(text), "answer": "1", "grade": "wrong", "cache": cache},
        **own,
    }


LONG = "x" * 200


@pytest.mark.parametrize(
    ("recorded", "shaken", "word"),
    [
        (body(LONG), [], "same"),
        (body(LONG[:100] + "y"), [body(LONG)] * 6, "beyond"),
        (body(LONG[:100] + "y"), [body(LONG[:90] + "z")] * 6, "edge"),  # earlier than the record
        (body(LONG[:100] + "y"), [body(LONG[:110] + "z")] * 6, "edge"),  # at the same token
        (body(LONG[:100] + "y"), [body(LONG[:150] + "z")] * 6, "beyond"),  # after it
        (body(LONG[:100] + "y"), [body(LONG), body(LONG[:100] + "y")], "shaken"),
        (body(LONG, cache=body()["cache"] | {"mean": "4.100000"}), [body(LONG)] * 6, "beyond"),
        (body(LONG, cache=body()["cache"] | {"mean": "4.100000"}), [body(LONG[:9])] * 6, "edge"),
        (body(LONG, grade="correct"), [body(LONG[:9])] * 6, "beyond"),  # one text has one grade
        (body(LONG, score="0.500000"), [body(LONG[:9])] * 6, "beyond"),  # and one score
        (body(LONG, prompt="2" * 64), [body(LONG[:9])] * 6, "beyond"),
        (body("", state="failed", cache=None, grade=None), [body(LONG)] * 6, "beyond"),
    ],
)
def test_the_rule(recorded, shaken, word):
    assert lane_comparison.classify_lane(recorded, body(LONG), iter(shaken), compare_bytes=True).word == word


def test_no_more_lanes_are_decoded_than_are_needed():
    def shaken():
        yield body("abd")
        pytest.fail("one more was decoded")

    assert lane_comparison.classify_lane(body("abd"), body("abc"), shaken(), compare_bytes=True).word == "shaken"


def test_bytes_of_places_count_with_one_engine_only_and_a_field_that_a_record_lacks_never():
    cache = {name: value for name, value in body()["cache"].items() if name != "granted"}
    recorded = body(cache=cache | {"peak_bytes": 128})
    assert lane_comparison.find_difference(recorded, body(), compare_bytes=False) is None
    found = lane_comparison.find_difference(recorded, body(), compare_bytes=True)
    assert found is not None
    assert str(found) == "cache.peak_bytes: recorded 128, decoded 64"


def test_a_grade_that_a_busy_machine_gives_is_not_compared():
    for grade in ("timeout", "error"):
        assert lane_comparison.find_difference(body(grade=grade, answer=None), body(), compare_bytes=True) is None


def test_progress_is_told_now_and_then_and_not_of_the_last_lane(monkeypatch):
    clock = iter([0.0, 3.0, 6.0, 7.0, 20.0])
    monkeypatch.setattr(replay.time, "monotonic", lambda: next(clock))
    said = []
    passed = replay._track_progress(said.append, 4)
    assert [passed(number) for number in range(4)] == [0, 1, 2, 3]
    assert said == ["replay: 2 of 4 lanes, 6 s left"]
