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

from analysis.output.command import command
from analysis.studies.study_files import RecordError
from figures import study
from figures.canvas import numbers
from figures.canvas.page import NoVerdict
from figures.html import (
    broken,
    finished,
    forest_rows,
    glossary,
    markup,
    report_anatomy,
    report_index,
    report_levels,
    report_memory,
    report_sections,
    report_tables,
)
from figures.html.broken import Behind
from figures.html.finished import Finished
from figures.html.markup import Html, element, sentences

__all__ = ["index", "report"]

OPEN = {
    "contrasts": "The registered contrasts",
    "curve": "Accuracy against the memory that was held",
    "tested": "How it was tested, and what it proves",
}
FOLDED = {
    "table": "The registered contrasts as a table",
    "cells": "Accuracy, memory and cost",
    "anatomy": "Which tokens answers needed, and which signals knew",
    "sensitivity": "Sensitivity: other ways to look",
    "deviations": "Deviations, and everything that was done",
    "provenance": "Provenance",
    "protocol": "The protocol as registered",
}
LINKS = {  # titles in the list of sections
    "contrasts": "Contrasts",
    "curve": "Accuracy against memory",
    "tested": "How it was tested",
    "table": "Table",
    "cells": "All arms",
    "anatomy": "Needed tokens",
    "sensitivity": "Sensitivity",
    "deviations": "Deviations",
    "provenance": "Provenance",
    "protocol": "Protocol",
}
CURVE = "budget_curve"
ANATOMY = "anatomy_"  # prefix of the drawings of an anatomy
OWN = ("forest", "forest-narrow")  # drawings that the page replaces by rows
LARGEST = 1_000_000  # bytes of a page that can be mailed; drawings beyond it are left out
OUT = "Left out of this page, for its size"
LANES = 200  # approximate number of gained and lost answers over all contrasts


def report(folder: Path, *, witness: str = numbers.WITNESS, to: Path | None = None) -> Path:
    """Write FOLDER/report.html, and the drawings in it to FOLDER/figures.

    to: a folder to write both to instead of FOLDER. witness: the external witness of the study, as for
    `page.judged`.
    Raises NoVerdict and `analysis.judgement.study_files.RecordError`; no report is written then.
    """
    folder = Path(folder)
    parts = _read(folder, witness)
    paths = {path.stem: path for path in study.draw(folder, witness, to) if path.suffix == ".svg"}
    drawings = {name: _drawn(path) for name, path in paths.items() if name not in OWN}
    if curve := drawings.pop(CURVE, None):
        parts["curve"] = curve
    return _write((to or folder) / "report.html", _fitted(parts, drawings))


def index(folder: Path) -> Path:
    """Write FOLDER/index.html, an index of the registrations in FOLDER. Raises RecordError without any."""
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
    """Return title, heading and sections of the page, without drawings."""
    judged, lanes = files.judged, files.study.lanes
    attempts = [act["event"] for act in files.acts].count("attempt")
    correction = numbers.correction(judged["method"], judged)
    caption = f"Registered contrasts: {judged['family']}, {correction}"
    parts = {
        "title": element("title", f"{judged['verdict']}: {judged['title']}"),
        "heading": report_sections.heading(files),
        "contrasts": Html(
            sentences(glossary.ABOUT["contrasts"]) + forest_rows.forest(judged, _behind(files))
        ),
        "tested": report_sections.tested(files),
        "table": report_tables.contrasts(caption, judged["contrasts"]),
        "cells": Html(
            (report_tables.gate(judged["gate"]) if judged.get("gate") else "")
            + report_tables.arms(judged, lanes)
            + report_memory.did_it_evict(files.held)
            + report_tables.states(lanes, attempts)
        ),
        "sensitivity": Html(report_sections.sensitivity(files) + report_levels.by_level(files.levels)),
        "deviations": report_sections.deviations(files),
        "provenance": report_sections.provenance(files),
        "protocol": report_sections.protocol(files),
    }
    return parts if files.anatomy is None else {**parts, "anatomy": report_anatomy.anatomy(files.anatomy)}


def _behind(files: Finished) -> list[list[Behind]]:
    """Return the first gained and lost answers of each contrast; fewer of each with more contrasts."""
    contrasts = files.judged["contrasts"]
    most = max(1, min(4, LANES // (2 * len(contrasts))))
    return [broken.behind(files, contrast, most) for contrast in contrasts]


def _fitted(parts: Mapping[str, Html], drawings: Mapping[str, Html]) -> str:
    """Return the page with the drawings that fit; a smaller drawing may follow one that was left out."""
    about = sentences(glossary.ABOUT["cells"])
    room = LARGEST - len(_page({**parts, "cells": about + parts["cells"]}).encode()) - 1_000
    held: dict[str, list[Html]] = {"cells": [], "anatomy": []}
    left: dict[str, list[str]] = {"cells": [], "anatomy": []}
    for name, drawing in drawings.items():
        section = "anatomy" if name.startswith(ANATOMY) and "anatomy" in parts else "cells"
        if len(drawing.encode()) <= room:
            held[section].append(drawing)
            room -= len(drawing.encode())
        else:
            left[section].append(f"figures/{name}.svg")
    drawn = {
        section: Html("".join([*held[section], sentences(f"{OUT}: {', '.join(names)}." if names else "")]))
        for section, names in left.items()
    }
    whole = {**parts, "cells": Html(about + drawn["cells"] + parts["cells"])}
    if "anatomy" in parts:
        whole["anatomy"] = Html(parts["anatomy"] + drawn["anatomy"])
    return _page(whole)


def _drawn(path: Path) -> Html:
    caption, alt = glossary.DRAWINGS.get(path.stem, (path.stem, path.stem))
    return markup.drawing(path.read_text("utf-8"), alt, caption)


def _page(parts: Mapping[str, str]) -> str:
    titles = {name: title for name, title in (OPEN | FOLDED).items() if name in parts}
    links = [element("li", element("a", LINKS[name], href=f"#{name}")) for name in titles]
    sections = [
        element("section", element("h2", titles[name]), parts[name], id=name)
        for name in OPEN
        if name in titles
    ]
    folds = {name: title for name, title in FOLDED.items() if name in parts}
    closed = [markup.folded(title, Html(parts[name]), name) for name, title in folds.items()]
    names = ". ".join(folds.values())
    return markup.page(
        Html(parts["title"]),
        markup.skip("contrasts", "Skip to the registered contrasts"),
        element("header", parts["heading"]),
        element("nav", element("ul", *links), aria_label="Sections"),
        element(
            "main", *sections, *closed, element("p", f"Printed while open: {names}.", class_="unprinted")
        ),
    )


def _write(path: Path, text: str) -> Path:
    """Write the file atomically."""
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
