"""Read lines of published files of programming problems, for the grader `program`, in four formats.

HumanEval: prompt, test, entry_point. MBPP: text or prompt, test_list. APPS: question, input_output. CodeForces (as
open-r1 publishes it): description, examples, official_tests. A line's fields say which format it has; other fields are
ignored. What a model is asked becomes the context, and the hidden tests the answer.
"""

import builtins
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from protocol.grading.program_tests import ProgramTests
from protocol.tasks.file_rows import LineError, Row, parse_name, parse_text

DEFINED = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")
MAX_CPU = 60  # seconds that a line may ask for


def read_program(line: Mapping[str, Any]) -> Row:
    """Return the problem of a line. Raises LineError, which names the field and the fix."""
    for fields, read in FORMATS.values():
        if all(field in line for field in fields):
            return read(line)
    known = "; ".join(f"{name}: {', '.join(fields)}" for name, (fields, _) in FORMATS.items())
    raise LineError(f"has fields that match no format that the grader program reads ({known})")


def _read_human_eval(line: Mapping[str, Any]) -> Row:
    prompt, test = _code("prompt", line), _code("test", line)
    name = _text("entry_point", line)
    if not name.isidentifier():
        raise LineError(
            f"entry_point: {name!a} is not the name of a function; write the name of the function that the tests call"
        )
    if name not in DEFINED.findall(prompt):
        raise LineError(f"prompt: does not define {name}; let it end with the signature and docstring of that function")
    start = f"{prompt}{' pass' * prompt.endswith(':')}"
    _require_python("prompt", start)
    _require_python("test", test)
    solution = _code("canonical_solution", line) if line.get("canonical_solution") else ""
    tests = ProgramTests(prompt, start, (f"{test}\n\ncheck({name})",), (name,), solution=solution)
    return _row(line, "task_id", prompt, tests)


def _read_mbpp(line: Mapping[str, Any]) -> Row:
    text = _text("text" if "text" in line else "prompt", line)
    tests = tuple(_list("test_list", line)) + tuple(_list("challenge_test_list", line))
    imports = "\n".join(_list("test_imports", line))
    setup = "\n".join([imports, str(line.get("test_setup_code") or "")]).strip()
    _require_python("test_setup_code", setup)
    if len(tests) < 2:
        raise LineError(
            "test_list: has fewer than two tests; the first is shown in the prompt, so at least one more must "
            "stay hidden"
        )
    for number, test in enumerate(tests):
        _require_python(f"test_list[{number}]", test)
    solution = _code("code", line) if line.get("code") else ""
    known = {*DEFINED.findall(setup), *dir(builtins), *keyword.kwlist}
    names = tuple(name for name in dict.fromkeys(CALLED.findall("\n".join(tests))) if name not in known)
    if solution:
        defined = DEFINED.findall(solution)
        names = tuple(name for name in names if name in defined)
    names = tuple(name for name in names if not re.search(rf"^(?:from|import)\b.*\b{name}\b", setup, re.MULTILINE))
    if not names:
        raise LineError(
            "test_list: calls no function that a program could define; write tests that call such a function"
        )
    context = f"{text}\nYour code should pass this test:\n{tests[0]}"
    return _row(line, "task_id", context, ProgramTests("", setup, tests, names, solution=solution))


def _read_apps(line: Mapping[str, Any]) -> Row:
    parts = [_text("question", line), str(line.get("starter_code") or "").strip()]
    cases, solutions = _json("input_output", line), _json("solutions", line) if line.get("solutions") else []
    if not isinstance(cases, dict) or not isinstance(solutions, list):
        raise LineError("input_output: write an object with inputs and outputs, and a list of solutions")
    inputs, outputs = _list("inputs", cases, None), _list("outputs", cases, None)
    if not inputs or len(inputs) != len(outputs):
        raise LineError("input_output: write as many outputs as inputs, at least one")
    solution = solutions[0].replace("\r\n", "\n") if solutions and isinstance(solutions[0], str) else ""
    context = "\n\n".join(part for part in parts if part)
    if name := cases.get("fn_name"):
        if not isinstance(name, str) or not name.isidentifier() or not all(isinstance(given, list) for given in inputs):
            raise LineError("input_output: fn_name: write the name of a function, and lists of arguments as inputs")
        tests = tuple(
            f"assert {name}(*{given!r}) in ({output!r}, {_unwrap(output)!r})"
            for given, output in zip(inputs, outputs, strict=True)
        )
        return _row(line, "problem_id", context, ProgramTests("", "", tests, (name,), solution=solution), "difficulty")
    pairs = tuple((_lines(given), _lines(output)) for given, output in zip(inputs, outputs, strict=True))
    return _row(line, "problem_id", context, ProgramTests(inputs=pairs, solution=solution), "difficulty")


def _read_codeforces(line: Mapping[str, Any]) -> Row:
    if line.get("generated_checker"):
        raise LineError(
            "generated_checker: several outputs may be right, but only one can be compared; leave the line out"
        )
    if line.get("input_mode", "stdio") != "stdio":
        raise LineError(f"input_mode: {line['input_mode']!a} is not stdio; leave the line out")
    parts = [_text("title", line) if line.get("title") else "", _text("description", line)]
    for field, heading in (("input_format", "Input"), ("output_format", "Output"), ("note", "Note")):
        if line.get(field):
            parts.append(f"{heading}\n{_text(field, line)}")
    for example in _list("examples", line, dict):
        parts.append(
            f"Example input\n{_lines(example.get('input')).strip()}\nExample output\n"
            f"{_lines(example.get('output')).strip()}"
        )
    tests = _list("official_tests", line, dict)
    if not tests:
        raise LineError("official_tests: is empty, so there are no hidden tests; leave the line out")
    pairs = tuple((_lines(test.get("input")), _lines(test.get("output"))) for test in tests)
    limit = line.get("time_limit") or 0
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= MAX_CPU:
        raise LineError(f"time_limit: write a number of seconds from 0 to {MAX_CPU}")
    return _row(
        line, "id", "\n\n".join(part for part in parts if part), ProgramTests(inputs=pairs, cpu=-int(-limit // 1))
    )


Reader = Callable[[Mapping[str, Any]], Row]
FORMATS: Mapping[str, tuple[Sequence[str], Reader]] = MappingProxyType(
    {
        "HumanEval": (("task_id", "prompt", "test", "entry_point"), _read_human_eval),
        "MBPP": (("task_id", "test_list"), _read_mbpp),
        "APPS": (("question", "input_output"), _read_apps),
        "CodeForces": (("id", "description", "official_tests"), _read_codeforces),
    }
)


def _row(line: Mapping[str, Any], id_field: str, context: str, tests: ProgramTests, level: str = "") -> Row:
    field = id_field if id_field in line else "id"
    value = line.get(field)
    name = parse_name(field, str(value) if isinstance(value, int) and not isinstance(value, bool) else value)
    difficulty = parse_name(level, line[level]) if level and line.get(level) else ""
    return Row(name, parse_text("context", context.strip()), "", tests.to_gold(), difficulty, "", "")


def _unwrap(output: Any) -> Any:
    """Return the only item of a list: APPS has some values in lists of their own."""
    return output[0] if isinstance(output, list) and len(output) == 1 else output


def _text(field: str, line: Mapping[str, Any]) -> str:
    if not isinstance(text := line.get(field), str) or not text.strip():
        raise LineError(f"{field}: write text, not {ascii(text)[:40]}")
    return text.replace("\r\n", "\n").strip()


def _code(field: str, line: Mapping[str, Any]) -> str:
    """Return code with its indentation, and without empty lines around it."""
    _text(field, line)
    return str(line[field]).replace("\r\n", "\n").strip("\n").rstrip()


def _list(field: str, line: Mapping[str, Any], kind: type | None = str) -> list[Any]:
    items = line.get(field) or []
    if not isinstance(items, list) or (kind and not all(isinstance(item, kind) for item in items)):
        raise LineError(f"{field}: write a list{f' of {kind.__name__}' if kind else ''}")
    return items


def _json(field: str, line: Mapping[str, Any]) -> Any:
    """Return a value that stands as JSON in a text, as APPS has it, or as it is."""
    value = line[field]
    try:
        return json.loads(value, parse_constant=_refuse_constant) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise LineError(f"{field}: is not JSON; write the tests as APPS has them") from None


def _refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and Infinity, which are no JSON and no names of Python."""
    raise ValueError(name)


def _lines(value: Any) -> str:
    """Return the text of an input or an output, which APPS also writes as a list of lines."""
    if isinstance(value, list):
        value = "\n".join(map(str, value))
    if not isinstance(value, str):
        raise LineError(f"inputs and outputs: write text, not {ascii(value)[:40]}")
    return value.replace("\r\n", "\n")


def _require_python(field: str, code: str) -> None:
    try:
        compile(code, field, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise LineError(f"{field}: is not valid Python; correct it, or leave the line out") from None
