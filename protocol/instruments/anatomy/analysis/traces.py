"""Reads anatomy/traces.jsonl and its side files into arrays, by their documented format (docs/records.md).

kv-prereg audit verifies digests and chains. This module refuses a file only if it cannot be read in its
format; every trace counts, whatever its state.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from analysis.judgement import study_files, untrusted_files
from analysis.judgement.judging_rules import is_judged_as_shipped, read_judging
from analysis.judgement.untrusted_files import RecordError
from analysis.stats.multiplicity import corrected_alpha
from protocol.formats.refusals import Tampered
from protocol.formats.vocabulary import SHARED_ALPHA_JUDGING
from protocol.instruments.anatomy import trace_file
from protocol.instruments.anatomy.fields import CORRECT, HALVES, MEASURED, PARTS, POSITION, READINGS, STATES
from protocol.instruments.anatomy.slip import DROPS
from protocol.instruments.anatomy.trace_file import ANATOMY, TRACES, VALUES, half_of

Pair: TypeAlias = tuple[str, str]  # model, task
Signal: TypeAlias = tuple[str, int | None]  # name, layer


class NothingLabelled(RecordError):
    """A study without any labelled trace; the message says what to do about it."""


class ArmOutcome(NamedTuple):
    """The outcome of one arm on a trace: its continuation after the eviction at the cut.

    correct: None if it failed. slots: granted to each KV head and layer; None if it failed before that.
    """

    arm: str
    budget: str
    correct: bool | None
    slots: float | None


class Trace(NamedTuple):
    """One line of traces.jsonl. span, windows: positions [start, stop). windows: by reading, whether the grade changed.

    A trace that is neither labelled nor unmoved has no windows, no signals and no outcomes.
    """

    model: str
    task: str
    problem: str
    cluster: str  # the problem itself if its task names no clusters
    half: str
    state: str
    span: tuple[int, int]
    pieces: tuple[str, ...]
    windows: Mapping[str, tuple[tuple[int, int, bool], ...]]
    signals: tuple[Signal, ...]
    outcomes: tuple[ArmOutcome, ...]
    side: Path | None
    prompt: int = 0  # tokens of the prompt; the written text begins there
    slip: Mapping[str, bool] = MappingProxyType({})  # by what was dropped of the thought, whether the answer was right

    @property
    def pair(self) -> Pair:
        return self.model, self.task

    def labels(self, reading: str) -> NDArray[np.int8]:
        return token_labels(self.windows[reading], self.span)

    def window_counts(self, reading: str) -> NDArray[np.int64]:
        """Return [token of the span]: the number of windows that cover it."""
        start, stop = self.span
        counts = np.zeros(stop - start, dtype=np.int64)
        for first, last, _ in self.windows[reading]:
            counts[max(first, start) - start : max(0, min(last, stop) - start)] += 1
        return counts

    def values(self) -> "Values":
        """Return the values of all n tokens. Raises RecordError for a side file that is missing or damaged."""
        shape = (len(self.signals) + len(self.outcomes), len(self.pieces))
        if self.side is None:
            empty = np.zeros((0, 0), dtype=np.float32)
            return Values(empty, empty)
        try:
            data = trace_file.unpack_values(self.side, 4 * shape[0] * shape[1])
        except (Tampered, OSError) as problem:
            raise RecordError(f"{ANATOMY}/{problem}; restore the whole folder") from None
        table = np.frombuffer(data, dtype="<f4").reshape(shape)
        return Values(table[: len(self.signals)], table[len(self.signals) :])


class Values(NamedTuple):
    """signals: [signal, token], NaN without a value; retained: [outcome, token], share of (layer, KV head) pairs."""

    signals: NDArray[np.float32]
    retained: NDArray[np.float32]


class Anatomy(NamedTuple):
    """The labelled traces of a study. traces: in the order of the file. pairs: the registered (model, task),
    in order; alpha is divided by their number whether or not they have traces.
    """

    registration: str  # digest of the lock
    settings: Mapping[str, Any]  # [anatomy] of the protocol
    pairs: tuple[Pair, ...]
    expected: Mapping[Pair, tuple[str, ...]]  # problems of both halves
    clusters: Mapping[str, Mapping[str, str]]  # by task, the cluster of each problem; empty if it names none
    arms: tuple[str, ...]
    traces: tuple[Trace, ...]
    shares_alpha: bool = False  # between the chosen signal and the questions of slip; else each has its own

    @property
    def level(self) -> float:
        """Alpha of the chosen signal over the pairs (Bonferroni): half of the registered one where slip has a half."""
        return corrected_alpha(float(self.settings["alpha"]), len(self.pairs) * (2 if self.shares_alpha else 1))

    @property
    def reading(self) -> str:
        return str(self.settings["reading"])

    @property
    def slip_share(self) -> Decimal:
        """The share of a thought that is dropped, where it is registered."""
        return Decimal(self.settings["slip"])

    def traces_of(self, pair: Pair, half: str | None = None) -> list[Trace]:
        return [trace for trace in self.traces if trace.pair == pair and half in (None, trace.half)]

    def states(self, pair: Pair, half: str | None = None) -> dict[str, int]:
        """Return how many traces ended in each state, for all states."""
        counts = Counter(trace.state for trace in self.traces_of(pair, half))
        return {state: counts[state] for state in STATES}

    def missing(self, pair: Pair, half: str) -> list[str]:
        """Return the problems of this half that have no trace."""
        traced = {item.problem for item in self.traces_of(pair, half)}
        return [
            item
            for item in self.expected[pair]
            if half_of(self.clusters[pair[1]].get(item, item)) == half and item not in traced
        ]


def token_labels(windows: Sequence[tuple[int, int, bool]], span: tuple[int, int]) -> NDArray[np.int8]:
    """Return [token of the span]: 1 if any window that covers the token changed the grade, else 0 (EpiKV,
    arXiv:2606.26472, Appendix C). A token that no window covers has 0.
    """
    start, stop = span
    labels = np.zeros(stop - start, dtype=np.int8)
    for first, last, changed in windows:
        if changed:
            labels[max(first, start) - start : max(0, min(last, stop) - start)] = 1
    return labels


def read_anatomy(folder: Path) -> Anatomy:
    """Read FOLDER/lock.json and FOLDER/anatomy.

    Raises RecordError for a lock without [anatomy], for no trace at all, for a trace of an unregistered
    (model, task, development problem), for a second trace of one problem, and for another format.
    """
    folder = Path(folder)
    untrusted_files.refuse_special_files(folder)
    digest, lock = study_files.read_document(folder / "lock.json")
    try:
        content = lock["protocol"]["content"]
        if "anatomy" not in content:
            raise NothingLabelled(f"{folder}: registers no [anatomy]; add this table to a protocol before it is locked")
        settings = {"beyond": POSITION if is_judged_as_shipped(lock) else PARTS, **content["anatomy"]}
        pairs = tuple((model, task["name"]) for model in content["models"] for task in content["tasks"])
        items, limit = lock["items"], settings.get("traces")
        dev_problems = {pair: items[pair[1]]["dev"] for pair in pairs}
        expected = {pair: tuple(problems[:limit]) for pair, problems in dev_problems.items()}
        arms = tuple(content["arms"])
        clusters = {task: items[task].get("clusters", {}) for _, task in pairs}
    except (KeyError, TypeError) as problem:
        raise RecordError(f"{folder}: lock.json: not of the documented format ({problem})") from None
    traces: dict[tuple[str, str, str], Trace] = {}
    for name, number, line in untrusted_files.read_lines(folder / ANATOMY, TRACES):
        location = f"{folder}: {ANATOMY}/{name}:{number}"
        if not line.endswith(b"\n"):
            continue  # an incomplete last line: the audit reports it
        try:
            body = json.loads(line)["body"]
            trace = _parse_trace(body, folder, items)
        except (ValueError, KeyError, TypeError, IndexError) as problem:
            if isinstance(problem, RecordError):
                raise RecordError(f"{location}: {problem}") from None
            raise RecordError(
                f"{location}: not of the documented format ({type(problem).__name__}: {problem})"
            ) from None
        if trace.problem not in expected.get(trace.pair, ()):
            raise RecordError(f"{location}: {trace.problem} is not registered for {', '.join(trace.pair)}")
        if trace.half != (half := half_of(trace.cluster)):
            raise RecordError(f"{location}: half: {trace.problem} belongs to the half {half!r}")
        if traces.setdefault((*trace.pair, trace.problem), trace) is not trace:
            raise RecordError(f"{location}: a second trace of {trace.problem}; each trace must be recorded only once")
    if not traces:
        raise NothingLabelled(f"{folder}: no trace has been labelled yet; run: kv-prereg anatomy {folder}")
    shares_alpha = "slip" in settings and read_judging(lock) >= SHARED_ALPHA_JUDGING
    return Anatomy(digest, settings, pairs, expected, clusters, arms, tuple(traces.values()), shares_alpha)


def read_document(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a document of the anatomy; None if it does not exist yet. Raises RecordError."""
    path = Path(folder) / ANATOMY / name
    try:
        return untrusted_files.parse_object(untrusted_files.read_bytes(path), f"{ANATOMY}/{name}")
    except FileNotFoundError:
        return None


def _parse_trace(body: Mapping[str, Any], folder: Path, items: Mapping[str, Any]) -> Trace:
    state, half, problem = body["state"], body["half"], body["problem"]
    if state not in STATES or half not in HALVES:
        raise RecordError(f"state: {state!r}, half: {half!r}; one of these has an unknown value")
    cluster = items.get(body["task"], {}).get("clusters", {}).get(problem, problem)
    first = (body["model"], body["task"], problem, cluster, half, state)
    dropped = {name: body["slip"][name]["grade"] == CORRECT for name in DROPS} if "slip" in body else {}
    if state not in MEASURED:
        return Trace(*first, (0, 0), (), {}, (), (), None, slip=dropped)
    start, stop = body["span"]
    if not 0 <= start < stop <= body["tokens"] == len(body["pieces"]):
        raise RecordError(f"span: {body['span']} of {body['tokens']} tokens, {len(body['pieces'])} pieces")
    control = body["control"]["grade"] == CORRECT
    windows = {
        reading: tuple(
            (int(begin), int(end), (grade == CORRECT) != control) for begin, end, _, grade in body["windows"][reading]
        )
        for reading in READINGS
    }
    values = body["values"]
    signals = tuple((str(name), None if layer is None else int(layer)) for name, layer in values["signals"])
    outcomes = tuple(
        ArmOutcome(
            entry["arm"],
            str(entry["budget"]),
            None if entry.get("state") == "failed" else entry["grade"] == CORRECT,
            None if entry["slots"] is None else float(entry["slots"]),
        )
        for entry in body["kept"]
    )
    if len(outcomes) != values["kept"]:
        raise RecordError(f"kept: {len(outcomes)} arms at budgets, and values of {values['kept']}")
    side = folder / ANATOMY / VALUES / _check_digest(values["sha256"])
    pieces, prompt = tuple(body["pieces"]), body["prompt_tokens"]
    return Trace(*first, (start, stop), pieces, windows, signals, outcomes, side, prompt, dropped)


def _check_digest(digest: str) -> str:
    """Return the digest as a file name. Raises RecordError for anything else, such as a path."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise RecordError("values.sha256: is not a SHA-256 digest")
    return digest
