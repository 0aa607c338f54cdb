"""The data of occlusion-attribution drawings: traces, the chosen signal, the test result, and the text above."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from analysis.judgement.study_files import read_document
from protocol.instruments.anatomy.analysis import traces
from protocol.instruments.anatomy.analysis.report_text import name_beyond
from protocol.instruments.anatomy.analysis.traces import Anatomy, read_anatomy
from protocol.instruments.anatomy.fields import READINGS
from protocol.instruments.anatomy.trace_file import CHOSEN, VERDICT


class AnatomyReport(NamedTuple):
    """chosen, verdict: contents of anatomy/chosen.json and verdict.json; None if they do not exist yet."""

    anatomy: Anatomy
    lock: Mapping[str, Any]
    chosen: Mapping[str, Any] | None
    verdict: Mapping[str, Any] | None


def read_report(folder: Path) -> AnatomyReport:
    """Read an anatomy. Raises RecordError if nothing was labelled, and for a file of another format."""
    anatomy = read_anatomy(folder)
    _, lock = read_document(folder / "lock.json")
    return AnatomyReport(anatomy, lock, traces.read_document(folder, CHOSEN), traces.read_document(folder, VERDICT))


def ordered_readings(anatomy: Anatomy) -> list[str]:
    """Return both readings, the registered one first."""
    return sorted(READINGS, key=lambda name: name != anatomy.reading)


def status_lines(report: AnatomyReport) -> list[str]:
    """Return the result of the registered test and the number of traces: no drawing shows a pattern without it."""
    title = report.lock["protocol"]["content"]["title"]
    if report.verdict is None:
        result = "NOT JUDGED YET"
    else:
        words = Counter(row["word"] for row in report.verdict["pairs"])
        several = len(report.verdict["pairs"]) > 1
        result = ", ".join(f"{word} for {count}" if several else word for word, count in words.items())
        result += f" of {len(report.verdict['pairs'])} models and tasks" if several else ""
    return [
        f"{title} (anatomy): {result}",
        f"{_count_traces(report.anatomy)} Development problems only; no verdict on a policy depends on them.",
    ]


def outcome_lines(report: AnatomyReport) -> list[str]:
    """Return the chosen signal of each model and task, and its result on the testing half."""
    if report.verdict is None:
        return []
    return [_outcome_line(row, name_beyond(report.verdict)) for row in report.verdict["pairs"]]


def signal_label(signal: str, layer: int | None) -> str:
    return signal if layer is None else f"{signal} of layer {layer}"


def _outcome_line(row: Mapping[str, Any], beyond: str) -> str:
    where = f"{row['model']} · {row['task']}: {row['word']}"
    if row["rho"] is None:
        return f"{where}."
    rho = row["rho"]
    limits = "[{:+.2f}, {:+.2f}] ".format(*map(float, rho["interval"])) if rho["interval"] else ""
    return (
        f"{where}. {signal_label(row['signal'], row['layer'])}, mean rho {float(rho['mean']):+.2f} {limits}over "
        f"{rho['units']} traces of the testing half; {beyond} {row['beyond_position']['word']}."
    )


def _count_traces(anatomy: Anatomy) -> str:
    n_expected = sum(map(len, anatomy.expected.values()))
    states = Counter(trace.state for trace in anatomy.traces)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    missing = f" of {n_expected}" if len(anatomy.traces) < n_expected else ""
    return f"{len(anatomy.traces)}{missing} traces: {counts}."
