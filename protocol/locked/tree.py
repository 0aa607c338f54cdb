"""Run the sources that were locked, unpacked afresh, instead of the working tree they were locked from.

A command that was typed unpacks `sources.zip`, checked against the lock, into a temporary folder and goes on
there as the same process: what is edited in the working tree from then on is not run. Python is told to
compile everything anew, since cached bytecode is no part of the closure. The folder is removed when the
command ends, however it ends, unless the process is killed: then the folder stays, and nothing rests on it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from protocol.evidence.bytes import canonical
from protocol.evidence.lock import bundle, lock
from protocol.evidence.refusals import Tampered
from protocol.evidence.run.registration import Registration
from protocol.locked import drift
from protocol.locked.drift import ROOT

__all__ = ["Main", "enter", "held", "run"]

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
        if _unpacked():
            shutil.rmtree(ROOT, ignore_errors=True)


def enter(study: Registration, module: str) -> None:
    """Go on as `python -m <module>` with the same arguments in the tree that was locked; does not return.

    Returns at once in that tree. Raises Drifted when the working tree is not the locked one, Tampered when
    the bundle is not, or when this is the tree of another lock.
    """
    if (digest := held()) is not None:
        if digest != study.lock.digest:
            raise Tampered(f"{study.folder}: its lock changed while its tree was unpacked; start again")
        return
    drift.refuse(study, drift.of_sources(study.lock.content))
    tree = _unpack(study)
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    settings |= {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree / BYTECODE)}
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: the folder in which the command was typed is not searched for modules, and may be the working tree.
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *sys.argv[1:]], settings)


def held() -> str | None:
    """The digest of the lock whose tree this process runs; None in a working tree."""
    return lock.read(ROOT).digest if _unpacked() else None


def _unpacked() -> bool:
    """Whether this process runs what `_unpack` made."""
    made = ROOT.parent == Path(tempfile.gettempdir()).resolve() and ROOT.name.startswith(PREFIX)
    return made and sys.pycache_prefix == str(ROOT / BYTECODE) and (ROOT / lock.NAME).exists()


def _unpack(study: Registration) -> Path:
    """A folder that only this user may open, with the locked sources, the lock and the embedded models."""
    tree = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    try:
        sources = study.lock.content["sources"]
        bundle.extract(study.bundle, sources, tree)
        for path in (ROOT / "protocol" / "embedded").glob("*/*"):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and name not in sources:  # weights and cards, which the lock names as weights
                shutil.copyfile(path, tree / name)
        (tree / lock.NAME).write_bytes(canonical.dumps(study.lock.content) + b"\n")
    except BaseException:
        shutil.rmtree(tree)
        raise
    return tree
