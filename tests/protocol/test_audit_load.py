"""How much of this project an audit loads: what a reviewer has to trust."""

import subprocess
import sys

from studies import ROOT

MOST_LINES = 20_850  # 20,746 of quickstart on 2026-11-28; the aim is 15,000

AUDIT = """
import contextlib, io, sys
from protocol import audit
with contextlib.redirect_stdout(io.StringIO()):
    status = audit.main(["registrations/quickstart"])
packages = ("protocol", "policies", "splits", "analysis", "figures")
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] in packages]
print(status, "torch" in sys.modules, sum(len(open(file).readlines()) for file in files if file))
"""


def test_an_audit_loads_no_torch_and_no_more_lines_than_it_did():
    done = subprocess.run([sys.executable, "-c", AUDIT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, has_torch, lines = done.stdout.split()
    assert (status, has_torch) == ("0", "False")
    assert int(lines) <= MOST_LINES
