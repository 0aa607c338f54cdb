"""Read the files of a judged registration for its report. Verifying them is the audit's task."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from markupsafe import Markup

from analysis.exploratory.arm_ranks import RankedCell, rank_study
from analysis.exploratory.level_contrasts import contrasts_by_level
from analysis.judgement import eviction_counts, untrusted_files
from analysis.judgement.study_files import read_document, read_ledger, read_study
from analysis.judgement.study_table import Study
from analysis.judgement.untrusted_files import RecordError
from figures.drawing import formatting, page
from protocol.formats import files
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.registry import load_attribute
from protocol.formats.vocabulary import RERUN_SUFFIX, VERDICT_WORDS


class RepeatedLanes(NamedTuple):
    """How many of the lanes that a probe ran twice have different grades."""

    differing: int
    lanes: int


Lane: TypeAlias = tuple[str, str, str, str, int, str]  # model, task, budget, arm, seed, problem


class Text(NamedTuple):
    """text: empty for a failed lane. answer: the answer that the grader extracted, if any."""

    text: str
    answer: str | None


class JudgedStudy(NamedTuple):
    study: Study
    judged: dict[str, Any]
    digests: dict[str, str]  # of lock.json, claim.json, seal.json and verdict.json
    claim: dict[str, Any]
    seal: dict[str, Any]
    ledger: list[dict[str, Any]]  # the ledger's entries
    repeats: RepeatedLanes | None
    eviction_counts: list[dict[str, Any]]  # one row for each arm: see `evicted.counted`
    levels: list[dict[str, Any]]  # one row for each contrast and level: see `by_level`
    ranks: list[RankedCell]
    protocol: str | None  # text of protocol.toml, if it is the locked file
    texts: Mapping[Lane, Text]  # generated texts
    instrument_sections: Mapping[str, Markup]  # of the report, by instrument, without drawings


def read_judged_study(folder: Path, witness: str = formatting.WITNESS) -> JudgedStudy:
    """Read a judged registration. witness: as `page.judged` takes it.

    Raises NoVerdict if it has no verdict, `untrusted_files.RecordError` for files that are missing, that are not
    in the documented format, or that cite other ones.
    """
    judged, study = page.read_judged(folder, witness), read_study(folder)
    texts = _Texts(folder / "records")
    _, verdict = read_document(folder / "verdict.json")
    claim_digest, claim = read_document(folder / "claim.json")
    seal_digest, seal = read_document(folder / "seal.json")
    for name, document_citing, digest in (("lock", verdict, study.registration), ("seal", verdict, seal_digest)):
        if document_citing.get(name) != digest:
            raise RecordError(
                f"{folder / 'verdict.json'}: {name}: cites a different {name}.json; run: kv-prereg audit {folder}"
            )
    if judged["verdict"] not in VERDICT_WORDS:
        raise RecordError(
            f"{folder / 'verdict.json'}: verdict: {judged['verdict']!r} is not a verdict of any rule; run: "
            f"kv-prereg audit {folder}"
        )
    if not isinstance(judged["title"], str):
        raise TypeError("title: is not text")
    return JudgedStudy(
        study,
        judged,
        {
            "lock.json": study.registration,
            "claim.json": claim_digest,
            "seal.json": seal_digest,
            "verdict.json": hashlib.sha256(untrusted_files.read_bytes(folder / "verdict.json")).hexdigest(),
        },
        claim,
        seal,
        read_ledger(folder),
        _count_repeats(folder),
        eviction_counts.count_arms(texts.bodies(), study.lock["protocol"]["content"]),
        contrasts_by_level(study),
        rank_study(study),
        _read_protocol(folder, study.lock),
        texts,
        {
            instrument.name: section
            for instrument in INSTRUMENTS
            if instrument.section and (section := load_attribute(instrument.section)(folder)) is not None
        },
    )


def list_proofs(folder: Path) -> list[str]:
    """Return the names of the files in FOLDER/anchors, which only an audit can verify."""
    return sorted(path.name for path in (folder / "anchors").glob("*") if path.is_file())


class _Texts(Mapping[Lane, Text]):
    """The generated texts of lanes, in a temporary file until they are accessed: a page shows some hundred."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._file = files.temporary_file(self)
        self._offsets: dict[Lane, int] = {}

    def bodies(self) -> Iterator[dict[str, Any]]:
        """Yield the bodies of the records and store their texts."""
        interned = dict[str, str]()
        for body in untrusted_files.read_bodies(self._records):
            lane = _lane_key(body)
            lane_key = (*(interned.setdefault(text, text) for text in lane[:4]), lane[4])
            self._offsets[*lane_key, interned.setdefault(lane[5], lane[5])] = self._file.tell()  # type: ignore[index]
            self._file.write(json.dumps([body["text"] or "", body["answer"]]).encode() + b"\n")
            yield body

    def __getitem__(self, lane: Lane) -> Text:
        self._file.seek(self._offsets[lane])
        return Text(*json.loads(self._file.readline()))

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


def _lane_key(body: Mapping[str, Any]) -> Lane:
    cell = body["cell"]
    return cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], body["problem"]


def _read_protocol(folder: Path, lock: dict[str, Any]) -> str | None:
    try:
        data = untrusted_files.read_bytes(folder / "protocol.toml")
        return data.decode() if hashlib.sha256(data).hexdigest() == lock["protocol"]["sha256"] else None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _count_repeats(folder: Path) -> RepeatedLanes | None:
    """Return the repeats of a sweep from its selection; otherwise count them in the probe. None without any."""
    if (folder / "selection.json").exists():
        counts = read_document(folder / "selection.json")[1]["selected"]["again"]
        return RepeatedLanes(counts["differ"], counts["lanes"])
    grades: dict[tuple[str, ...], Any] = {}
    for body in untrusted_files.read_bodies(folder / "probe"):
        cell = body["cell"]
        cell_key = (cell["model"], cell["task"], cell["budget"], str(cell["seed"]), body["problem"])
        grades[*cell_key, cell["arm"]] = body["grade"], body.get("score")
    pairs = [
        (grades[*lane, arm.removesuffix(RERUN_SUFFIX)], grade)
        for (*lane, arm), grade in grades.items()
        if arm.endswith(RERUN_SUFFIX) and (*lane, arm.removesuffix(RERUN_SUFFIX)) in grades
    ]
    if not pairs:
        return None
    return RepeatedLanes(sum(first != second for first, second in pairs), len(pairs))
