import hashlib
import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from protocol.evidence import canonical
from protocol.evidence.refusals import BadInput, Tampered

KEYS = st.text(st.characters(max_codepoint=127), max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)


@given(VALUES)
def test_bytes_are_those_of_the_reference_implementation(value):
    assert canonical.dumps(value) == rfc8785.dumps(value)


@given(VALUES)
def test_what_is_written_reads_back_as_itself(value):
    assert canonical.loads(canonical.dumps(value), "here") == value


def test_digest_is_sha256_of_the_bytes():
    assert canonical.digest({"b": 1, "a": [True]}) == hashlib.sha256(b'{"a":[true],"b":1}').hexdigest()


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"a":{"b":1,"b":2}}', "a.b is there twice"),
        (b'{"a":[0.5]}', "a[0] is the number 0.5"),
        (b'{"a":1e3}', "a is the number 1e3"),
        (b'{"a":NaN}', "a is the number NaN"),
        (b'{"a":-Infinity}', "a is the number -Infinity"),
        (b'{"a":9007199254740992}', "a is an integer beyond"),
        (b'{"a":"\\ud800"}', "a holds half a surrogate"),
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
