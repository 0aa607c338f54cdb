"""Compare what a lock says of other registrations with those in the sibling folders. Needs no torch.

A missing sibling is no contradiction: a folder may have been sent alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.external import git_history
from protocol.evidence.external.git_repository import Repository
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats.citations import CITED_BY, list_cited_locks
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Refusal
from protocol.formats.vocabulary import RANDOMNESS
from protocol.lock import version_1
from protocol.plan import full_use
from protocol.tasks import registry
from protocol.workspace import differences


def find_contradictions(study: Registration) -> Iterator[str]:
    """Yield one message for each contradiction between a lock and the registration that it replicates or
    amends, or between its own fields about that.
    """
    if study.lock.content.get("amends"):
        from protocol.evidence.audit import amendment  # which few studies need

        yield from amendment.find_faults(study.lock.content)
    yield from _parent_faults(study)


class OpenedFindings(NamedTuple):
    """Contradictions in the field `opened` of a lock, and what cannot be told of it here."""

    faults: list[str]
    undetermined: list[str]


def check_opened(study: Registration) -> OpenedFindings:
    """Compare the field `opened` with the claimed siblings, by the recipes and texts of today's tasks.

    A sibling that the lock lists has to share the listed problems. A sibling that shares problems has to be listed
    if it was claimed before: if its claim is in the commit that the lock names, or if it ships with this project.
    Without a commit, and where the sibling does not list this study as the earlier one, the order cannot be told.
    A reproduction was compared with its parent, and is no look of its own. A registration whose file of questions
    is missing is skipped.
    """
    locked, folder, findings = study.lock.content, study.folder, OpenedFindings([], [])
    if study.reproduces or study.lock.digest in version_1.PROTOCOLS:
        return findings
    from protocol.preflight import previously_opened  # no study of version 1 needs it

    if not all(map(partial(_has_problems, folder), study.protocol["tasks"])):
        return findings
    listed_problems = {entry["lock"]: entry["problems"] for entry in locked["opened"] if entry["lock"]}
    others = [
        other for other in previously_opened.claimed_registrations(folder) if _is_other_lock(other, study.lock.digest)
    ]
    if not others:
        return findings
    entries = previously_opened.find_previously_opened(folder, locked["items"], study.protocol)
    derived_problems = {entry["lock"]: entry["problems"] for entry in entries}
    for other in others:
        digest = other.lock.digest
        if previously_opened.has_lost_file(other):  # its held-out problems can no longer be determined
            continue
        expected = derived_problems.get(digest, {})
        if digest in listed_problems:
            findings.faults.extend(differences.diff_values(listed_problems[digest], expected, f"opened.{other.name}"))
        elif not expected or other.reproduces:
            continue
        elif _has_committed_claim(other, locked["git"]):
            findings.faults.append(
                f"opened: does not list {other.name}, whose claim is in the commit at which this study was locked"
            )
        elif not _is_beside(other, folder):
            continue
        elif digest in version_1.PROTOCOLS:
            findings.faults.append(
                f"opened: does not list {other.name}, which was claimed before the release of kv-prereg that "
                "locked this study"
            )
        elif _cite_one_study(study, other, others):
            continue
        elif locked["git"] is None and not _lists(other, study.lock.digest):
            findings.undetermined.append(
                f"opened: {other.name} has the same held-out problems, but it is unknown whether it was "
                "claimed before this was locked: neither lists the other, and the lock names no commit"
            )
    return findings


def _lists(study: Registration, digest: str) -> bool:
    """Whether it names a lock with this digest as an earlier one, also by citing it or in its claim."""
    content = study.lock.content
    named = {entry["lock"] for entry in content["opened"]} | list_cited_locks(content)
    return digest in named or digest in study.claim.content.get(CITED_BY, ())


def _cite_one_study(study: Registration, other: Registration, claimed: Iterable[Registration]) -> bool:
    """Whether both cite a study whose claim names both: they were locked before it, and claimed after its seal."""
    shared = list_cited_locks(study.lock.content) & list_cited_locks(other.lock.content)
    locks = {study.lock.digest, other.lock.digest}
    return any(locks <= {*cited.claim.content.get(CITED_BY, ())} for cited in claimed if cited.lock.digest in shared)


def _is_beside(other: Registration, folder: Path) -> bool:
    """Whether it lies in the repository of `folder`, and not in that of the audit's own code."""
    return folder.resolve().parent.parent in other.folder.resolve().parents


def list_missing_opened(study: Registration) -> list[str]:
    """Return the names in the field `opened` of which no folder of registrations here has the lock."""
    folders = sorted(study.folder.resolve().parent.parent.glob("*/"))
    return [
        entry["name"]
        for entry in study.lock.content["opened"]
        if entry["lock"] and not any(Registration(shelf / entry["name"]).has_lock(entry["lock"]) for shelf in folders)
    ]


def _parent_faults(study: Registration) -> Iterator[str]:
    """Check that a reproduction has its parent's protocol, byte for byte, the parent's measured use of the
    full cache, its first event, and what had been opened before it; and that a replication differs from its
    parent's protocol only where it has to.
    """
    if study.parent is not None and not study.reproduces and RANDOMNESS not in study.protocol:
        yield f"parent.fresh: says that problems are drawn afresh, but there is no [{RANDOMNESS}]"
    if (parent := study.find_parent()) is None:
        return
    content, parent_content = study.lock.content, parent.lock.content
    if not study.reproduces:
        from protocol.preflight import fresh_replication

        is_shipped = parent.lock.digest in version_1.PROTOCOLS
        yield from fresh_replication.find_differences(parent.protocol, study.protocol, is_shipped=is_shipped)
        return
    yield from differences.diff_values(content["opened"], parent_content["opened"], "opened")
    yield from differences.diff_values(
        content["protocol"]["sha256"], parent_content["protocol"]["sha256"], "protocol.sha256"
    )
    yield from differences.diff_values(content[full_use.FIELD], parent_content[full_use.FIELD], full_use.FIELD)
    first_event, expected = (side["batch"]["first_event"] for side in (content, parent_content))
    yield from differences.diff_values(first_event, expected, "batch.first_event")


def _has_problems(folder: Path, task: Mapping[str, Any]) -> bool:
    """Whether the sources of a task's problems are available here."""
    try:
        registry.make_task(task, folder).ids()
    except Refusal:
        return False
    return True


def _is_other_lock(study: Registration, digest: str) -> bool:
    """Whether it has a readable lock with another digest: a copy of the study is no earlier study."""
    try:
        return study.lock.digest != digest
    except (Refusal, OSError):
        return False


def _has_committed_claim(study: Registration, git: Mapping[str, Any] | None) -> bool:
    """Whether the commit that a lock names contains the claim of `study`; False if git fails."""
    if git is None or not git_history.COMMIT_ID.fullmatch(git["commit"]):
        return False
    try:
        repository = Repository(study.folder)
        objects = repository.objects([f"{git['commit']}:{repository.prefix}/{CLAIM}"])
    except CannotTell:
        return False
    return objects[0] is not None
