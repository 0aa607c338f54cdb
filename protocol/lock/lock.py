"""lock.json: the frozen registration. All other documents cite it by its digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.formats import documents, files
from protocol.formats.documents import Document as Lock
from protocol.formats.fields import ANYTHING, DIGEST, FLAG, Field, Integer, ListOf, MapOf, OrNull, Table, Text, tuple_of
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.journal import HEAD
from protocol.formats.refusals import AlreadyClaimed, BadInput

__all__ = ["FIELDS", "NAME", "Lock", "read", "refuse_second", "write"]

NAME = "lock.json"
OBJECT = MapOf(ANYTHING)
TEXT_LIST = ListOf(Text(), 1)
OLD_LOCK = "a lock of before 2026-11-22"
OLD_LOCK_SILENT = "a lock of before 2026-11-23, which does not say"
OLD_FIRST_EVENT = "a lock of before 2026-11-23: 0, right after a question that stands outside"
OLD_BATCH = "a lock of before 2026-11-21: all lanes of a problem at once"

# The content of protocol.toml; protocol.plan.design declares the fields of its tables.
PROTOCOL = Table(
    {
        "title": Field(Text(), "What the study is."),
        "question": Field(Text(), "The question that the rule answers."),
        "models": Field(TEXT_LIST, "The models."),
        "seeds": Field(ListOf(Integer(), 1), "The seeds."),
        "budgets": Field(TEXT_LIST, "The budgets, as text."),
        "tasks": Field(ListOf(OBJECT, 1), "The tasks."),
        "arms": Field(MapOf(OBJECT), "The arms by name."),
        "generation": Field(OBJECT, "How lanes are decoded."),
        "decision": Field(OBJECT, "The rule, and what it may depend on."),
        "gate": Field(OBJECT, "What the full cache must reach.", if_absent="no gate"),
        "sweep": Field(OBJECT, "Candidates of which the probe chooses.", if_absent="no choice"),
        "randomness": Field(OBJECT, "What brings the late value.", if_absent="none is drawn"),
        "exclude": Field(OBJECT, "Problems that are not run.", if_absent="none"),
        "claims": Field(MapOf(OBJECT), "Claims of arms, outside the rule.", if_absent="none"),
        **{
            instrument.name: Field(OBJECT, instrument.description, if_absent=instrument.if_absent)
            for instrument in INSTRUMENTS
        },
    }
)
_ITEMS = Table(
    {
        "manifest": Field(DIGEST, "Digest of the split."),
        "dev": Field(ListOf(Text()), "Ids of the development problems."),
        "confirm": Field(ListOf(Text()), "Ids of the held-out problems."),
        "source": Field(
            DIGEST, "SHA-256 of what the problems are made of.", if_absent="the manifest is a locked source"
        ),
        "clusters": Field(MapOf(Text()), "What a problem shares with others, by id.", if_absent="nothing"),
        "levels": Field(MapOf(Text()), "How difficult a problem is, by id.", if_absent="not said beforehand"),
    }
)
_CELL = tuple_of(*(4 * [Text()]), Integer(), expected="a cell [model, task, budget, arm, seed]")
_PARENT = Table(
    {
        "name": Field(Text(), "The folder of the study that this one replicates."),
        "lock": Field(DIGEST, "Its lock."),
        "selection": Field(DIGEST, "Its selection.", if_absent="no sweep"),
    }
)
_DIFFERENCE = Table(
    {
        "path": Field(Text(), "Where."),
        "was": Field(ANYTHING, "In the amended lock.", if_absent="not there"),
        "is": Field(ANYTHING, "In this one.", if_absent="not there"),
    }
)
_AMENDS = Table(
    {
        "name": Field(Text(), "The folder of the study that this one amends."),
        "lock": Field(DIGEST, "Its lock."),
        "reason": Field(Text(), "Why."),
        "diff": Field(ListOf(_DIFFERENCE), "What differs between the locks."),
        "seen": Field(OBJECT, "What had been seen of it."),
        "after_claim": Field(FLAG, "Whether held-out problems had been claimed before."),
    }
)
_PREVIOUSLY_OPENED = Table(
    {
        "name": Field(Text(), "The folder of a registration that was claimed before this lock."),
        "lock": Field(OrNull(DIGEST), "Its lock; null where that, or its own file of problems, cannot be read."),
        "problems": Field(MapOf(ListOf(Text(), 1)), "Ids of the held-out problems that both have, by task."),
    }
)
_FULL_USE = Table(
    {
        "held": Field(MapOf(Integer(1)), "Slots per KV head and layer at the end of the answer, by problem."),
        "mean": Field(Text(r"[1-9][0-9]*(/[1-9][0-9]*)?", "a whole number or a fraction"), "Their mean, exactly."),
        "slots": Field(MapOf(Integer(1)), "What each such budget is, rounded up."),
    }
)
_SLOTS = Table(
    {
        "bytes": Field(Integer(1), "Of one slot of one head in one layer, as the arm stores it."),
        "slots": Field(
            MapOf(Integer(1)),
            "What each budget in bytes is for the arm, rounded down.",
            if_absent="it never evicts, or no budget is in bytes",
        ),
        "interval": Field(
            Integer(1),
            "Decode steps between its events in cells of such a budget.",
            if_absent="no plain interval, or no budget is in bytes",
        ),
    }
)
_SLOT_BYTES = Table(
    {
        "heads": Field(Integer(1), "Layers of full attention times KV heads of the model."),
        "width": Field(Integer(1), "Numbers of a key, and of a value, of one head in one layer."),
        "arms": Field(MapOf(_SLOTS), "By arm."),
    }
)
_LAYERS = Table(
    {
        "evictable": Field(Integer(1), "Layers of full attention: budgets and `heads` count these alone."),
        "sliding": Field(Integer(1), "Layers that keep a window in every arm and are evicted from in none."),
        "window": Field(Integer(1), "Tokens that a token of these sees, itself with them."),
    }
)
_GIT = Table(
    {
        "commit": Field(Text(), "What was checked out."),
        "differs": Field(ListOf(Text()), "Locked sources that it holds otherwise, or not at all."),
    }
)
FIELDS = documents.declare_document(
    "lock",
    {
        "name": Field(Text(), "The folder."),
        "parent": Field(OrNull(_PARENT), "The study that this one replicates."),
        "amends": Field(OrNull(_AMENDS), "The study that this one amends.", if_absent=OLD_LOCK),
        "opened": Field(
            ListOf(_PREVIOUSLY_OPENED),
            "Who in the repository had opened held-out problems of it; of a replication, others than its parent.",
            if_absent=OLD_LOCK_SILENT,
        ),
        "ledger": Field(HEAD, "The ledger when it was locked: no line.", if_absent=OLD_LOCK),
        "git": Field(OrNull(_GIT), "The commit; null outside a repository.", if_absent=OLD_LOCK),
        "signer": Field(OrNull(Text()), "The public key that signs the lock; null without one.", if_absent=OLD_LOCK),
        "protocol": Field(
            Table(
                {
                    "sha256": Field(DIGEST, "Of protocol.toml."),
                    "content": Field(PROTOCOL, "What was read from it."),
                }
            ),
            "What was registered.",
        ),
        "grid": Field(ListOf(_CELL, 1), "Every cell that confirm runs."),
        "policies": Field(MapOf(OBJECT), "Every setting of each arm's policy, by its path.", if_absent=OLD_LOCK),
        "asked": Field(
            MapOf(Text()),
            "What arms say to the model beside the problem, by arm.",
            if_absent="no arm says anything",
        ),
        "items": Field(MapOf(_ITEMS), "The split of each task."),
        "batch": Field(
            Table(
                {
                    "lanes": Field(MapOf(Integer(1)), "Those that decode at once, by model."),
                    "first_event": Field(
                        Integer(0), "Decode steps before which no event fires.", if_absent=OLD_FIRST_EVENT
                    ),
                }
            ),
            "How lanes decode, where the protocol may leave it out.",
            if_absent=OLD_BATCH,
        ),
        "full_use": Field(
            MapOf(MapOf(_FULL_USE)),
            "What the full cache held on development problems, by model and task.",
            if_absent="no budget is a share of it",
        ),
        "slot_bytes": Field(
            MapOf(_SLOT_BYTES),
            "What a slot takes, by model.",
            if_absent="no budget is in bytes, and every arm stores its slots as computed",
        ),
        "layers": Field(
            MapOf(_LAYERS),
            "Which layers budgets are of, by model with sliding-window layers.",
            if_absent="no model has such layers",
        ),
        "sources": Field(MapOf(DIGEST), "SHA-256 of each source file."),
        "bundle": Field(DIGEST, "SHA-256 of sources.zip."),
        "data": Field(MapOf(ANYTHING), "SHA-256 of each task's data file, or of its two splits."),
        "weights": Field(MapOf(MapOf(DIGEST)), "SHA-256 of each file of each model."),
        "environment": Field(
            Table({"distributions": Field(OBJECT, "What is installed.")}, allow_extra=True),
            "The interpreter, the machine and everything installed.",
        ),
        "rule": Field(
            Table(
                {
                    "name": Field(Text(), "The rule."),
                    "source": Field(Text(), "The file that it is in."),
                    "sha256": Field(DIGEST, "Of that file."),
                }
            ),
            "The rule that gives the verdict.",
        ),
        "checks": Field(OBJECT, "What registering found that the rule can see."),
    },
)


def write(folder: Path, content: Mapping[str, Any]) -> str:
    """Write the lock of `folder` and return its digest. A lock is never replaced."""
    refuse_second(folder)
    return documents.write(folder / NAME, content, FIELDS)


def refuse_second(folder: Path) -> None:
    """Raise AlreadyClaimed when `folder` is locked."""
    if files.exists(folder / NAME):
        raise AlreadyClaimed(f"{folder} is locked already; register another study in another folder")


def read(folder: Path) -> Lock:
    """Read the lock of `folder`. Raises BadInput when there is none, Tampered for invalid content."""
    if not files.exists(folder):
        raise BadInput(f"{folder}: no such folder; kv-prereg status lists the registrations that are here")
    if not files.exists(folder / NAME):
        raise BadInput(f"{folder} is not locked; run: kv-prereg register {folder}")
    return documents.read(folder / NAME, FIELDS)
