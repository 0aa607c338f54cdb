"""The data of occlusion-attribution drawings: traces, the chosen signal, the test result, and the text above.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from analysis.anatomy.reading import FOLDER, READINGS, Anatomy, read
from analysis.studies import plain_files
from analysis.studies.study_files import document

__all__ = ["Told", "named", "outcomes", "readings", "standing", "told"]

CHOSEN, VERDICT = "chosen.json", "verdict.json"


class Told(NamedTuple):
    """chosen, verdict: contents of anatomy/chosen.json and verdict.json; None if they do not exist yet."""

    anatomy: Anatomy
    lock: Mapping[str, Any]
    chosen: Mapping[str, Any] | None
    verdict: Mapping[str, Any] | None


def told(folder: Path) -> Told:
    """Read an anatomy. Raises RecordError if nothing was labelled, and for a file of another format."""
    anatomy = read(folder)
    _, lock = document(folder / "lock.json")
    return Told(anatomy, lock, _held(folder / FOLDER / CHOSEN), _held(folder / FOLDER / VERDICT))


def _held(path: Path) -> Mapping[str, Any] | None:
    try:
        return plain_files.parsed(plain_files.read(path), str(path))
    except FileNotFoundError:
        return None


def readings(anatomy: Anatomy) -> list[str]:
    """Return both readings, the registered one first."""
    return sorted(READINGS, key=lambda name: name != anatomy.reading)


def standing(one: Told) -> list[str]:
    """Return the result of the registered test and the number of traces: no drawing shows a pattern without
    it.
    """
    title = one.lock["protocol"]["content"]["title"]
    if one.verdict is None:
        said = "NOT JUDGED YET"
    else:
        words = Counter(row["word"] for row in one.verdict["pairs"])
        several = len(one.verdict["pairs"]) > 1
        said = ", ".join(f"{word} for {count}" if several else word for word, count in words.items())
        said += f" of {len(one.verdict['pairs'])} models and tasks" if several else ""
    return [
        f"{title} (anatomy): {said}",
        f"{_counted(one.anatomy)} Development problems alone; no verdict on a policy depends on them.",
    ]


def outcomes(one: Told) -> list[str]:
    """Return the chosen signal of each model and task, and its result on the testing half."""
    return [] if one.verdict is None else [_outcome(row) for row in one.verdict["pairs"]]


def named(signal: str, layer: int | None) -> str:
    return signal if layer is None else f"{signal} of layer {layer}"


def _outcome(row: Mapping[str, Any]) -> str:
    where = f"{row['model']} · {row['task']}: {row['word']}"
    if row["rho"] is None:
        return f"{where}."
    rho = row["rho"]
    limits = "[{:+.2f}, {:+.2f}] ".format(*map(float, rho["interval"])) if rho["interval"] else ""
    return (
        f"{where}. {named(row['signal'], row['layer'])}, mean rho {float(rho['mean']):+.2f} {limits}over "
        f"{rho['units']} traces of the testing half; beyond position {row['beyond_position']['word']}."
    )


def _counted(anatomy: Anatomy) -> str:
    due = sum(map(len, anatomy.due.values()))
    states = Counter(one.state for one in anatomy.traces)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    missing = f" of {due}" if len(anatomy.traces) < due else ""
    return f"{len(anatomy.traces)}{missing} traces: {counts}."
