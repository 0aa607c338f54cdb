"""The hidden tests of a program. Tasks make them; `program` runs them, with the sandbox that tasks do without."""

import json
from typing import NamedTuple


class ProgramTests(NamedTuple):
    """The hidden tests of a problem, which are its gold answer, as JSON.

    prompt: code that an answer may continue. setup: run before the tests. tests: Python code that calls the functions
    `names`. inputs: pairs of an input and the expected output of a script, in place of functions. cpu: seconds, if the
    problem has a longer limit of its own. solution: a program that is right, if there is one.
    """

    prompt: str = ""
    setup: str = ""
    tests: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    cpu: int = 0
    solution: str = ""

    def to_gold(self) -> str:
        return json.dumps(self._asdict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_gold(cls, gold: str) -> "ProgramTests":
        fields = json.loads(gold)
        pairs = tuple((given, output) for given, output in fields["inputs"])
        return cls(**fields | {"tests": tuple(fields["tests"]), "names": tuple(fields["names"]), "inputs": pairs})
