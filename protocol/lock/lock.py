"""lock.json: the frozen registration. All other documents cite it by its digest."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from protocol.formats import citations, documents, files, runners
from protocol.formats.documents import Document
from protocol.formats.fields import (
    ANYTHING,
    DIGEST,
    FLAG,
    Choice,
    Field,
    Integer,
    ListOf,
    MapOf,
    OrNull,
    Table,
    Text,
    TupleOf,
)
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.journal import HEAD
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import installed_versions, version_1

Lock = Document
NAME = "lock.json"
SIGNATURE = f"{NAME}.sig"
UNSIGNED = "the lock is not signed"  # in the words of an audit
OBJECT = MapOf(ANYTHING)
TEXT_LIST = ListOf(Text(), 1)
VERSION = 2
EARLIER_RELEASES: frozenset[str] = frozenset()
"""Releases before this one that wrote locks of version 2 and whose results may differ from those of today."""
RELEASE = re.compile(r"(\d{1,4}(?:\.\d{1,4}){1,3})(?:[.abrc+-][a-z0-9.]*)?")
_BREAKS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
FOLDER_NAME = Text(rf"(?!\.{{1,2}}$)[^/\\{_BREAKS}]+", "the name of a folder, in one line")
LINE = Text(rf"[^{_BREAKS}]+", "one line of text")
COMMIT = Text("[0-9a-f]{40}|[0-9a-f]{64}", "the full id of a commit")
SIGNER = Text(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}", "a public key")
SHARE = Text(r"[01]\.\d{6}", "a share with six digits")
VERDICT_WORDS = MapOf(Choice("CONFIRMED", "REFUTED", "INCONCLUSIVE"))

# The content of protocol.toml; protocol.plan.design declares the fields of its tables.
PROTOCOL = Table(
    {
        "title": Field(LINE, "The title of the study."),
        "question": Field(LINE, "The question that the rule answers."),
        "models": Field(TEXT_LIST, "The models."),
        "seeds": Field(ListOf(Integer(), 1), "The seeds."),
        "budgets": Field(TEXT_LIST, "The budgets, as text."),
        "tasks": Field(ListOf(OBJECT, 1), "The tasks."),
        "arms": Field(MapOf(OBJECT), "The arms by name."),
        "generation": Field(OBJECT, "The settings of decoding."),
        "decision": Field(OBJECT, "The rule and its settings."),
        "gate": Field(OBJECT, "What the full cache must reach on each task.", if_absent="no gate"),
        "sweep": Field(OBJECT, "The candidates among which the probe chooses.", if_absent="no choice"),
        "randomness": Field(OBJECT, "The source of the late value.", if_absent="nothing is drawn"),
        "witness": Field(OBJECT, "The witness that stamps the lock.", if_absent="nobody"),
        "outcome": Field(OBJECT, "The outcome by which arms are compared.", if_absent="their answers' accuracy"),
        "exclude": Field(OBJECT, "Problems that are not run.", if_absent="none"),
        "claims": Field(MapOf(OBJECT), "Claims of arms, outside the rule.", if_absent="none"),
        citations.FIELD: Field(
            MapOf(FOLDER_NAME), "Studies whose records are used for arms.", if_absent="all arms are decoded"
        ),
        "neighbours": Field(TEXT_LIST, "Budgets at which only comparators run, as text.", if_absent="none"),
        runners.TABLE: Field(OBJECT, "Who decodes.", if_absent="this project"),
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
            DIGEST, "SHA-256 of the data from which the problems are made.", if_absent="the manifest is a locked source"
        ),
        "clusters": Field(MapOf(Text()), "The cluster of each problem, by id.", if_absent="nothing"),
        "levels": Field(MapOf(Text()), "How difficult a problem is, by id.", if_absent="not known beforehand"),
        "population": Field(
            Text(),
            "The population of which the problems are a sample, as the task declares it.",
            if_absent="only these problems",
        ),
    }
)
_CELL = TupleOf((*(4 * [Text()]), Integer()), "a cell [model, task, budget, arm, seed]")
_PARENT = Table(
    {
        "name": Field(FOLDER_NAME, "The folder of the study that this one reproduces or replicates."),
        "lock": Field(DIGEST, "Its lock."),
        "selection": Field(DIGEST, "Its selection.", if_absent="no sweep"),
        "fresh": Field(
            FLAG,
            "True for a replication, whose problems and seeds are drawn after the lock.",
            if_absent="a reproduction: the same protocol, problems and seeds",
        ),
    }
)
_DIFFERENCE = Table(
    {
        "path": Field(Text(), "Where."),
        "was": Field(ANYTHING, "The value in the amended lock.", if_absent="not there"),
        "is": Field(ANYTHING, "The value in this lock.", if_absent="not there"),
    }
)
_AMENDS = Table(
    {
        "name": Field(FOLDER_NAME, "The folder of the study that this one amends."),
        "lock": Field(DIGEST, "Its lock."),
        "reason": Field(Text(), "Why."),
        "diff": Field(ListOf(_DIFFERENCE), "The differences between the locks."),
        "seen": Field(OBJECT, "What had been seen of the amended study."),
        "after_claim": Field(FLAG, "Whether held-out problems had been claimed before."),
    }
)
_PREVIOUSLY_OPENED = Table(
    {
        "name": Field(FOLDER_NAME, "The folder of a registration that was claimed before this lock."),
        "lock": Field(
            OrNull(DIGEST), "The digest of its lock; null where the lock, or its file of problems, cannot be read."
        ),
        "problems": Field(MapOf(ListOf(Text(), 1)), "Ids of the held-out problems that both studies have, by task."),
    }
)
_CITED = Table(
    {
        "name": Field(FOLDER_NAME, "The folder of the study whose records are used for the arm."),
        "lock": Field(DIGEST, "Its lock."),
        "seal": Field(OrNull(DIGEST), "The digest of its seal; null if it had none when this was locked."),
        "other_code": Field(Integer(), "Files and libraries used in decoding that differ from those in its lock."),
    }
)
_FULL_USE = Table(
    {
        "held": Field(MapOf(Integer(1)), "Slots per KV head and layer at the end of the answer, by problem."),
        "mean": Field(
            Text(r"[1-9][0-9]*(/[1-9][0-9]*)?", "a whole number or a fraction"), "The exact mean of these slots."
        ),
        "slots": Field(MapOf(Integer(1)), "Slots of each budget that is a share of the full cache, rounded up."),
    }
)
_SLOTS = Table(
    {
        "bytes": Field(Integer(1), "Bytes of one slot of one head in one layer, as the arm stores it."),
        "recent": Field(
            Integer(1),
            "Fixed number of bytes of one head in one layer for its latest slots, if the arm stores them separately.",
            if_absent="none",
        ),
        "slots": Field(
            MapOf(Integer(1)),
            "Slots of each budget in bytes for the arm, rounded down.",
            if_absent="it never evicts, or no budget is in bytes",
        ),
        "interval": Field(
            Integer(1),
            "Decode steps between the arm's events in cells of such a budget.",
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
        "evictable": Field(Integer(1), "Layers of full attention: budgets and `heads` count only these."),
        "sliding": Field(
            Integer(1), "Sliding-window layers: they keep their window in every arm, and no arm evicts from them."
        ),
        "window": Field(Integer(1), "The window: tokens that a token in these layers attends to, including itself."),
    }
)
_GIT = Table(
    {
        "commit": Field(COMMIT, "The commit that was checked out."),
        "differs": Field(ListOf(Text()), "Locked sources that differ from the commit or are missing from it."),
    }
)
_PROMISES = Table(
    {
        "fires": Field(
            Choice("never", "prefill", "interval", "slack", "every", "own"),
            "When eviction steps fire: never; once after the prefill; or also while decoding: after every "
            "interval that ends above the budget, when a lane holds the budget plus one interval (slack), "
            "after every interval, or by the policy's own rule.",
        ),
        "interval": Field(
            OrNull(Integer(1)), "Decode steps between eviction steps; null if none fires while decoding."
        ),
        "grants_budget": Field(FLAG, "Whether every eviction step is granted the registered budget."),
        "leaves_at_most": Field(FLAG, "Whether an eviction step leaves no more slots than it is granted."),
        "leaves_exactly": Field(FLAG, "Whether exactly the granted slots remain when more were stored."),
        "may_leave_less": Field(FLAG, "Whether an eviction step may leave fewer slots than granted."),
        "parked_caches": Field(Integer(), "The most caches that a lane stores besides the active one."),
        "stores_as_computed": Field(FLAG, "Whether a slot takes the bytes of its key and value as computed."),
        "is_press": Field(FLAG, "Whether a press of kvpress decides which slots are left."),
    }
)
_ENVIRONMENT = Table(
    {
        **{name: Field(Text(), name) for name in ("python", "implementation", "system", "machine")},
        "library": Field(DIGEST, "SHA-256 over the files of the standard library."),
        "distributions": Field(
            MapOf(
                Table(
                    {"version": Field(Text(), "Its version."), "files": Field(DIGEST, "SHA-256 of its list of files.")}
                )
            ),
            "The installed packages, by name.",
        ),
        "altered": Field(MapOf(Text()), "SHA-256 of installed files that differ from their package's list, by path."),
        "own": Field(MapOf(DIGEST), "SHA-256 of the files that make this project importable, by path."),
        "torch": Field(
            Table(
                {name: Field(Text(), name) for name in ("build", "cpu", "device", "version")}
                | {"threads": Field(Integer(1), "threads")}
            ),
            "How Python was built and run.",
            if_absent="another harness decodes",
        ),
    }
)
_SHARES = Table({name: Field(SHARE, name) for name in ("low", "share", "high")})
_SIZE = Table(
    {
        "type_one_over_nominal": Field(Text(r"\d+\.\d{3}"), "The method's error rate divided by the level."),
        "type_one_setting": Field(Text(), "The setting with the highest error rate."),
        "minimal_detectable_effect": Field(MapOf(Text(r"none|0\.\d{3}|1\.000")), "By discordance."),
    }
)
_GOLDS = Table(
    {
        "purpose": Field(Text(), "Why gold answers were read."),
        "dev": Field(Integer(), "Lanes on development problems."),
        "confirm": Field(Integer(), "Lanes on held-out problems."),
    }
)
_ERRORS = Table(
    {
        **{
            word: Field(_SHARES, f"The share of simulated studies that were {word}.")
            for word in ("confirmed", "refuted")
        },
        "discordance": Field(Text(), "The share of problems on which arms differ."),
        "setting": Field(Text(), "The simulated setting."),
        "studies": Field(Integer(), "How many."),
    }
)
_SAME_SLOTS = Table(
    {
        "pairs": Field(ListOf(Table({"arms": Field(ListOf(Text(), 2), "Two.")}, allow_extra=True)), "Arms alike."),
        "on": Field(MapOf(Text()), "The network that ran for each model."),
        "left_out": Field(ListOf(Text()), "Arms that were not compared."),
    }
)
_CHECKS = Table(
    {
        "tests": Field(Integer(1), "Number of tests in the family."),
        "corrected_alpha": Field(SHARE, "The level of each test."),
        "problems": Field(MapOf(_SIZE), "By number of problems, or of clusters in tasks with clusters."),
        "golds": Field(MapOf(_GOLDS), "Number of gold answers that were graded against themselves, by task."),
        "scored": Field(ListOf(Text()), "Tasks whose answers have scores."),
        "rule": Field(
            Table({name: Field(VERDICT_WORDS, name) for name in ("verdicts", "gates")}),
            "The self-test of the rule on simulated studies.",
        ),
        "decision_errors": Field(_ERRORS, "How often the rule decides if the arms do not differ."),
        "same_kept": Field(_SAME_SLOTS, "Arms that keep the same slots."),
    }
)
FIELDS = documents.declare_document(
    "lock",
    {
        "name": Field(FOLDER_NAME, "The folder."),
        "release": Field(Text(), "The version of kv-prereg that locked it."),
        "parent": Field(OrNull(_PARENT), "The study that this one reproduces or replicates."),
        "amends": Field(OrNull(_AMENDS), "The study that this one amends."),
        "opened": Field(
            ListOf(_PREVIOUSLY_OPENED),
            (
                "Registrations in the repository that had opened held-out problems of this lock (in a reproduction: "
                "as its parent's lock lists them)."
            ),
        ),
        citations.CITES: Field(
            MapOf(_CITED, min_length=1),
            "Studies whose records are used for arms, by arm.",
            if_absent="every arm is decoded here",
        ),
        "judging": Field(
            Integer(1, 4),
            "The version of the judging rules: 3, or 4 with `slip`; lower where a study that ships with "
            "kv-prereg is run again as it was locked.",
        ),
        "chance": Field(
            MapOf(SHARE),
            "The share of answers that guessing gets right, by task; empty if `judging` is 1 or an outcome "
            "is registered.",
        ),
        "ledger": Field(HEAD, "The ledger's head at locking: it has no line yet."),
        "git": Field(OrNull(_GIT), "The commit; null outside a repository."),
        "signer": Field(OrNull(SIGNER), "The public key that signs the lock; null without one."),
        "protocol": Field(
            Table(
                {
                    "sha256": Field(DIGEST, "Digest of protocol.toml."),
                    "content": Field(PROTOCOL, "The values that were read from it."),
                }
            ),
            "The registered protocol.",
        ),
        "grid": Field(ListOf(_CELL, 1), "Every cell that confirm runs."),
        "policies": Field(MapOf(MapOf(Text())), "Every setting of each arm's policy, by its path."),
        "promises": Field(MapOf(_PROMISES), "What each arm's policy declares of its eviction steps."),
        "asked": Field(MapOf(Text()), "The extra prompts of the arms, by arm."),
        "items": Field(MapOf(_ITEMS), "The split of each task."),
        "batch": Field(
            Table(
                {
                    "lanes": Field(
                        MapOf(Integer(1)),
                        "The number of lanes that decode at once, by model; empty where no number depends on it.",
                    ),
                    "first_event": Field(Integer(0), "Decode steps before which no event fires."),
                }
            ),
            "Settings of decoding that the protocol may leave out.",
        ),
        "full_use": Field(
            MapOf(MapOf(_FULL_USE)),
            "The slots that the full cache held on development problems, by model and task, if a budget is a "
            "share of them.",
        ),
        "slot_bytes": Field(
            MapOf(_SLOT_BYTES),
            (
                "Bytes of a slot, by model, if a budget is in bytes, an arm does not store its slots as computed, "
                "or memory is total."
            ),
        ),
        "layers": Field(MapOf(_LAYERS), "The layers to which budgets apply, by model with sliding-window layers."),
        "sources": Field(MapOf(DIGEST), "SHA-256 of each source file."),
        "bundle": Field(DIGEST, "SHA-256 of sources.zip."),
        "data": Field(MapOf(ANYTHING), "SHA-256 of each task's data file, or of its two splits."),
        "weights": Field(MapOf(MapOf(DIGEST)), "SHA-256 of each file of each model."),
        "environment": Field(_ENVIRONMENT, "The interpreter, the machine and everything installed."),
        "rule": Field(
            Table(
                {
                    "name": Field(Text(), "The rule."),
                    "source": Field(Text(), "The file of the rule."),
                    "sha256": Field(DIGEST, "Digest of that file."),
                }
            ),
            "The rule that gives the verdict.",
        ),
        "checks": Field(_CHECKS, "Checks that register computed before locking."),
    },
    VERSION,
)


def is_of_other_code(lock: Lock) -> bool:
    """Whether other code than that of this release locked the study, so that it may have read, run and judged it
    otherwise: the lock ships with this project, or names a release of `compare_release` that is not this one. The
    bundled sources are no excuse, because their author chose them; nor is a release that never was.
    """
    return lock.digest in version_1.PROTOCOLS or compare_release(lock.content["release"]) in ("earlier", "undetermined")


def compare_release(release: str) -> Literal["installed", "earlier", "undetermined", "unknown"]:
    """Compare the release that a lock names with the installed one: "undetermined" if it is later, or if one of the
    two is not known; "unknown" for one before the installed one that wrote no lock of version 2.
    """
    installed = installed_versions.release()
    if release == installed:
        return "installed"
    if release in EARLIER_RELEASES:
        return "earlier"
    named, here = (RELEASE.fullmatch(text) for text in (release, installed))
    if here is None or release == installed_versions.NO_RELEASE:
        return "undetermined"
    is_later = named is not None and [*map(int, named[1].split("."))] > [*map(int, here[1].split("."))]
    return "undetermined" if is_later else "unknown"


def write(folder: Path, content: Mapping[str, Any]) -> str:
    """Write the lock of `folder` and return its digest. A lock is never replaced."""
    refuse_second(folder)
    return documents.write(folder / NAME, content, FIELDS)


def refuse_second(folder: Path) -> None:
    """Raise AlreadyClaimed when `folder` is locked."""
    if files.exists(folder / NAME):
        raise AlreadyClaimed(f"{folder} is locked already; register a new study in another folder")


def read(folder: Path) -> Lock:
    """Read the lock of `folder`. Raises BadInput when there is none, Tampered for invalid content."""
    if not files.exists(folder):
        raise BadInput(f"{folder}: no such folder; kv-prereg status lists the registrations that are here")
    if not files.exists(folder / NAME):
        raise BadInput(f"{folder} is not locked; run: kv-prereg register {folder}")
    path = folder / NAME
    document = documents.read_unchecked(path)
    if document.content.get("version") != 1:
        documents.check(path, document.content, FIELDS)
        return document
    if document.digest not in version_1.PROTOCOLS:
        raise Tampered(
            f"{NAME}: has version 1, which only the studies that ship with kv-prereg may have; it was edited, "
            "or must be registered again with this release"
        )
    return document._replace(content=version_1.complete(document.content))
