"""What needs no model is refused without importing torch, which takes seconds."""

import json
import subprocess
import sys

import pytest
import studies

from benchmarks import startup

CODE = """
import contextlib, importlib, io, json
said = {}
for told, (name, *arguments) in json.loads(sys.argv[1]).items():
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            status = importlib.import_module(f"protocol.{name}").main(arguments)
        except SystemExit as stopped:
            status = stopped.code
        except ImportError as blocked:
            status = str(blocked)
    said[told] = [status, err.getvalue()]
print(json.dumps(said))
"""
STATUS = {
    "status, of a judged study": 0,
    "audit --help": 0,
    "register, locked already": 4,
    "register, unknown field": 2,
    "register, unknown task": 2,
    # The registry of policies is asked, whose values need torch: that it is not here is said in one line.
    "register, unknown policy": 2,
    "register, unknown model": 2,
    "probe, not locked": 2,
    "probe, judged": 4,
    "confirm, not locked": 2,
    "confirm, judged": 4,
    "replicate, no verdict": 2,
    "rehearse, unknown field": 2,
    "calibrate, unknown task": 2,
    "amend, not beside": 2,
    "withdraw, judged": 4,
    "export, no verdict": 2,
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Exit status and standard error of each command, one after the other in a process without torch."""
    commands = json.dumps(startup.studied(tmp_path_factory.mktemp("studies")))
    child = [sys.executable, "-c", studies.BLOCK_TORCH + CODE, commands]
    done = subprocess.run(child, cwd=studies.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_needs_no_model_is_refused_without_torch(said):
    assert {told: status for told, (status, _) in said.items()} == STATUS


def test_each_refusal_is_one_line(said):
    assert {told for told, (status, err) in said.items() if status in (2, 4) and err.count("\n") != 1} == set()
