"""Published files of programs: what a model is asked, what stays hidden, and which lines are refused."""

import json
import re
from pathlib import Path

import pytest
from looped import looped

from protocol.grading.program import complete_program, extract_code
from protocol.grading.program_tests import ProgramTests
from protocol.tasks import __main__ as tasks_command
from protocol.tasks.file_rows import LineError, parse_rows
from protocol.tasks.file_task import FileTask, find_wrong_golds
from protocol.tasks.program_rows import read_program

FUNCTIONS = Path(__file__).parent / "made" / "functions.jsonl"
HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\n\ndef area(r: float) -> float:\n    """Area of a circle."""\n',
    "entry_point": "area",
    "canonical_solution": "    return math.pi * r * r\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert abs(candidate(1) - math.pi) < 1e-9\n",
}
MBPP = {
    "task_id": 601,
    "text": "Write a function to double a number.",
    "code": "import math\r\ndef double(x):\r\n  return 2 * x",
    "test_list": ["assert double(2) == 4", "assert max(double(1), double(3)) == 6"],
    "test_setup_code": "",
    "challenge_test_list": ["assert math.isclose(double(0.5), 1)"],
    "test_imports": ["import math"],
}
APPS = {
    "problem_id": 7,
    "question": "Add two numbers.",
    "solutions": json.dumps(["a, b = map(int, input().split())\nprint(a + b)\n", "no"]),
    "input_output": json.dumps({"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7"]]}),
    "difficulty": "introductory",
    "url": "https://example.com/7",
    "starter_code": "",
}
NAMED = APPS | {
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n",
    "solutions": json.dumps(["class Solution:\n    def add(self, a, b):\n        return a + b\n"]),
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, [7]]}),
}
CODEFORCES = {
    "id": "1/A",
    "title": "Theatre Square",
    "description": "How many stones?",
    "input_format": "Three integers.",
    "output_format": "One integer.",
    "note": None,
    "examples": [{"input": "6 6 4\n", "output": "4\n"}],
    "official_tests": [{"input": "6 6 4", "output": "4"}, {"input": "1 1 1", "output": "1"}],
    "time_limit": 2.5,
    "input_mode": "stdio",
    "generated_checker": None,
    "rating": 1000,
}


def hidden(line: dict) -> ProgramTests:
    gold = read_program(line).gold
    assert isinstance(gold, str)
    return ProgramTests.from_gold(gold)


def test_a_prompt_of_human_eval_is_what_is_asked_and_its_tests_are_the_answer():
    row, tests = read_program(HUMAN_EVAL), hidden(HUMAN_EVAL)
    assert (row.id, row.context) == ("HumanEval/0", HUMAN_EVAL["prompt"].strip())
    assert "check" not in row.context + row.question + row.prefix
    assert tests.names == ("area",)
    assert tests.tests[0].endswith("check(area)")


def test_mbpp_shows_its_first_test_and_no_other():
    row, tests = read_program(MBPP), hidden(MBPP)
    assert row.id == "601"
    assert (
        row.context == "Write a function to double a number.\nYour code should pass this test:\nassert double(2) == 4"
    )
    assert len(tests.tests) == 3
    assert (tests.names, tests.setup) == (("double",), "import math")
    assert hidden({name: value for name, value in MBPP.items() if name != "code"}).names == ("double",)
    bare = {"task_id": 1, "text": "Double.", "test_list": ["assert (double(2) == 4)", "assert not (double(1) == 3)"]}
    assert hidden(bare).names == ("double",)


def test_apps_gives_inputs_or_names_a_function():
    row, tests = read_program(APPS), hidden(APPS)
    assert (row.id, row.context, row.level) == ("7", "Add two numbers.", "introductory")
    assert tests.inputs == (("1 2\n", "3\n"), ("3 4", "7"))
    assert hidden(NAMED).names == ("add",)
    assert "class Solution" in read_program(NAMED).context


def test_codeforces_shows_examples_and_hides_its_tests():
    row, tests = read_program(CODEFORCES), hidden(CODEFORCES)
    assert row.context == (
        "Theatre Square\n\nHow many stones?\n\nInput\nThree integers.\n\nOutput\nOne integer.\n\n"
        "Example input\n6 6 4\nExample output\n4"
    )
    assert tests.inputs == (("6 6 4", "4"), ("1 1 1", "1"))
    assert tests.cpu == 3


@looped(
    ("line", "said"),
    [
        ({"id": "a", "context": "b"}, "fields that match no format"),
        (HUMAN_EVAL | {"entry_point": "volume"}, "prompt: does not define volume"),
        (HUMAN_EVAL | {"entry_point": "area()"}, "entry_point: 'area()' is not the name"),
        (HUMAN_EVAL | {"prompt": "def area(r:"}, "prompt: is not valid Python"),
        (HUMAN_EVAL | {"test": "def check(candidate)"}, "test: is not valid Python"),
        (HUMAN_EVAL | {"task_id": None}, "task_id: write text"),
        (HUMAN_EVAL | {"canonical_solution": 3}, "canonical_solution: write text"),
        (MBPP | {"test_list": MBPP["test_list"][:1], "challenge_test_list": []}, "fewer than two tests"),
        (APPS | {"input_output": '{"fn_name": "f", "inputs": [[1]], "outputs": [Infinity]}'}, "is not JSON"),
        (MBPP | {"test_list": "assert 1"}, "test_list: write a list"),
        (MBPP | {"test_list": ["assert len([]) == 0"] * 2, "challenge_test_list": []}, "calls no function"),
        (MBPP | {"text": ""}, "text: write text"),
        (APPS | {"input_output": "{"}, "input_output: is not JSON"),
        (APPS | {"input_output": "[]"}, "input_output: write an object"),
        (APPS | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "as many outputs as inputs"),
        (APPS | {"input_output": '{"inputs": [1], "outputs": ["1"]}'}, "write text, not 1"),
        (NAMED | {"input_output": '{"fn_name": "a b", "inputs": [[1]], "outputs": [1]}'}, "fn_name"),
        (CODEFORCES | {"generated_checker": "import sys"}, "generated_checker: several outputs"),
        (CODEFORCES | {"input_mode": "file"}, "input_mode: 'file' is not stdio"),
        (CODEFORCES | {"official_tests": []}, "official_tests: is empty"),
        (CODEFORCES | {"time_limit": 1e9}, "time_limit: write a number of seconds"),
    ],
)
def test_a_line_that_cannot_be_graded_is_refused_by_field(line, said):
    with pytest.raises(LineError, match=re.escape(said)):
        read_program(line)


@pytest.mark.usefixtures("contained")
def test_solutions_are_run_and_those_that_fail_are_named():
    lines = [
        HUMAN_EVAL,
        HUMAN_EVAL | {"task_id": "2", "prompt": "def area(r):", "canonical_solution": "    return r\n"},
        HUMAN_EVAL | {"task_id": "3", "test": "def check(candidate): pass", "prompt": "def area(x):"},
        HUMAN_EVAL | {"task_id": "4", "test": "def check(c): c(lambda: 1)", "prompt": "def area(y):"},
        MBPP,
        APPS,
        NAMED | {"problem_id": 8},
        CODEFORCES,
        CODEFORCES | {"id": "2/A", "official_tests": [{"input": "", "output": " \n"}]},
    ]
    rows = {number: read_program(line) for number, line in enumerate(lines, start=1)}
    faults = dict(find_wrong_golds("program", rows))
    assert faults.keys() == {2, 3, 4, 9}
    assert "its own solution is not right: test 1 of 1 ends with NameError" in faults[2]  # it lost its import
    assert "a program that does nothing is right" in faults[3]
    assert "area what is no plain value" in faults[4]
    assert "a program that does nothing is right" in faults[9]


@pytest.mark.usefixtures("contained")
def test_the_file_of_this_project_passes_and_a_broken_one_is_named(tmp_path, capsys):
    lines = FUNCTIONS.read_text().splitlines()
    assert len(lines) == 60
    path = tmp_path / "some.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines[:5]))
    assert tasks_command.main(["check", str(path), "--grader", "program"]) == 0
    broken = json.loads(lines[5]) | {"canonical_solution": "    return None\n"}
    path.write_text("".join(f"{line}\n" for line in [*lines[:5], json.dumps(broken)]))
    assert tasks_command.main(["check", str(path), "--grader", "program"]) == 2
    assert "line 6: its tests: its own solution is not right" in capsys.readouterr().err


def test_every_line_of_this_project_is_read():
    rows, faults = parse_rows(FUNCTIONS.read_bytes(), read_program)
    assert (len(rows), faults) == (60, ())


def test_without_the_grader_the_fields_are_named_and_the_grader_is(tmp_path, capsys):
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps(HUMAN_EVAL) + "\n")
    assert tasks_command.main(["check", str(path)]) == 2
    assert "need the grader program" in capsys.readouterr().err


def test_a_task_gives_the_tests_to_nobody_but_the_grader():
    task = FileTask("functions", FUNCTIONS, "program", "Answer with code.")
    problem = task.build("functions/0", len)
    shown = problem.context + problem.question + problem.prefix
    assert shown.endswith("Answer with code.")
    assert "assert" not in shown
    assert "assert candidate" in str(task.gold("functions/0"))


PROMPT = ProgramTests(prompt='import math\n\ndef area(r):\n    """Area."""', names=("area",))


@looped(
    ("text", "code"),
    [
        ("    return r\n", "    return r\n"),
        ("<think>```\nx\n```</think>\n    return r", "    return r"),
        (
            "Here:\n```python\ndef area(r):\n    return r\n```\nUse it:\n```\nprint(area(1))\n```",
            "def area(r):\n    return r\n",
        ),
        ("```\na = 1\n```\n```\nb = 2\n```", "b = 2\n"),
        ("```python\ndef area(r):\n    return 1", "def area(r):\n    return 1"),
        ("~~~\ndef area(r): return 1\n~~~", "def area(r): return 1\n"),
        ("    return r<|im_end|>", "    return r"),
        ("<think>never ends", ""),
    ],
)
def test_the_code_of_an_answer(text, code):
    assert extract_code(text, ("area",)).text == code.strip("\n")


@looped(
    ("text", "is_open"),
    [
        ("```python\ndef area(r): return r\n```\nDone.", False),
        ("```python\ndef area(r): return r", True),
        ("def area(r): return r\n\nThis is it.", True),
        ("def area(r): return r\n```\nThis is it.", True),  # a fence that ends what none began
    ],
)
def test_code_is_open_where_no_fence_ends_it(text, is_open):
    code = extract_code(text, ("area",))
    assert code.text.startswith("def area(r): return r")
    assert code.is_open == is_open


def test_a_body_continues_the_prompt_up_to_its_first_line_without_indentation():
    assert complete_program("return r\n\n    # more\nprint(1)\n    x", PROMPT) == (
        f"{PROMPT.prompt}\n    return r\n\n    # more\n"
    )
    whole = "def area(r):\n    return r"
    assert complete_program(whole, PROMPT) == f"{PROMPT.prompt}\n\n{whole}"
    assert complete_program(whole, PROMPT._replace(prompt="def area(r):")) == f"def area(r): pass\n\n{whole}"
    assert complete_program("x = 1", ProgramTests()) == "x = 1"
