"""The files that another harness wrote: found by arm, stored by their digests, read by the readers of `compare`."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from analysis.compare import result_files, untrusted_files
from analysis.compare.scored_answers import ReadOptions, ResultError, ScoredAnswer
from protocol.evidence.registration import Registration
from protocol.formats import documents, files
from protocol.formats.documents import Document, declare_document
from protocol.formats.fields import DIGEST, Field, Integer, ListOf, MapOf, Table, Text
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.runners import TABLE

_PART = r"(?!\.{1,2}(?:/|$))[^/\0]+"  # of a path: it leads neither up nor to where it stands
_FILE = Table(
    {
        "name": Field(Text(f"{_PART}(?:/{_PART})*", "a path below the folder"), "Its path in the folder of outputs."),
        "sha256": Field(DIGEST, "SHA-256 of its bytes, which are in outside/files."),
        "bytes": Field(Integer(), "Its size."),
    }
)
OUTPUTS = declare_document(
    "outputs",
    {
        "lock": Field(DIGEST, "The lock."),
        "claim": Field(DIGEST, "The claim."),
        "files": Field(MapOf(ListOf(_FILE, 1)), "The files that were read, by arm."),
    },
)

FOLDER = "outside"
LIST, FILES = f"{FOLDER}/outputs.json", f"{FOLDER}/files"
SUFFIXES = (".jsonl", ".json", ".eval", ".csv")
BESIDE = re.compile(r"results_.*\.json|config\.yaml|metrics\.json")  # what says of which run the outputs are


class OutputFile(NamedTuple):
    """A file of an arm. name: below the folder of outputs, with slashes."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def has_answers(self) -> bool:
        return not BESIDE.fullmatch(Path(self.name).name)


ArmFiles = Mapping[str, Sequence[OutputFile]]  # by arm


def find_files(outputs: Path, arms: Sequence[str]) -> ArmFiles:
    """Read the files of every arm: OUTPUTS/ARM.SUFFIX, or all below the folder OUTPUTS/ARM. Raises BadInput for an arm
    without a file with answers, and for two arms with the same bytes.
    """
    if not outputs.is_dir():
        raise BadInput(
            f"--outputs {outputs}: no such folder; name the folder that has a file or a folder for every arm"
        )
    found = {arm: [*_read_arm(outputs, arm)] for arm in arms}
    owner: dict[str, str] = {}
    for arm, arm_files in found.items():
        if not any(file.has_answers for file in arm_files):
            raise BadInput(
                f"--outputs {outputs}: {arm}: has no file of answers; put the files of its run into {arm}/, "
                f"or one file named {arm} with one of the endings {', '.join(SUFFIXES)}"
            )
        for file in arm_files:
            if file.has_answers and owner.setdefault(file.sha256, arm) != arm:
                raise BadInput(
                    f"--outputs {outputs}: {file.name}: equals a file of {owner[file.sha256]} byte for byte; "
                    "each arm needs its own run"
                )
    return found


def _read_arm(outputs: Path, arm: str) -> Iterator[OutputFile]:
    paths = [path for suffix in SUFFIXES if (path := outputs / f"{arm}{suffix}").exists()]
    folder = outputs / arm
    if folder.exists():
        paths += sorted(path for path in folder.rglob("*") if not path.is_dir())
    for path in paths:
        if path.suffix in SUFFIXES or BESIDE.fullmatch(path.name):
            yield OutputFile(path.relative_to(outputs).as_posix(), _read_plain(path))


def _read_plain(path: Path) -> bytes:
    try:
        return files.read(path)
    except Tampered as refusal:
        raise BadInput(f"{path.parent}/{refusal}") from None


def store(study: Registration, outputs: ArmFiles) -> str:
    """Store the files and then their list; return the digest of the list. Raises BadInput if other files were read."""
    content = {
        "kind": "kv-prereg outputs",
        "version": 1,
        "lock": study.lock.digest,
        "claim": study.claim.digest,
        "files": {
            arm: [{"name": file.name, "sha256": file.sha256, "bytes": len(file.data)} for file in arm_files]
            for arm, arm_files in outputs.items()
        },
    }
    path = study.folder / LIST
    if files.exists(path):
        listed = read_list(study)
        if listed.content != content:
            raise BadInput(
                f"{path}: other files were read already, and outputs are read only once; leave --outputs out to "
                "continue"
            )
        return listed.digest
    read = {file.sha256: file for arm_files in outputs.values() for file in arm_files}
    for left in (study.folder / FILES / name for name in stored_names(study) - read.keys()):
        left.unlink()  # of an attempt that was killed before its list was written
    for file in read.values():
        if not files.exists(stored := study.folder / FILES / file.sha256):
            files.create(stored, file.data)
    return documents.write(path, content, OUTPUTS)


def stored_names(study: Registration) -> set[str]:
    """Return the digests of the files that are stored, without leftovers of a killed run."""
    return {path.name for path in files.list_folder(study.folder / FILES) if re.fullmatch("[0-9a-f]{64}", path.name)}


def read_list(study: Registration) -> Document:
    return documents.read(study.folder / LIST, OUTPUTS)


def read_stored(study: Registration) -> ArmFiles:
    """Return the files that were read, from the folder of the study. Raises Tampered for one that changed since."""
    found: dict[str, list[OutputFile]] = {}
    for arm, entries in read_list(study).content["files"].items():
        for entry in entries:
            try:
                data = files.read(study.folder / FILES / entry["sha256"])
            except FileNotFoundError:
                raise Tampered(f"{FILES}/{entry['sha256'][:12]}: missing, although {entry['name']} was read") from None
            file = OutputFile(entry["name"], data)
            if (file.sha256, len(data)) != (entry["sha256"], entry["bytes"]):
                raise Tampered(f"{FILES}/{entry['sha256'][:12]}: {entry['name']} was changed after it was read")
            found.setdefault(arm, []).append(file)
    return found


class ArmAnswer(NamedTuple):
    """A row of a file of an arm, and where in the file it is."""

    arm: str
    answer: ScoredAnswer
    file: OutputFile
    where: str


class ArmRun(NamedTuple):
    """What a run says of itself: its model, when it was made, as ISO 8601, and its name; empty where it does not."""

    name: str
    model: str
    made: str
    run: str = ""


class Answers(NamedTuple):
    rows: list[ArmAnswer]
    runs: dict[str, list[ArmRun]]  # by arm


def read_answers(outputs: ArmFiles, protocol: Mapping[str, Any]) -> Answers:
    """Read the rows of every file with answers. Raises ResultError for a file that cannot be read."""
    table = protocol[TABLE]
    options = ReadOptions(metric=table.get("metric"), filter=table.get("filter"))
    answers = Answers([], {arm: [] for arm in outputs})
    with tempfile.TemporaryDirectory() as home:
        for arm, arm_files in outputs.items():
            for file in arm_files:
                (path := Path(home) / file.name).parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
            for file in (each for each in arm_files if each.has_answers):
                try:
                    contents = result_files.read_file(Path(home) / file.name, options)
                except ResultError as refusal:
                    fault, _, advice = str(refusal).replace(f"{home}/", "").partition("; ")
                    is_kept = advice and "--" not in advice  # of an option of compare
                    raise ResultError(f"{fault}; {advice}" if is_kept else fault) from None
                run = ArmRun(file.name, contents.model, contents.made, contents.run)
                answers.runs[arm].append(_read_lm_eval_run(file, arm_files) or run)
                for row in contents.rows:
                    if row.arm not in ("", arm):
                        raise ResultError(
                            f"{file.name}: arm: {row.arm!r} in a file of {arm}; give every arm its own file"
                        )
                    where = row.where.replace(f"{home}/", "").removeprefix(file.name).lstrip(": ")
                    answers.rows.append(ArmAnswer(arm, row, file, where))
    return answers


def _read_lm_eval_run(file: OutputFile, arm_files: Sequence[OutputFile]) -> ArmRun | None:
    """Return what lm-eval's results_DATE.json says of the run of samples_TASK_DATE.jsonl; without any results beside it
    the date of its name, in the time zone of whoever ran it; None for a file with another name.

    Raises ResultError for samples beside which there are results of other runs alone.
    """
    folder, _, name = file.name.rpartition("/")
    if not (date := re.search(r"_(\d{4}-\d\d-\d\d)T([\d.-]+)\.jsonl$", name)):
        return None
    wanted = f"results_{date[1]}T{date[2]}.json"
    results = {
        beside.name.rpartition("/")[2]: beside
        for beside in arm_files
        if beside.name.rpartition("/")[0] == folder and re.fullmatch(r".*/results_.*\.json", f"/{beside.name}")
    }
    if not results:
        return ArmRun(file.name, "", f"{date[1]}T{date[2].replace('-', ':')}")
    if wanted not in results:
        raise ResultError(
            f"{file.name}: its folder has results of other runs but no {wanted}, which records what ran; add it"
        )
    said = untrusted_files.parse_json(results[wanted].data, results[wanted].name)
    if not isinstance(said, Mapping):
        raise ResultError(f"{results[wanted].name}: is not an object; name the results file of lm-eval")
    return ArmRun(file.name, str(said.get("model_name") or ""), _format_date(said.get("date"), results[wanted].name))


def _format_date(date: Any, where: str) -> str:
    """Return the date of lm-eval, seconds since 1970, as ISO 8601."""
    if not isinstance(date, int | float):
        return str(date or "")
    try:
        return datetime.fromtimestamp(date, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        raise ResultError(f"{where}: date: {date} is not a time; name the results file of lm-eval") from None
