"""The locked sources and protocol.toml compared with those of this machine. Needs no torch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Drifted
from protocol.lock import closure, installed_versions, lock

ROOT = Path(__file__).resolve().parents[2]  # the tree whose sources get locked


def refuse_edited(study: Registration) -> bytes:
    """Return the bytes of protocol.toml. Raises BadInput if it or the lock is missing, Drifted if it was edited."""
    data = read_protocol_bytes(study.folder)
    if closure.sha256_hex(data) != study.lock.content["protocol"]["sha256"]:
        raise Drifted(f"{study.folder / PROTOCOL}: differs from the locked file; restore it or register another folder")
    return data


def read_protocol_bytes(folder: Path) -> bytes:
    """Return the bytes of protocol.toml. Raises BadInput if it is missing."""
    path = folder / PROTOCOL
    if not files.exists(path):
        raise BadInput(f"{folder}: no {PROTOCOL} here; name a folder such as registrations/quickstart")
    return files.read(path, files.MAX_DOCUMENT_BYTES)


def compare_sources(content: Mapping[str, Any]) -> list[str]:
    return closure.differences(content["sources"], closure.sources(ROOT))


def compare_locked_sources(content: Mapping[str, Any]) -> list[str]:
    """Compare as `compare_sources` does, but ignore new files, which the locked tree does not run."""
    current = closure.sources(ROOT)
    present = {name: current[name] for name in content["sources"] if name in current}
    return closure.differences(content["sources"], present)


def differing_sources(locked: Mapping[str, str], *below: str) -> list[str]:
    """Return the paths below these folders whose bytes differ from the locked ones, or that only one side
    has; paths that both have come first. locked: SHA-256 by path.
    """
    current = closure.sources(ROOT)
    names = (name for name in locked.keys() | current.keys() if name.startswith(below))
    differing = (name for name in names if locked.get(name) != current.get(name))
    return sorted(differing, key=lambda name: (name not in locked or name not in current, name))


def other_code(study: Registration, libraries: Iterable[str]) -> list[str]:
    """Return why other code than that which is installed here may have computed a study's results, as the lock
    has it: it is of another release, or names other versions of these libraries. That its bundled sources are
    others is no reason, because their author chose them.
    """
    reasons, content = [], study.lock.content
    if lock.is_of_other_code(study.lock):
        reasons = [f"locked by {content['release'] or 'an earlier release'} of kv-prereg"]
    locked, installed = content["environment"]["distributions"], installed_versions.versions()
    for name in libraries:
        version, installed_version = (side.get(name, {}).get("version") for side in (locked, installed))
        if version is not None and version != installed_version:
            reasons.append(f"{name} {installed_version} for {version!a}")
    return reasons


def summarize_packages(content: Mapping[str, Any]) -> str:
    """Summarize by package how many locked sources differ from the installed ones or are missing,
    for a reader who asks whether a study ran the installed code.
    """
    differing = Counter(line.partition("/")[0] for line in compare_locked_sources(content))
    if not differing:
        return "all match the files installed here"
    by_package = ", ".join(f"{number} of {name}" for name, number in sorted(differing.items()))
    return (
        f"{differing.total()} differ from the files installed here ({by_package}), which is normal after later "
        "changes of the project"
    )
