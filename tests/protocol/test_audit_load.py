"""How much of this project an audit loads: what a reviewer has to trust."""

import subprocess
import sys

import pytest
from studies import ROOT

MOST_LINES = {"quickstart": 21_200, "agreement-programs": 26_300}
"""The aim is 15,000; sentences that a stranger reads once took 400 lines more, the form of a record, by which a line is
checked in one pass, 60. quickstart is of lock version 1,
agreement-programs of version 2: its policies are compared, and its problems with those of the studies beside it, whose
tasks are loaded.
"""

AUDIT = """
import contextlib, io, sys
from protocol import audit
with contextlib.redirect_stdout(io.StringIO()):
    status = audit.main([sys.argv[1]])
packages = ("protocol", "policies", "splits", "analysis", "figures")
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] in packages]
print(status, sum(len(open(file).readlines()) for file in files if file), *sys.modules)
"""


def audit(study: str) -> tuple[int, int, set[str]]:
    """Return the exit status, the lines of this project that were loaded, and all modules that were."""
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, f"registrations/{study}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    status, lines, *modules = done.stdout.split()
    return int(status), int(lines), set(modules)


def test_an_audit_of_version_1_loads_no_torch_and_no_more_lines_than_it_did():
    status, lines, modules = audit("quickstart")
    assert status == 0
    assert modules.isdisjoint({"torch", "policies"})
    assert lines <= MOST_LINES["quickstart"]


@pytest.mark.soak
def test_an_audit_of_version_2_loads_the_policies_of_its_arms_and_no_more_lines_than_it_did():
    """The study has `h2o` and no `crystal`; its answers are digits, and no study is simulated."""
    status, lines, modules = audit("agreement-programs")
    assert status == 0
    assert "policies.h2o" in modules
    others = {"policies.crystal", "policies.quantised", "protocol.sandbox", "analysis.simulation.simulated_studies"}
    assert modules.isdisjoint(others)
    assert lines <= MOST_LINES["agreement-programs"]
