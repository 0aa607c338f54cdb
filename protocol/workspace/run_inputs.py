"""What a study runs on, compared with its lock without torch: sources, data, weights. The refusal if they differ."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol import tasks
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats.refusals import Drifted, Refusal
from protocol.lock import closure, digest_cache
from protocol.models import calibration_paths, sources
from protocol.workspace import drift

NEEDS_TORCH = "torch"  # build and device, unknown without importing torch


def list_drift(study: Registration, home: Path, environment: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference that can be found without torch; something missing is a line, too.

    environment: the current `installed_files.environment()`, computed once for many locks. Weights whose device,
    inode, size and times are those of the last hash are not read again (`identities`), so this is only for
    status displays; commands that run a study hash them in full.
    """
    content = study.lock.content
    try:
        differences = drift.compare_locked_sources(content) + compare_data(content, study.folder)
        known = {name: value for name, value in content["environment"].items() if name != NEEDS_TORCH}
        differences += closure.differences({"environment": known}, {"environment": environment})
        files_by_source = {source: model_files(source, home, locked) for source, locked in content["weights"].items()}
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
