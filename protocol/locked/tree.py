"""Run the sources that were locked, unpacked afresh, instead of the working tree they were locked from.

A command that was typed unpacks `sources.zip`, checked against the lock, into a temporary folder and goes on
there as the same process: what is edited in the working tree from then on is not run. Python is told to
compile everything anew, since cached bytecode is no part of the closure, and gets of the environment what
`SETTINGS` names alone. The folder is removed when the command ends, however it ends, unless the process is
killed: then the folder stays, and nothing rests on it.

A file that is new in the working tree stops nobody, since it is not run. Called from Python instead of typed,
a command runs where it is, in a process that others may have changed: there no file may be new.
"""

import fnmatch
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from protocol.evidence.bytes import canonical
from protocol.evidence.lock import bundle, lock
from protocol.evidence.refusals import Tampered
from protocol.evidence.run.registration import Registration
from protocol.locked import drift, imports
from protocol.locked.drift import ROOT

__all__ = ["Main", "enter", "held", "passed", "run", "unpacked", "words"]

SETTINGS = (
    "PATH",  # git and ssh-keygen
    "HOME",  # ~/.cache/kv-prereg
    "KV_PREREG_HOME",  # what was fetched
    "TMPDIR",  # where the tree is
    "LANG",
    "LC_*",
    "TZ",
    "TERM",  # the display, as the next
    "COLORTERM",
    "NO_COLOR",
    "COLUMNS",
    "OMP_*",  # threads, which the protocol registers; how idle ones wait
    "CUDA_VISIBLE_DEVICES",  # which of several devices
    "CUBLAS_WORKSPACE_CONFIG",  # what makes its kernels deterministic
    "LD_LIBRARY_PATH",  # without it some Pythons do not start; what the system links is not locked
    "HF_HUB_OFFLINE",  # never to reach for the network
    "SLURM_CONF",  # where the scheduler of `--executor slurm` is described
    "SSH_AUTH_SOCK",  # git, for an anchor that is asked for on a remote, as the next
    "*_proxy",
    "*_PROXY",
)
"""What the locked tree is started with; each * stands for more letters. Everything else that could change
what is imported or how it runs is left out: PYTHON*, LD_PRELOAD, MATPLOTLIBRC and all that nobody thought of.
"""
PREFIX = "kv-prereg-"
BYTECODE = "bytecode"


class Main(Protocol):
    """The main function of a command. enter: whether it goes on in the locked tree."""

    def __call__(self, argv: list[str] | None = None, *, enter: bool = False) -> int: ...


def run(main: Main) -> int:
    """A command as it was typed: it enters the locked tree, which is removed when it is done there."""
    try:
        return main(enter=True)
    finally:
        if unpacked():
            with suppress(KeyboardInterrupt):  # of somebody who does not want to wait
                shutil.rmtree(ROOT, ignore_errors=True)
        gc.freeze()  # or Python, as it ends, looks for a second through what torch and its company made


def enter(study: Registration, module: str) -> None:
    """Go on as `python -m <module>` with the same arguments in the tree that was locked; does not return.

    Returns at once in that tree. Raises Drifted when a locked file differs in the working tree, Tampered when
    the bundle does, or when this is the tree of another lock, BadInput where Python imports from elsewhere.
    """
    if (digest := held()) is not None:
        if digest != study.lock.digest:
            raise Tampered(f"{study.folder}: its lock changed while its tree was unpacked; start again")
        imports.refuse_uncovered()
        return
    imports.refuse_uncovered()
    drift.refuse(study, drift.of_locked(study.lock.content))
    tree = _unpack(study)
    settings = passed(os.environ) | {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree / BYTECODE)}
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: the folder in which the command was typed is not searched for modules, and may be the working tree.
    flags = ["-P", *(["-s"] if sys.flags.no_user_site else [])]
    os.execve(sys.executable, [sys.executable, *flags, "-m", module, *sys.argv[1:]], settings)


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment the locked tree is started with."""
    kept = (name for name in environment if any(fnmatch.fnmatchcase(name, each) for each in SETTINGS))
    return {name: environment[name] for name in kept}


def held() -> str | None:
    """The digest of the lock whose tree this process runs; None in a working tree."""
    return lock.read(ROOT).digest if unpacked() else None


def unpacked() -> bool:
    """Whether this process runs what `_unpack` made."""
    made = ROOT.parent == Path(tempfile.gettempdir()).resolve() and ROOT.name.startswith(PREFIX)
    return made and sys.pycache_prefix == str(ROOT / BYTECODE) and (ROOT / lock.NAME).exists()


def words(outside: str, inside: str = "opening the locked sources") -> str:
    """What a command is doing: in a working tree, or in the locked one, which has no bytecode yet."""
    return inside if unpacked() else outside


def _unpack(study: Registration) -> Path:
    """A folder that only this user may open, with the locked sources, the lock and the embedded models."""
    tree = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    try:
        sources = study.lock.content["sources"]
        bundle.extract(study.bundle, sources, tree)
        for path in (ROOT / "protocol" / "embedded").glob("*/*"):
            name = path.relative_to(ROOT).as_posix()
            if path.parent.name == "__pycache__":  # what pip compiled
                continue
            if path.is_file() and name not in sources:  # weights and cards, which the lock names as weights
                shutil.copyfile(path, tree / name)
        (tree / lock.NAME).write_bytes(canonical.dumps(study.lock.content) + b"\n")
    except BaseException:
        shutil.rmtree(tree)
        raise
    return tree
