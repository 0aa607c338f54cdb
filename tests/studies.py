"""Studies for tests: a protocol small enough to register and confirm in seconds on the tiny model."""

import contextlib
import copy
import functools
import importlib
import io
import json
import lzma
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess as Process
from pathlib import Path
from typing import Any
from unittest import mock

from protocol.lock import installed_files, installed_versions
from protocol.workspace import drift, imports, locked_tree

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
crystal = {{ policy = "crystal-token-level" }}
random = {{ policy = "random" }}
streaming = {{ policy = "streaming" }}
[generation]
temperature = 0
dtype = "float32"
device = "cpu"
threads = 1
[gate]
accuracy = 0.05
truncated = 0.5
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
memory = "slots"
missing = "inconclusive"
"""


# Trunks of one slot: those of `crystal` may protect 194 slots, and 0.8 of these prompts are 164.

# Changes of the template for `write`: one task alone, and a sweep of two candidates on it.
ONE_TASK = {'[[tasks]]\nname = "association-256"\nquery = "outside"\nmax_new_tokens = 24\n': ""}
SWEEP = {
    **ONE_TASK,
    'crystal = { policy = "crystal-token-level" }': 'h2o = { policy = "h2o" }',
    'streaming = { policy = "streaming" }': ('streaming = { policy = "streaming" }\nsnapkv = { policy = "snapkv" }'),
    'subject = "crystal"': 'subject = "chosen"\nbeside = ["snapkv"]',
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


def parse(text: str) -> Any:
    """The design of a protocol of this text."""
    from protocol.plan import toml_reader

    return toml_reader.parse(text.encode(), "protocol.toml")


def words(text: str) -> int:
    """How many there are: in the place of a tokenizer."""
    return len(text.split())


def command(name: str, *arguments: object, tree: Path = ROOT) -> subprocess.CompletedProcess:
    """`python -m protocol.<name>` as run from the source tree `tree`."""
    arguments = (sys.executable, "-m", f"protocol.{name}", *map(str, arguments))
    return subprocess.run(arguments, cwd=tree, env=plain(), capture_output=True, text=True)


def plain() -> dict[str, str]:
    """The environment without what has Python import from elsewhere."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def here(name: str, *arguments: object, tree: Path | None = None, drawn: bool = False) -> subprocess.CompletedProcess:
    """The same in this process, which has torch already: for the many commands that need no process of their
    own. tree: as it is typed in that source tree, where it is refused before the locked one is entered.
    drawn: whether a verdict is drawn too, and one simulated before a lock, which takes as long as running the study.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as held:
        held.enter_context(contextlib.redirect_stdout(out))
        held.enter_context(contextlib.redirect_stderr(err))
        held.enter_context(mock.patch.object(installed_files, "environment", surroundings))
        held.enter_context(mock.patch.object(installed_versions, "versions", installed))
        held.enter_context(remembering(name))
        if not drawn:
            held.enter_context(undrawn(name))
        if tree is not None:
            held.enter_context(mock.patch.object(drift, "ROOT", tree))
            held.enter_context(mock.patch.object(locked_tree, "ROOT", tree))
            held.enter_context(mock.patch.object(imports, "refuse_uncovered"))  # tests lie elsewhere
            held.enter_context(mock.patch.object(os, "execve", side_effect=AssertionError("was not refused")))
        typed = {} if tree is None else {"enter": True}
        status = importlib.import_module(f"protocol.{name}").main([*map(str, arguments)], **typed)
    return subprocess.CompletedProcess(name, status, out.getvalue(), err.getvalue())


def ran(status: int | tuple[int, ...], name: str, *arguments: object, **how: Any) -> subprocess.CompletedProcess:
    """The same, whose exit status has to be this one, or one of these."""
    done = here(name, *arguments, **how)
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), done.stdout + done.stderr
    return done


def refused(status: int, words: str, name: str, *arguments: object, **how: Any) -> None:
    """The command ends with this status, and says why in one line that holds these words."""
    said = ran(status, name, *arguments, **how).stderr
    assert words in said, said
    assert said.strip().count("\n") == 0, said


# This process stays in one environment. Hashing all of it takes seconds, reading what is installed as long
# as all the rest of an audit.
surroundings = functools.cache(installed_files.environment)
installed = functools.cache(installed_versions.versions)

# What the rule can see of a protocol, and which of its arms are alike: seconds, and the same each time.
SEEN: dict[str, Any] = {}


@contextlib.contextmanager
def undrawn(name: str) -> Iterator[None]:
    """Within it a verdict is written and not drawn, and a lock without a simulated verdict before it, which is for
    test_simulated_study.py.
    """
    if name not in ("register", "amend", "confirm", "replicate"):
        yield
        return

    from figures import report
    from protocol.preflight import simulated_study

    with (
        mock.patch.object(report, "report", lambda folder: folder / "report.html"),
        mock.patch.object(simulated_study, "refuse_unjudgeable", return_value=None),
    ):
        yield


@contextlib.contextmanager
def remembering(name: str, seen: dict[str, Any] = SEEN) -> Iterator[None]:
    """Within it a command simulates a protocol once, however often it locks and confirms it."""
    if name not in ("register", "amend", "probe", "confirm", "replicate", "rehearse"):
        yield
        return
    from protocol.plan import grid
    from protocol.preflight import rule_checks, same_slots, simulated_study

    def remembered(function: Callable[..., Any], told: Callable[[Any], Any]) -> Callable[..., Any]:
        def once(about: Any, *rest: Any, **how: Any) -> Any:
            key = json.dumps([function.__name__, told(about), rest, how, same_slots.LIGHT_BYTES], sort_keys=True)
            if key not in seen:
                seen[key] = function(about, *rest, **how)
            return copy.deepcopy(seen[key])

        return once

    def judged(protocol: dict[str, Any]) -> dict[str, Any]:
        """What a rule and its drawings see of a protocol, beside its grid."""
        return {
            name: part for name, part in protocol.items() if name not in ("title", "question", "generation", "arms")
        }

    told = {
        (same_slots, "find_same_slots"): lambda planned: planned.protocol.content(),
        (rule_checks, "check_rule"): lambda design: [judged(design.content()), grid.cells(design)],
        (simulated_study, "refuse_unjudgeable"): lambda lock: [
            judged(lock["protocol"]["content"]), lock["grid"], lock["items"], lock["judging"]
        ],
    }  # fmt: skip
    with contextlib.ExitStack() as held:
        for (module, function), about in told.items():
            held.enter_context(mock.patch.object(module, function, remembered(getattr(module, function), about)))
        yield


def copy_tree(to: Path) -> Path:
    """The source packages copied, so that a test can edit them."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("protocol", "policies", "splits", "analysis", "figures"):
        shutil.copytree(ROOT / package, to / package, ignore=ignore)
    return to


# Processes are forked from one that has imported what commands need, and what a batch is run and graded with.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "protocol.confirm",
        "protocol.preflight.verify_before_claim",
        "protocol.run.held_out_problems",
        "protocol.run.progress",
        "figures.report",
        "transformers.models.llama.modeling_llama",
        "accelerate",
        "math_verify",
    ]
)


def forked(function: Callable[..., object], *arguments: object) -> Process:
    """`function` in a process that goes on beside the test, and can be killed."""
    process = FORKING.Process(target=silently, args=(function, *arguments))
    process.start()
    return process


def silently(function: Callable[..., object], *arguments: object) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.exit(function(*arguments))


def start(name: str, *arguments: object) -> Process:
    """The command in such a process."""
    return forked(within, surroundings(), SEEN, name, *arguments)


def within(environment: dict[str, Any], seen: dict[str, Any], name: str, *arguments: object) -> int:
    """The command in this process; what is installed was read before, and what was simulated is known."""
    with mock.patch.object(installed_files, "environment", return_value=environment), remembering(name, seen):
        return importlib.import_module(f"protocol.{name}").main([*map(str, arguments)])


def typed(name: str, *arguments: object) -> Process:
    """The same as it is typed: confirm goes on in the locked tree, which takes the time to compile."""
    return forked(instead, [sys.executable, "-m", f"protocol.{name}", *map(str, arguments)])


def instead(command: list[str]) -> None:
    os.chdir(ROOT)
    os.execve(command[0], command, plain())


def kill_when_it_grows(process: Process, path: Path, after: float = 0) -> None:
    """Kill it `after` so many seconds once the file is longer than it is now."""
    size = path.stat().st_size if path.exists() else 0
    while process.is_alive() and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.005)
    time.sleep(after)
    assert process.is_alive(), "the study is too short to be killed; lengthen it"
    process.kill()
    process.join()


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


def shard_text(folder: Path, phase: str = "records") -> str:
    """The lines of a study's one shard, which is packed if the study is shipped."""
    plain = folder / phase / "shard-0.jsonl"
    return plain.read_text("utf-8") if plain.exists() else lzma.decompress(Path(f"{plain}.xz").read_bytes()).decode()


def unpack_shard(folder: Path, phase: str = "records") -> None:
    """Store the one shard of a copied study in plain form."""
    text = shard_text(folder, phase)
    (folder / phase / "shard-0.jsonl.xz").unlink(missing_ok=True)
    (folder / phase / "shard-0.jsonl").write_text(text, encoding="utf-8")


def edit(path: Path, old: str | bytes, new: str | bytes, count: int = -1) -> None:
    """Replace a text of a file, which has to be there."""
    was, now = (part.encode() if isinstance(part, str) else part for part in (old, new))
    data = path.read_bytes()
    assert was in data, old
    path.write_bytes(data.replace(was, now, count))


def content(path: Path) -> dict:
    return json.loads(path.read_bytes())


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Within it nothing below the folder is written, removed or added."""
    before = snapshot(folder)
    yield
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
