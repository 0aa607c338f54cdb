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

from protocol.evidence.bytes import canonical, files, journal, line_endings
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import cost_fields, ledger
from protocol.evidence.run.registration import CLAIM, COST, Registration

__all__ = [
    "FULL",
    "Due",
    "Measurement",
    "Point",
    "Writer",
    "begin",
    "due",
    "end",
    "lines",
    "name_of",
    "read",
    "registered",
    "verify",
]

FULL = "full"  # the budget of an arm that never evicts
SHORT = 12  # digits of the digest in a file's name


class Point(NamedTuple):
    model: str
    prompt_tokens: int
    lanes: int
    budget: str
    arm: str


class Due(NamedTuple):
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


def registered(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return [cost] of a lock's content; None if it is not registered."""
    found: Mapping[str, Any] | None = content["protocol"]["content"].get("cost")
    return found


def due(content: Mapping[str, Any]) -> list[Due]:
    """Return every line of a complete measurement, in order, from a lock's content that has [cost].

    Models follow one another, since only one is loaded. Each repetition of a model has all points, ordered by
    SHA-256 over the seed, the repetition and the point: a reproducible random order, so that drift of the
    machine affects all arms alike.
    """
    protocol, cost = content["protocol"]["content"], content["protocol"]["content"]["cost"]
    arms = cost.get("arms") or list(protocol["arms"])
    budgets = cost.get("budgets") or list(protocol["budgets"])
    whole = {cell[3] for cell in content["grid"] if cell[2] == FULL}
    found: list[Due] = []
    for model in protocol["models"]:
        points = [
            Point(model, tokens, lanes, str(budget), arm)
            for tokens in cost["prompt_tokens"]
            for lanes in cost["lanes"]
            for arm in arms
            for budget in ([FULL] if arm in whole else budgets)
        ]
        for repetition in range(1, cost["repetitions"] + 1):
            drawn = sorted(points, key=lambda point: _drawn(cost["seed"], repetition, point))
            found += [Due(repetition, point) for point in drawn]
    return found


def name_of(machine: Mapping[str, Any]) -> str:
    return f"{canonical.digest(machine)[:SHORT]}.jsonl"


def read(study: Registration) -> list[Measurement]:
    """Return every measurement of a study, sorted by file name.

    Raises Tampered for a line that does not verify and for a file that is not named by its machine.
    """
    return [read_file(path) for path in files.listed(study.folder / COST) if path.suffix == ".jsonl"]


def read_file(path: Path) -> Measurement:
    """Read the file of one machine; without a complete line it is empty. Raises as `read_measurements`."""
    data = files.read(path)
    line_endings.refuse_rewritten(path.name, data)
    lines = journal.split(data)
    chain, bodies = journal.START, []
    for number, line in enumerate(lines.whole, start=1):
        where = f"{path.name}:{number}"
        parsed = canonical.loads(line, where)
        if not isinstance(parsed, dict) or parsed.keys() != set(cost_fields.LINE.fields):
            raise Tampered(f"{where}: not a line of a measurement")
        if canonical.digest(parsed["body"]) != parsed["sha256"]:
            raise Tampered(f"{where}: its digest is not that of its body; the line was edited")
        if wrong := cost_fields.fault(parsed["body"], number == 1):
            raise Tampered(f"{where}: {wrong}")
        chain = _next(chain, parsed["sha256"])
        if chain != parsed["chain"]:
            raise Tampered(f"{where}: does not follow the line before; lines were removed, added or swapped")
        bodies.append(parsed["body"])
    if not bodies:
        return Measurement(path.name, {}, "", [], journal.START, lines.torn)
    if path.name != name_of(bodies[0]["machine"]):
        raise Tampered(f"{path.name}: is not named by its machine; another machine is another measurement")
    return Measurement(
        path.name, bodies[0]["machine"], bodies[0]["registration"], bodies[1:], chain, lines.torn
    )


class Writer:
    """The file of this machine, to which only this process appends during a `with` block."""

    def __init__(self, study: Registration, machine: Mapping[str, Any]):
        self.study, self.machine = study, machine
        self.path = study.folder / COST / name_of(machine)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Raise Tampered for a line that does not verify, AlreadyClaimed while another process appends."""
        self._lines = self._held.enter_context(journal.opened(self.path, wait=False))
        try:
            found = read_file(self.path)
            self._lines.drop_torn()
            self._chain, self.measured = found.head, len(found.bodies)
            if not found.machine:
                self._add({"registration": self.study.lock.digest, "machine": dict(self.machine)}, True)
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def append(self, body: Mapping[str, Any]) -> None:
        """Append one repetition in one write and one fsync. Raises BadInput for an invalid one."""
        self._add(body, False)
        self.measured += 1

    def _add(self, body: Mapping[str, Any], first: bool) -> None:
        if wrong := cost_fields.fault(body, first):
            raise BadInput(f"cost: {wrong}")
        sha256 = canonical.digest(body)
        chain = _next(self._chain, sha256)
        self._lines.append([canonical.dumps({"body": body, "sha256": sha256, "chain": chain})])
        self._chain = chain


def lines(study: Registration, machine: Mapping[str, Any]) -> int:
    """Return how many repetitions this machine has measured."""
    path = study.folder / COST / name_of(machine)
    return len(read_file(path).bodies) if files.there(path) else 0


def begin(study: Registration, machine: Mapping[str, Any]) -> int:
    """Enter an attempt to measure on this machine; return its number, from 1 over all machines."""
    now = study.anew()
    number, name = now.count("cost") + 1, name_of(machine)
    ledger.append(now.folder, "cost", {"number": number, "machine": name, "records": lines(now, machine)})
    return number


def end(study: Registration, machine: Mapping[str, Any]) -> None:
    """Enter the end of the attempt with the number of repetitions and the chain."""
    found = read_file(study.folder / COST / name_of(machine))
    body = {"machine": found.name, "records": len(found.bodies), "head": found.head}
    ledger.append(study.folder, "costed", body)


def verify(study: Registration, found: list[Measurement]) -> int:
    """Return how many attempts the ledger has.

    Raises Tampered unless each ledger line about measurements matches the files and precedes the claim.
    """
    held = {one.name: one for one in found}
    attempts, last = 0, ("", "")
    claimed = False
    for entry in study.entries:
        claimed = claimed or entry.event == CITED_CLAIM
        if entry.event in ("cost", "costed"):
            if claimed:
                raise Tampered(f"{ledger.NAME}: time was measured after the claim")
            machine, records = entry.body["machine"], entry.body["records"]
            one = held.get(machine)
            if one is None and records:
                raise Tampered(f"{COST}/{machine}: missing, and the ledger counts {records} lines in it")
            if entry.event == "cost":
                attempts += 1
                if entry.body["number"] != attempts:
                    raise Tampered(f"{ledger.NAME}: attempt {attempts} to measure is not numbered so")
            elif last != ("cost", machine):
                raise Tampered(f"{ledger.NAME}: an attempt to measure does not end where it began")
            before = sum(body["attempt"] < attempts + (entry.event == "costed") for body in _bodies(one))
            if before != records or (entry.event == "costed" and entry.body["head"] != _head(one, records)):
                raise Tampered(
                    f"attempt {attempts} to measure {'found' if entry.event == 'cost' else 'ended with'} "
                    f"{records} lines in {machine}; of today's, {before} or others go back to it"
                )
        last = (entry.event, entry.body.get("machine", ""))
    named = {entry.body["machine"]: entry.body["number"] for entry in study.entries if entry.event == "cost"}
    for one in found:
        if one.machine and one.name not in named:
            raise Tampered(f"{COST}/{one.name}: no attempt of the ledger measured it")
        own = {
            entry.body["number"]
            for entry in study.entries
            if entry.event == "cost" and entry.body["machine"] == one.name
        }
        if strange := sorted({body["attempt"] for body in one.bodies} - own):
            raise Tampered(
                f"{COST}/{one.name}: attempt {strange[0]} of the ledger is not one on this machine"
            )
    return attempts


CITED_CLAIM = CLAIM.removesuffix(".json")


def _bodies(one: Measurement | None) -> list[dict[str, Any]]:
    return [] if one is None else one.bodies


def _head(one: Measurement | None, records: int) -> str:
    """Return the chain after the first `records` repetitions, recomputed from the verified bodies."""
    if one is None:
        return journal.START
    chain = _next(journal.START, canonical.digest({"registration": one.registration, "machine": one.machine}))
    for body in one.bodies[:records]:
        chain = _next(chain, canonical.digest(body))
    return chain


def _next(chain: str, sha256: str) -> str:
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()


def _drawn(seed: int, repetition: int, point: Point) -> str:
    return canonical.digest([seed, repetition, list(point)])
