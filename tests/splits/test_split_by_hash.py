"""The split is a fact about ids that anyone can recompute, and a frozen file that cannot be bent."""

import hashlib
import json

import pytest

import splits
from splits import make

LINES = [{"unique_id": f"problem/{number}", "problem": "secret words"} for number in range(40)]


@pytest.mark.parametrize(
    ("unique_id", "md5", "expected"),
    [  # md5sum and bc, by hand
        ("test/precalculus/807.json", "81c33d99c87b4a0eaac99652fc596407", 0),
        ("needle/768/0.25/007", "ad1171929d555f962a7b36b33cd0608a", 1),
        ("", "d41d8cd98f00b204e9800998ecf8427e", 1),
    ],
)
def test_a_bucket_is_the_md5_of_the_id_modulo_five(unique_id, md5, expected):
    remainder = 0
    for digit in md5:  # long division, digit by digit
        remainder = (16 * remainder + int(digit, 16)) % 5
    assert splits.assign_bucket(unique_id) == remainder == expected


def test_development_and_confirmation_divide_the_buckets():
    assert sorted(splits.DEV) == [0, 1]
    assert sorted(splits.CONFIRM) == [2, 3, 4]


def test_math_500_has_201_problems_for_development_and_299_held_out():
    frozen = splits.load("math500")
    places = [int(hashlib.md5(item.encode()).hexdigest(), 16) % 5 for item in frozen.ids]
    assert [places.count(number) for number in range(5)] == [94, 107, 98, 97, 104]
    assert (len(frozen.dev), len(frozen.confirm), len(set(frozen.ids))) == (201, 299, 500)
    assert frozen.dev == tuple(item for item, place in zip(frozen.ids, places, strict=True) if place < 2)
    assert frozen.confirm == tuple(item for item, place in zip(frozen.ids, places, strict=True) if place >= 2)
    assert frozen.source == "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"


@pytest.fixture
def frozen(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    source = hashlib.sha256(data.read_bytes()).hexdigest()
    return make.write_split("tiny", make.read_ids(data), source, tmp_path)


def test_a_manifest_holds_ids_counts_and_digests_and_no_problem(frozen):
    manifest = splits.load("tiny", frozen.parent)
    assert manifest.ids == tuple(line["unique_id"] for line in LINES)
    assert manifest.source == hashlib.sha256((frozen.parent / "data.jsonl").read_bytes()).hexdigest()
    fields = json.loads(frozen.read_bytes())
    digest = fields.pop("digest")
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert manifest.digest == digest == hashlib.sha256(plain).hexdigest()
    assert fields["counts"]["dev"] + fields["counts"]["confirm"] == 40
    assert b"secret" not in frozen.read_bytes()


def moved(fields):
    fields["ids"][0][1] = (fields["ids"][0][1] + 1) % 5


def dropped(fields):
    del fields["ids"][7]


def renamed(fields):
    fields["ids"][0][0] = "problem/40"


def reordered(fields):
    fields["ids"].reverse()


def recounted(fields):
    fields["counts"]["dev"] += 1


def resourced(fields):
    fields["source"] = "0" * 64


def extended(fields):
    fields["comment"] = "harmless"


@pytest.mark.parametrize("bend", [moved, dropped, renamed, reordered, recounted, resourced, extended])
def test_a_manifest_that_was_edited_is_refused_by_name(frozen, bend):
    fields = json.loads(frozen.read_bytes())
    bend(fields)
    frozen.write_text(json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(splits.SplitError, match=r"tiny\.json: was altered .*restore it"):
        splits.load("tiny", frozen.parent)


def test_a_bucket_that_the_id_does_not_have_is_refused_although_the_digest_was_redone(frozen):
    fields = json.loads(frozen.read_bytes())
    moved(fields)
    del fields["digest"]
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    fields["digest"] = hashlib.sha256(plain).hexdigest()
    frozen.write_text(json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(splits.SplitError, match=r"tiny\.json: was altered \(ids, digest\)"):
        splits.load("tiny", frozen.parent)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"ids":[],"source":""}', b'{"ids":[3],"source":""}', b"\xff"])
def test_a_file_that_is_no_manifest_is_refused_by_name(frozen, data):
    frozen.write_bytes(data)
    with pytest.raises(splits.SplitError, match=r"tiny\.json: is not a split manifest"):
        splits.load("tiny", frozen.parent)


def test_the_same_manifest_in_another_spelling_is_refused(frozen):
    frozen.write_text(json.dumps(json.loads(frozen.read_bytes()), indent=1))
    with pytest.raises(splits.SplitError, match="spelling"):
        splits.load("tiny", frozen.parent)


def test_an_unknown_split_is_answered_with_those_that_there_are():
    with pytest.raises(splits.SplitError, match=r"the splits are aime24, .* math500"):
        splits.load("math-500")
    with pytest.raises(ValueError, match="the splits are"):
        splits.load("../splits/math500")


def test_a_frozen_split_is_never_replaced(frozen):
    before = frozen.read_bytes()
    with pytest.raises(splits.SplitError, match="exists and is frozen"):
        make.write_split("tiny", ["other"], "0" * 64, frozen.parent)
    assert frozen.read_bytes() == before


@pytest.mark.parametrize(
    ("ids", "why"),
    [(["a", "a"], "'a' occurs twice"), ([], "no ids"), (["a", 3], "3 is not text"), ([""], "not text")],
)
def test_ids_that_cannot_name_problems_are_refused_and_nothing_is_written(tmp_path, ids, why):
    with pytest.raises(splits.SplitError, match=why):
        make.write_split("bad", ids, "0" * 64, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_a_line_without_an_id_by_its_number(tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    data.write_text('{"unique_id": "a"}\n{"id": 60}\n')
    assert make.main(["never-written", str(data)]) == 2
    assert "line 2 is not an object with a unique_id" in capsys.readouterr().err


def test_the_command_refuses_a_name_that_is_frozen(frozen, capsys):
    assert make.main(["math500", str(frozen.parent / "data.jsonl")]) == 2
    assert "math500.json: exists and is frozen" in capsys.readouterr().err
