"""Studies for tests: a protocol small enough to register and confirm in seconds on the tiny model."""

import contextlib
import functools
import importlib
import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from protocol.evidence.lock import closure

ROOT = Path(__file__).resolve().parent.parent

# Run first in a child process: torch and transformers cannot be imported in it.
BLOCK_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
"""

PROTOCOL = """
title = "A study for the test suite"
question = "Does crystal beat random on a model that knows nothing?"
models = ["path:{model}"]
seeds = [0]
budgets = [0.8]
[[tasks]]
name = "needle-256"
query = "inside"
max_new_tokens = 24
[[tasks]]
name = "association-256"
query = "outside"
max_new_tokens = 24
[arms]
full = {{ policy = "full" }}
crystal = {{ policy = "crystal" }}
random = {{ policy = "random" }}
streaming = {{ policy = "streaming" }}
[generation]
temperature = 0
dtype = "float32"
device = "cpu"
threads = 1
[decision]
rule = "superior"
subject = "crystal"
against = ["random", "streaming"]
at_least = 1
alpha = 0.05
method = "sign-flip"
draws = 10000
seed = 7
cache_tolerance = 0.02
missing = "inconclusive"
"""


# Changes of the template for `write`: one task alone, and a sweep of two candidates on it.
ONE_TASK = {'[[tasks]]\nname = "association-256"\nquery = "outside"\nmax_new_tokens = 24\n': ""}
SWEEP = {
    **ONE_TASK,
    'crystal = { policy = "crystal" }': 'h2o = { policy = "h2o" }',
    'streaming = { policy = "streaming" }': (
        'streaming = { policy = "streaming" }\nsnapkv = { policy = "snapkv" }'
    ),
    'subject = "crystal"': 'subject = "chosen"\nbeside = ["snapkv"]\nmemory = "slots"',
    'against = ["random", "streaming"]': 'against = ["streaming"]',
    'missing = "inconclusive"': (
        'missing = "inconclusive"\n[sweep]\nname = "chosen"\ncandidates = ["h2o", "random"]\n'
        'baseline = "streaming"\nseeds = [3, 4]\ntolerance = 0.005'
    ),
    "threads = 1": "threads = 1\nproblems_per_batch = 2",
}


def write(folder: Path, model: Path, replace: dict[str, str] | None = None) -> Path:
    """A folder with protocol.toml; `replace` maps text of the template to other text."""
    text = PROTOCOL.format(model=model)
    for old, new in (replace or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "protocol.toml").write_text(text)
    return folder


def command(name: str, *arguments: object, tree: Path = ROOT) -> subprocess.CompletedProcess:
    """`python -m protocol.<name>` as run from the source tree `tree`."""
    arguments = (sys.executable, "-m", f"protocol.{name}", *map(str, arguments))
    return subprocess.run(arguments, cwd=tree, capture_output=True, text=True)


def here(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """The same in this process, which has torch already: for the many commands that need no process of their
    own.
    """
    out, err = io.StringIO(), io.StringIO()
    same = mock.patch.object(closure, "environment", surroundings)
    with same, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = importlib.import_module(f"protocol.{name}").main([*map(str, arguments)])
    return subprocess.CompletedProcess(name, status, out.getvalue(), err.getvalue())


# This process stays in one environment, and hashing all of it takes seconds.
surroundings = functools.cache(closure.environment)


def copy_tree(to: Path) -> Path:
    """The source packages copied, so that a test can edit them."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("protocol", "policies", "splits", "analysis", "figures"):
        shutil.copytree(ROOT / package, to / package, ignore=ignore)
    return to


# What `here` calls, in a process of its own.
MAIN = "import importlib, sys; sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))"


def start(name: str, *arguments: object, typed: bool = False) -> subprocess.Popen:
    """The command in a process that goes on beside the test. typed: as on a command line, so that confirm
    runs the locked tree, which takes the time to compile it.
    """
    how = ["-m", f"protocol.{name}"] if typed else ["-c", MAIN, f"protocol.{name}"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, *how, *map(str, arguments)], cwd=ROOT, stdout=quiet, stderr=quiet
    )


@contextlib.contextmanager
def flipped(path: Path, draw: random.Random) -> Iterator[int]:
    """One bit of the file is another one inside; gives the place of its byte."""
    data = path.read_bytes()
    place = draw.randrange(len(data))
    path.write_bytes(data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :])
    try:
        yield place
    finally:
        path.write_bytes(data)


def content(path: Path) -> dict:
    return json.loads(path.read_bytes())


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
