import hashlib
import json
import random

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from looped import looped
from sampled import sampled

from protocol.formats import canonical
from protocol.formats.refusals import BadInput, Tampered

KEYS = st.text(st.characters(max_codepoint=127), max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)

# What encoders disagree about: escapes that have a short form and some that have none, separators that
# JavaScript once could not read, both sides of the surrogates, astral planes, unassigned and combining ones.
TRICKY = [
    *map(chr, range(0x20)),
    *'"\\/<>&\x7f\x80\u2028\u2029\ud7ff\ue000\ufeff\ufffe\uffff',
    "\U00010000",
    "\U0010ffff",
    "\U0001f600",
    "e\u0301",
    "\u0000\u0000",
    "\\u0041",
]


def drawn(draw: random.Random, depth: int = 0):
    """A document, at most nine levels deep, rich in what could be written in two ways."""
    kind = draw.choice("sisbn" if depth > 8 else "sisbnlddl")
    size = draw.randrange(5)
    if kind == "s":
        return "".join(draw.choice([*TRICKY, chr(draw.randrange(0xD800))]) for _ in range(size))
    if kind == "i":
        return draw.choice([0, -1, 2**53 - 1, 1 - 2**53, draw.randrange(-(10**6), 10**16 % 2**53)])
    if kind == "b":
        return draw.choice([True, False])
    if kind == "n":
        return None
    if kind == "l":
        return [drawn(draw, depth + 1) for _ in range(size)]
    keys = ("".join(chr(draw.randrange(128)) for _ in range(draw.randrange(4))) for _ in range(size))
    return {key: drawn(draw, depth + 1) for key in keys}


@pytest.mark.parametrize("seed", sampled(range(20), of=4))
def test_a_thousand_tricky_documents_have_the_bytes_of_the_reference_implementation(seed):
    draw = random.Random(seed)
    for _ in range(1000):
        value = {"": drawn(draw), "\x00": [drawn(draw)], "~": drawn(draw)}
        data = canonical.dumps(value)
        assert data == rfc8785.dumps(value)
        assert canonical.loads(data, "here") == value


def test_every_character_that_utf_8_can_carry_has_the_bytes_of_the_reference_implementation():
    for start in range(0, 0x110000, 0x1000):
        text = "".join(chr(code) for code in range(start, start + 0x1000) if not 0xD800 <= code < 0xE000)
        assert canonical.dumps({"a": text}) == rfc8785.dumps({"a": text})


def test_keys_are_sorted_as_the_reference_implementation_sorts_them():
    keys = [left + right for left in map(chr, range(128)) for right in ("", "\x00", "a", "\x7f")]
    random.Random(0).shuffle(keys)
    value = dict.fromkeys(keys, 0)
    assert canonical.dumps(value) == rfc8785.dumps(value)


def test_every_text_is_told_with_the_path_that_leads_to_it():
    value = {"b": [1, ("x", {"c": "y"})], "a": "z", "n": None}
    assert dict(canonical.iter_texts(value)) == {"b[1][0]": "x", "b[1][1].c": "y", "a": "z"}


@given(VALUES)
def test_bytes_are_those_of_the_reference_implementation(value):
    assert canonical.dumps(value) == rfc8785.dumps(value)


@given(VALUES)
def test_what_is_written_reads_back_as_itself(value):
    assert canonical.loads(canonical.dumps(value), "here") == value


def test_digest_is_sha256_of_the_bytes():
    assert canonical.digest({"b": 1, "a": [True]}) == hashlib.sha256(b'{"a":[true],"b":1}').hexdigest()


@looped(
    ("value", "named"),
    [
        ({"a": [1, {"b": 0.5}]}, "a[1].b"),
        ({"a": float("nan")}, "a"),
        ({"a": 2**53}, "a"),
        ({"a": -(10**400)}, "a"),
        ({"a": {"é": 1}}, "a"),
        ({"a": {1: 1}}, "a"),
        ({"a": "\ud800"}, "a"),
        ({"a": {1, 2}}, "a"),
        ({"a": b"bytes"}, "a"),
        (0.5, "the value"),
    ],
)
def test_what_has_no_canonical_form_is_refused_with_its_place(value, named):
    with pytest.raises(BadInput) as refusal:
        canonical.dumps(value)
    assert str(refusal.value).startswith(f"{named} ")
    assert "\n" not in str(refusal.value)


@looped(
    ("data", "named"),
    [
        (b'{"a":{"b":1,"b":2}}', "a.b occurs twice"),
        (b'{"a":[0.5]}', "a[0] is the number 0.5"),
        (b'{"a":1e3}', "a is the number 1e3"),
        (b'{"a":NaN}', "a is the number NaN"),
        (b'{"a":-Infinity}', "a is the number -Infinity"),
        (b'{"a":9007199254740992}', "a is an integer beyond"),
        (b'{"a":"\\ud800"}', "a contains half a surrogate"),
        (b'{"a": 1}', "not canonical JSON from byte 5"),
        (b'{"b":1,"a":1}', "not canonical JSON from byte 2"),
        (b'{"a":"\\u0041"}', "not canonical JSON from byte 6"),
        (b'{"a":-0}', "not canonical JSON from byte 5"),
        (b'{"a":1}\n', "not canonical JSON from byte 7"),
        (b'{"a":1', "not JSON"),
        (b"\xff", "not JSON"),
        (b"", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not JSON"),
    ],
)
def test_bytes_that_have_a_second_reading_are_refused_with_their_place(data, named):
    with pytest.raises(Tampered) as refusal:
        canonical.loads(data, "lock.json")
    assert str(refusal.value).startswith("lock.json: ")
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(st.binary(max_size=30) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_either_canonical_or_refused(data):
    try:
        value = canonical.loads(data, "here")
    except Tampered:
        return
    assert canonical.dumps(value) == data
