"""Write the report of a judged registration, or the index of all registrations, as one page of HTML.

    kv-prereg report registrations/alpha-chain      writes report.html into that folder
    kv-prereg report registrations                  writes index.html, with a line for each

A report needs nothing but itself: no network, and no script but to sort its tables. It is drawn anew
(`figures.study`) and holds every drawing. It repeats what the files say and verifies nothing, so its verdict
line and drawings say UNANCHORED: kv-prereg audit verifies. The same files give the same bytes with
one version of matplotlib, in whatever folder, and the page names what made it.
Exit status: 0 written; 2 there is no verdict to report, or the files cannot be read.
"""

import os
import sys
from pathlib import Path

from analysis.output.command import command
from analysis.studies.study_files import RecordError
from figures import study
from figures.canvas import numbers
from figures.canvas.page import NoVerdict
from figures.html import (
    finished,
    glossary,
    markup,
    report_index,
    report_levels,
    report_memory,
    report_sections,
    report_tables,
)
from figures.html.finished import Finished
from figures.html.markup import Html, element, sentences

__all__ = ["index", "report"]

SECTIONS = {
    "verdict": "What the verdict means",
    "contrasts": "Registered contrasts",
    "cells": "Accuracy, memory and cost",
    "sensitivity": "Sensitivity: other ways to look",
    "deviations": "Deviations, and everything that was done",
    "provenance": "Provenance",
    "protocol": "The protocol as registered",
}


def report(folder: Path, *, witness: str = numbers.WITNESS, to: Path | None = None) -> Path:
    """Write FOLDER/report.html, and the drawings in it to FOLDER/figures.

    to: a folder that takes both in place of FOLDER. witness: who outside vouches for the study, as
    `page.judged` takes it.
    Raises NoVerdict and `analysis.studies.study_files.RecordError`; then there is no new report.
    """
    folder = Path(folder)
    parts = _read(folder, witness)
    drawings = {path.stem: _drawn(path) for path in study.draw(folder, witness, to) if path.suffix == ".svg"}
    of_contrasts = [drawings.pop(name) for name in ("forest", "ablation") if name in drawings]
    for name, drawn in (("contrasts", of_contrasts), ("cells", drawings.values())):
        parts[name] = Html("".join([sentences(glossary.ABOUT[name]), *drawn, parts[name]]))
    return _write((to or folder) / "report.html", _page(parts))


def index(folder: Path) -> Path:
    """Write FOLDER/index.html over the registrations in FOLDER. Raises RecordError where there is none."""
    entries = report_index.entries(folder) if folder.is_dir() else []
    if not entries:
        raise RecordError(f"{folder}: holds no registration; name one, or the folder that holds them")
    return _write(folder / "index.html", report_index.html(entries, report_index.compared(folder)))


def _read(folder: Path, witness: str) -> dict[str, Html]:
    try:
        return _parts(finished.read(folder, witness))
    except (NoVerdict, RecordError):
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as problem:
        raise RecordError(
            f"{folder}: a file is not of the documented format ({type(problem).__name__}: {problem}); "
            f"run: kv-prereg audit {folder}"
        ) from None


def _parts(files: Finished) -> dict[str, Html]:
    """Title, heading and sections of the page, without its drawings."""
    judged, lanes = files.judged, files.study.lanes
    attempts = [act["event"] for act in files.acts].count("attempt")
    correction = numbers.correction(judged["method"], judged)
    caption = f"Registered contrasts: {judged['family']}, {correction}"
    said = sentences(*more) if (more := numbers.scores(judged["contrasts"])) else ""
    return {
        "title": element("title", f"{judged['verdict']}: {judged['title']}"),
        "heading": report_sections.heading(files),
        "verdict": report_sections.after(files),
        "contrasts": Html(said + report_tables.contrasts(caption, judged["contrasts"])),
        "cells": Html(
            report_tables.arms(judged, lanes)
            + report_memory.did_it_evict(files.held)
            + report_tables.states(lanes, attempts)
        ),
        "sensitivity": Html(report_sections.sensitivity(files) + report_levels.by_level(files.levels)),
        "deviations": report_sections.deviations(files),
        "provenance": report_sections.provenance(files),
        "protocol": report_sections.protocol(files),
    }


def _drawn(path: Path) -> Html:
    caption, alt = glossary.DRAWINGS.get(path.stem, (path.stem, path.stem))
    return markup.drawing(path.read_text("utf-8"), alt, caption)


def _page(parts: dict[str, Html]) -> str:
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in SECTIONS.items()]
    sections = [
        element("section", element("h2", title, id=name), parts[name]) for name, title in SECTIONS.items()
    ]
    return markup.page(
        parts["title"],
        element("header", parts["heading"]),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *sections),
    )


def _write(path: Path, text: str) -> Path:
    """Whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, "utf-8", newline="\n")
    os.replace(new, path)
    return path


def _written(folder: Path) -> tuple[Path, ...]:
    own = any((folder / name).exists() for name in ("protocol.toml", "lock.json", "verdict.json"))
    return (report(folder) if own else index(folder),)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a judged registration, or the folder of all of them"}
    return command("report", __doc__, folder, _written, (NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
