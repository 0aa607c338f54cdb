"""A declaration has a quick answer and a slow one that names the path: they are the same."""

import random
import re
from copy import deepcopy

import pytest
import studies
from sampled import sampled

from protocol.evidence import ledger, records
from protocol.formats import canonical, document_fields, fields, record_fields
from protocol.formats.fields import Choice, Field, Integer, ListOf, MapOf, OrNull, Table, Text, TupleOf
from protocol.lock import lock

STRANGE = (None, True, 0, -1, 2**60, "", "nan", "0" * 64, [], [None], [[1, 2, 3]], {}, {"more": 1}, 1.5)
CONDITIONAL = Table(
    {
        "how": Field(Choice("a", "b"), "Which."),
        "much": Field(Integer(1), "Of a alone.", only_if=("how", ("a",))),
        "often": Field(ListOf(OrNull(Integer()), 1, 3), "Times.", if_absent="never"),
        "pair": Field(TupleOf((Text(), Integer()), "a pair"), "Two.", if_absent="none"),
        "by": Field(MapOf(ListOf(Integer(), 2, 2, expected="two numbers")), "By name.", if_absent="none"),
    }
)
HAND = {"how": "a", "much": 2, "often": [1, None], "pair": ["x", 1], "by": {"one": [1, 2]}}


def read(kind: fields.Kind, value: object) -> bool:
    try:
        kind.read(value, "")
    except fields.Fault:
        return False
    return True


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Every place inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [each for key, one in inside for each in places(one, (*path, key))]


def mutated(value: object, draw: random.Random) -> object:
    """One place of it is dropped, or holds something else."""
    changed = deepcopy(value)
    *above, last = draw.choice(places(changed))
    holder = changed
    for key in above:
        holder = holder[key]
    if draw.random() < 0.3:
        del holder[last]
    else:
        holder[last] = draw.choice(STRANGE)
    return changed


def declared(folder) -> list[tuple[fields.Kind, object]]:
    record = records.read_records(folder / "records")[0]
    line = studies.content(folder / "lock.json")
    own = {"claim": document_fields.CLAIM, "seal": document_fields.SEAL, "verdict": document_fields.VERDICT}
    lines = [vars_of(entry) for entry in ledger.read(folder)]
    return [
        (record_fields.BODY, record["body"]),
        (record_fields.COSTS, record["costs"]),
        (lock.FIELDS, line),
        (ledger.FIELDS, lines[0]),
        *((table, studies.content(folder / f"{name}.json")) for name, table in own.items()),
        (CONDITIONAL, HAND),
    ]


def vars_of(entry: ledger.Entry) -> dict:
    return {name: getattr(entry, name) for name in ledger.FIELDS.fields}


@pytest.fixture(scope="module")
def documents(confirmed):
    return declared(confirmed)


def test_what_was_written_fits(documents):
    assert [table.validator(value) for table, value in documents] == [True] * len(documents)


@pytest.mark.parametrize("seed", sampled(range(8), of=4))
def test_the_quick_answer_is_that_of_the_slow_one(documents, seed):
    draw, refused = random.Random(seed), 0
    for table, value in documents:
        for _ in range(60):
            changed = mutated(value, draw)
            fits = read(table, changed)
            assert table.validator(changed) == fits, changed
            assert fits or not re.fullmatch(table.canonical_pattern, canonical.encode(changed)), changed
            refused += not table.validator(changed)
    assert refused > 100
