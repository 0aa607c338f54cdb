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
from analysis.judgement.contrasts import read_judged
from analysis.judgement.judgement import judge
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import canonical
from protocol.formats.escape import is_one_line
from protocol.formats.json_text import dumps

__all__ = ["SHIPPED_VERDICTS", "read_supported_judgement", "refuse_unsupported"]

VERDICT = "verdict.json"
SHIPPED_VERDICTS = frozenset(
    (
        "815c3f4bce2e2063cd397587087747d74b23366757893d295285d55013d7d597",
        "c4c20110bf2db2ba294ca50fab79484d259daba3f2bff50ccdf20d7cd364c1e3",
        "af50b42ba4aa35233e46b83c5c4b3f3745d62fb3fcc96b29353a9e096c27c8d3",
        "e80b77f102d61778e54d60d77ca12a49b8a76897acdb8331e6f47bc36911aad1",
        "b252bb144ea8e849b926e6c6d0003a8ddc0f03c2702093b18f847de9eefbddff",
        "0e36fc224f7e04fa79accd6620b9fbb1bd9a9129cfa0667610c40d59e304383e",
        "56e85b8edde87e6e9d99f687eca688b56e4a5598863fbcd78967567bb89a0953",
        "312e5d836d22d80727eb348633f5ad0dbd8aff025651baebfb1dde5cacb97604",
        "2b6e5f70cf23206e39e1802a338c3c4abf7ef60ac069428012c6efddc8d398a8",
        "de8a1ea627e2096634d8811ed9dfd396c84a865fe99ba73ea912b79a81c9e14f",
        "302d0789cee9278350bbca218832614d00438f99280e11fb014a3740cdebecca",
    )
)
"""SHA-256 of the verdicts that ship with this project. Older code wrote their sentences; audits say what differs."""


def read_supported_judgement(folder: Path) -> dict[str, Any]:
    """Return the judgement in FOLDER/verdict.json. Raises RecordError without one, and as `refuse_unsupported`."""
    judged = read_judged(folder)
    refuse_unsupported(folder)
    return judged


def refuse_unsupported(folder: Path) -> None:
    """Raise RecordError for a judgement in FOLDER/verdict.json that is not what lock and records say, but for bounds
    and p that other libraries compute closely (`compare_judgements`), and for a text with a line break.
    """
    folder = Path(folder)
    data = untrusted_files.read_bytes(folder / VERDICT)
    if hashlib.sha256(data).hexdigest() in SHIPPED_VERDICTS:
        return
    recorded = untrusted_files.parse_object(data, str(folder / VERDICT)).get("judged")
    if any(not is_one_line(text) for text in _texts(recorded)):
        raise RecordError(f"{folder}: {VERDICT} has a text with a line break; run: kv-prereg audit {folder}")
    with untrusted_files.refuse_wrong_shape(folder):
        differences = find_differences(recorded, canonical.loads(dumps(judge(folder)).encode(), VERDICT))
    if others := [*differences.decisive, *differences.sentences, *differences.later]:
        raise RecordError(
            f"{folder}: {VERDICT} is not what its records say: {others[0]}; run: kv-prereg audit {folder}"
        )


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
