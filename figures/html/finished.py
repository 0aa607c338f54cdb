"""Read the files of a judged registration for its report. Verifying them is the audit's task."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from analysis.anatomy.reading import NothingLabelled
from analysis.explored.by_level import by_level
from analysis.studies import evicted, plain_files
from analysis.studies.study_files import AGAIN, RecordError, Study, document
from analysis.studies.study_files import read as read_study
from figures.canvas import numbers, page
from figures.canvas.anatomies import Told, told

__all__ = ["Again", "Finished", "Lane", "Text", "acts", "proofs", "read"]

VERDICTS = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED")


class Again(NamedTuple):
    """How many of the lanes that a probe ran twice have different grades."""

    differ: int
    lanes: int


Lane: TypeAlias = tuple[str, str, str, str, int, str]  # model, task, budget, arm, seed, problem


class Text(NamedTuple):
    """text: empty for a failed lane. answer: the answer that the grader extracted, if any."""

    text: str
    answer: str | None


class Finished(NamedTuple):
    study: Study
    judged: dict[str, Any]
    digests: dict[str, str]  # of lock.json, claim.json, seal.json and verdict.json
    claim: dict[str, Any]
    seal: dict[str, Any]
    acts: list[dict[str, Any]]  # the ledger's entries
    again: Again | None
    held: list[dict[str, Any]]  # one row for each arm: see `evicted.counted`
    levels: list[dict[str, Any]]  # one row for each contrast and level: see `by_level`
    protocol: str | None  # text of protocol.toml, if it is the locked file
    texts: Mapping[Lane, Text]  # generated texts
    anatomy: Told | None  # if the study has labelled traces


def read(folder: Path, witness: str = numbers.WITNESS) -> Finished:
    """Read a judged registration. witness: as `page.judged` takes it.

    Raises NoVerdict if it has no verdict, `study_files.RecordError` for files that are missing, that are not
    in the documented format, or that cite other ones.
    """
    judged, study = page.judged(folder, witness), read_study(folder)
    texts = _Texts(folder / "records")
    _, verdict = document(folder / "verdict.json")
    (claimed, claim), (sealed, seal) = document(folder / "claim.json"), document(folder / "seal.json")
    for name, cited, found in (("lock", verdict, study.registration), ("seal", verdict, sealed)):
        if cited.get(name) != found:
            raise RecordError(
                f"{folder / 'verdict.json'}: {name}: cites another {name}.json; run: kv-prereg audit {folder}"
            )
    if judged["verdict"] not in VERDICTS:
        raise RecordError(
            f"{folder / 'verdict.json'}: verdict: no rule says {judged['verdict']!r}; "
            f"run: kv-prereg audit {folder}"
        )
    return Finished(
        study,
        judged,
        {
            "lock.json": study.registration,
            "claim.json": claimed,
            "seal.json": sealed,
            "verdict.json": hashlib.sha256(plain_files.read(folder / "verdict.json")).hexdigest(),
        },
        claim,
        seal,
        acts(folder),
        _again(folder),
        evicted.counted(texts.bodies(), study.lock["protocol"]["content"]),
        by_level(study),
        _protocol(folder, study.lock),
        texts,
        _anatomy(folder),
    )


def _anatomy(folder: Path) -> Told | None:
    try:
        return told(folder)
    except NothingLabelled:
        return None


def acts(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of FOLDER/ledger.jsonl. Raises RecordError."""
    path = folder / "ledger.jsonl"
    try:
        lines = plain_files.read(path).split(b"\n")[:-1]
        return [dict(json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise RecordError(f"{path}: missing; bring back the whole folder") from None
    except RecordError:
        raise
    except (ValueError, TypeError, RecursionError):
        raise RecordError(f"{path}: is no ledger; run: kv-prereg audit {folder}") from None


def proofs(folder: Path) -> list[str]:
    """Return the names of the files in FOLDER/anchors, which only an audit can verify."""
    return sorted(path.name for path in (folder / "anchors").glob("*") if path.is_file())


class _Texts(Mapping[Lane, Text]):
    """The generated texts of lanes, read from disk at each access: a page shows some hundred of them."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._places: dict[Lane, tuple[str, int]] = {}

    def bodies(self) -> Iterator[dict[str, Any]]:
        """Yield the bodies of the records and remember their offsets."""
        now, start, words = "", 0, dict[str, str]()
        for name, _, line in plain_files.lines(self._records, "shard-*.jsonl"):
            start, now = 0 if name != now else start, name
            if line.endswith(b"\n"):
                body = json.loads(line)["body"]
                lane = _lane(body)
                own = (*(words.setdefault(text, text) for text in lane[:4]), lane[4])
                self._places[*own, words.setdefault(lane[5], lane[5])] = name, start  # type: ignore[index]
                yield body
            start += len(line)

    def __getitem__(self, lane: Lane) -> Text:
        name, start = self._places[lane]
        with open(self._records / name, "rb") as file:
            file.seek(start)
            body = json.loads(file.readline(plain_files.MOST_OF_A_LINE))["body"]
        if _lane(body) != lane:
            raise RecordError(f"{name}: was changed while it was read")
        return Text(body["text"] or "", body["answer"])

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _lane(body: Mapping[str, Any]) -> Lane:
    cell = body["cell"]
    return cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], body["problem"]


def _protocol(folder: Path, lock: dict[str, Any]) -> str | None:
    try:
        data = plain_files.read(folder / "protocol.toml")
        return data.decode() if hashlib.sha256(data).hexdigest() == lock["protocol"]["sha256"] else None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _again(folder: Path) -> Again | None:
    """Return the repeats of a sweep from its selection; otherwise count them in the probe. None if nothing
    ran twice.
    """
    if (folder / "selection.json").exists():
        counted = document(folder / "selection.json")[1]["selected"]["again"]
        return Again(counted["differ"], counted["lanes"])
    grades: dict[tuple[str, ...], Any] = {}
    for _, _, line in plain_files.lines(folder / "probe"):
        if line.endswith(b"\n"):
            body = json.loads(line)["body"]
            cell = body["cell"]
            place = (cell["model"], cell["task"], cell["budget"], str(cell["seed"]), body["problem"])
            grades[*place, cell["arm"]] = body["grade"], body.get("score")
    pairs = [
        (grades[*lane, arm.removesuffix(AGAIN)], grade)
        for (*lane, arm), grade in grades.items()
        if arm.endswith(AGAIN) and (*lane, arm.removesuffix(AGAIN)) in grades
    ]
    return Again(sum(one != other for one, other in pairs), len(pairs)) if pairs else None
