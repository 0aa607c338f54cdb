"""Measured time and memory: the expected lines, the file of one machine, and the ledger lines about it.

A line of cost/<machine>.jsonl is the canonical {body, sha256, chain}, chained like records. The first body
describes the machine, and the file is named by its digest: another machine has another file, and the two are
never mixed. Each further body is one repetition of one point. docs/machines.md describes every field.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from protocol.evidence import measurement_journal
from protocol.evidence.measurement_journal import BodyWriter, JournalFile
from protocol.evidence.registration import Registration
from protocol.formats import canonical, files, shards
from protocol.formats.instruments import get_instrument
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost import fields

INSTRUMENT = get_instrument("cost")
FOLDER = INSTRUMENT.name
NAME_DIGITS = 12  # digits of the digest in a file's name
MAX_LINES = 1_000_000  # repetitions of a machine, at 600 bytes each


class Point(NamedTuple):
    """The setting of a measurement. budget: "full" for an arm that never evicts."""

    model: str
    prompt_tokens: int
    lanes: int
    budget: str
    arm: str


class ExpectedLine(NamedTuple):
    """One expected line of a complete measurement."""

    repetition: int
    point: Point


class Measurement(NamedTuple):
    """The repetitions of one machine. bodies: in the order of lines. head: the chain of the last line."""

    name: str
    machine: Mapping[str, Any]
    registration: str
    bodies: list[dict[str, Any]]
    head: str
    torn: int


def expected_lines(content: Mapping[str, Any]) -> list[ExpectedLine]:
    """Return every line of a complete measurement, in order, from a lock's content that has [cost].

    Models follow one another, since only one is loaded. Each repetition of a model has all points, ordered by
    SHA-256 over the seed, the repetition and the point: a reproducible random order, so that drift of the
    machine affects all arms alike.

    Raises BadInput for more than can be measured, before any is made.
    """
    protocol, cost = content["protocol"]["content"], content["protocol"]["content"]["cost"]
    arms = cost.get("arms") or list(protocol["arms"])
    budgets = cost.get("budgets") or list(protocol["budgets"])
    axes = (protocol["models"], cost["prompt_tokens"], cost["lanes"], arms, budgets)
    if (most := math.prod(map(len, axes)) * cost["repetitions"]) > MAX_LINES:
        raise BadInput(
            f"protocol.toml: cost.repetitions: gives {most:,} runs, over the limit of {MAX_LINES:,}; write fewer"
        )
    full_arms = {cell[3] for cell in content["grid"] if cell[2] == FULL}
    expected: list[ExpectedLine] = []
    for model in protocol["models"]:
        points = [
            Point(model, tokens, lanes, str(budget), arm)
            for tokens in cost["prompt_tokens"]
            for lanes in cost["lanes"]
            for arm in arms
            for budget in ([FULL] if arm in full_arms else budgets)
        ]
        for repetition in range(1, cost["repetitions"] + 1):
            ordered = sorted(points, key=lambda point: _order_digest(cost["seed"], repetition, point))
            expected += [ExpectedLine(repetition, point) for point in ordered]
    return expected


def file_name(machine: Mapping[str, Any]) -> str:
    return f"{canonical.digest(machine)[:NAME_DIGITS]}.jsonl"


def read_measurements(study: Registration) -> list[Measurement]:
    """Return every measurement of a study, sorted by file name.

    Raises Tampered for a line that does not verify and for a file that is not named by its machine.
    """
    names = {shards.plain_name(path) for path in files.list_folder(study.folder / FOLDER)}
    return [read_file(study.folder / FOLDER / name) for name in sorted(names) if name.endswith(".jsonl")]


def read_file(path: Path) -> Measurement:
    """Read the file of one machine; without a complete line it is empty. Raises as `read_measurements`."""
    bodies, head, torn = measurement_journal.read_bodies(path, "measurement", fields.find_fault)
    if not bodies:
        return Measurement(path.name, {}, "", [], head, torn)
    if path.name != file_name(bodies[0]["machine"]):
        raise Tampered(f"{path.name}: its name does not match its machine; each machine needs its own file")
    return Measurement(path.name, bodies[0]["machine"], bodies[0]["registration"], bodies[1:], head, torn)


class MeasurementWriter(BodyWriter):
    """The file of this machine, to which only this process appends during a `with` block."""

    def __init__(self, study: Registration, machine: Mapping[str, Any]):
        path = study.folder / FOLDER / file_name(machine)
        super().__init__(path, "cost", "measurement", fields.find_fault)
        self._header = {"registration": study.lock.digest, "machine": dict(machine)}

    def __enter__(self) -> Self:
        """Raise as `BodyWriter` does, and Tampered for a file of another machine."""
        super().__enter__()
        try:
            read_file(self.path)
            if not self.count:
                self.append(self._header)
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def measured(self) -> int:
        """The number of repetitions in the file."""
        return self.count - 1


def count_repetitions(study: Registration, machine: Mapping[str, Any]) -> int:
    """Return how many repetitions this machine has measured."""
    return len(read_file(study.folder / FOLDER / file_name(machine)).bodies)


def begin_attempt(study: Registration, machine: Mapping[str, Any]) -> int:
    """Enter an attempt to measure on this machine; return its number, from 1 over all machines."""
    records = count_repetitions(study, machine)
    return measurement_journal.begin_attempt(study, INSTRUMENT, records, machine=file_name(machine))


def end_attempt(study: Registration, machine: Mapping[str, Any]) -> None:
    """Enter the end of the attempt with the number of repetitions and the chain."""
    measurement = read_file(study.folder / FOLDER / file_name(machine))
    records, head = len(measurement.bodies), measurement.head
    measurement_journal.end_attempt(study, INSTRUMENT, records, head, machine=measurement.name)


def verify(study: Registration, measurements: list[Measurement]) -> int:
    """Return how many attempts the ledger has.

    Raises Tampered unless each ledger line about measurements matches the files and precedes the claim.
    """
    by_name = {measurement.name: measurement for measurement in measurements}

    def find_file(entry_body: Mapping[str, Any]) -> JournalFile:
        name, measurement = entry_body["machine"], by_name.get(entry_body["machine"])
        if measurement is None:
            if entry_body["records"]:
                raise Tampered(
                    f"{FOLDER}/{name}: missing, although the ledger counts {entry_body['records']} lines in it"
                )
            return JournalFile(name, ())
        header = {"registration": measurement.registration, "machine": measurement.machine}
        return JournalFile(name, measurement.bodies, [header])

    attempts = measurement_journal.verify_attempts(study, INSTRUMENT, find_file)
    numbers: dict[str, set[int]] = {}
    for entry in study.entries:
        if entry.event == INSTRUMENT.name:
            numbers.setdefault(entry.body["machine"], set()).add(entry.body["number"])
    for measurement in measurements:
        if measurement.machine and measurement.name not in numbers:
            raise Tampered(f"{FOLDER}/{measurement.name}: belongs to no attempt of the ledger")
        recorded_attempts = {body["attempt"] for body in measurement.bodies}
        if unknown_attempts := sorted(recorded_attempts - numbers.get(measurement.name, set())):
            raise Tampered(
                f"{FOLDER}/{measurement.name}: attempt {unknown_attempts[0]} of the ledger was not made on this machine"
            )
    return attempts


def _order_digest(seed: int, repetition: int, point: Point) -> str:
    return canonical.digest([seed, repetition, list(point)])
