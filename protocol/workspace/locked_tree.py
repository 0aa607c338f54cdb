"""Run the locked sources, freshly unpacked, instead of the working tree from which they were locked.

A command run from a shell unpacks `sources.zip`, checked against the lock, into a temporary folder and continues there
as the same process, so later edits of the working tree have no effect. Python compiles everything again, since cached
bytecode is not part of the closure, and gets only the environment variables in `ENVIRONMENT_NAMES`. The folder is
removed when the command ends; it stays if the process is killed, and nothing depends on it.

New files in the working tree are allowed, since they are not run. A command called from Python runs in the
working tree, in a process that other code may have changed: there no file may be new.
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

from protocol.evidence.registration import Registration
from protocol.formats.refusals import Tampered
from protocol.lock import bundle, lock
from protocol.workspace import drift, imports, run_inputs
from protocol.workspace.drift import ROOT

ENVIRONMENT_NAMES = (
    "PATH",  # git and ssh-keygen
    "HOME",  # ~/.cache/kv-prereg
    "KV_PREREG_HOME",  # fetched models
    "TMPDIR",  # where the tree is unpacked
    "LANG",
    "LC_*",
    "TZ",
    "TERM",  # the display, like the next ones
    "COLORTERM",
    "NO_COLOR",
    "COLUMNS",
    "OMP_*",  # threads, which the protocol registers; how idle threads wait
    "OPENBLAS_NUM_THREADS",  # of the statistics: see `protocol.__main__`
    "CUDA_VISIBLE_DEVICES",  # which of several devices
    "CUBLAS_WORKSPACE_CONFIG",  # deterministic kernels
    "LD_LIBRARY_PATH",  # some Pythons need it to start; system libraries are not locked
    "HF_HUB_OFFLINE",  # no network access
    "SLURM_CONF",  # configuration of the scheduler of `--executor slurm`
    "SSH_AUTH_SOCK",  # git, for an anchor on a remote, like the next ones
    "*_proxy",
    "*_PROXY",
)
"""Environment variables that the locked tree gets; * matches any letters. All others are dropped, since they
could change imports or behaviour: PYTHON*, LD_PRELOAD, MATPLOTLIBRC and any unknown one.
"""
PREFIX = "kv-prereg-"
BYTECODE = "bytecode"
DERIVED = "derived"


class Main(Protocol):
    """The main function of a command. enter: whether it continues in the locked tree."""

    def __call__(self, argv: list[str] | None = None, *, enter: bool = False) -> int: ...


def run(main: Main) -> int:
    """Run a command from a shell: it enters the locked tree, which is removed at the end."""
    try:
        return main(enter=True)
    finally:
        if is_unpacked():
            with suppress(KeyboardInterrupt):  # the user does not want to wait
                shutil.rmtree(ROOT, ignore_errors=True)
        gc.freeze()  # else garbage collection of torch's objects takes a second at exit


def enter(study: Registration, module: str, *, is_derived: bool = False) -> None:
    """Continue as `python -m <module>` with the same arguments in the locked tree; does not return.

    is_derived: whether this process has just derived the lock itself (`was_derived`).

    Returns at once if this is that tree. Raises Drifted if a locked file differs in the working tree, Tampered if the
    bundle does or if this is the tree of another lock, BadInput if Python imports from elsewhere.
    """
    if (digest := locked_digest()) is not None:
        if digest != study.lock.digest:
            raise Tampered(f"{study.folder}: its lock changed while its tree was unpacked; start again")
        imports.refuse_uncovered()
        return
    imports.refuse_uncovered()
    run_inputs.refuse(study, drift.compare_locked_sources(study.lock.content))
    tree = _unpack(study)
    if is_derived:
        (tree / DERIVED).touch()
    environment = select_environment(os.environ) | {
        "PYTHONPATH": str(tree),
        "PYTHONPYCACHEPREFIX": str(tree / BYTECODE),
    }
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: do not search the working folder for modules; it may be the working tree.
    flags = ["-P", *(["-s"] if sys.flags.no_user_site else [])]
    os.execve(sys.executable, [sys.executable, *flags, "-m", module, *sys.argv[1:]], environment)


def select_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that the locked tree gets."""
    names = (name for name in environment if any(fnmatch.fnmatchcase(name, pattern) for pattern in ENVIRONMENT_NAMES))
    return {name: environment[name] for name in names}


def locked_digest() -> str | None:
    """Return the digest of the lock whose tree this process runs; None in a working tree."""
    return lock.read(ROOT).digest if is_unpacked() else None


def is_unpacked() -> bool:
    """Return whether this process runs a tree that `_unpack` made."""
    is_temporary = ROOT.parent == Path(tempfile.gettempdir()).resolve() and ROOT.name.startswith(PREFIX)
    return is_temporary and sys.pycache_prefix == str(ROOT / BYTECODE) and (ROOT / lock.NAME).exists()


def was_derived() -> bool:
    """Return whether the process that unpacked this tree derived its lock, by the same sources and seconds ago, so that
    nothing has to be simulated again.
    """
    return is_unpacked() and (ROOT / DERIVED).exists()


def phase_label(in_working_tree: str, in_locked_tree: str = "opening the locked sources") -> str:
    """Return the label of a phase: for the working tree, or the locked one, which has no bytecode."""
    return in_locked_tree if is_unpacked() else in_working_tree


def _unpack(study: Registration) -> Path:
    """Return a private folder with the locked sources, the lock and the embedded models."""
    tree = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    try:
        sources = study.lock.content["sources"]
        bundle.extract(study.bundle, sources, tree)
        for path in (ROOT / "protocol" / "embedded").glob("*/*"):
            name = path.relative_to(ROOT).as_posix()
            if path.parent.name == "__pycache__":  # compiled by pip
                continue
            if path.is_file() and name not in sources:  # files that the lock lists as weights
                shutil.copyfile(path, tree / name)
        shutil.copyfile(study.folder / lock.NAME, tree / lock.NAME)
    except BaseException:
        shutil.rmtree(tree)
        raise
    return tree
