"""Check that the drawings and the report of a study follow from its files, by drawing both again."""

import tempfile
from pathlib import Path

from protocol.evidence.audit import inventory
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.recompute.drawing_content import have_same_content


def check(study: Registration) -> str:
    """Draw the study into a temporary folder and compare the result with figures/ and report.html.

    Raises NotRun when nothing is drawn; Tampered, with the paths, for files that show something else although
    they say that the code and the libraries installed here drew them; CannotTell for all others that do.
    """
    kinds = inventory.classify(study)
    drawn_paths = [path for path, kind in kinds.items() if kind == "derived"]
    if not drawn_paths:
        raise NotRun(f"there are no drawings yet; to make them: kv-prereg report {study.folder}")
    contents = {path: files.read(study.folder / path) for path in drawn_paths}
    with tempfile.TemporaryDirectory() as temporary:
        producer = _draw(study.folder, Path(temporary)).encode()
        redrawn = {
            path: files.read(Path(temporary) / path) for path in drawn_paths if (Path(temporary) / path).exists()
        }
    rendered = [path for path, data in contents.items() if data != redrawn.get(path)]
    differing = [
        path for path in rendered if path not in redrawn or not have_same_content(contents[path], redrawn[path])
    ]
    count = inventory.format_file_count(len(drawn_paths))
    if not rendered:
        return f"{count} redrawn from the records with the same bytes"
    if not differing:
        names = inventory.format_names(rendered)
        return f"{count} redrawn from the records with the same content; only the bytes differ: {names}"
    remedy = f"to redraw: kv-prereg report {study.folder}"
    if edited := [path for path in differing if producer in contents[path]]:
        raise Tampered(
            f"{inventory.format_names(edited)}: differs from what is drawn here by the code that the file "
            f"names; {remedy}"
        )
    raise CannotTell(
        f"{inventory.format_names(differing)}: differs from what is drawn here from the records: it was "
        f"edited, or drawn by other code or libraries; {remedy}"
    )


def _draw(folder: Path, target: Path) -> str:
    """Draw FOLDER into `target` and return the name of the drawing code. Raises CannotTell if nothing can be drawn."""
    from analysis.judgement.untrusted_files import RecordError
    from figures import report
    from figures.drawing import page, producer

    try:
        report.report(folder, to=target)
    except (page.NoVerdict, RecordError) as problem:
        raise CannotTell(f"nothing can be drawn from these files: {problem}") from None
    return producer.producer_name()
