"""Write the report of a judged registration, or the index of all registrations, as one page of HTML.

    kv-prereg report registrations/alpha-chain      writes report.html into that folder
    kv-prereg report registrations                  writes index.html, with one entry for each

A report begins with the answer to the registered question. It is self-contained: it needs no network, and its only
script sorts tables. Its drawings are made again (`figures.study`), and the page contains those that fit in 1 MB. It
repeats what the files say and verifies nothing, so that its verdict line and drawings say UNANCHORED; kv-prereg audit
verifies. The same files give the same bytes with one version of matplotlib, in any folder, and the page names the
version that made it.
Exit status: 0 written; 2 there is no verdict to report, or the files cannot be read.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from analysis.judgement import untrusted_files
from analysis.judgement.untrusted_files import RecordError
from figures import study
from figures.drawing import formatting, page
from figures.report_page import (
    discordant_answers,
    forest_rows,
    glossary,
    judged_study,
    rendering,
    report_index,
    report_sections,
    report_tables,
)
from figures.report_page.answer import format_answer
from figures.report_page.discordant_answers import DiscordantAnswer
from figures.report_page.judged_study import JudgedStudy
from figures.report_page.rendering import render
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.reading_command import run_command

# The sections of a page: name, title in the list of sections, title above the section.
OPEN_SECTIONS = (
    ("contrasts", "Contrasts", "The registered contrasts"),
    ("curve", "Accuracy against memory", "Accuracy against measured memory"),
    ("tested", "How it was tested", "How it was tested, and what it proves"),
)
FOLDED_SECTIONS = (
    ("table", "Table", "The registered contrasts as a table"),
    ("cells", "All arms", "Accuracy, memory and cost"),
    *((each.name, each.section_link, each.section_title) for each in INSTRUMENTS if each.section),
    ("sensitivity", "Sensitivity", "Sensitivity: other analyses"),
    ("deviations", "Deviations", "Deviations, and the complete ledger"),
    ("provenance", "Provenance", "Provenance"),
    ("protocol", "Protocol", "The protocol as registered"),
)
CURVE_DRAWING = "budget_curve"
REPLACED_DRAWING = "forest"  # the page has rows in its place
MAX_BYTES = 1_000_000  # bytes of a page that can be mailed; drawings beyond it are left out
LEFT_OUT = "Left out of this page because of its size"
MAX_ANSWERS = 200  # approximate number of gained and lost answers over all contrasts


def report(folder: Path, *, witness: str = formatting.WITNESS, to: Path | None = None) -> Path:
    """Write FOLDER/report.html, and the drawings in it to FOLDER/figures.

    to: a folder to write both to instead of FOLDER. witness: the external witness of the study, as for `page.judged`.
    Raises NoVerdict and `analysis.judgement.untrusted_files.RecordError`; no report is written then.
    """
    folder = Path(folder)
    files, sections = _read_sections(folder, witness)
    paths = {path.stem: path for path in study.draw(folder, witness, to) if path.suffix == ".svg"}
    drawings = {name: _drawing_html(path) for name, path in paths.items() if name != REPLACED_DRAWING}
    if curve := drawings.pop(CURVE_DRAWING, None):
        sections["curve"] = curve
    text = _render_page(files, _fit_drawings(files, sections, drawings))
    return rendering.write_atomically((to or folder) / "report.html", text)


def render_without_drawings(folder: Path) -> str:
    """Return the page of a report without its drawings. Raises as `report` does."""
    return _render_page(*_read_sections(Path(folder), formatting.WITNESS))


def index(folder: Path) -> Path:
    """Write FOLDER/index.html, an index of the registrations in FOLDER. Raises RecordError without any."""
    entries = report_index.read_entries(folder) if folder.is_dir() else []
    if not entries:
        raise RecordError(f"{folder}: contains no registration; name one, or the folder that contains them")
    return rendering.write_atomically(
        folder / "index.html", report_index.render_index(entries, report_index.read_comparisons(folder))
    )


def _read_sections(folder: Path, witness: str) -> tuple[JudgedStudy, dict[str, Markup]]:
    with untrusted_files.refuse_wrong_shape(folder):
        files = judged_study.read_judged_study(folder, witness)
        return files, _render_sections(files)


def _render_sections(files: JudgedStudy) -> dict[str, Markup]:
    """Return the sections of the page, without drawings."""
    judged = files.judged
    correction = formatting.format_correction(judged["method"], judged)
    caption = f"Registered contrasts: {judged['family']}, {correction}"
    return {
        "contrasts": _note("contrasts") + forest_rows.render_forest(judged, _contrast_answers(files)),
        "tested": report_sections.render_test(files),
        "table": report_tables.contrasts_table(caption, judged["contrasts"]),
        "cells": report_sections.render_cells(files),
        "sensitivity": report_sections.render_sensitivity(files),
        "deviations": report_sections.render_deviations(files),
        "provenance": report_sections.render_provenance(files),
        "protocol": report_sections.render_protocol(files),
        **files.instrument_sections,
    }


def _note(section: str) -> Markup:
    return Markup("<p>{}</p>").format(glossary.SECTION_NOTES[section])


def _contrast_answers(files: JudgedStudy) -> list[list[DiscordantAnswer]]:
    """Return the first gained and lost answers of each contrast; fewer of each with more contrasts."""
    contrasts = files.judged["contrasts"]
    if not contrasts:
        raise ValueError("it judges no contrast")
    max_answers = max(1, min(4, MAX_ANSWERS // (2 * len(contrasts))))
    return [discordant_answers.find_discordant(files, contrast, max_answers) for contrast in contrasts]


def _fit_drawings(
    files: JudgedStudy, sections: Mapping[str, Markup], drawings: Mapping[str, Markup]
) -> dict[str, Markup]:
    """Return the sections with the drawings that fit; a smaller drawing may follow one that was left out."""
    fitted = {**sections, "cells": _note("cells") + sections["cells"]}
    free_bytes = MAX_BYTES - len(_render_page(files, fitted).encode()) - 1_000
    section_of = {
        name: instrument.name
        for instrument in INSTRUMENTS
        if instrument.section and instrument.name in sections
        for name in instrument.drawings
    }
    included: dict[str, list[Markup]] = {section: [] for section in ("cells", *section_of.values())}
    omitted: dict[str, list[str]] = {section: [] for section in included}
    for name, drawing in drawings.items():
        section = section_of.get(name, "cells")
        if len(drawing.encode()) <= free_bytes:
            included[section].append(drawing)
            free_bytes -= len(drawing.encode())
        else:
            omitted[section].append(f"figures/{name}.svg")
    for section, names in omitted.items():
        note = Markup("<p>{}: {}.</p>").format(LEFT_OUT, ", ".join(names)) if names else ""
        drawn = Markup("").join(included[section]) + note
        fitted[section] = (
            _note("cells") + drawn + sections["cells"] if section == "cells" else sections[section] + drawn
        )
    return fitted


def _drawing_html(path: Path) -> Markup:
    caption, alt = glossary.DRAWINGS.get(path.stem, (path.stem, path.stem))
    return rendering.drawing(path.read_text("utf-8"), alt, caption)


def _render_page(files: JudgedStudy, sections: Mapping[str, Markup]) -> str:
    content = files.study.lock["protocol"]["content"]
    return render(
        "report.html",
        judged=files.judged,
        question=content.get("question", ""),
        answer=format_answer(files.judged, content["decision"]),
        verdict_line=report_sections.render_verdict_line(files.judged),
        sections=sections,
        open_sections=[section for section in OPEN_SECTIONS if section[0] in sections],
        folded_sections=[section for section in FOLDED_SECTIONS if section[0] in sections],
    )


def _write_report(folder: Path) -> tuple[Path, ...]:
    is_registration = any((folder / name).exists() for name in ("protocol.toml", "lock.json", "verdict.json"))
    if not is_registration:
        return (index(folder),)
    page.read_supported_judgement(folder)
    return (report(folder),)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a judged registration, or the folder that contains all of them"}
    return run_command("report", __doc__, folder, _write_report, argv)


if __name__ == "__main__":
    sys.exit(main())
