"""Check that the drawings and the report of a study follow from its files, by drawing both again."""

import tempfile
from pathlib import Path

from protocol.evidence.audit import inventory
from protocol.evidence.bytes import files
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import Tampered
from protocol.evidence.run.registration import Registration

__all__ = ["check"]


def check(study: Registration) -> str:
    """Draw the study into a temporary folder and compare the result with figures/ and report.html.

    Raises NotRun when nothing is drawn; Tampered, with the paths, for a difference although report.html says
    that it was drawn by the code and the libraries that are installed here; CannotTell for any other
    difference.
    """
    kinds = inventory.accounted(study)
    there = [path for path, kind in kinds.items() if kind == "derived"]
    if not there:
        raise NotRun(f"nothing is drawn; kv-prereg report {study.folder} does")
    with tempfile.TemporaryDirectory() as made:
        own = _drawn(study.folder, Path(made))
        differ = [path for path in there if _other(study.folder / path, Path(made) / path)]
    if not differ:
        return f"{inventory.counted(len(there))} drawn again from the records, the same bytes"
    said = f"{inventory.listed(differ)}: not what is drawn here from the records"
    anew = f"draw anew: kv-prereg report {study.folder}"
    if inventory.REPORT in there and own in files.read(study.folder / inventory.REPORT).decode(
        errors="replace"
    ):
        raise Tampered(f"{said}, by the code that drew {inventory.REPORT}; {anew}")
    raise CannotTell(f"{said}: edited, or drawn by other code or libraries; {anew}")


def _drawn(folder: Path, to: Path) -> str:
    """Draw FOLDER into `target` and return the name of the drawing code. Raises CannotTell if nothing can be
    drawn.
    """
    from analysis.studies.study_files import RecordError  # with numpy and matplotlib
    from figures import report
    from figures.canvas import page, producer

    try:
        report.report(folder, to=to)
    except (page.NoVerdict, RecordError) as problem:
        raise CannotTell(f"nothing can be drawn from these files: {problem}") from None
    return producer.name()


def _other(one: Path, again: Path) -> bool:
    return not again.exists() or files.read(one) != again.read_bytes()
