"""How long commands take that need no model: those that only read, and refusals.

    python -m benchmarks.startup                      of this source tree
    python -m benchmarks.startup --tree ../another    of another one, run from there

Studies are copies of a shipped one, cut back to the state that the command refuses. Each command is a process
of its own, and runs once before it is measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.pairs import Ratio
from benchmarks.report import at_most, processor, span, table
from protocol.workspace.drift import ROOT

TARGET = 1.5  # seconds
LATER = ("claim.json", "seal.json", "verdict.json", "records", "probe", "figures", "anchors", "*.html")
BROKEN = {  # of a written protocol: what is not as it should be
    "field": ("draws = ", "draw = "),
    "task": ('name = "needle-768"', 'name = "neddle-768"'),
    "policy": ('policy = "random"', 'policy = "rendom"'),
    "model": ('models = ["', 'models = ["no-such-'),
}


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repetitions", type=int, default=3, help="default 3")
    made.add_argument("--tree", type=Path, default=ROOT, help="where the commands are run; default here")
    arguments = made.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        commands = studied(Path(place))
        taken = {name: repeated(given, arguments) for name, given in commands.items()}
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}.\n")
    rows = [[name, str(status), span(seconds)] for name, (status, seconds) in taken.items()]
    print(table(["command", "exit", "seconds"], rows))
    print(f"\nthe slowest, seconds: {at_most(max(each.median for _, each in taken.values()), TARGET)}")
    return 0


def studied(place: Path) -> dict[str, list[str]]:
    """The commands, by what they are told, on studies that are made below `place`."""
    judged = shutil.copytree(ROOT / "registrations" / "quickstart", place / "registrations" / "judged")
    locked = shutil.copytree(judged, judged.with_name("locked"), ignore=shutil.ignore_patterns(*LATER))
    ledger = (judged / "ledger.jsonl").read_bytes()
    (locked / "ledger.jsonl").write_bytes(ledger[: ledger.index(b"\n") + 1])
    text = (judged / "protocol.toml").read_text()
    broken = {name: judged.with_name(name) for name in BROKEN}
    for name, (right, wrong) in BROKEN.items():
        assert right in text, right
        broken[name].mkdir()
        (broken[name] / "protocol.toml").write_text(text.replace(right, wrong, 1))
    written = broken["model"]
    reason = ["--reason", "a typing error"]
    return {
        "status, of a judged study": ["status", str(judged)],
        "audit --help": ["audit", "--help"],
        "register, locked already": ["register", str(locked)],
        **{f"register, unknown {name}": ["register", str(path)] for name, path in broken.items()},
        "probe, not locked": ["probe", str(written)],
        "probe, judged": ["probe", str(judged)],
        "confirm, not locked": ["confirm", str(written)],
        "confirm, judged": ["confirm", str(judged)],
        "replicate, no verdict": ["replicate", str(locked)],
        "rehearse, unknown field": ["rehearse", str(broken["field"])],
        "calibrate, unknown task": ["calibrate", "chain-llama", "text", "--task", "chains"],
        "amend, not beside": ["amend", str(locked), str(place / "elsewhere"), *reason],
        "withdraw, judged": ["withdraw", str(judged), *reason],
        "export, no verdict": ["export", str(locked), "--format", "in-toto"],
    }


def repeated(given: Sequence[str], arguments: argparse.Namespace) -> tuple[int, Ratio]:
    """Exit status, and median and range of seconds after one run that is not counted."""
    command, seconds = [sys.executable, "-m", f"protocol.{given[0]}", *given[1:]], []
    settings = os.environ | {"PYTHONPATH": str(arguments.tree.resolve())}
    for _ in range(1 + arguments.repetitions):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=arguments.tree, env=settings, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return done.returncode, Ratio(statistics.median(seconds[1:]), min(seconds[1:]), max(seconds[1:]))


if __name__ == "__main__":
    sys.exit(main())
