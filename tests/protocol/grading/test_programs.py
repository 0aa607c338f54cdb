"""What a program gives crosses as plain data, limits hold, and the same program gets the same grade."""

import math

import pytest
from looped import looped

from protocol.formats.refusals import BadInput
from protocol.grading.program import ProgramGrader, ProgramLimits
from protocol.grading.program_tests import ProgramTests
from protocol.sandbox import sandbox
from protocol.sandbox.program_server import decode, encode


@pytest.fixture(scope="module")
def grader(contained):
    with ProgramGrader(ProgramLimits(cpu=1, wall=2)) as grader:
        yield grader


def gold(*tests: str, **fields) -> str:
    return ProgramTests(tests=tests, names=("f",), **fields).to_gold()


@looped(
    "value",
    [
        *(None, True, False, 0, -7, 1 << 300, 0.1, -0.0, math.inf, 1j, "", "ä\n\ud800", b"\0\xff"),
        *(range(3), range(1 << 90, 0, -7)),
        *([], [1, [2.5, "x"]], (), (1, (2,)), {1, 2}, frozenset({"a"}), {}, {"a": [1], (1, 2): {3}}),
    ],
)
def test_plain_values_cross_as_they_are(value):
    crossed = decode(encode(value))
    assert crossed == value
    assert type(crossed) is type(value)
    assert repr(crossed) == repr(value)


def test_values_of_derived_classes_become_plain_and_others_do_not_cross():
    class Odd(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert type(decode(encode([Odd(7)]))[0]) is int
    assert list(decode(encode(dict.fromkeys(range(3)).keys()))) == [0, 1, 2]
    assert decode(encode(iter([1]))) != [1]
    for value in (object(), len, lambda: 1):
        with pytest.raises(TypeError):
            encode([value])


@looped("message", [7, "x", ["int", "7", 7], ["eval", "1"], ["int", "z"], ["dict", [1]], ["set", 1]])
def test_what_no_encoding_gives_is_refused(message):
    with pytest.raises((ValueError, TypeError, KeyError)):
        decode(message)


@looped(
    ("body", "tests", "status"),
    [
        ("return x", ("assert f(float('nan')) != f(1)",), "correct"),
        ("x.append(1)", ("x = [0]", "f(x)", "assert x == [0, 1]"), "correct"),
        ("x.clear(); return x", ("x = [2, 1]", "assert f(x) == sorted(x)"), "wrong"),
        ("yield from range(x)", ("assert list(f(3)) == [0, 1, 2]",), "correct"),
        ("yield from range(x)", ("assert f(3) == [0, 1, 2]",), "wrong"),
        ("raise ValueError", ("try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    assert False",), "correct"),
        (
            "import json; return json.loads(x)",
            ("try:\n    f('{')\nexcept ValueError:\n    pass\nelse:\n    assert False",),
            "correct",
        ),
        ("raise StopIteration", ("assert all(map(f, [1, 2]))",), "wrong"),
        ("raise ExceptionGroup('e', [ValueError()])", ("try:\n    f(1)\nexcept TypeError:\n    pass",), "wrong"),
        ("return len(x)", ("assert f(range(3)) == 3",), "correct"),
        ("raise SystemExit", ("try:\n    f(1)\nexcept BaseException:\n    pass",), "wrong"),
        ("return object()", ("try:\n    f(1)\nexcept Exception:\n    pass",), "wrong"),
        ("return x", ("assert f(lambda: 1)",), "error"),
        (
            "import threading\n    y = []\n    t = threading.Thread(target=y.append, args=(x,))\n"
            "    t.start(); t.join(); return y[0]",
            ("assert f(3) == 3",),
            "correct",
        ),
        ("return hash('a') + hash(x)", ("assert f('b') == f('b')",), "correct"),
        ("import random; return random.random()", ("assert f(1) == 0.8444218515250481",), "correct"),
        ("import numpy", ("f(1)",), "wrong"),
        (
            "import decimal; return decimal.Decimal(x)",
            ("assert f('0.10') == __import__('decimal').Decimal('0.1')",),
            "correct",
        ),
        ("import fractions; return fractions.Fraction(x, 4)", ("assert f(2) * 2 == 1", "assert f(1) != 1"), "correct"),
        ("while True: pass", ("f(1)",), "timeout"),
        ("return bytes(1 << 23)", ("assert f(1)",), "wrong"),
    ],
)
def test_a_function_is_graded_by_what_its_calls_give(grader, body, tests, status):
    assert grader.grade(gold(*tests), f"def f(x):\n    {body}\n").status == status


def test_a_value_that_cannot_be_given_back_is_wrong_and_no_error(grader):
    deep = "import __main__\n    deep = None\n    for _ in range(150): deep = ['list', [deep]]\n"
    program = f"def f(x):\n    {deep}    __main__.encode = lambda value: deep\n"
    assert grader.grade(gold("f(f(1))"), program).status == "wrong"


def test_the_prompt_is_there_for_the_program_and_for_the_tests(grader):
    prompt = 'import math\n\ndef half(x):\n    return x / 2\n\ndef f(x):\n    """Half of the root."""'
    answer = gold("assert f(half(8)) == 1", prompt=prompt, setup=prompt)
    assert grader.grade(answer, "    return half(math.sqrt(x))").status == "correct"
    assert grader.grade(answer, "def f(x):\n    return half(math.sqrt(x))").status == "correct"
    assert grader.grade(answer, "    return half(x)").status == "wrong"


@looped(
    ("text", "status"),
    [
        ("def f(x):\n    return x + 1\n\nThis adds one.", "correct"),
        ("def f(x):\n    return x + 1\n\nprint(f(", "correct"),
        ("```\ndef f(x):\n    return x + 1\n\nprint(f(", "correct"),
        ("def f(x):\n    return x + 1\n```\nThis adds one.", "correct"),
        ("```\ndef f(x):\n    return x + 1\n\nprint(f(\n```", "wrong"),
        ("Sure:\ndef f(x):\n    return x + 1", "wrong"),
    ],
)
def test_what_follows_code_that_no_fence_ends_is_left_out(grader, text, status):
    assert grader.grade(gold("assert f(1) == 2"), text).status == status


@looped(
    "body",
    [
        "\tif x:\n\t\treturn x + 1\n\treturn 1",
        "if x:\n\t\treturn x + 1\n\treturn 1",
        "if x:\n        return x + 1\n    return 1",
        "y = x\nif y:\n    y += 1\nreturn y",
        "if x:\n    return x + 1\nreturn 1",
        "if x:\n\treturn x + 1\nreturn 1",
        "parts = [\n    x,\n    1,\n]\nreturn sum(parts)",
        "    return x + 1\n\nprint(f(",
        "from __future__ import annotations\n\ndef f(x: unknown):\n    return x + 1",
    ],
)
@looped(
    "prompt",
    [
        "def f(x):",
        'def f(x):\n    """Add.\n\n        1\n    """',
        'def f(x):\n    """Add.\n\nExamples:\n        1\n    """',
    ],
)
def test_a_body_continues_its_prompt_however_it_is_indented(grader, prompt, body):
    assert grader.grade(gold("assert f(1) == 2", prompt=prompt), body).status == "correct"


def test_ten_thousand_lines_of_prose_after_the_code_take_no_time(grader):
    text = "def f(x):\n    return x + 1\n" + "and so\n" * 7000
    assert grader.grade(gold("assert f(1) == 2"), text).status == "correct"


@looped("program", ["x = 1", "class Solution:\n    pass"])
@looped("expected", ["KeyError", "NameError", "AttributeError", "Exception", "BaseException"])
def test_a_function_that_is_not_there_raises_nothing_that_a_test_may_expect(grader, program, expected):
    test = f"try:\n    f(1)\nexcept {expected}:\n    pass\nelse:\n    assert False"
    result = grader.grade(gold(test), program)
    assert (result.status, result.reason) == ("wrong", "f raises Undefined")


def test_numbers_that_no_program_can_give_are_refused(grader):
    for sent in (["Fraction", ["1", "0"]], ["Decimal", "x"]):
        code = f"def f(x):\n    import __main__\n    __main__.encode = lambda value: {sent}\n    return 1"
        assert grader.grade(gold("f(1)"), code).reason.startswith("f gives a value that is not plain")


@looped(
    ("opening", "inner", "status"),
    [
        ("```python", "    ```", "correct"),
        ("```python", "~~~", "correct"),
        ("~~~", "```", "correct"),
        ("```python", "```", "wrong"),
    ],
)
def test_a_fence_in_a_docstring_ends_no_block(grader, opening, inner, status):
    code = f'def f(x):\n    """Add.\n\n{inner}\n    f(1)\n{inner}\n    """\n    return x + 1'
    text = f"Sure:\n\n{opening}\n{code}\n{opening[:3]}\n\nThis adds one."
    assert grader.grade(gold("assert f(1) == 2"), text).status == status
    listed = text.replace("\n", "\n      ")
    assert grader.grade(gold("assert f(1) == 2"), f"1. Sure\n{listed}").status == status


def test_the_standard_library_finds_the_module_of_a_program(grader):
    code = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\nclass A:\n    x: int\n\n"
        "def f(x):\n    return A(x).x + 1"
    )
    assert grader.grade(gold("assert f(1) == 2"), code).status == "correct"


def test_a_class_solution_has_the_function(grader):
    assert (
        grader.grade(gold("assert f(2) == 4"), "class Solution:\n    def f(self, x): return 2 * x").status == "correct"
    )


@looped(
    ("code", "status"),
    [
        ("print(sum(map(int, input().split())))", "correct"),
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())), end='')", "correct"),
        ("if __name__ == '__main__':\n    print(sum(map(int, open(0).read().split())))\n    exit()", "correct"),
        ("import threading\nthreading.Thread(target=lambda: print(sum(map(int, input().split())))).start()", "correct"),
        (
            "import atexit, io, sys\nsys.stdout = io.StringIO()\n"
            "atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\n"
            "print(sum(map(int, input().split())))",
            "correct",
        ),
        ("out = open(1, 'w')\ndef f(): out.write(str(sum(map(int, input().split()))))\nf()", "correct"),
        ("import sys\nprint(sum(map(int, input().split())))\nsys.stdout.close()", "correct"),
        ("import __main__\nx = sum(map(int, input().split()))\nprint(__main__.x)", "correct"),
        ("print(3)", "wrong"),
        ("print(sum(map(int, input().split())), 0)", "wrong"),
        ("print(sum(map(int, input().split()))); exit(1)", "wrong"),
        ("while True: pass", "timeout"),
        ("", "no answer"),
    ],
)
def test_a_script_is_graded_by_what_it_prints(grader, code, status):
    answer = ProgramTests(inputs=(("1 2\n", "3\n"), ("4 5", "9"))).to_gold()
    assert grader.grade(answer, code).status == status


def test_a_problem_may_ask_for_more_time(grader):
    slow = "import time\nstart = time.process_time()\nwhile time.process_time() < start + 1.2: pass\nprint(input())"
    assert grader.grade(ProgramTests(inputs=(("1", "1"),), cpu=30).to_gold(), slow).status in ("correct", "timeout")
    assert grader.grade(ProgramTests(inputs=(("1", "1"),)).to_gold(), slow).status == "timeout"


def test_the_same_programs_get_the_same_grades_from_another_grader(grader):
    texts = [f"    return x + {number % 3}" for number in range(12)] + [
        "    return y",
        "x",
        "    return {*'abc'}.pop()",
    ]
    answer = gold("assert f(1) == 2", "assert f(2) == 3", prompt="def f(x):")
    first = [grader.grade(answer, text) for text in texts]
    with ProgramGrader(ProgramLimits(cpu=1, wall=2)) as other:
        assert [other.grade(answer, text) for text in texts] == first
    assert [grade.status for grade in first[:3]] == ["wrong", "correct", "wrong"]


def test_a_sandbox_that_is_gone_is_replaced(grader):
    grader.close()
    assert grader.grade(gold("assert f(1) == 1"), "def f(x): return x").status == "correct"


def test_without_a_sandbox_nothing_is_graded(monkeypatch):
    monkeypatch.setattr(sandbox, "is_usable", lambda mechanism: False)
    with pytest.raises(
        BadInput, match="grader program: needs a sandbox for programs, but this machine has no working sandbox"
    ):
        ProgramGrader()


REACH = """
import ctypes, os, pathlib, resource, socket, subprocess

def attempts():
    libc, home, parent = ctypes.CDLL(None, use_errno=True), pathlib.Path.home(), os.getppid()
    yield "fork", os.fork
    yield "vfork", lambda: libc.vfork() >= 0 or 1 / 0
    yield "command", lambda: subprocess.run(["/bin/true"])
    yield "exec", lambda: os.execv("/bin/true", ["true"])
    yield "folder", lambda: (home / "x").mkdir()
    yield "file", lambda: (home / "x").write_text("x")
    yield "temporary", lambda: pathlib.Path("/tmp/x").write_text("x")
    yield "system", lambda: os.listdir("/proc")
    yield "users", lambda: open("/etc/passwd")
    yield "socket", socket.socket
    yield "signal", lambda: os.kill(parent, 0)
    yield "trace", lambda: libc.ptrace(16, parent, 0, 0) == 0 or 1 / 0
    yield "limits", lambda: resource.prlimit(parent, resource.RLIMIT_AS)
    yield "priority", lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)
    yield "memory", lambda: libc.shmget(1, 4096, 0o1777) >= 0 or 1 / 0
    yield "more time", lambda: resource.setrlimit(resource.RLIMIT_CPU, (9, 9))
    yield "owner of a signal", lambda: __import__("fcntl").fcntl(os.pipe()[0], 8, parent)

def reached():
    for name, attempt in attempts():
        try:
            attempt()
        except Exception:
            continue
        yield name

def f(x):
    return list(reached()), resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_AS)
"""


def test_a_program_reaches_nothing_beyond_its_own_process(grader):
    """Most of these attempts succeed in a process of no sandbox."""
    memory = (1 << 30, 1 << 30)
    result = grader.grade(gold(f"result = f(1)\nassert result == ([], (1, 1), {memory}), result"), REACH)
    assert result.status == "correct", result
