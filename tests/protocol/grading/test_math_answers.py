r"""Mathematical equality: whatever stands in the box is graded, and nothing of it hangs, crashes or runs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from looped import looped

from protocol.formats.refusals import BadInput
from protocol.grading import GRADERS, mathverify, worker
from protocol.grading.mathverify import MathVerify
from protocol.tasks import dataset

DEADLINE = 1.0

# Ours, in the style of the answers of MATH.
GOLDS = [
    *("17", "-4", "0", "0.375", "1,000,000", "12\\%", "\\$4.50", "45^\\circ", "2^{10}", "10!"),
    *("\\frac{7}{12}", "-\\frac{3}{8}", "\\dfrac{\\sqrt{6}}{3}", "4\\sqrt{5}", "\\sqrt[3]{9}", "\\frac{5\\pi}{6}"),
    *("3 + 2i", "2x^2 - 3x + 1", "\\frac{x + 2}{x - 3}", "y = 2x + 7", "x \\le -3", "(2, -5)"),
    *("\\left( 4, \\frac{\\pi}{3} \\right)", "[-1, 6)", "(-\\infty, 2) \\cup (5, \\infty)", "1, 4, 9"),
    *("\\{-2, 0, 2\\}", "\\begin{pmatrix} 1 & -2 \\\\ 0 & 3 \\end{pmatrix}", "\\text{Thursday}", "12_{7}"),
]

SAME = [  # gold, answer
    ("\\frac{1}{2}", "0.5"),
    ("\\frac{1}{2}", "\\dfrac12"),
    ("\\frac{1}{2}", "1/2"),
    ("4\\sqrt{5}", "\\sqrt{80}"),
    ("2x^2 - 3x + 1", "(2x - 1)(x - 1)"),
    ("\\{-2, 0, 2\\}", "\\{2, 0, -2\\}"),
    ("3", "x = 3"),
    ("025", "25"),
    ("10", "10 \\text{ cm}"),
    ("5", "$5$"),
    ("\\frac{5\\pi}{6}", "5\\pi/6"),
    ("(2, -5)", "\\left(2,\n-5\\right)"),
    ("-4", "\N{MINUS SIGN}4"),
    ("\\frac{5}{2}", "2\N{VULGAR FRACTION ONE HALF}"),
    ("-\\frac{5}{2}", "-2\N{VULGAR FRACTION ONE HALF}"),
]
DIFFERENT = [
    ("17", "18"),
    ("\\frac{1}{2}", "\\frac{2}{1}"),
    ("4\\sqrt{5}", "4\\sqrt{6}"),
    ("(2, -5)", "(-5, 2)"),
    ("[-1, 6)", "[-1, 6]"),
    ("\\text{Thursday}", "\\text{Friday}"),
    ("17", "no idea"),
    ("\\frac{21}{2}", "2\\frac{1}{2}"),
]
# What math-verify 0.9 makes of these is known to be wrong or arguable, and registered as it is.
KNOWN = [
    ("\\{1,2\\}", "(1,2)", "correct"),
    ("2", "2_8", "correct"),
    ("10", "10\\%", "correct"),
    ("10\\%", "0.1", "correct"),
    ("\\frac{1}{3}", ".333", "wrong"),
    ("\\frac{\\pi}{4}", "45^\\circ", "wrong"),
    ("\\frac{5}{2}", "2 1/2", "wrong"),
]

CANARY = "canary-of-the-grader"
TOUCH = f"__import__('os').system('touch {CANARY}')"
HOSTILE = {
    "tower of three": "9^{9^{9}}",
    "tower of four": "9^{9^{9^{9}}}",
    "tower of issue 65": "5^(5^(5^(5^5)))",
    "huge power": "2^{1000000000}",
    "factorial": "10000000!",
    "factorials of factorials": "((9!)!)!",
    "nested braces": "{" * 100_000 + "1" + "}" * 100_000,
    "nested parentheses": "(" * 5_000 + "1" + ")" * 5_000,
    "nested fractions": r"\frac{1}{" * 2_000 + "2" + "}" * 2_000,
    "code": TOUCH,
    "code as text": rf"\text{{{TOUCH}}}",
    "subclasses": "().__class__.__base__.__subclasses__()",
    "a million digits": "7" * 1_000_000,
    "a long sum": "a+" * 500_000 + "a",
    "prose with dollars": "it costs $5 " * 80_000,
    "dollars": "$" * 200_000,
    "opened boxes": r"\boxed{" * 20_000,
    "unbalanced": "}}}{{{",
    "unicode digits": "\u0667\u096b\U0001d7d8",
    "emoji and right to left": "\U0001f9ee\u202e42\u202c\U0001f468\u200d\U0001f469",
    "NUL": "4\x002",
    "zero width": "4\u200b2",
    "surrogate": "\ud8004",
    "sum to a milliard": r"\sum_{k=1}^{1000000000} \frac{1}{k^2}",
    "nested integrals": r"\int_0^1 \int_0^1 \int_0^1 e^{x^2 y^2 z^2} \, dx \, dy \, dz",
    "large set": r"\{" + ",".join(map(str, range(1_000))) + r"\}",
    "large matrix": r"\begin{pmatrix}" + r"\\".join([" & ".join(["x"] * 60)] * 60) + r"\end{pmatrix}",
    "tiny power": "10^{-10^{10}}",
    "issue 65, other": "{@Neillier \u043d\u0438\u043a $x^{$y_{\\frac{",
}


@pytest.fixture(scope="module")
def grader():
    with MathVerify(deadline=DEADLINE) as opened:
        yield opened


def boxes(answer: str) -> str:
    return rf"Therefore \boxed{{{answer}}}."


@looped("gold", GOLDS)
def test_a_gold_answer_verifies_against_itself(grader, gold):
    assert grader.compare(gold, gold) == "same"


@looped(("gold", "answer"), SAME)
def test_an_equal_answer_of_another_form_is_correct(grader, gold, answer):
    assert grader.grade(gold, boxes(answer)).status == "correct"


@looped(("gold", "answer"), DIFFERENT)
def test_another_answer_is_wrong_and_says_so(grader, gold, answer):
    grade = grader.grade(gold, boxes(answer))
    assert (grade.status, grade.answer) == ("wrong", answer)
    assert grade.reason


def test_a_fraction_character_after_a_number_is_not_part_of_its_digits(grader):
    assert grader.grade("\\frac{21}{2}", boxes("2\N{VULGAR FRACTION ONE HALF}")).status == "wrong"


@looped(("gold", "answer", "status"), KNOWN)
def test_what_math_verify_is_known_to_get_wrong_stays_known(grader, gold, answer, status):
    assert grader.grade(gold, boxes(answer)).status == status


def test_only_the_last_box_counts(grader):
    assert grader.grade("4", "First 4, then \\boxed{4}, at last \\boxed{5}.").status == "wrong"
    assert grader.grade("4", "The answer is 4.").status == "no answer"
    assert grader.grade("4", r"\boxed{4} or \boxed{3} or \boxed{2}").status == "wrong"


# Each of these takes its deadline and a new process. The tower of four has a test of its own, too.
ENDLESS = {
    *("tower of four", "huge power", "factorials of factorials"),
    *("sum to a milliard", "nested integrals", "tiny power"),
}


def test_hostile_strings_are_29_and_23_of_them_are_tried_each_time():
    assert len(HOSTILE) == 29
    assert len(HOSTILE.keys() - ENDLESS) == 23


@pytest.mark.parametrize("names", [HOSTILE.keys() - ENDLESS, pytest.param(ENDLESS, marks=pytest.mark.soak)])
def test_hostile_strings_are_graded_and_none_of_them_runs(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    with MathVerify(deadline=DEADLINE) as grader:
        for name in HOSTILE:
            if name not in names:
                continue
            answer = HOSTILE[name]
            began = time.monotonic()
            for text in (answer, boxes(answer)):
                status = grader.grade("42", text).status
                # The two digits between which something invisible stood are 42 after all.
                assert status in ({"correct", "no answer"} if name == "zero width" else NEVER), name
            assert time.monotonic() - began < 30, name
        assert grader.grade("42", boxes(r"\frac{84}{2}")).status == "correct"
    assert list(tmp_path.iterdir()) == []


NEVER = {"wrong", "no answer", "timeout", "error"}  # correct


@pytest.mark.parametrize(
    "names",
    [
        ("code", "subclasses", "nested parentheses"),
        pytest.param(("code as text", "large set"), marks=pytest.mark.soak),
    ],
)
def test_even_past_the_limit_on_length_nothing_runs_and_the_deadline_holds(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    with MathVerify(deadline=DEADLINE) as grader:
        for name in names:
            assert grader.compare("42", HOSTILE[name]) in ("different", "timeout", "died"), name
        assert grader.compare("42", r"\frac{84}{2}") == "same"
    assert list(tmp_path.iterdir()) == []


def test_a_formula_that_never_ends_is_a_timeout_and_the_next_one_is_graded(grader):
    began = time.monotonic()
    grade = grader.grade("42", boxes(HOSTILE["tower of four"]))
    assert (grade.status, grade.answer) == ("timeout", "9^{9^{9^{9}}}")
    assert grade.reason == "math-verify took more than 1 s"
    assert time.monotonic() - began < 30
    assert grader.grade("0.5", boxes(r"\frac12")).status == "correct"


def test_an_answer_that_exhausts_the_memory_is_an_error_and_not_wrong(monkeypatch, tmp_path):
    greedy = tmp_path / "worker.py"
    greedy.write_text("print('{\"ready\": 1}', flush=True); input(); import os; os._exit(1)")
    monkeypatch.setattr(mathverify, "WORKER", greedy)
    with MathVerify(deadline=20) as grader:
        grade = grader.grade("42", boxes("41"))
    assert (grade.status, grade.answer) == ("error", "41")


def test_a_process_that_died_of_earlier_work_is_replaced_and_the_answer_graded(monkeypatch, tmp_path):
    tired = tmp_path / "worker.py"
    tired.write_text(
        "import os, pathlib, sys\n"
        "print('{\"ready\": 1}', flush=True); input()\n"
        f"grown = pathlib.Path({str(tmp_path / 'grown')!r})\n"
        "if not grown.exists(): grown.touch(); os._exit(1)\n"
        "print('{\"same\": true}', flush=True); input()\n"
    )
    monkeypatch.setattr(mathverify, "WORKER", tired)
    with MathVerify(deadline=20) as grader:
        assert grader.grade("42", boxes("41")).status == "correct"


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux alone")
def test_the_process_cannot_take_more_memory_than_it_is_given(grader):
    import resource

    grader.compare("1", "1")
    limits = resource.prlimit(grader._child._process.pid, resource.RLIMIT_AS)
    assert limits == (mathverify.MEMORY_BYTES, mathverify.MEMORY_BYTES)


def test_an_answer_longer_than_500_characters_is_wrong_unless_it_is_the_gold(grader):
    long = "+".join(["1"] * 300)
    assert grader.grade("300", boxes(long)).reason == "the boxed answer has more than 500 characters"
    assert grader.grade(long, boxes(long)).status == "correct"


def test_the_same_string_is_correct_without_a_process(monkeypatch):
    monkeypatch.setattr(mathverify, "WORKER", Path("nowhere.py"))
    with MathVerify() as grader:
        assert grader.grade("9^{9^{9}}", boxes("9^{9^{9}}")).status == "correct"


def test_a_process_that_does_not_start_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(mathverify, "WORKER", Path("nowhere.py"))
    with MathVerify() as grader, pytest.raises(BadInput, match="its process did not start"):
        grader.grade("1", boxes("2"))


def test_without_math_verify_the_grader_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(mathverify.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install '\.\[run\]'"):
        GRADERS["math"]()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_closing_and_forgetting_both_end_the_process():
    closed, forgotten = MathVerify(), MathVerify()
    pids = []
    for grader in (closed, forgotten):
        grader.compare("1", "1")
        pids.append(grader._child._process.pid)
    closed.close()
    del forgotten, grader
    assert all(map(gone, pids))
    assert closed.compare("1", "1") == "same"  # it starts again
    closed.close()


def test_a_killed_parent_leaves_no_process_that_computes_for_ever():
    code = (
        "import os, signal, threading, time\n"
        "from protocol.grading.mathverify import MathVerify\n"
        "grader = MathVerify(deadline=1.0)\n"
        "grader.compare('1', '1')\n"
        "print(grader._child._process.pid, flush=True)\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "grader.compare('1', '9^{9^{9^{9}}}')\n"
    )
    root = Path(mathverify.__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    until = time.monotonic() + 30
    while not gone(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.1)
    assert gone(int(done.stdout))


@pytest.mark.parametrize("code", ["Integer (42 )", "Float ('0.50' )"])
def test_sympy_may_make_numbers_of_text(code):
    assert worker.restrict_to_numbers(lambda code: code)(code) == code


@looped(
    "code",
    [
        "Integer (1 )+Integer (1 )",
        "Symbol ('x' )",
        f"Integer ({TOUCH})",
        f"Float ('1' or {TOUCH})",
        "Integer (Integer (1 ))",
        "",
        compile("1", "<string>", "eval"),
    ],
)
def test_nothing_else_that_sympy_makes_of_text_is_run(code):
    with pytest.raises(ValueError, match="text is never run as code"):
        worker.restrict_to_numbers(eval)(code)


def test_the_guard_is_where_sympy_runs_text(monkeypatch):
    from sympy import sympify
    from sympy.parsing import sympy_parser

    monkeypatch.setattr(sympy_parser, "eval_expr", worker.restrict_to_numbers(sympy_parser.eval_expr))
    assert sympify("42") == 42
    for run in (sympify, sympy_parser.parse_expr):
        with pytest.raises(ValueError, match="text is never run as code"):
            run("().__class__")


@pytest.mark.parametrize("name", ["math500", "aime24"])
def test_every_published_gold_verifies_against_itself(name):
    path = dataset.data_folder() / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no data at {path}; kv-prereg tasks fetch {name}")
    golds = [json.loads(line)["answer"] for line in path.read_text("utf-8").splitlines()]
    with MathVerify() as grader:
        assert [gold for gold in golds if grader.compare(gold, gold) != "same"] == []
    assert len(golds) == {"math500": 500, "aime24": 30}[name]
