"""How much of this project an audit loads: what a reviewer has to trust."""

import subprocess
import sys

import pytest
from studies import ROOT

MOST_LINES = {"quickstart": 20_850, "agreement-programs": 31_900}
"""The aim is 15,000. quickstart is of lock version 1, agreement-programs of version 2, whose policies are compared."""

AUDIT = """
import contextlib, io, sys
from protocol import audit
with contextlib.redirect_stdout(io.StringIO()):
    status = audit.main([sys.argv[1]])
packages = ("protocol", "policies", "splits", "analysis", "figures")
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] in packages]
lines = sum(len(open(file).readlines()) for file in files if file)
print(status, "policies" in sys.modules, "torch" in sys.modules, lines)
"""


def load_by_audit(study: str) -> list[str]:
    """Return the status, whether the policies and torch were loaded, and the lines of this project that were."""
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, f"registrations/{study}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("study", MOST_LINES)
def test_an_audit_loads_no_more_lines_than_it_did(study):
    status, *_, lines = load_by_audit(study)
    assert status == "0"
    assert int(lines) <= MOST_LINES[study]


def test_an_audit_loads_torch_for_locked_settings_of_policies_alone():
    assert load_by_audit("quickstart")[1:3] == ["False", "False"]
