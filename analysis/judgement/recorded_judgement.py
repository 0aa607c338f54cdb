"""What a verdict says is printed only where the records say so too.

An audit judges a study again. Commands that repeat a verdict without an audit judge it again as well, so that an
edited verdict.json prints nothing: a word, a number or a sentence that does not follow from lock and records is
refused. Grades are taken from the records: to look at the answers is for an audit.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.judgement import untrusted_files
from analysis.judgement.compare_judgements import find_differences
from analysis.judgement.judged_folder import judge
from analysis.judgement.shipped_verdicts import SHIPPED_VERDICTS
from analysis.judgement.study_files import read_document
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import canonical
from protocol.formats.citations import CITES
from protocol.formats.escape import is_one_line
from protocol.formats.json_text import dumps

VERDICT = "verdict.json"


def refuse_unsupported(folder: Path) -> None:
    """Raise RecordError for a judgement in FOLDER/verdict.json that is not what lock and records say, but for bounds
    and p that other libraries compute closely (`compare_judgements`), for cited records that the study that they come
    from does not have, and for a text with a line break.
    """
    folder = Path(folder)
    data = untrusted_files.read_bytes(folder / VERDICT)
    if hashlib.sha256(data).hexdigest() in SHIPPED_VERDICTS:
        return
    recorded = untrusted_files.parse_object(data, str(folder / VERDICT)).get("judged")
    if any(not is_one_line(text) for text in _texts(recorded)):
        raise RecordError(f"{folder}: {VERDICT} contains a text with a line break; run: kv-prereg audit {folder}")
    with untrusted_files.refuse_wrong_shape(folder):
        if CITES in (lock := read_document(folder / "lock.json")[1]):
            # Imported late: few studies cite.
            from analysis.judgement import cited_records

            cited_records.refuse_unsupported(folder, lock)
        differences = find_differences(recorded, canonical.loads(dumps(judge(folder)).encode(), VERDICT))
    if others := [*differences.decisive, *differences.sentences, *differences.later]:
        raise RecordError(
            f"{folder}: {VERDICT} does not follow from its records: {others[0]}; run: kv-prereg audit {folder}"
        )


def refuse_unsupported_as(refusal: type[Exception], folder: Path) -> None:
    """Do as `refuse_unsupported` does, with this refusal in place of RecordError."""
    try:
        refuse_unsupported(folder)
    except RecordError as error:
        raise refusal(str(error)) from None


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
