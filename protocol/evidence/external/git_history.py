"""Check a registration against its git history: nothing committed was changed, cut off or removed.

Order is ancestry; commit dates are ignored. Every commit reachable from a ref or HEAD counts, on all
branches. Reflogs are ignored: each machine has its own, and an audit gives the same result on every full
clone. History that was rewritten before it was pushed or fetched is invisible here; another copy or an
external witness can show it. Only the folder's present path is followed.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict

from protocol.evidence import ledger, records
from protocol.evidence.external.git_repository import Repository
from protocol.evidence.registration import CLAIM, PROTOCOL, SEAL, SELECTION, VERDICT, Registration
from protocol.formats import files, line_endings, packed_file, shards
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.lock import bundle, lock

_EDITABLE_UNTIL_LOCK = (PROTOCOL, bundle.NAME)  # may change until there is a lock
_DOCUMENTS = (lock.NAME, *_EDITABLE_UNTIL_LOCK, f"{lock.NAME}.sig", SELECTION, CLAIM, SEAL, VERDICT)
# Trajectories are not checked here: records cite them by digest, and sealing removes uncited ones.
_PHASES, _FOLDERS = tuple(records.FOLDERS), tuple(records.FOLDERS.values())
_SHARD = re.compile(rf"({'|'.join(_FOLDERS)})/shard-[^/]*\.jsonl({'|'.join(map(re.escape, shards.SUFFIXES))})?")
COMMIT_ID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # the full id
_PARTIAL = "this partial clone; clone again without --filter"


class SourceCommit(TypedDict):
    """The commit of the locked sources, as a lock records it."""

    commit: str
    differs: list[str]  # locked source files that are not the same bytes in that commit


def describe_commit(root: Path, sources: Mapping[str, str]) -> SourceCommit | None:
    """Return the commit that is checked out in `root`, and which of `sources` it lacks or has otherwise.

    sources: SHA-256 by path, from `closure.sources`. Returns None without git, before the first commit, and
    where `root` is not the top of its repository (an installed copy).
    """
    try:
        repository = Repository(root)
        head = repository.head()
        if head is None or repository.prefix:
            return None
        return {"commit": head, "differs": _differing_sources(repository, head, sources)}
    except CannotTell:
        return None


def check_commit(study: Registration) -> str:
    """Check that the lock's commit has the locked sources, except those it lists; return a summary.

    Raises Tampered when others differ, NotRun for a lock that names no commit, CannotTell without git or when
    the commit is not in this clone.
    """
    reference = study.lock.content.get("git")
    if reference is None:
        raise NotRun("the lock names no commit")
    commit, listed_differences = reference["commit"], reference["differs"]
    if not COMMIT_ID.fullmatch(commit):
        raise Tampered(f"{lock.NAME}: git.commit {commit!r} is not the full id of a commit")
    repository = Repository(study.folder)
    commit_object = repository.objects([commit])[0]
    if commit_object is None:
        fix = "run: git fetch --unshallow" if repository.is_shallow else "fetch the history that contains it"
        raise CannotTell(f"commit {_short_id(commit)}, the commit at locking, is not in this clone; {fix}")
    if commit_object.kind != "commit":
        raise Tampered(f"{lock.NAME}: git.commit {_short_id(commit)} is a {commit_object.kind}")
    differs = _differing_sources(repository, commit, study.lock.content["sources"])
    wrong = sorted(set(differs) ^ set(listed_differences))
    if wrong and repository.is_partial:
        raise CannotTell(f"{wrong[0]} of commit {_short_id(commit)} may be missing from {_PARTIAL}")
    if wrong:
        comparison = "differs from" if wrong[0] in differs else "is the same in"
        raise Tampered(f"{wrong[0]}: {comparison} commit {_short_id(commit)}, but {lock.NAME} says the opposite")
    exceptions = (
        f", except {len(listed_differences)} that were not committed: {', '.join(listed_differences[:3])}"
        if listed_differences
        else ""
    )
    return f"the locked sources match commit {_short_id(commit)}{exceptions}"


def check(study: Registration) -> str:
    """Check that the files match all commits: documents are unchanged, append-only files only grew.

    A torn last line was never acknowledged and may have been cut. Raises Tampered for a contradiction, also in the part
    of the history that a shallow clone has. Without one, raises CannotTell when the history is incomplete, missing or
    further ahead on another branch, and where line endings were converted; NotRun without any evidence.
    """
    repository = Repository(study.folder)
    commits = repository.commits("--all")
    head_commits = repository.commits("HEAD") if repository.head() else {}
    states = _evidence_by_commit(repository, commits, _task_names(study))
    versions = _commits_by_version(states)
    ids = {name: _blob_id(repository, versions, study, name) for name in _evidence_files(study)}
    ahead = []
    read_plain = lru_cache(1)(_read_plain)  # the versions of a file follow each other
    for (name, version), holders in versions.items():
        if version == ids.get(name):
            continue
        current_name = name if name in ids else _find_form(study, name)
        current = read_plain(study.folder / current_name) if current_name in ids else None
        if name == bundle.NAME and current is None and files.exists(study.bundle):
            continue  # it was moved into the archive that studies share, whose bytes are compared with the lock
        if fault := _find_fault(repository, name, version, current):
            on_head = [commit for commit in holders if commit in head_commits]
            commit_text = f"commit {_short_id((on_head or holders)[0])}"
            if current is None and repository.is_sparse:
                raise CannotTell(f"{commit_text} {fault.text}: run: git sparse-checkout disable")
            if on_head or not fault.is_ahead:
                raise Tampered(f"{commit_text} {fault.text}")
            ahead.append(commit_text)
    _refuse_claimed_elsewhere(repository, commits, study)
    if repository.is_shallow:
        raise CannotTell("no contradiction, but the clone is shallow; run: git fetch --unshallow")
    if repository.is_partial:
        raise CannotTell(f"no contradiction, but objects may be missing from {_PARTIAL}")
    known = _names_up_to(commits, states)
    _refuse_missing_predecessor(states, known)
    if ahead:
        raise CannotTell(f"{ahead[0]}, on another branch, is ahead of this folder; check it out")
    unchanged = sum(version in versions for version in ids.items())
    if not ids:
        raise NotRun("nothing is locked")
    if not unchanged:
        raise CannotTell(f"none of {len(ids)} files is committed; add and commit {study.folder.name}")
    return f"{unchanged} of {len(ids)} files are committed unchanged; {_describe_order(commits, states, known)}"


def _refuse_claimed_elsewhere(repository: Repository, commits: Iterable[str], study: Registration) -> None:
    """Raise Tampered when a commit has this lock, claimed, in a sibling folder with a diverging ledger.

    The study was then run there too. A folder that was only moved has the same ledger.
    """
    folder = study.folder
    if not repository.prefix or not study.has(lock.NAME):
        return
    lock_id = repository.blob_id(files.read(folder / lock.NAME))
    parent, _, name = repository.prefix.rpartition("/")
    parent_trees = dict(zip(commits, repository.trees(f"{commit}:{parent}" for commit in commits), strict=True))
    siblings = {
        (other, tree): commit
        for commit, parent_tree in parent_trees.items()
        for other, tree in (parent_tree or {}).items()
        if other != name
    }
    sibling_trees = repository.trees(tree for _, tree in siblings)
    current_lines = _complete_lines(files.read(folder / ledger.NAME)) if study.has(ledger.NAME) else b""
    for ((other, _), commit), tree in zip(siblings.items(), sibling_trees, strict=True):
        names = tree or {}
        claimed = {CLAIM, records.FOLDERS["confirm"]} & names.keys()
        if not claimed or names.get(lock.NAME) != lock_id:
            continue
        ledger_blob = repository.objects([names[ledger.NAME]])[0] if ledger.NAME in names else None
        committed_lines = _complete_lines(ledger_blob.data) if ledger_blob else b""
        if not (current_lines.startswith(committed_lines) or committed_lines.startswith(current_lines)):
            raise Tampered(f"commit {_short_id(commit)} has a claim of this lock in {other}: it was run there too")


class _Fault(NamedTuple):
    text: str
    is_ahead: bool  # the version continues today's file


def _find_fault(repository: Repository, name: str, version: str, current: bytes | None) -> _Fault | None:
    """Return the fault of today's file, given a committed version of it; None when it only grew since."""
    if current is None:
        return _Fault(f"has {name}, which is missing here; restore it", is_ahead=True)
    if not _is_append_only(name):
        reason = "the study was locked before" if name == lock.NAME else "it was replaced"
        return _Fault(f"has another {name}: {reason}", is_ahead=False)
    blob = repository.objects([version])[0]
    if blob is None:
        raise CannotTell(f"{name} as it was in a commit is missing from this clone; fetch the whole history")
    committed = _unpack(blob.data, name) if name.endswith(shards.SUFFIXES) else blob.data
    committed_lines, current_lines = _complete_lines(committed), _complete_lines(current)
    if current_lines.startswith(committed_lines):
        return None
    counts = [data.count(b"\n") for data in (committed_lines, current_lines)]
    text = f"has {counts[0]} lines of {name} that are not the beginning of today's {counts[1]}"
    return _Fault(f"{text}: lines were removed or rewritten", is_ahead=committed_lines.startswith(current_lines))


def _unpack(data: bytes, name: str) -> bytes:
    """Return the plain lines of a committed shard, of the size that its end states. Raises CannotTell above an eighth
    of this machine's memory, as reading a shard of this size does.
    """
    size = packed_file.stated_bytes(io.BytesIO(data), name)
    files.refuse_large(Path(name), size)
    return packed_file.decompressed(io.BytesIO(data), name, size).read()


def _evidence_by_commit(
    repository: Repository, commits: Mapping[str, Any], task_names: frozenset[str]
) -> dict[str, dict[str, str]]:
    """Return the folder's evidence in each commit: blob ids by name. task_names: as in `_is_evidence`."""
    trees = repository.trees(f"{commit}:{repository.prefix}" for commit in commits)
    folder_trees = {commit: tree for commit, tree in zip(commits, trees, strict=True) if tree}
    subfolder_ids = sorted({tree[name] for tree in folder_trees.values() for name in _FOLDERS if name in tree})
    subfolders = dict(zip(subfolder_ids, repository.trees(subfolder_ids), strict=True))
    states = {}
    for commit, tree in folder_trees.items():
        ids = dict(tree)
        for name in _FOLDERS:
            shards = subfolders.get(tree.get(name, "")) or {}
            ids |= {f"{name}/{file_name}": blob_id for file_name, blob_id in shards.items()}
        is_locked = lock.NAME in ids
        states[commit] = {
            file_name: object_id
            for file_name, object_id in ids.items()
            if _is_evidence(file_name, is_locked, task_names)
        }
    return states


def _commits_by_version(states: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return the commits with each version of each file, oldest first; documents before append-only files."""
    versions: dict[tuple[str, str], list[str]] = {}
    for commit, ids in states.items():
        for version in ids.items():
            versions.setdefault(version, []).append(commit)
    rank = {name: number for number, name in enumerate(_DOCUMENTS)}
    return dict(sorted(versions.items(), key=lambda item: rank.get(item[0][0], len(rank))))


def _names_up_to(
    commits: Mapping[str, list[str]], states: Mapping[str, Mapping[str, str]]
) -> dict[str, frozenset[str]]:
    """Return the names that each commit or one of its ancestors has."""
    names: dict[str, frozenset[str]] = {}
    for commit, parents in commits.items():
        names[commit] = frozenset(states.get(commit, ())).union(*(names[parent] for parent in parents))
    return names


def _refuse_missing_predecessor(states: Mapping[str, Mapping[str, str]], known: Mapping[str, frozenset[str]]) -> None:
    """Raise Tampered for a commit with a document whose predecessor no commit up to it has."""
    for commit, ids in states.items():
        for name in ids:
            predecessor = _predecessor(name)
            if predecessor and predecessor not in known[commit]:
                raise Tampered(
                    f"commit {_short_id(commit)} has {name}, but neither it nor any commit before it has {predecessor}"
                )


def _predecessor(name: str) -> str | None:
    """Return the document that must precede a file of evidence."""
    if name.startswith(f"{records.FOLDERS['confirm']}/"):
        return CLAIM
    return {CLAIM: lock.NAME, SEAL: CLAIM, VERDICT: SEAL}.get(name)


def _describe_order(
    commits: Mapping[str, list[str]], states: Mapping[str, Mapping[str, str]], known: Mapping[str, frozenset[str]]
) -> str:
    """Return what ancestry shows of the order of lock and claim; one commit with both shows none."""
    claim_commits = [commit for commit, ids in states.items() if CLAIM in ids]
    if not claim_commits:
        return "no claim is committed"
    if all(any(lock.NAME in known[parent] for parent in commits[commit]) for commit in claim_commits):
        return f"{lock.NAME} was committed before {CLAIM}"
    return f"{lock.NAME} and {CLAIM} were committed together, which shows no order between them"


def _differing_sources(repository: Repository, commit: str, sources: Mapping[str, str]) -> list[str]:
    names = sorted(sources)
    blobs = repository.objects(f"{commit}:{name}" for name in names)
    return [
        name
        for name, blob in zip(names, blobs, strict=True)
        if blob is None or hashlib.sha256(blob.data).hexdigest() != sources[name]
    ]


def _evidence_files(study: Registration) -> list[str]:
    """Return the files of a study that are written once or only grow."""
    paths = [
        *study.folder.iterdir(),
        *(path for phase in _PHASES for path in files.list_folder(study.phase_folder(phase))),
    ]
    names = [path.relative_to(study.folder).as_posix() for path in paths]
    is_locked = study.has(lock.NAME)
    return sorted(name for name in names if _is_evidence(name, is_locked, _task_names(study)))


def _task_names(study: Registration) -> frozenset[str]:
    return study.task_files if study.has(lock.NAME) else frozenset()


def _blob_id(repository: Repository, versions: Mapping[tuple[str, str], Any], study: Registration, name: str) -> str:
    """Return the blob id of a file. Raises Rewritten where git has it with other line endings."""
    data = files.read(study.folder / name)
    blob_id = repository.blob_id(data)
    if (name, blob_id) not in versions and b"\n" in data:
        is_crlf_journal = name.endswith(".jsonl") and line_endings.has_only_crlf(data)
        if is_crlf_journal or any(
            (name, repository.blob_id(variant)) in versions for variant in line_endings.other_endings(data)
        ):
            raise line_endings.rewritten_error(name)
    return blob_id


def _is_evidence(name: str, is_locked: bool, task_names: frozenset[str]) -> bool:
    """Return whether a file is evidence. task_names: files that tasks read, evidence once it is locked."""
    if _is_append_only(name) or (is_locked and name in task_names):
        return True
    return name in _DOCUMENTS and (is_locked or name not in _EDITABLE_UNTIL_LOCK)


def _is_append_only(name: str) -> bool:
    return name == ledger.NAME or _SHARD.fullmatch(name) is not None


def _find_form(study: Registration, name: str) -> str:
    """Return the name of the form in which a shard is stored here; that of another file is its own."""
    if not _SHARD.fullmatch(name):
        return name
    plain = study.folder / PurePosixPath(name).with_name(shards.plain_name(PurePosixPath(name)))
    return shards.find_form(plain).relative_to(study.folder).as_posix()


def _read_plain(path: Path) -> bytes:
    """Return the bytes of a file, of a packed shard those of its plain form."""
    return shards.read(path) if _SHARD.fullmatch(f"{path.parent.name}/{path.name}") else files.read(path)


def _complete_lines(data: bytes) -> bytes:
    """Return the data up to the last newline; what follows was never acknowledged."""
    return data[: data.rfind(b"\n") + 1]


def _short_id(commit: str) -> str:
    return commit[:7]
