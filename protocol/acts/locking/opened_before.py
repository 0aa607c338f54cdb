"""Which held-out problems of a protocol an earlier registration of this repository has opened, by content.

Nothing that is held out is read for it. A problem is known by its id and by the recipe of its task: tasks of
other names, sizes and splits that share both have the same problem. What is drawn late exists once, for one
claim. Not seen are registrations that lie elsewhere or were deleted (`status` names those that were
committed), and published problems that somebody gave other ids.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import splits
from protocol.evidence.bytes import files
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.run import late_randomness, ledger
from protocol.evidence.run.registration import CLAIM, SEAL, SHELVES, VERDICT, Registration
from protocol.locked import drift
from protocol.tasks import registry

__all__ = ["claimed", "opened_before"]

_EVENTS = ("claim", "attempt", "held-out")  # of a ledger, each of which is written under a claim


def opened_before(
    folder: Path, items: Mapping[str, Any], content: Mapping[str, Any], parent: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """The field `opened` of a lock: {name, lock, problems: ids by task} of every claimed registration that
    shares held-out problems with `items`; one whose lock cannot be read has neither lock nor problems.

    folder, content: of the registration and its protocol. parent: the study that it replicates, which is left
    out with its other replications, since a replication says that itself.
    """
    found: list[dict[str, Any]] = []
    recipes = _recipes()
    tasks = registry.made(_written(content, items), folder)
    own = {name: task.recipe() for name, task in tasks.items()}
    for study in claimed(folder):
        try:
            locked = study.lock
        except Refusal:
            found.append({"name": study.name, "lock": None, "problems": {}})
            continue
        repeated = {locked.digest, (study.parent or {}).get("lock")}
        if parent is not None and parent["lock"] in repeated:
            continue
        if shared := _shared(items, own, content, locked.content, recipes):
            found.append({"name": study.name, "lock": locked.digest, "problems": shared})
    return found


def claimed(folder: Path) -> list[Registration]:
    """Every other registration with a trace of a claim, by name: those beside `folder`, and those below
    registrations/ and replications/ of its repository and of the one whose sources are locked.
    """
    here = folder.resolve()
    shelves = {home / name for home in (here.parent.parent, drift.ROOT) for name in SHELVES}
    below = {path.resolve() for shelf in shelves for depth in ("*/", "*/*/") for path in shelf.glob(depth)}
    below |= {path.resolve() for path in here.parent.glob("*/")}
    studies = (Registration(path) for path in sorted(below - {here}, key=lambda path: (path.name, path)))
    return [study for study in studies if _is_claimed(study)]


def _is_claimed(study: Registration) -> bool:
    """Whether held-out problems may have been read: by the claim, or by anything that only a claim leaves."""
    try:
        if not study.known():
            return False
        if any(study.has(name) for name in (CLAIM, SEAL, VERDICT)) or study.place("confirm").exists():
            return True
        path = study.folder / ledger.NAME
        return path.exists() and any(f'"event":"{event}"' in _text(path) for event in _EVENTS)
    except Tampered:  # what is there is no plain file; `opened_before` says that it cannot be read
        return True
    except PermissionError:  # of a folder beside it that is somebody else's
        return False


def _text(path: Path) -> str:
    """The lines as they stand, so that a damaged ledger is read too."""
    return files.read(path, files.MOST_OF_A_DOCUMENT).decode(errors="replace")


def _shared(
    items: Mapping[str, Any],
    own: Mapping[str, str],
    content: Mapping[str, Any],
    earlier: Mapping[str, Any],
    recipes: Mapping[str, str],
) -> dict[str, list[str]]:
    """By task of `items`, the held-out ids whose problem the lock `earlier` holds out too. recipes: by digest
    of a manifest.
    """
    late = any(late_randomness.FIELD in one for one in (content, earlier["protocol"]["content"]))
    shared = {}
    for task, item in items.items():
        opened = set[str]()
        for name, other in earlier["items"].items():
            drawn_late = late and name not in earlier["data"]
            # Of a manifest that no task of today has, the ids alone can be compared.
            if recipes.get(other["manifest"], own[task]) == own[task] and not drawn_late:
                opened |= set(other["confirm"])
        if both := [problem for problem in item["confirm"] if problem in opened]:
            shared[task] = both
    return shared


def _written(content: Mapping[str, Any], items: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of the tasks, as a protocol has them."""
    tables = {task["name"]: task for task in content.get("tasks", ())}
    return [tables.get(name, {"name": name}) for name in items]


def _recipes() -> dict[str, str]:
    """The recipe of every task of today that has its manifest, by the digest of that."""
    found = {}
    for name in registry.names():
        with suppress(splits.SplitError):
            found[splits.load(name).digest] = registry.get(name).recipe()
    return found
