"""Write the report of a judged registration, or the index of all registrations, as one page of HTML.

    kv-prereg report registrations/alpha-chain      writes report.html into that folder
    kv-prereg report registrations                  writes index.html, with a line for each

A report begins with the answer to the registered question. It needs nothing but itself: no network, and no
script but to sort its tables. It is drawn anew (`figures.study`) and holds the drawings that fit in 1 MB. It
repeats what the files say and verifies nothing, so its verdict line and drawings say UNANCHORED: kv-prereg
audit verifies. The same files give the same bytes with one version of matplotlib, in whatever
folder, and the page names what made it.
Exit status: 0 written; 2 there is no verdict to report, or the files cannot be read.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from analysis.judgement.study_files import RecordError
from figures import study
from figures.drawing import formatting
from figures.drawing.page import NoVerdict
from figures.report_page import (
    discordant_answers,
    forest_rows,
    glossary,
    judged_study,
    markup,
    report_index,
    report_levels,
    report_memory,
    report_sections,
    report_tables,
)
from figures.report_page.discordant_answers import DiscordantAnswer
from figures.report_page.judged_study import JudgedStudy
from figures.report_page.markup import Html, element, paragraphs
from protocol.formats.command_line import run_command
from protocol.formats.instruments import INSTRUMENTS

__all__ = ["index", "report"]

OPEN_SECTIONS = {
    "contrasts": "The registered contrasts",
    "curve": "Accuracy against the memory that was held",
    "tested": "How it was tested, and what it proves",
}
FOLDED_SECTIONS = {
    "table": "The registered contrasts as a table",
    "cells": "Accuracy, memory and cost",
    **{instrument.name: instrument.section_title for instrument in INSTRUMENTS if instrument.section},
    "sensitivity": "Sensitivity: other ways to look",
    "deviations": "Deviations, and everything that was done",
    "provenance": "Provenance",
    "protocol": "The protocol as registered",
}
LINK_TITLES = {  # titles in the list of sections
    "contrasts": "Contrasts",
    "curve": "Accuracy against memory",
    "tested": "How it was tested",
    "table": "Table",
    "cells": "All arms",
    **{instrument.name: instrument.section_link for instrument in INSTRUMENTS if instrument.section},
    "sensitivity": "Sensitivity",
    "deviations": "Deviations",
    "provenance": "Provenance",
    "protocol": "Protocol",
}
CURVE_DRAWING = "budget_curve"
REPLACED_DRAWINGS = ("forest", "forest-narrow")  # drawings that the page replaces by rows
MAX_BYTES = 1_000_000  # bytes of a page that can be mailed; drawings beyond it are left out
LEFT_OUT = "Left out of this page, for its size"
MAX_ANSWERS = 200  # approximate number of gained and lost answers over all contrasts


def report(folder: Path, *, witness: str = formatting.WITNESS, to: Path | None = None) -> Path:
    """Write FOLDER/report.html, and the drawings in it to FOLDER/figures.

    to: a folder to write both to instead of FOLDER. witness: the external witness of the study, as for
    `page.judged`.
    Raises NoVerdict and `analysis.judgement.study_files.RecordError`; no report is written then.
    """
    folder = Path(folder)
    parts = _read_parts(folder, witness)
    paths = {path.stem: path for path in study.draw(folder, witness, to) if path.suffix == ".svg"}
    drawings = {name: _drawing_html(path) for name, path in paths.items() if name not in REPLACED_DRAWINGS}
    if curve := drawings.pop(CURVE_DRAWING, None):
        parts["curve"] = curve
    return _write_atomically((to or folder) / "report.html", _fit_drawings(parts, drawings))


def index(folder: Path) -> Path:
    """Write FOLDER/index.html, an index of the registrations in FOLDER. Raises RecordError without any."""
    entries = report_index.read_entries(folder) if folder.is_dir() else []
    if not entries:
        raise RecordError(f"{folder}: holds no registration; name one, or the folder that holds them")
    return _write_atomically(
        folder / "index.html", report_index.render_index(entries, report_index.read_comparisons(folder))
    )


def _read_parts(folder: Path, witness: str) -> dict[str, Html]:
    try:
        return _page_parts(judged_study.read_judged_study(folder, witness))
    except (NoVerdict, RecordError):
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as problem:
        raise RecordError(
            f"{folder}: a file is not of the documented format ({type(problem).__name__}: {problem}); "
            f"run: kv-prereg audit {folder}"
        ) from None


def _page_parts(files: JudgedStudy) -> dict[str, Html]:
    """Return title, heading and sections of the page, without drawings."""
    judged, lanes = files.judged, files.study.lanes
    attempts = [act["event"] for act in files.ledger].count("attempt")
    correction = formatting.format_correction(judged["method"], judged)
    caption = f"Registered contrasts: {judged['family']}, {correction}"
    parts = {
        "title": element("title", f"{judged['verdict']}: {judged['title']}"),
        "heading": report_sections.render_heading(files),
        "contrasts": Html(
            paragraphs(glossary.SECTION_NOTES["contrasts"])
            + forest_rows.render_forest(judged, _contrast_answers(files))
        ),
        "tested": report_sections.render_test(files),
        "table": report_tables.contrasts_table(caption, judged["contrasts"]),
        "cells": Html(
            (report_tables.gate_table(judged["gate"]) if judged.get("gate") else "")
            + report_tables.arms_table(judged, lanes)
            + report_memory.render_evictions(files.eviction_counts)
            + report_tables.states_table(lanes, attempts)
        ),
        "sensitivity": Html(report_sections.render_sensitivity(files) + report_levels.levels_table(files.levels)),
        "deviations": report_sections.render_deviations(files),
        "provenance": report_sections.render_provenance(files),
        "protocol": report_sections.render_protocol(files),
    }
    return parts | dict(files.instrument_sections)


def _contrast_answers(files: JudgedStudy) -> list[list[DiscordantAnswer]]:
    """Return the first gained and lost answers of each contrast; fewer of each with more contrasts."""
    contrasts = files.judged["contrasts"]
    max_answers = max(1, min(4, MAX_ANSWERS // (2 * len(contrasts))))
    return [discordant_answers.find_discordant(files, contrast, max_answers) for contrast in contrasts]


def _fit_drawings(parts: Mapping[str, Html], drawings: Mapping[str, Html]) -> str:
    """Return the page with the drawings that fit; a smaller drawing may follow one that was left out."""
    about = paragraphs(glossary.SECTION_NOTES["cells"])
    free_bytes = MAX_BYTES - len(_render_page({**parts, "cells": about + parts["cells"]}).encode()) - 1_000
    sections = {
        name: instrument.name
        for instrument in INSTRUMENTS
        if instrument.section and instrument.name in parts
        for name in instrument.drawings
    }
    included: dict[str, list[Html]] = {"cells": [], **{section: [] for section in sections.values()}}
    omitted: dict[str, list[str]] = {section: [] for section in included}
    for name, drawing in drawings.items():
        section = sections.get(name, "cells")
        if len(drawing.encode()) <= free_bytes:
            included[section].append(drawing)
            free_bytes -= len(drawing.encode())
        else:
            omitted[section].append(f"figures/{name}.svg")
    drawing_html = {
        section: Html("".join([*included[section], paragraphs(f"{LEFT_OUT}: {', '.join(names)}." if names else "")]))
        for section, names in omitted.items()
    }
    page_parts = {**parts, "cells": Html(about + drawing_html["cells"] + parts["cells"])}
    for section in {*sections.values()}:
        page_parts[section] = Html(parts[section] + drawing_html[section])
    return _render_page(page_parts)


def _drawing_html(path: Path) -> Html:
    caption, alt = glossary.DRAWINGS.get(path.stem, (path.stem, path.stem))
    return markup.drawing(path.read_text("utf-8"), alt, caption)


def _render_page(parts: Mapping[str, str]) -> str:
    titles = {name: title for name, title in (OPEN_SECTIONS | FOLDED_SECTIONS).items() if name in parts}
    links = [element("li", element("a", LINK_TITLES[name], href=f"#{name}")) for name in titles]
    sections = [
        element("section", element("h2", titles[name]), parts[name], id=name)
        for name in OPEN_SECTIONS
        if name in titles
    ]
    folds = {name: title for name, title in FOLDED_SECTIONS.items() if name in parts}
    closed = [markup.folded_section(title, Html(parts[name]), name) for name, title in folds.items()]
    names = ". ".join(folds.values())
    return markup.page(
        Html(parts["title"]),
        markup.skip_link("contrasts", "Skip to the registered contrasts"),
        element("header", parts["heading"]),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *sections, *closed, element("p", f"Printed while open: {names}.", class_="unprinted")),
    )


def _write_atomically(path: Path, text: str) -> Path:
    """Write the file atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, "utf-8", newline="\n")
    os.replace(new, path)
    return path


def _write_report(folder: Path) -> tuple[Path, ...]:
    is_registration = any((folder / name).exists() for name in ("protocol.toml", "lock.json", "verdict.json"))
    return (report(folder) if is_registration else index(folder),)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a judged registration, or the folder of all of them"}
    return run_command("report", __doc__, folder, _write_report, (NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
