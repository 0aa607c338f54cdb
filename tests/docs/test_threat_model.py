"""docs/threat-model.md names, for every requirement, where it is kept and the tests that show it."""

import re

from studies import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()
PARTS = re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)
REQUIREMENTS = {part.split()[0]: part for part in PARTS if re.match(r"R\d+ ", part)}


def named(part: str) -> tuple[set[str], set[str]]:
    """Modules and tests."""
    where, _, shown = part.partition("\nShown by:\n")
    return set(re.findall(r"`((?!tests/)[\w/.]+)`", where)), set(re.findall(r"`(tests/[\w/.]+)`", shown))


def test_every_requirement_has_its_section():
    assert list(REQUIREMENTS) == [f"R{number}" for number in range(1, 22)]


def test_every_requirement_names_modules_and_tests_that_exist():
    tests = set[str]()
    for number, part in REQUIREMENTS.items():
        modules, shown = named(part)
        assert modules, number
        assert shown or number == "R15", number
        assert {path for path in modules | shown if not (ROOT / path).exists()} == set(), number
        tests |= shown
    assert len(tests) > 25


def test_every_attack_is_named():
    attacks = {f"tests/attacks/{path.name}" for path in (ROOT / "tests/attacks").glob("test_*.py")}
    assert attacks <= {path for part in REQUIREMENTS.values() for path in named(part)[1]}
