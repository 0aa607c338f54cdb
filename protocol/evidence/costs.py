"""Measured time and memory: the expected lines, the file of one machine, and the ledger lines about it.

A line of cost/<machine>.jsonl is the canonical {body, sha256, chain}, chained like records. The first body
describes the machine, and the file is named by its digest: another machine has another file, and the two are
never mixed. Each further body is one repetition of one point. docs/cost.md describes every field.
"""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from protocol.evidence import cost_fields, ledger
from protocol.evidence.registration import CLAIM, COST, Registration
from protocol.formats import canonical, files, journal, line_endings
from protocol.formats.refusals import BadInput, Tampered

__all__ = [
    "FULL",
    "ExpectedLine",
    "Measurement",
    "MeasurementWriter",
    "Point",
    "begin_attempt",
    "count_repetitions",
    "end_attempt",
    "expected_lines",
    "file_name",
    "read_measurements",
    "registered_section",
    "verify",
]

FULL = "full"  # the budget of an arm that never evicts
NAME_DIGITS = 12  # digits of the digest in a file's name


class Point(NamedTuple):
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


def registered_section(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return [cost] of a lock's content; None if it is not registered."""
    section: Mapping[str, Any] | None = content["protocol"]["content"].get("cost")
    return section


def expected_lines(content: Mapping[str, Any]) -> list[ExpectedLine]:
    """Return every line of a complete measurement, in order, from a lock's content that has [cost].

    Models follow one another, since only one is loaded. Each repetition of a model has all points, ordered by
    SHA-256 over the seed, the repetition and the point: a reproducible random order, so that drift of the
    machine affects all arms alike.
    """
    protocol, cost = content["protocol"]["content"], content["protocol"]["content"]["cost"]
    arms = cost.get("arms") or list(protocol["arms"])
    budgets = cost.get("budgets") or list(protocol["budgets"])
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
    return [read_file(path) for path in files.list_folder(study.folder / COST) if path.suffix == ".jsonl"]


def read_file(path: Path) -> Measurement:
    """Read the file of one machine; without a complete line it is empty. Raises as `read_measurements`."""
    data = files.read(path)
    line_endings.refuse_rewritten(path.name, data)
    lines = journal.split_lines(data)
    chain, bodies = journal.START, []
    for number, line in enumerate(lines.complete, start=1):
        source = f"{path.name}:{number}"
        parsed = canonical.loads(line, source)
        if not isinstance(parsed, dict) or parsed.keys() != set(cost_fields.LINE.fields):
            raise Tampered(f"{source}: not a line of a measurement")
        if canonical.digest(parsed["body"]) != parsed["sha256"]:
            raise Tampered(f"{source}: its digest is not that of its body; the line was edited")
        if wrong := cost_fields.find_fault(parsed["body"], number == 1):
            raise Tampered(f"{source}: {wrong}")
        chain = _next_chain(chain, parsed["sha256"])
        if chain != parsed["chain"]:
            raise Tampered(f"{source}: does not follow the line before; lines were removed, added or swapped")
        bodies.append(parsed["body"])
    if not bodies:
        return Measurement(path.name, {}, "", [], journal.START, lines.torn)
    if path.name != file_name(bodies[0]["machine"]):
        raise Tampered(f"{path.name}: is not named by its machine; another machine is another measurement")
    return Measurement(path.name, bodies[0]["machine"], bodies[0]["registration"], bodies[1:], chain, lines.torn)


class MeasurementWriter:
    """The file of this machine, to which only this process appends during a `with` block."""

    def __init__(self, study: Registration, machine: Mapping[str, Any]):
        self.study, self.machine = study, machine
        self.path = study.folder / COST / file_name(machine)
        self._exit_stack = ExitStack()

    def __enter__(self) -> Self:
        """Raise Tampered for a line that does not verify, AlreadyClaimed while another process appends."""
        self._journal = self._exit_stack.enter_context(journal.open_journal(self.path, wait=False))
        try:
            measurement = read_file(self.path)
            self._journal.drop_torn()
            self._chain, self.measured = measurement.head, len(measurement.bodies)
            if not measurement.machine:
                self._add({"registration": self.study.lock.digest, "machine": dict(self.machine)}, True)
        except BaseException:
            self._exit_stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._exit_stack.close()

    def append(self, body: Mapping[str, Any]) -> None:
        """Append one repetition in one write and one fsync. Raises BadInput for an invalid one."""
        self._add(body, False)
        self.measured += 1

    def _add(self, body: Mapping[str, Any], is_first: bool) -> None:
        if wrong := cost_fields.find_fault(body, is_first):
            raise BadInput(f"cost: {wrong}")
        sha256 = canonical.digest(body)
        chain = _next_chain(self._chain, sha256)
        self._journal.append([canonical.dumps({"body": body, "sha256": sha256, "chain": chain})])
        self._chain = chain


def count_repetitions(study: Registration, machine: Mapping[str, Any]) -> int:
    """Return how many repetitions this machine has measured."""
    path = study.folder / COST / file_name(machine)
    return len(read_file(path).bodies) if files.exists(path) else 0


def begin_attempt(study: Registration, machine: Mapping[str, Any]) -> int:
    """Enter an attempt to measure on this machine; return its number, from 1 over all machines."""
    current = study.reopen()
    number, name = current.count_events("cost") + 1, file_name(machine)
    ledger.append(
        current.folder, "cost", {"number": number, "machine": name, "records": count_repetitions(current, machine)}
    )
    return number


def end_attempt(study: Registration, machine: Mapping[str, Any]) -> None:
    """Enter the end of the attempt with the number of repetitions and the chain."""
    measurement = read_file(study.folder / COST / file_name(machine))
    body = {"machine": measurement.name, "records": len(measurement.bodies), "head": measurement.head}
    ledger.append(study.folder, "costed", body)


def verify(study: Registration, measurements: list[Measurement]) -> int:
    """Return how many attempts the ledger has.

    Raises Tampered unless each ledger line about measurements matches the files and precedes the claim.
    """
    by_name = {measurement.name: measurement for measurement in measurements}
    attempts, last = 0, ("", "")
    is_claimed = False
    for entry in study.entries:
        is_claimed = is_claimed or entry.event == CLAIM_EVENT
        if entry.event in ("cost", "costed"):
            if is_claimed:
                raise Tampered(f"{ledger.NAME}: time was measured after the claim")
            machine, records = entry.body["machine"], entry.body["records"]
            measurement = by_name.get(machine)
            if measurement is None and records:
                raise Tampered(f"{COST}/{machine}: missing, and the ledger counts {records} lines in it")
            if entry.event == "cost":
                attempts += 1
                if entry.body["number"] != attempts:
                    raise Tampered(f"{ledger.NAME}: attempt {attempts} to measure is not numbered so")
            elif last != ("cost", machine):
                raise Tampered(f"{ledger.NAME}: an attempt to measure does not end where it began")
            earlier = sum(body["attempt"] < attempts + (entry.event == "costed") for body in _bodies(measurement))
            if earlier != records or (
                entry.event == "costed" and entry.body["head"] != _chain_after(measurement, records)
            ):
                raise Tampered(
                    f"attempt {attempts} to measure {'found' if entry.event == 'cost' else 'ended with'} "
                    f"{records} lines in {machine}; of today's, {earlier} or others go back to it"
                )
        last = (entry.event, entry.body.get("machine", ""))
    last_attempts = {entry.body["machine"]: entry.body["number"] for entry in study.entries if entry.event == "cost"}
    for measurement in measurements:
        if measurement.machine and measurement.name not in last_attempts:
            raise Tampered(f"{COST}/{measurement.name}: no attempt of the ledger measured it")
        machine_attempts = {
            entry.body["number"]
            for entry in study.entries
            if entry.event == "cost" and entry.body["machine"] == measurement.name
        }
        if unknown_attempts := sorted({body["attempt"] for body in measurement.bodies} - machine_attempts):
            raise Tampered(
                f"{COST}/{measurement.name}: attempt {unknown_attempts[0]} of the ledger is not one on this machine"
            )
    return attempts


CLAIM_EVENT = CLAIM.removesuffix(".json")


def _bodies(measurement: Measurement | None) -> list[dict[str, Any]]:
    return [] if measurement is None else measurement.bodies


def _chain_after(measurement: Measurement | None, records: int) -> str:
    """Return the chain after the first `records` repetitions, recomputed from the verified bodies."""
    if measurement is None:
        return journal.START
    chain = _next_chain(
        journal.START, canonical.digest({"registration": measurement.registration, "machine": measurement.machine})
    )
    for body in measurement.bodies[:records]:
        chain = _next_chain(chain, canonical.digest(body))
    return chain


def _next_chain(chain: str, sha256: str) -> str:
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()


def _order_digest(seed: int, repetition: int, point: Point) -> str:
    return canonical.digest([seed, repetition, list(point)])
