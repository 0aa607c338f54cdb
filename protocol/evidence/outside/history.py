"""What git's history says of a registration: nothing committed was changed, cut off or taken away.

Order is ancestry; dates of commits play no part. Every commit that a ref or HEAD leads to counts, on other
branches too. Reflogs do not: they are one machine's, and an audit says the same on every full clone. History
that was rewritten before it was pushed, or that nobody fetched before it was rewritten, cannot be seen here;
a copy elsewhere or an outside witness shows it. The folder is followed at its present path only.
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

_UNTIL_LOCKED = (PROTOCOL, bundle.NAME)  # change freely until there is a lock
_DOCUMENTS = (
    lock.NAME,
    *_UNTIL_LOCKED,
    f"{lock.NAME}.sig",
    SELECTION,
    CLAIM,
    SEAL,
    VERDICT,
)
# Trajectories are left to the records that cite them by digest: sealing removes those that none cites.
_PHASES, _FOLDERS = tuple(records.FOLDERS), tuple(records.FOLDERS.values())
_SHARD = re.compile(rf"({'|'.join(_FOLDERS)})/shard-[^/]*\.jsonl")
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # the full id
_PARTIAL = "this partial clone; clone again without --filter"


class Committed(TypedDict):
    """What a lock keeps of the repository that its sources were read in."""

    commit: str
    differs: list[str]  # locked source files that are not the same bytes in that commit


class Gone(NamedTuple):
    """Registrations that were committed once, on any branch, and whose lock no folder here has."""

    names: list[str]
    told: bool  # False without a repository, and in a shallow clone: there may be more


def committed(root: Path, sources: Mapping[str, str]) -> Committed | None:
    """The commit that is checked out in `root`, and which of `sources` it holds otherwise or not at all.

    sources: SHA-256 by path, as `closure.sources` gives them. None without git, before the first commit, and
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
    """Whether the commit that the lock names holds the locked sources, but for those it lists.

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
    """Whether today's files are those of every commit: what is written once unchanged, what grows continued.

    A torn last line was never acknowledged and may have been cut since. Raises Tampered for a contradiction,
    also in the part of the history that a shallow clone has; CannotTell when there is none and the history is
    not whole, not there, or goes further on a branch that is not checked out, and where the copy here has
    other line endings; NotRun without any evidence.
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
    """Which registrations were committed below this folder and are not here, whatever branch has them.

    A registration is known by the bytes of its lock: one that was renamed is here, one that was locked anew
    under its old name is gone.
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
    """Raises Tampered when a commit has this lock, claimed, in another folder beside this one, and the ledger
    there is no part of this one's history: it was run there too. A folder that was moved has the same ledger.
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
    later: bool  # today's is an earlier state of that version


def _fault(repository: Repository, name: str, version: str, now: bytes | None) -> _Fault | None:
    """What is wrong with today's file, given another version of it; None when it only grew since."""
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
    """The evidence that each commit has of the folder: ids by name. read: as `_is_evidence` has it."""
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
    """The commits that have each version of each file, the first one first; documents before what grows."""
    versions: dict[tuple[str, str], list[str]] = {}
    for commit, held in states.items():
        for version in held.items():
            versions.setdefault(version, []).append(commit)
    rank = {name: number for number, name in enumerate(_DOCUMENTS)}
    return dict(sorted(versions.items(), key=lambda item: rank.get(item[0][0], len(rank))))


def _known(
    commits: Mapping[str, list[str]], states: Mapping[str, Mapping[str, str]]
) -> dict[str, frozenset[str]]:
    """The names that each commit or an ancestor of it has."""
    known: dict[str, frozenset[str]] = {}
    for commit, parents in commits.items():
        known[commit] = frozenset(states.get(commit, ())).union(*(known[parent] for parent in parents))
    return known


def _refuse_order(states: Mapping[str, Mapping[str, str]], known: Mapping[str, frozenset[str]]) -> None:
    """Tampered for a commit with a step that no commit up to it has the step before of."""
    for commit, held in states.items():
        for name in held:
            before = _before(name)
            if before and before not in known[commit]:
                raise Tampered(f"commit {_short(commit)} has {name}, and no commit up to it has {before}")


def _before(name: str) -> str | None:
    """The document that a file of evidence presupposes."""
    if name.startswith(f"{records.FOLDERS['confirm']}/"):
        return CLAIM
    return {CLAIM: lock.NAME, SEAL: CLAIM, VERDICT: SEAL}.get(name)


def _witnessed(
    commits: Mapping[str, list[str]],
    states: Mapping[str, Mapping[str, str]],
    known: Mapping[str, frozenset[str]],
) -> str:
    """What ancestry says of the lock and the claim; that both came in one commit shows no order."""
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
    """The files of a study that are written once or only grow."""
    below = [*study.folder.iterdir(), *(path for each in _PHASES for path in files.listed(study.place(each)))]
    names = [path.relative_to(study.folder).as_posix() for path in below]
    locked = study.has(lock.NAME)
    return sorted(name for name in names if _is_evidence(name, locked, _read(study)))


def _read(study: Registration) -> frozenset[str]:
    return study.task_files if study.has(lock.NAME) else frozenset()


def _locks(registrations: Path) -> list[bytes]:
    """Of every registration there; what is no plain file is for the audit of that one."""
    found = []
    for path in sorted(registrations.glob(f"*/{lock.NAME}")):
        with suppress(Tampered):
            found.append(files.read(path, files.MOST_OF_A_DOCUMENT))
    return found


def _id(
    repository: Repository, versions: Mapping[tuple[str, str], Any], study: Registration, name: str
) -> str:
    """The id of a file as git has it. Raises Rewritten where git has it but for its line endings."""
    data = files.read(study.folder / name)
    own = repository.blob(data)
    if (name, own) not in versions and b"\n" in data:
        grew = name.endswith(".jsonl") and line_endings.all_carry_returns(data)
        if grew or any((name, repository.blob(one)) in versions for one in line_endings.others(data)):
            raise line_endings.rewritten(name)
    return own


def _is_evidence(name: str, locked: bool, read: frozenset[str]) -> bool:
    """read: names of the files that the tasks of the study read, which are a part of it once it is locked."""
    if _grows(name) or (locked and name in read):
        return True
    return name in _DOCUMENTS and (locked or name not in _UNTIL_LOCKED)


def _grows(name: str) -> bool:
    return name == ledger.NAME or _SHARD.fullmatch(name) is not None


def _whole(data: bytes) -> bytes:
    """The lines that end: what follows the last newline was never acknowledged."""
    return data[: data.rfind(b"\n") + 1]


def _short(commit: str) -> str:
    return commit[:7]
