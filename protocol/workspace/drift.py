"""Drift: differences between the current files and those that a lock froze. Needs no torch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol import tasks
from protocol.evidence.registration import CLAIM, PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Drifted, Refusal
from protocol.lock import closure, installed_versions, lock
from protocol.models import calibration_paths, sources

ROOT = Path(__file__).resolve().parents[2]  # the tree whose sources get locked
NEEDS_TORCH = "torch"  # build and device, unknown without importing torch


def list_drift(study: Registration, home: Path, environment: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference that can be found without torch; something missing is a line, too.

    environment: the current `installed_files.environment()`, computed once for many locks. Weights whose device,
    inode, size and times are those of the last hash are not read again (`identities`), so this is only for
    status displays; commands that run a study hash them in full.
    """
    content = study.lock.content
    try:
        differences = compare_locked_sources(content) + compare_data(content, study.folder)
        known = {name: value for name, value in content["environment"].items() if name != NEEDS_TORCH}
        differences += closure.differences({"environment": known}, {"environment": environment})
        files_by_source = {source: model_files(source, home, locked) for source, locked in content["weights"].items()}
        from protocol.lock import digest_cache  # no audit hashes weights

        differences += closure.differences(content["weights"], digest_cache.weight_digests(files_by_source, home))
    except Refusal as refusal:
        return [str(refusal)]
    return differences


def refuse(study: Registration, differences: list[str]) -> None:
    """Raise Drifted with the first three differences, if there are any."""
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        amend = f", or: kv-prereg amend {study.folder} <new folder> --reason <why>"
        raise Drifted(
            f"{study.folder.name}: {'; '.join(differences[:3])}{more} since the lock "
            f"{study.lock.digest[:12]}; {describe_way_back(study, differences)}{'' if study.has(CLAIM) else amend}"
        )


def describe_way_back(study: Registration, differences: Iterable[str]) -> str:
    """Return how what was locked comes back. Where sources differ and a commit has them all, it is a worktree of that
    commit, in which the command runs on the same folder.
    """
    content = study.lock.content
    has_changed_sources = any(line.rpartition(": ")[0] in content["sources"] for line in differences)
    if not has_changed_sources or content["git"] is None or content["git"]["differs"]:
        return "restore the locked files"
    commit = content["git"]["commit"]
    return (
        f"restore the locked files, those of commit {commit}: git worktree add --detach "
        f"../kv-prereg-{commit[:12]} {commit[:12]}; in that folder: python -m protocol COMMAND "
        f"{study.folder.resolve()}"
    )


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


def compare_data(content: Mapping[str, Any], folder: Path) -> list[str]:
    """Compare the data that tasks read. folder: the registration."""
    registered = content["protocol"]["content"]["tasks"]
    names_with_data = (task for task in registered if tasks.task_name(task) in content["data"])
    return closure.differences(content["data"], tasks.data_digests(tasks.make_tasks(names_with_data, folder)))


def model_files(source: str, home: Path, locked: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of a model, and its locked calibration statistics, by the name that the lock uses.
    Some locks of version 1 list all statistics that existed then, whether or not an arm needs them.
    """
    statistics = {
        calibration_paths.locked_name(name): path
        for name, path in calibration_paths.statistics_paths(source, home).items()
    }
    present = {name: path for name, path in statistics.items() if name in locked and path.is_file()}
    return sources.model_files(source, home) | present
