"""docs/threat-model.md names a test for every requirement, and each of them is there."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "threat-model.md"
ROWS = re.findall(r"^\| (R\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)


def test_every_requirement_has_its_row():
    assert [row[0] for row in ROWS] == [f"R{number}" for number in range(1, 16)]


def test_every_test_that_is_named_exists():
    named = {name for row in ROWS for name in re.findall(r"[\w/]+\.py|\w+/(?=;|$)", row[3])}
    assert len(named) > 25
    assert {name for name in named if not (TESTS / name).exists()} == set()


def test_every_attack_is_named():
    named = " ".join(row[3] for row in ROWS)
    attacks = {f"attacks/{path.name}" for path in (TESTS / "attacks").glob("test_*.py")}
    assert {name for name in attacks if name not in named} == set()


def test_every_module_that_is_named_exists():
    root = TESTS.parent
    for row in ROWS:
        for name in re.findall(r"`([\w/]+\.py)`", row[2]):
            places = [root / shelf / name for shelf in ("", "protocol", "protocol/evidence", "analysis")]
            assert any(place.exists() for place in places), name
