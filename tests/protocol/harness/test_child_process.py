"""A process that answers lines of JSON: asked, asked back, killed at its deadline, started anew."""

import os

import pytest

from protocol.harness import ChildProcess

SCRIPT = """
import json, os, sys, time
print(json.dumps({"ready": sys.argv[1:]}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    if "sleep" in question:
        time.sleep(question["sleep"])
    if "die" in question:
        os._exit(1)
    if "measure" in question:
        print(json.dumps({"count": question["measure"]}), flush=True)
        question = json.loads(sys.stdin.readline())
    print(json.dumps(question | {"pid": os.getpid(), "said": os.environ.get("SAID", "")}), flush=True)
"""


@pytest.fixture
def child(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = ChildProcess(script, ["one"], 60, {"SAID": "so"})
    yield child
    child.close()


def test_a_question_is_answered_by_one_process(child):
    first, second = child.ask({"a": "\u00e9" * 200_000}, 60), child.ask({"b": "line\nfeed"}, 60)
    assert (first["a"], first["said"], second["b"]) == ("\u00e9" * 200_000, "so", "line\nfeed")
    assert first["pid"] == second["pid"] != os.getpid()


def test_it_may_ask_back_while_it_works(child):
    assert child.ask({"measure": "four"}, 60, len)["counted"] == 4


@pytest.mark.parametrize(("question", "end"), [({"sleep": 60}, "timeout"), ({"die": 1}, "died")])
def test_one_that_does_not_answer_is_replaced(child, question, end):
    before = child.ask({}, 60)["pid"]
    assert child.ask(question, 0.2 if end == "timeout" else 60) == end
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert child.ask({}, 60)["pid"] != before


def test_one_that_does_not_start_has_died(tmp_path):
    child = ChildProcess(tmp_path / "none.py", [], 60, {})
    assert child.ask({}, 60) == "died"


def test_closing_ends_it(child):
    pid = child.ask({}, 60)["pid"]
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
