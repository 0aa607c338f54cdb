"""Check that the drawings and the report of a study follow from its files, by drawing both again."""

import tempfile
from pathlib import Path

from protocol.evidence.audit import inventory
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered

__all__ = ["check"]


def check(study: Registration) -> str:
    """Draw the study into a temporary folder and compare the result with figures/ and report.html.

    Raises NotRun when nothing is drawn; Tampered, with the paths, for a difference although report.html says
    that it was drawn by the code and the libraries that are installed here; CannotTell for any other
    difference.
    """
    kinds = inventory.classify(study)
    drawn_paths = [path for path, kind in kinds.items() if kind == "derived"]
    if not drawn_paths:
        raise NotRun(f"nothing is drawn; kv-prereg report {study.folder} does")
    with tempfile.TemporaryDirectory() as temporary:
        drawing_code = _draw(study.folder, Path(temporary))
        differing = [path for path in drawn_paths if _differs(study.folder / path, Path(temporary) / path)]
    if not differing:
        return f"{inventory.format_file_count(len(drawn_paths))} drawn again from the records, the same bytes"
    message = f"{inventory.format_names(differing)}: not what is drawn here from the records"
    remedy = f"draw anew: kv-prereg report {study.folder}"
    if inventory.REPORT in drawn_paths and drawing_code in files.read(study.folder / inventory.REPORT).decode(
        errors="replace"
    ):
        raise Tampered(f"{message}, by the code that drew {inventory.REPORT}; {remedy}")
    raise CannotTell(f"{message}: edited, or drawn by other code or libraries; {remedy}")


def _draw(folder: Path, target: Path) -> str:
    """Draw FOLDER into `target` and return the name of the drawing code. Raises CannotTell if nothing can be
    drawn.
    """
    from analysis.judgement.study_files import RecordError  # with numpy and matplotlib
    from figures import report
    from figures.drawing import page, producer

    try:
        report.report(folder, to=target)
    except (page.NoVerdict, RecordError) as problem:
        raise CannotTell(f"nothing can be drawn from these files: {problem}") from None
    return producer.producer_name()


def _differs(path: Path, redrawn: Path) -> bool:
    return not redrawn.exists() or files.read(path) != redrawn.read_bytes()
