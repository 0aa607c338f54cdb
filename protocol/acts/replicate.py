"""Register, confirm and judge a confirmed study again, as a separate child registration."""

import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from analysis.output import headline
from protocol import witnesses
from protocol.acts import confirm, judge, register
from protocol.acts.judge import Judgement
from protocol.evidence.bytes.shown import put
from protocol.evidence.lock import lock
from protocol.evidence.refusals import Drifted, Tampered
from protocol.evidence.run import late_randomness, ledger, records, selection
from protocol.evidence.run.registration import PROTOCOL, SEAL, Registration
from protocol.locked import tree
from protocol.locked.study import Study, open_study, refuse_drift
from protocol.plan import full_use
from protocol.running.executors.settings import LOCAL, Settings

__all__ = ["Replicated", "begun", "new", "replicate"]


class Replicated(NamedTuple):
    judgement: Judgement
    compared: dict[str, Any]  # of child and parent


def begun(parent: Study) -> Study:
    """Return the child that this run confirms: the one whose locked tree this is, an unfinished one, or a new
    one. It takes over its parent's selection.
    """
    child = standing(parent) or unfinished(parent) or new(parent)
    if child.registration.swept:
        selection.adopt(child.registration, parent.registration)
    return child


def replicate(
    parent: Study,
    child: Study,
    value: Path | None = None,
    headers: Path | None = None,
    identity: Path | None = None,
    settings: Settings = LOCAL,
) -> Replicated:
    """Confirm the child unless it is sealed, judge it and compare. Raises as `confirm.confirm` does."""
    if not child.registration.has(SEAL):

        def block() -> late_randomness.Block:
            return witnesses.drawn_from(child.registration, headers)

        confirm.confirm(child, value, block, identity, settings)
    judgement = judge.judge_sealed(child.registration)
    return Replicated(judgement, compare(parent.registration, child.registration.anew(), judgement.judged))


def shelf(parent: Study) -> Path:
    """Return the folder of the replications of `parent`: beside the folder that contains it."""
    return parent.folder.resolve().parent.parent / "replications"


def children(parent: Study) -> list[Registration]:
    """Return the earlier replications of `parent`, oldest first."""
    folders = sorted(shelf(parent).glob(f"{parent.registration.name}-[0-9][0-9][0-9]"))
    return [Registration(folder) for folder in folders]


def standing(parent: Study) -> Study | None:
    """Return the replication whose locked tree this process runs; None in a working tree."""
    if (digest := tree.held()) is None:
        return None
    for child in children(parent):
        if child.has(lock.NAME) and child.lock.digest == digest:
            return open_study(child, parent.planned.home)
    raise Tampered(f"{shelf(parent)}: has no replication of the lock {digest[:12]} any more; start again")


def unfinished(parent: Study) -> Study | None:
    """Return the newest replication, if it has no verdict yet and today's bytes still equal those that it
    locked.
    """
    for newest in children(parent)[-1:]:
        if not newest.has(lock.NAME):
            return None
        if not newest.entered:
            register.register(newest.folder, parent.planned.home)  # completes an interrupted registration
        if ledger.closing(newest.entries):
            return None
        child = open_study(newest, parent.planned.home)
        try:
            refuse_drift(child, with_weights=False, runs_here=False)
        except Drifted as drift:
            put(f"leaving {newest.folder}: {drift}", sys.stderr)
            return None
        return child if child.lock.content["parent"]["lock"] == parent.lock.digest else None
    return None


def new(parent: Study) -> Study:
    """Register the next replication. A refusal leaves no folder behind."""
    name = parent.registration.name
    number = max((int(child.name[-3:]) for child in children(parent)), default=0) + 1
    folder = shelf(parent) / f"{name}-{number:03d}"
    named = {"name": name, "lock": parent.lock.digest, **selection.digest(parent.registration)}
    folder.mkdir(parents=True)
    try:
        for file in (PROTOCOL, *parent.registration.task_files):
            shutil.copyfile(parent.folder / file, folder / file)
        register.register(
            folder,
            parent.planned.home,
            parent=named,
            gateless="gate" not in parent.registration.registered,
            first_event=parent.first_event(),
            used=parent.lock.content.get(full_use.FIELD),
        )
    except BaseException:
        if not (folder / lock.NAME).exists():
            shutil.rmtree(folder)
            with suppress(OSError):  # it contains other replications
                folder.parent.rmdir()
        raise
    return open_study(Registration(folder), parent.planned.home)


def compare(parent: Registration, child: Registration, judged: dict[str, Any]) -> dict[str, Any]:
    """Compare the verdicts and the rule's results, and count the lanes with the same text and with the same
    grade. With late randomness lanes are not compared: the child has other seeds and generated problems.

    A parent that predates gates may have a verdict that a study of its size can no longer get: then only the
    rule's results are compared.
    """
    before = parent.verdict.content["judged"]
    agrees = headline.says(before) == headline.says(judged)
    if "gate" in before:
        agrees = agrees and before["verdict"] == judged["verdict"]
    agreed = {
        "agrees": agrees,
        "parent_verdict": before["verdict"],
        "rule_says": headline.says(judged),
        "parent_rule_says": headline.says(before),
    }
    if late_randomness.FIELD in child.registered:
        return agreed
    first, again = (
        {records.key(record["body"]): record["body"] for record in study.confirmed}
        for study in (parent, child)
    )
    return agreed | {
        "lanes": len(first),
        "same_text": sum(first[key]["text"] == again[key]["text"] for key in first),
        "same_grade": sum(_grade(first[key]) == _grade(again[key]) for key in first),
    }


def _grade(body: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the grade with its score, if it has one."""
    return body["grade"], body.get("score")
