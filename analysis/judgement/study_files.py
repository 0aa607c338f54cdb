"""The files of a study, read only by their documented format (docs/records.md): its records, lock and ledger."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.judgement import untrusted_files
from analysis.judgement.study_table import LocatedRecords, Study, build_development, build_probe, build_study
from analysis.judgement.untrusted_files import RecordError
from protocol.formats.record_fields import FOLDERS, line_pattern


def read_study(folder: Path) -> Study:
    """Read FOLDER/lock.json and the confirm records in FOLDER/records/*.jsonl.

    Raises RecordError for a folder with links or pipes in it, one without a lock or a single record, a line that is not
    JSON, NaN or infinity, an unknown grade or state, a second record of a lane, a record of another registration or of
    no registered lane, and one that the registered exclusion contradicts. A registered lane without a record is a row
    with the state "not run"; the registered rule decides how it counts.
    """
    return _build_from_files(Path(folder), "confirm", build_study)


def read_probe(folder: Path) -> Study:
    """Read the lanes of a sweep: its candidates, its baseline and the rerun baseline on development problems,
    from FOLDER/probe/*.jsonl; with the checks of `read_study`.
    """
    return _build_from_files(Path(folder), "probe", build_probe)


def read_development(folder: Path) -> Study:
    """Read the lanes of a probe on development problems: of a sweep as `read_probe`, else of every registered
    cell, and the rerun first comparator.
    """
    return _build_from_files(Path(folder), "probe", build_development)


def _build_from_files(
    folder: Path, phase: str, build: Callable[[Path, str, dict[str, Any], LocatedRecords], Study]
) -> Study:
    untrusted_files.refuse_special_files(folder)
    registration, lock = read_document(folder / "lock.json")
    with untrusted_files.refuse_wrong_shape(folder):
        return build(folder, registration, lock, _read_records(folder / FOLDERS[phase]))


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Return digest and content of lock.json or selection.json."""
    try:
        data = untrusted_files.read_bytes(path).removesuffix(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        raise RecordError(f"{path}: is missing; name the folder of a locked study") from None
    return hashlib.sha256(data).hexdigest(), untrusted_files.parse_object(data, str(path))


def read_development_differences(folder: Path) -> dict[tuple[str, str, str], float]:
    """Return the winner of a sweep minus its baseline on development problems, by model, task and budget."""
    selected = read_document(folder / "selection.json")[1]["selected"]
    return {
        (cell["model"], cell["task"], cell["budget"]): float(cell["difference"])
        for cell in selected["cells"]
        if cell["candidate"] == selected["winner"]
    }


def read_ledger(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of FOLDER/ledger.jsonl, at least one."""
    path = folder / "ledger.jsonl"
    try:
        lines = [dict(json.loads(line)) for line in untrusted_files.read_bytes(path).split(b"\n")[:-1]]
        return [lines[0], *lines[1:]]
    except FileNotFoundError:
        raise RecordError(f"{path}: is missing; restore the whole folder") from None
    except RecordError:
        raise
    except (ValueError, TypeError, IndexError, RecursionError):
        raise RecordError(f"{path}: is not a ledger; run: kv-prereg audit {folder}") from None


def _read_records(records: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, number, line in untrusted_files.read_shards(records):
        where, data = f"{name}:{number}", line.rstrip(b"\r\n")
        # Most lines have this form, which leaves nothing to check but what they say.
        is_usual = data.isascii() and line_pattern().fullmatch(data)
        yield where, _DECODE(data.decode())[0] if is_usual else untrusted_files.parse_object(data, where)


_DECODE = json.JSONDecoder().raw_decode  # which looks for no spaces around it
