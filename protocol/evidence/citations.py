"""Baselines that are run once: arms whose lanes are the sealed records of an earlier study, not decoded again.

"The 1d baseline is reused from the prior gate (subsetting to the confirm IDs; no new compute)", as section 4.2 of
"Minimal-Intervention KV Retention" has it. The lock names the study by its digest, and by that of its seal if it has
one; the claim names the seal. Confirm copies the records line by line into a shard of their own. They say
themselves which lock they were decoded under, and an audit compares them with the folder that they come from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.evidence import late_randomness, records
from protocol.evidence.records import Key, Record
from protocol.evidence.registration import CLAIM, SEAL, Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import files
from protocol.formats.citations import CITED_BY, CITED_SHARD, CITES, FIELD, list_cited_locks
from protocol.formats.findings import CannotTell
from protocol.formats.looks import read_looks
from protocol.formats.refusals import BadInput, Refusal, Tampered
from protocol.lock import closure, lock

NOT_OF_TEXT = ("problems_per_batch", "lanes_per_batch", "workers")  # of [generation]: who decodes together
CALIBRATED = "statistics-"  # how the files of a model begin that arms calibrate, each study those that its arms need
ROOMS = ("engine", "grading", "harness", "layers", "models", "plan", "sandbox", "tasks")
DECODING = ("policies/", "splits/", *(f"protocol/{room}/" for room in ROOMS))
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "lm-eval", "math-verify", "sympy")  # which grade, too
NOT_OF_PROBLEMS = ("dev", "confirm")  # of a task: how many of its problems


class Unusable(BadInput, CannotTell):
    """A cited study is not on this machine, or was ended; the evidence of the study that cites it is not at fault."""


def open_cited(folder: Path, protocol: Mapping[str, Any]) -> dict[str, Registration]:
    """Return the studies that a protocol cites, by arm: locked folders beside `folder`.

    Raises BadInput for one that is not there or cannot be cited, and Tampered for a damaged lock.
    """
    cited = {arm: _open_sibling(folder, arm, name) for arm, name in protocol.get(FIELD, {}).items()}
    draws_cited = _draws_cited(protocol)
    for arm, study in cited.items():
        where = f"{FIELD}.{arm}: {study.name}"
        if draws_cited != (late_randomness.FIELD in study.protocol):
            does, fix = (
                ("does not draw", "leave out")
                if draws_cited
                else ("draws", f'write source = "{late_randomness.CITED}" in')
            )
            raise BadInput(f"{where}: {does} its problems and seeds after the lock; {fix} [{late_randomness.FIELD}]")
        if draws_cited and study.has(CLAIM):
            raise BadInput(
                f"{where}: has drawn its problems already; a study that draws problems must be cited before it is "
                "claimed"
            )
    if draws_cited and len({study.lock.digest for study in cited.values()}) > 1:
        raise BadInput(f"{FIELD}: the late value comes from one study; cite only one")
    return cited


def cite(cited: Mapping[str, Registration], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `cites` of the lock with this content: name, lock and seal of each arm's study.

    Raises BadInput with the fields in which an arm's lanes would not be those that this study would decode. Whether the
    evidence of the other study holds is asked before the claim: `refuse_unusable`.
    """
    for arm, study in cited.items():
        if content["promises"][arm]["is_press"] or "distribution" in content["policies"][arm]:
            raise BadInput(
                f"{FIELD}.{arm}: runs code of others, of which the lock records only the settings; decode the arm here"
            )
        if unequal := _list_unequal(content, study.lock.content, arm):
            more = f" (and {len(unequal) - 3} more)" if len(unequal) > 3 else ""
            raise BadInput(
                f"{FIELD}.{arm}: {study.name} decoded it differently: {'; '.join(unequal[:3])}{more}; make "
                f"these equal, or leave the arm out of [{FIELD}] to decode it here"
            )
    return {
        arm: {
            "name": study.name,
            "lock": study.lock.digest,
            "seal": study.seal.digest if study.has(SEAL) else None,
            "other_code": _count_other_code(content, study.lock.content),
        }
        for arm, study in cited.items()
    }


def refuse_unusable(study: Registration, audit: Callable[[Registration], Sequence[str]]) -> None:
    """Raise BadInput unless every cited study is here and sealed, and, if its problems were fresh when this study was
    locked, was claimed after it; Tampered unless its evidence holds. audit: returns what fails of a folder.
    """
    opened = {entry["lock"] for entry in study.lock.content["opened"]}
    for entry in _entries(study.lock.content):
        cited, where = _find(study, entry), f"{study.folder}: cites {entry['name']}"
        if list_cited_locks(cited.lock.content):
            raise Tampered(f"{where}, which itself cites records")
        if not cited.has(SEAL):
            raise BadInput(f"{where}, which is not sealed; first: kv-prereg confirm {cited.folder}")
        _refuse_ended(cited, where)
        # What the cited claim draws is in no lock, so that none can say which of these problems were opened.
        is_told = cited.lock.digest in opened and not _draws_cited(study.protocol)
        if not (study.reproduces or is_told or _names(cited, study.lock.digest)):
            raise BadInput(
                f"{where}, whose claim does not name this lock, so nothing shows which came first; register "
                "again in a new folder, whose lock will then say that its problems were opened before"
            )
        if failed := audit(cited):
            raise Tampered(f"{where}, whose audit fails: {', '.join(failed)}")


def claim_fields(study: Registration) -> dict[str, Any]:
    """Return the fields of a claim about citations: the seals of the cited studies by their locks, the late value of
    one, and the locks of studies beside that cite this one; none where there is none.
    """
    cited = [_find(study, entry) for entry in _entries(study.lock.content)]
    seals, citing = {other.lock.digest: other.seal.digest for other in cited}, find_citing(study)
    fields: dict[str, Any] = ({CITES: seals} if seals else {}) | ({CITED_BY: citing} if citing else {})
    return fields | ({late_randomness.FIELD: _late_value(cited[0])} if _draws_cited(study.protocol) else {})


def find_citing(study: Registration) -> list[str]:
    """Return the locks of the studies beside this one that cite it, sorted."""
    digest, found = study.lock.digest, set()
    for folder in study.folder.resolve().parent.glob("*/"):
        try:
            other = Registration(folder)
            is_named = other.has(lock.NAME) and digest.encode() in files.read(folder / lock.NAME)
            if is_named and digest in list_cited_locks(other.lock.content):
                found.add(other.lock.digest)
        except (Refusal, OSError):  # of somebody else, or damaged, which its own audit reports
            continue
    return sorted(found)


def copy_due(study: Registration) -> None:
    """Record the cited lanes of the problems that may be opened now, in a shard of their own; lanes that are there
    stay. Call it under the claim. Raises as `check` does.
    """
    for entry in _entries(study.lock.content):
        cited, folder = _find(study, entry), study.phase_folder("confirm")
        wanted = _cited_lanes(study, entry["lock"])
        with ShardWriter(folder, CITED_SHARD) as shard:
            missing = [lane for lane in wanted if lane not in shard]
            lines = _by_lane(cited, missing)
            if absent := [lane for lane in missing if lane not in lines]:
                raise Tampered(f"{cited.folder}: has no record of {absent[0]}, which is cited")
            for path in records.cited_files(cited.phase_folder("confirm"), lines.values()):
                copied = folder / records.TRAJECTORIES / path.name
                if not copied.exists():
                    files.create(copied, files.read(path))
            if missing:
                shard.append([(lines[lane]["body"], lines[lane]["costs"]) for lane in missing])


def check(study: Registration) -> str:
    """Return the audit's sentence about cited records: they are those of the cited folder, under the seal that the
    claim names, and ask what the lanes beside them ask.

    Raises Tampered otherwise, CannotTell where a cited folder is not here.
    """
    locked, sentences = study.lock.content, []
    prompts: dict[tuple[str, str, str, str], str] = {}
    for head in records.record_heads(study.confirm_records):
        key = (head.key.model, head.key.task, head.key.problem, locked["asked"].get(head.key.arm, ""))
        if prompts.setdefault(key, head.prompt) != head.prompt:
            raise Tampered(
                f"{head.key}: its prompt differs from that of this study's own lanes; the problems of {FIELD} are "
                "not the same"
            )
    for entry in _entries(locked):
        cited = _find(study, entry)
        seal, named = cited.seal.digest, study.claim.content.get(CITES, {}).get(entry["lock"])
        if seal != named or entry["seal"] not in (None, seal):
            raise Tampered(
                f"{entry['name']}: has a different seal from the one that {CLAIM} and {lock.NAME} cite; it was "
                "sealed again"
            )
        if _draws_cited(study.protocol) and study.claim.content.get(late_randomness.FIELD) != _late_value(cited):
            raise Tampered(f"{CLAIM}: {late_randomness.FIELD}: differs from the value that {entry['name']} drew")
        arms = _arms_of(locked, entry["lock"])
        for arm in arms:
            if unequal := _list_unequal(locked, cited.lock.content, arm):
                raise Tampered(f"{FIELD}.{arm}: {entry['name']} decoded otherwise: {'; '.join(unequal[:3])}")
        if any(
            locked[CITES][arm] != {**entry, "other_code": _count_other_code(locked, cited.lock.content)} for arm in arms
        ):
            raise Tampered(f"{CITES}: what {lock.NAME} says about {entry['name']} does not match the two locks")
        ours = _by_lane(study, _cited_lanes(study, entry["lock"]))
        theirs = _by_lane(cited, [*ours])
        for lane, record in ours.items():
            if lane not in theirs or theirs[lane]["sha256"] != record["sha256"]:
                raise Tampered(f"{lane}: differs from the record of {entry['name']}, which is cited for it")
        sentences.append(f"{len(ours)} records equal those of {entry['name']}, sealed as {seal[:12]}")
    return "; ".join(sentences)


def _open_sibling(folder: Path, arm: str, name: str) -> Registration:
    where, cited = f"{FIELD}.{arm}: {name}", Registration(folder.resolve().parent / name)
    if cited.folder.is_symlink() or not cited.folder.is_dir():
        kind = "is a link" if cited.folder.is_symlink() else f"is not in {cited.folder.parent}"
        raise BadInput(f"{where}: {kind}; name the folder of a locked study next to this one")
    if cited.folder == folder.resolve():
        raise BadInput(f"{where}: is this study; name an earlier one")
    content = cited.lock.content
    if content["version"] == 1:
        raise BadInput(
            f"{where}: has a lock of version 1, which does not record everything that a lane depends on; cite "
            "another study"
        )
    if list_cited_locks(content):
        raise BadInput(f"{where}: cites records itself; cite the study that decoded them")
    if read_looks(content):
        raise BadInput(
            f"{where}: may stop at an interim look before every problem is decoded; cite a study without looks"
        )
    _refuse_ended(cited, where)
    return cited


def _refuse_ended(cited: Registration, where: str) -> None:
    """Raise Unusable for a study that was withdrawn, or amended by another one."""
    if ended := {"withdraw", "amended"} & {entry.event for entry in cited.entries}:
        word = "withdrawn" if "withdraw" in ended else "amended"
        raise Unusable(f"{where}: was {word}; cite a study that is still valid")


def _list_unequal(content: Mapping[str, Any], cited: Mapping[str, Any], arm: str) -> list[str]:
    """Return one text for each fact on which the lanes of an arm depend and that two locks have otherwise."""
    if arm not in cited["policies"]:
        return [f"arms/{arm}: missing"]
    grid = {tuple(cell) for cell in content["grid"] if cell[3] == arm}
    absent = sorted(grid - {tuple(cell) for cell in cited["grid"]})
    texts = [f"grid/{'/'.join(map(str, cell))}: missing" for cell in absent[:1]]
    for task in {cell[1] for cell in grid - {*absent}}:
        held_out = {*cited["items"][task]["confirm"]}
        others = [problem for problem in content["items"][task]["confirm"] if problem not in held_out]
        texts += [f"items/{task}/confirm/{problem}: missing" for problem in others[:1]]
    return texts + closure.differences(_facts(cited, content, arm, grid), _facts(content, cited, arm, grid))


def _facts(
    content: Mapping[str, Any], other: Mapping[str, Any], arm: str, grid: set[tuple[Any, ...]]
) -> dict[str, Any]:
    """Return what the text, the grade and the memory of an arm's lanes in these cells depend on, by field. other: the
    lock that it is compared with, in which files and bytes that other arms need may be missing.
    """
    registered, places = content["protocol"]["content"], {cell[:3] for cell in grid}
    models, tasks = ({place[index] for place in places} for index in (0, 1))
    slot_bytes = content["slot_bytes"]
    return {
        "generation": {name: value for name, value in registered["generation"].items() if name not in NOT_OF_TEXT},
        "exclude": registered.get("exclude"),
        "tasks": {
            table["name"]: {name: value for name, value in table.items() if name not in NOT_OF_PROBLEMS}
            for table in registered["tasks"]
            if table["name"] in tasks
        },
        "items": {
            task: {name: content["items"][task].get(name) for name in ("manifest", "source")}
            for task in tasks & content["items"].keys()
        },
        "data": {task: content["data"].get(task) for task in tasks},
        "weights": {
            model: {
                name: digest
                for name, digest in content["weights"][model].items()
                if not name.startswith(CALIBRATED) or name in other["weights"].get(model, {})
            }
            for model in models & content["weights"].keys()
        },
        "layers": {model: content["layers"].get(model) for model in models},
        "policies": content["policies"][arm],
        "promises": content["promises"][arm],
        "asked": content["asked"].get(arm, ""),
        "first_event": content["batch"]["first_event"],
        "device": content["environment"]["torch"]["device"],
        "full_use": {
            f"{model}/{task}/{budget}": content["full_use"].get(model, {}).get(task, {}).get("slots", {}).get(budget)
            for model, task, budget in places
            if budget.endswith(" of full")
        },
        "slot_bytes": {
            model: slot_bytes[model]["arms"].get(arm)
            for model in models & slot_bytes.keys() & other["slot_bytes"].keys()
        },
    }


def _count_other_code(content: Mapping[str, Any], cited: Mapping[str, Any]) -> int:
    """Return how many files and libraries that turn a problem into an answer two locks have otherwise."""
    ours, theirs = (
        {name: digest for name, digest in locked["sources"].items() if name.startswith(DECODING)}
        | {name: locked["environment"]["distributions"].get(name, {}).get("version") for name in LIBRARIES}
        for locked in (content, cited)
    )
    return len(closure.differences(ours, theirs))


def _entries(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield each cited study of a lock once."""
    yield from {entry["lock"]: entry for entry in content.get(CITES, {}).values()}.values()


def _arms_of(content: Mapping[str, Any], digest: str) -> list[str]:
    return [arm for arm, entry in content.get(CITES, {}).items() if entry["lock"] == digest]


def _find(study: Registration, entry: Mapping[str, Any]) -> Registration:
    """Return the cited study: the folder of its name beside this one, or in another folder of registrations. Raises
    Tampered for one with another lock, CannotTell where there is none.
    """
    shelf = study.folder.resolve().parent
    candidates = [Registration(folder / entry["name"]) for folder in (shelf, *sorted(shelf.parent.glob("*/")))]
    present = [candidate for candidate in candidates if candidate.has(lock.NAME)]
    if not present:
        raise Unusable(
            f"{entry['name']}, whose records are cited, is not in a folder next to {study.folder.name}; restore it"
        )
    for candidate in present:
        if candidate.has_lock(entry["lock"]):
            return candidate
    raise Tampered(f"{entry['name']}: has a different lock from the one that is cited, {entry['lock'][:12]}")


def _draws_cited(protocol: Mapping[str, Any]) -> bool:
    return bool(protocol.get(late_randomness.FIELD, {}).get("source") == late_randomness.CITED)


def _late_value(cited: Registration) -> dict[str, Any]:
    """Return the entry of a claim with the late value that the cited study drew."""
    drawn = cited.claim.content[late_randomness.FIELD]
    return {"source": late_randomness.CITED, "value": drawn["value"], "key": drawn["key"]}


def _names(cited: Registration, digest: str) -> bool:
    """Whether the claim of a cited study names a lock, which therefore came first."""
    return digest in cited.claim.content.get(CITED_BY, ())


def _cited_lanes(study: Registration, digest: str) -> list[Key]:
    """Return the lanes that are cited from the study with this lock, of the problems that may be opened now."""
    arms = {*_arms_of(study.lock.content, digest)}
    return [
        Key._make((*cell, problem))
        for cell in study.lock.content["grid"]
        if cell[3] in arms
        for problem in study.due_items[cell[1]]["confirm"]
    ]


def _by_lane(study: Registration, lanes: Sequence[Key]) -> dict[Key, Record]:
    """Return the records of these lanes that the study has."""
    wanted = {*lanes}
    heads = enumerate(records.record_heads(study.confirm_records))
    indices = [index for index, head in heads if head.key in wanted]
    return {records.body_key(record["body"]): record for record in map(study.confirm_records.__getitem__, indices)}
