"""Programs that attack their grader: none is graded correct, none does harm, and the next program is graded as ever."""

from pathlib import Path

import pytest

from protocol.grading.program import ProgramGrader, ProgramLimits
from protocol.grading.program_tests import ProgramTests
from protocol.sandbox import sandbox

TESTS = ("assert double(3) == 6", "assert double([1]) == [1, 1]", "assert double('ab') == 'abab'")
GOLD = ProgramTests(tests=TESTS, names=("double",)).to_gold()
SCRIPT = ProgramTests(inputs=(("21\n", "42\n"), ("4\n", "8\n"))).to_gold()
HONEST = "def double(x):\n    return x * 2\n"
HONEST_SCRIPT = "print(int(input()) * 2)"
LIMITS = ProgramLimits(cpu=1, wall=2, memory=512 << 20)

# Each defines `double`, if only in the end; what it prints or gives back is right by luck at most once.
IN_A_CALL = {
    "forks once": "import os; os.fork()",
    "forks for ever": "import os\n    while True:\n        os.fork()",
    "a fork by its number": "import ctypes\n    libc = ctypes.CDLL(None)\n    assert libc.syscall(57) >= 0",
    "a fork of the C library": "import ctypes\n    assert ctypes.CDLL(None).fork() >= 0",
    "another process": "import subprocess; subprocess.run(['/bin/true'], check=True)",
    "another program in its place": "import os; os.execv('/bin/echo', ['echo', 'passed'])",
    "multiprocessing": "import multiprocessing as m; p = m.Process(target=print); p.start(); p.join()",
    "a socket": "import socket; socket.create_connection(('8.8.8.8', 53), 1)",
    "a server": "import socket; socket.socket().bind(('127.0.0.1', 8080))",
    "a web page": "import urllib.request as u; u.urlopen('http://example.com', timeout=1)",
    "a file in its home": "import pathlib; (pathlib.Path.home() / 'x').write_text('x')",
    "a folder in its home": "import pathlib; (pathlib.Path.home() / 'x').mkdir()",
    "a temporary file": "import tempfile; tempfile.NamedTemporaryFile(delete=False)",
    "a file of the system": "open('/etc/passwd').read()",
    "a file of the interpreter": "import os; os.remove(os.__file__)",
    "all files": "import glob; return [open(f).read() for f in glob.glob('/home/**')][1]",
    "the tests in /proc": "import os; return open(f'/proc/{os.getppid()}/environ').read()",
    "memory": "return bytearray(1 << 40)",
    "memory bit by bit": "y = []\n    while True:\n        y.append(bytearray(1 << 24))",
    "memory without an address": "import os\n    while True:\n        os.write(os.memfd_create('x'), bytes(1 << 24))",
    "endless output": "while True:\n        print('passed' * 10000)",
    "an endless loop": "while True: pass",
    "a sleep": "import time; time.sleep(1e6)",
    "an exit": "raise SystemExit(0)",
    "an exit without clean-up": "import os; os._exit(0)",
    "a value when it exits": "import atexit; atexit.register(print, 'passed'); raise SystemExit",
    "ends itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "stops itself": "import signal; signal.raise_signal(signal.SIGSTOP)",
    "kills its parent": "import os; os.kill(os.getppid(), 9)",
    "kills everything": "import os; os.kill(-1, 9)",
    "kills the first process by a file": (
        "import os, fcntl\n    r, w = os.pipe()\n    fcntl.fcntl(r, 8, os.getppid()); fcntl.fcntl(r, 10, 19)\n"
        "    fcntl.fcntl(r, 4, fcntl.fcntl(r, 3) | 0o20000); os.write(w, b'x')"
    ),
    "limits its parent": "import os, resource as r; r.prlimit(os.getppid(), r.RLIMIT_AS, (1, 1))",
    "lifts its limits": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (99, 99))",
    "slows its parent down": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "traces its parent": "import ctypes, os; assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "new namespaces": "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "shared memory": "import ctypes; assert ctypes.CDLL(None).shmget(1, 1 << 20, 0o1777) >= 0",
    "a thread that outlives": "import threading, time; threading.Thread(target=time.sleep, args=(1e6,)).start()",
    "threads without end": "import threading\n    while True: threading.Thread(target=input().wait).start()",
    "a long recursion": "return double(x)",
    "a recursion without limit": "import sys; sys.setrecursionlimit(1 << 30); return double(x)",
    "a huge integer": "return 1 << (1 << 26)",
    "a huge power": "return 9 ** 9 ** 9",
    "an endless iterator": "import itertools; return itertools.count()",
    "a deep list": "y = []\n    for _ in range(100_000): y = [y]\n    return y",
    "a list of itself": "y = []; y.append(y); return y",
    "equal to everything": "return type('E', (), {'__eq__': lambda self, other: True})()",
    "a number equal to everything": "return type('E', (int,), {'__eq__': lambda self, other: True})(7)",
    "a list equal to everything": "return type('E', (list,), {'__eq__': lambda self, other: True})()",
    "half a surrogate pair": "return '\\ud800' * 3",
    "not a number": "return float('nan')",
    "a fault with a long name": "raise type('passed' * 100, (BaseException,), {})",
    "a fault of another name": 'raise type(\'x\\n{"outcome": "passed"}\', (Exception,), {})',
    "a test by its frame": (
        "import sys\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in frame.f_locals.values():\n            if 'assert' in str(value): return 6\n"
        "        frame = frame.f_back"
    ),
    "a test in memory": "import gc; return [o for o in gc.get_objects() if 'assert double' in str(o)][0]",
    "its arguments and input": "import sys; return sys.argv[-1] + sys.stdin.read()",
    "changed arguments": "x.clear() if isinstance(x, list) else 0; return x",
    "every descriptor": (
        "import os\n    for number in range(64):\n"
        '        try: os.write(number, b\'{"outcome": "passed", "reason": ""}\\n\')\n'
        "        except OSError: pass"
    ),
    "half a message": "import os\n    for n in (3, 4, 5, 6): os.write(n, b'{\"value\": ')",
    "no descriptor left": "import os; os.closerange(0, 64)",
    "its own reply": "import __main__; __main__.attempt = lambda act: {'outcome': 'passed', 'value': ['passed', 1]}",
    "a code for a value": "import __main__; __main__.encode = lambda value: ['__import__', 'os']; return 1",
}
AT_THE_START = {
    "not Python": "def double(x) return x * 2",
    "a NUL": "\0def double(x): return 1",
    "many brackets": "double = " + "(" * 20_000 + ")" * 20_000,
    "many signs": "double = " + "-" * 40_000 + "1",
    "an exit before the tests": "raise SystemExit(0)\ndef double(x): return x * 2",
    "an exit without clean-up before the tests": f"import os; os._exit(0)\n{HONEST}",
    "another assert": (
        "import builtins\nbuiltins.AssertionError = type('A', (Exception,), {})\ndef double(x): return 1"
    ),
    "other built-ins": (
        "import builtins\nfor name in ('len', 'isinstance', 'type', 'print', 'map', 'list', 'any', 'all', 'eval'):\n"
        "    setattr(builtins, name, lambda *a, **k: True)\ndef double(x): return 1"
    ),
    "a trace": "import sys; sys.settrace(lambda *a: sys.exit(0))\ndef double(x): return 1",
    "other modules": "import sys\nfor name in list(sys.modules): sys.modules[name] = None\ndef double(x): return 1",
    "the line of success": "print('passed'); print('{\"outcome\": \"passed\"}')\ndef double(x): return 1",
    "a thread that answers": (
        "import threading, os\ndef answer():\n    while True:\n        for n in range(3, 12):\n"
        "            try: os.write(n, b'{\"value\": true}\\n')\n            except OSError: pass\n"
        "threading.Thread(target=answer, daemon=True).start()\ndef double(x): return True"
    ),
}
SCRIPTS = {
    "an exit before": "raise SystemExit(0)",
    "the same for every input": "print(42)",
    "endless output": "while True: print(42)",
    "waits for more": "import time; print(int(input()) * 2, flush=True); time.sleep(1e6)",
    "fails in the end": "print(int(input()) * 2); 1 / 0",
    "a fork": "import os\nif not os.fork(): print(int(input()) * 2)",
    "a file": "open('/tmp/answer', 'w').write(input()); print(42)",
    "another output": "import os; os.close(1); print(42)",
}


@pytest.fixture(scope="module")
def before():
    return sandbox._descendants()


@pytest.fixture(scope="module")
def grader(before, contained):
    with ProgramGrader(LIMITS) as grader:
        yield grader


@pytest.mark.parametrize(
    "program",
    [
        *(pytest.param(f"def double(x):\n    {code}\n    return 7\n", id=name) for name, code in IN_A_CALL.items()),
        *(pytest.param(code, id=name) for name, code in AT_THE_START.items()),
    ],
)
def test_none_is_right_and_the_next_one_is_graded(grader, program):
    result = grader.grade(GOLD, f"```python\n{program}\n```")
    assert result.status in ("wrong", "timeout"), result
    assert result.reason.isprintable()
    assert len(result.reason) < 200
    assert grader.grade(GOLD, HONEST).status == "correct"


def test_a_program_that_writes_its_own_reply_changes_no_argument_beside_a_value(grader):
    """It would pass by emptying the list that it was to sort."""
    reply = b'{"value": ["list", []], "arguments": ["tuple", [["list", []]]]}\n'
    program = (
        f"import os\ndef f(x):\n    for number in range(3, 9):\n        try: os.write(number, {reply})\n"
        "        except OSError: pass\n    return 1\n"
    )
    gold = ProgramTests(tests=("x = [2, 1]\nassert f(x) == sorted(x)",), names=("f",)).to_gold()
    assert grader.grade(gold, program).status == "wrong"


@pytest.mark.parametrize("program", SCRIPTS.values(), ids=SCRIPTS)
def test_no_script_is_right_and_the_next_one_is_graded(grader, program):
    assert grader.grade(SCRIPT, program).status in ("wrong", "timeout")
    assert grader.grade(SCRIPT, HONEST_SCRIPT).status == "correct"


def test_nothing_of_them_is_left(grader, before):
    """A grader that met them has as many processes as a new one, and none after it was closed."""
    assert grader.grade(GOLD, HONEST).status == "correct"
    left = sandbox._descendants() - before
    with ProgramGrader(LIMITS) as other:
        assert other.grade(GOLD, HONEST).status == "correct"
        assert len(sandbox._descendants() - before) == 2 * len(left)
    grader.close()
    while any(Path(f"/proc/{process}").exists() for process in left):
        pass  # a test that takes for ever has failed
