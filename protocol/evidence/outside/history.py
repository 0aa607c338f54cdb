"""Check a registration against its git history: nothing committed was changed, cut off or removed.

Order is ancestry; commit dates are ignored. Every commit reachable from a ref or HEAD counts, on all
branches. Reflogs are ignored: each machine has its own, and an audit gives the same result on every full
clone. History that was rewritten before it was pushed or fetched is invisible here; another copy or an
external witness can show it. Only the folder's present path is followed.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from protocol.evidence.bytes import files, line_endings
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.lock import bundle, lock
from protocol.evidence.outside.repository import Repository
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import ledger, records
from protocol.evidence.run.registration import CLAIM, PROTOCOL, SEAL, SELECTION, VERDICT, Registration

__all__ = ["COMMIT", "Committed", "Gone", "check", "check_commit", "committed", "gone"]

_UNTIL_LOCKED = (PROTOCOL, bundle.NAME)  # may change until there is a lock
_DOCUMENTS = (
    lock.NAME,
    *_UNTIL_LOCKED,
    f"{lock.NAME}.sig",
    SELECTION,
    CLAIM,
    SEAL,
    VERDICT,
)
# Trajectories are not checked here: records cite them by digest, and sealing removes uncited ones.
_PHASES, _FOLDERS = tuple(records.FOLDERS), tuple(records.FOLDERS.values())
_SHARD = re.compile(rf"({'|'.join(_FOLDERS)})/shard-[^/]*\.jsonl")
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # the full id
_PARTIAL = "this partial clone; clone again without --filter"


class Committed(TypedDict):
    """The commit of the locked sources, as a lock records it."""

    commit: str
    differs: list[str]  # locked source files that are not the same bytes in that commit


class Gone(NamedTuple):
    """Registrations that were committed on any branch and whose lock no folder here has."""

    names: list[str]
    told: bool  # False without a repository and in a shallow clone, where more may be missing


def committed(root: Path, sources: Mapping[str, str]) -> Committed | None:
    """Return the commit that is checked out in `root`, and which of `sources` it lacks or has otherwise.

    sources: SHA-256 by path, from `closure.sources`. Returns None without git, before the first commit, and
    where `root` is not the top of its repository (an installed copy).
    """
    try:
        repository = Repository(root)
        head = repository.head()
        if head is None or repository.prefix:
            return None
        return {"commit": head, "differs": _differs(repository, head, sources)}
    except CannotTell:
        return None


def check_commit(study: Registration) -> str:
    """Check that the lock's commit has the locked sources, except those it lists; return a summary.

    Raises Tampered when others differ, NotRun for a lock that names no commit, CannotTell without git or when
    the commit is not in this clone.
    """
    named = study.lock.content.get("git")
    if named is None:
        raise NotRun("the lock names no commit")
    commit, listed = named["commit"], named["differs"]
    if not COMMIT.fullmatch(commit):
        raise Tampered(f"{lock.NAME}: git.commit {commit!r} is not the full id of a commit")
    repository = Repository(study.folder)
    found = repository.objects([commit])[0]
    if found is None:
        fix = "run: git fetch --unshallow" if repository.shallow else "fetch the history that has it"
        raise CannotTell(f"commit {_short(commit)}, on which it was locked, is not in this clone; {fix}")
    if found.kind != "commit":
        raise Tampered(f"{lock.NAME}: git.commit {_short(commit)} is a {found.kind}")
    differs = _differs(repository, commit, study.lock.content["sources"])
    wrong = sorted(set(differs) ^ set(listed))
    if wrong and repository.partial:
        raise CannotTell(f"{wrong[0]} of commit {_short(commit)} may have been left out of {_PARTIAL}")
    if wrong:
        how = "differs from" if wrong[0] in differs else "is the same in"
        raise Tampered(f"{wrong[0]}: {how} commit {_short(commit)}, and {lock.NAME} says otherwise")
    but = f", but for {len(listed)} that were not committed: {', '.join(listed[:3])}" if listed else ""
    return f"the locked sources are those of commit {_short(commit)}{but}"


def check(study: Registration) -> str:
    """Check that the files match all commits: documents are unchanged, append-only files only grew.

    A torn last line was never acknowledged and may have been cut. Raises Tampered for a contradiction, also
    in the part of the history that a shallow clone has. Without one, raises CannotTell when the history is
    incomplete, missing or further ahead on another branch, and where line endings were converted; NotRun
    without any evidence.
    """
    repository = Repository(study.folder)
    commits = repository.commits("--all")
    own = repository.commits("HEAD") if repository.head() else {}
    states = _states(repository, commits, _read(study))
    versions = _versions(states)
    ids = {name: _id(repository, versions, study, name) for name in _evidence(study)}
    ahead = []
    for (name, version), holders in versions.items():
        if version == ids.get(name):
            continue
        now = files.read(study.folder / name) if name in ids else None
        if fault := _fault(repository, name, version, now):
            here = [commit for commit in holders if commit in own]
            where = f"commit {_short((here or holders)[0])}"
            if name not in ids and repository.sparse:
                raise CannotTell(f"{where} {fault.text}: run: git sparse-checkout disable")
            if here or not fault.later:
                raise Tampered(f"{where} {fault.text}")
            ahead.append(where)
    _refuse_elsewhere(repository, commits, study)
    if repository.shallow:
        raise CannotTell("nothing contradicts, but the clone is shallow; run: git fetch --unshallow")
    if repository.partial:
        raise CannotTell(f"nothing contradicts, but objects may have been left out of {_PARTIAL}")
    known = _known(commits, states)
    _refuse_order(states, known)
    if ahead:
        raise CannotTell(f"{ahead[0]}, on another branch, goes further than this folder; check it out")
    kept = sum(version in versions for version in ids.items())
    if not ids:
        raise NotRun("nothing is locked")
    if not kept:
        raise CannotTell(f"none of {len(ids)} files is committed; add and commit {study.folder.name}")
    return f"{kept} of {len(ids)} files are committed as they are; {_witnessed(commits, states, known)}"


def gone(registrations: Path) -> Gone:
    """Return the registrations that were committed in this folder on any branch and are missing now.

    A registration is identified by the bytes of its lock: a renamed one is present, one that was locked again
    under its old name is missing.
    """
    try:
        repository = Repository(registrations)
        here = {repository.blob(data) for data in _locks(registrations)}
        shelves = repository.trees(f"{each}:{repository.prefix}" for each in repository.commits("--all"))
        placed = sorted({study for shelf in shelves if shelf for study in shelf.items()})
        studies = repository.trees(identity for _, identity in placed)
    except CannotTell:
        return Gone([], False)
    whole = not (repository.shallow or repository.partial)
    locks = {(name, (held or {}).get(lock.NAME)) for (name, _), held in zip(placed, studies, strict=True)}
    return Gone(sorted({name for name, held in locks if held not in {None, *here}}), whole)


def _refuse_elsewhere(repository: Repository, commits: Iterable[str], study: Registration) -> None:
    """Raise Tampered when a commit has this lock, claimed, in a sibling folder with a diverging ledger.

    The study was then run there too. A folder that was only moved has the same ledger.
    """
    folder = study.folder
    if not repository.prefix or not study.has(lock.NAME):
        return
    mine = repository.blob(files.read(folder / lock.NAME))
    shelf, _, name = repository.prefix.rpartition("/")
    shelves = dict(zip(commits, repository.trees(f"{commit}:{shelf}" for commit in commits), strict=True))
    places = {
        (other, tree): commit
        for commit, shelved in shelves.items()
        for other, tree in (shelved or {}).items()
        if other != name
    }
    held = repository.trees(tree for _, tree in places)
    today = _whole(files.read(folder / ledger.NAME)) if study.has(ledger.NAME) else b""
    for ((other, _), commit), tree in zip(places.items(), held, strict=True):
        names = tree or {}
        claimed = {CLAIM, records.FOLDERS["confirm"]} & names.keys()
        if not claimed or names.get(lock.NAME) != mine:
            continue
        found = repository.objects([names[ledger.NAME]])[0] if ledger.NAME in names else None
        then = _whole(found.data) if found else b""
        if not (today.startswith(then) or then.startswith(today)):
            raise Tampered(f"commit {_short(commit)} has this lock claimed in {other}: it was run there too")


class _Fault(NamedTuple):
    text: str
    later: bool  # the version continues today's file


def _fault(repository: Repository, name: str, version: str, now: bytes | None) -> _Fault | None:
    """Return the fault of today's file, given a committed version of it; None when it only grew since."""
    if now is None:
        return _Fault(f"has {name}, which is gone; restore it", later=True)
    if not _grows(name):
        because = "the study was locked before" if name == lock.NAME else "it was replaced"
        return _Fault(f"has another {name}: {because}", later=False)
    found = repository.objects([version])[0]
    if found is None:
        raise CannotTell(f"{name} of a commit is not in this clone; fetch the whole history")
    then, today = _whole(found.data), _whole(now)
    if today.startswith(then):
        return None
    lines = [data.count(b"\n") for data in (then, today)]
    text = f"has {lines[0]} lines of {name} that are not the beginning of today's {lines[1]}"
    return _Fault(f"{text}: lines were cut off or rewritten", later=then.startswith(today))


def _states(
    repository: Repository, commits: Mapping[str, Any], read: frozenset[str]
) -> dict[str, dict[str, str]]:
    """Return the folder's evidence in each commit: blob ids by name. task_names: as in `_is_evidence`."""
    found = repository.trees(f"{commit}:{repository.prefix}" for commit in commits)
    tops = {commit: tree for commit, tree in zip(commits, found, strict=True) if tree}
    below = sorted({tree[name] for tree in tops.values() for name in _FOLDERS if name in tree})
    within = dict(zip(below, repository.trees(below), strict=True))
    states = {}
    for commit, tree in tops.items():
        held = dict(tree)
        for name in _FOLDERS:
            shards = within.get(tree.get(name, "")) or {}
            held |= {f"{name}/{each}": identity for each, identity in shards.items()}
        locked = lock.NAME in held
        states[commit] = {each: one for each, one in held.items() if _is_evidence(each, locked, read)}
    return states


def _versions(states: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return the commits with each version of each file, oldest first; documents before append-only files."""
    versions: dict[tuple[str, str], list[str]] = {}
    for commit, held in states.items():
        for version in held.items():
            versions.setdefault(version, []).append(commit)
    rank = {name: number for number, name in enumerate(_DOCUMENTS)}
    return dict(sorted(versions.items(), key=lambda item: rank.get(item[0][0], len(rank))))


def _known(
    commits: Mapping[str, list[str]], states: Mapping[str, Mapping[str, str]]
) -> dict[str, frozenset[str]]:
    """Return the names that each commit or one of its ancestors has."""
    known: dict[str, frozenset[str]] = {}
    for commit, parents in commits.items():
        known[commit] = frozenset(states.get(commit, ())).union(*(known[parent] for parent in parents))
    return known


def _refuse_order(states: Mapping[str, Mapping[str, str]], known: Mapping[str, frozenset[str]]) -> None:
    """Raise Tampered for a commit with a document whose predecessor no commit up to it has."""
    for commit, held in states.items():
        for name in held:
            before = _before(name)
            if before and before not in known[commit]:
                raise Tampered(f"commit {_short(commit)} has {name}, and no commit up to it has {before}")


def _before(name: str) -> str | None:
    """Return the document that must precede a file of evidence."""
    if name.startswith(f"{records.FOLDERS['confirm']}/"):
        return CLAIM
    return {CLAIM: lock.NAME, SEAL: CLAIM, VERDICT: SEAL}.get(name)


def _witnessed(
    commits: Mapping[str, list[str]],
    states: Mapping[str, Mapping[str, str]],
    known: Mapping[str, frozenset[str]],
) -> str:
    """Return what ancestry shows of the order of lock and claim; one commit with both shows none."""
    claimed = [commit for commit, held in states.items() if CLAIM in held]
    if not claimed:
        return "no claim is"
    if all(any(lock.NAME in known[parent] for parent in commits[commit]) for commit in claimed):
        return f"{lock.NAME} was committed before {CLAIM}"
    return f"{lock.NAME} and {CLAIM} came in one commit, which shows no order between them"


def _differs(repository: Repository, commit: str, sources: Mapping[str, str]) -> list[str]:
    names = sorted(sources)
    found = repository.objects(f"{commit}:{name}" for name in names)
    return [
        name
        for name, held in zip(names, found, strict=True)
        if held is None or hashlib.sha256(held.data).hexdigest() != sources[name]
    ]


def _evidence(study: Registration) -> list[str]:
    """Return the files of a study that are written once or only grow."""
    below = [*study.folder.iterdir(), *(path for each in _PHASES for path in files.listed(study.place(each)))]
    names = [path.relative_to(study.folder).as_posix() for path in below]
    locked = study.has(lock.NAME)
    return sorted(name for name in names if _is_evidence(name, locked, _read(study)))


def _read(study: Registration) -> frozenset[str]:
    return study.task_files if study.has(lock.NAME) else frozenset()


def _locks(registrations: Path) -> list[bytes]:
    """Return the lock of every registration in the folder; audits report those that are no plain file."""
    found = []
    for path in sorted(registrations.glob(f"*/{lock.NAME}")):
        with suppress(Tampered):
            found.append(files.read(path, files.MOST_OF_A_DOCUMENT))
    return found


def _id(
    repository: Repository, versions: Mapping[tuple[str, str], Any], study: Registration, name: str
) -> str:
    """Return the blob id of a file. Raises Rewritten where git has it with other line endings."""
    data = files.read(study.folder / name)
    own = repository.blob(data)
    if (name, own) not in versions and b"\n" in data:
        grew = name.endswith(".jsonl") and line_endings.all_carry_returns(data)
        if grew or any((name, repository.blob(one)) in versions for one in line_endings.others(data)):
            raise line_endings.rewritten(name)
    return own


def _is_evidence(name: str, locked: bool, read: frozenset[str]) -> bool:
    """Return whether a file is evidence. task_names: files that tasks read, evidence once it is locked."""
    if _grows(name) or (locked and name in read):
        return True
    return name in _DOCUMENTS and (locked or name not in _UNTIL_LOCKED)


def _grows(name: str) -> bool:
    return name == ledger.NAME or _SHARD.fullmatch(name) is not None


def _whole(data: bytes) -> bytes:
    """Return the data up to the last newline; what follows was never acknowledged."""
    return data[: data.rfind(b"\n") + 1]


def _short(commit: str) -> str:
    return commit[:7]
