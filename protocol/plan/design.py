"""A protocol as a person writes it (protocol.toml), read strictly into frozen values.

Every field is required unless it is marked optional here; unknown keys, unknown names, numbers outside their
range and text that is not NFC are refused with the field's path and the fix. Numbers with a point are read
as decimals, never as binary floats, so that what is hashed is what was written.
"""

from __future__ import annotations

import codecs
import difflib
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import policies
from protocol import tasks
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import late_randomness

__all__ = [
    "AGAIN",
    "METHODS",
    "RULES",
    "Arm",
    "Budget",
    "Claim",
    "Decision",
    "Design",
    "Exclude",
    "Generation",
    "Randomness",
    "Sweep",
    "Task",
    "parse",
]

AGAIN = " (again)"  # ends the name of an arm that a probe runs a second time

RULES = ("superior", "branch", "equivalent", "non_inferior")
LOSSLESS = ("equivalent", "non_inferior")  # rules that need a margin
METHODS = ("bootstrap", "t", "sign-flip", "max-t")
MARGIN = (Decimal("0.001"), Decimal("0.5"))  # accuracy points
QUERIES = ("inside", "outside")
MISSING = ("inconclusive", "wrong")
CADENCES = ("slack", "exact")
DECIMALS = 6  # of a share
PROMPTS = ("competes", "pinned")
MEMORIES = ("slots",)
SAYS = ("worse", "same", "better")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # of an arm
PLACEHOLDER = re.compile(r"\b(TODO|FIXME|TBD|XXX+)\b|\?{3}|\.{3}|…|_{3}|<.*>", re.IGNORECASE | re.DOTALL)
# As ssh-keygen writes it, without the comment: the kind, then 51 bytes whose first 19 are the same in all.
AUDITOR = re.compile(r"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}")


class Budget(NamedTuple):
    """Slots per KV head and layer: a share of the compressed prompt's tokens, or a whole number of slots."""

    share: Decimal | None
    slots: int | None

    def __str__(self) -> str:
        return str(self.slots) if self.share is None else f"{self.share.normalize():f}"

    def of(self, tokens: int) -> int:
        """Slots for a prompt of `tokens`: ceil(share x tokens) (CrystalCache, Eq. 30), computed in
        decimals.
        """
        if self.share is None:
            assert self.slots is not None
            return self.slots
        return math.ceil(self.share * tokens)


class Task(NamedTuple):
    name: str
    query: str
    max_new_tokens: int


class Arm(NamedTuple):
    name: str
    policy: str


class Claim(NamedTuple):
    """What is claimed of an arm in every cell, outside the rule: its accuracy is worse or better than that of
    `parent` (None: of the subject), or the same within `margin` accuracy points.
    """

    name: str
    arm: str
    says: str
    parent: str | None = None
    margin: Decimal | None = None

    def content(self) -> dict[str, str]:
        """What was written; a field that was left out is not there."""
        own = {name: value for name, value in self._asdict().items() if name != "name" and value is not None}
        return own | ({} if self.margin is None else {"margin": f"{self.margin:f}"})


class Generation(NamedTuple):
    """How lanes are decoded.

    problems_per_batch: problems whose lanes decode together, and are recorded with one write.
    lanes_per_batch: how many of these lanes at once; None: registering chooses, by free memory.
    prefill_chunk: tokens of a prompt fed at once; None: all.
    prompt: "pinned" protects the tokens of the prompt at every event; else they compete like all others.
    workers: processes that run batches side by side, with `threads` each; None: one. It changes no record.
    interval, cadence: decode steps between events of every arm that evicts, "slack" or "exact" (see
        policies.Cadence); None: no event while decoding, but for policies that have an interval of their own.
    """

    temperature: Decimal
    dtype: str
    device: str
    threads: int
    problems_per_batch: int | None = None
    lanes_per_batch: int | None = None
    prefill_chunk: int | None = None
    interval: int | None = None
    cadence: str | None = None
    prompt: str | None = None
    workers: int | None = None

    def content(self) -> dict[str, Any]:
        """What was written; a field that was left out is not there."""
        written = {name: value for name, value in self._asdict().items() if value is not None}
        return written | {"temperature": f"{self.temperature:f}"}


@dataclass(frozen=True)
class Decision:
    """The one primary question, the rule that answers it and everything the rule may depend on.

    missing: what a registered lane without a grade is: "inconclusive" rules a verdict out, "wrong" counts it
        as not correct.
    beside: arms with which the subject is also compared, outside the rule and its family.
    margin: accuracy points by which the subject may differ ("equivalent") or be worse ("non_inferior").
    memory: "slots" makes slots what counts as memory: the share of problems on which two arms hold the same
        number, the accuracy interpolated to the subject's where they do not, and the bytes of the policies'
        own state are then reported beside. None of it decides.
    """

    rule: str
    subject: str
    against: tuple[str, ...]
    alpha: Decimal
    method: str
    draws: int
    seed: int
    cache_tolerance: Decimal
    missing: str
    at_least: int | None = None  # superior
    primary_model: str | None = None  # branch
    transfer_model: str | None = None  # branch
    margin: Decimal | None = None  # equivalent, non_inferior
    beside: tuple[str, ...] | None = None
    memory: str | None = None

    def content(self) -> dict[str, Any]:
        """What was written; a field that was left out is not there."""
        own = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value is not None
        }
        return own | {
            "alpha": f"{self.alpha:f}",
            "cache_tolerance": f"{self.cache_tolerance:f}",
            **({} if self.margin is None else {"margin": f"{self.margin:f}"}),
        }


@dataclass(frozen=True)
class Sweep:
    """Which of some candidates the decision's subject is, found on the development problems alone.

    name: the arm that confirms the winner. candidates: arms, in the order in which ties prefer them.
    baseline: the arm that they are compared with. tolerance: differences of accuracy that are a tie.
    """

    name: str
    candidates: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    tolerance: Decimal

    def content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "candidates": list(self.candidates),
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "tolerance": f"{self.tolerance:f}",
        }


@dataclass(frozen=True)
class Randomness:
    """Where the value will come from, after the lock, that seeds and generated held-out problems are drawn
    with: see protocol.evidence.run.late_randomness. Without it they are as registered.

    auditor: of a nonce, the public key that will sign it. name, round: of a beacon.
    """

    source: str
    auditor: str | None = None
    name: str | None = None
    round: int | None = None

    def content(self) -> dict[str, Any]:
        """What was written; a field that was left out is not there."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Exclude:
    """Problems that are recorded as excluded and not run: those with a context of more tokens than this (a
    record's `prompt_tokens`), in the probe as well.
    """

    prompt_tokens_above: int


@dataclass(frozen=True)
class Design:
    """What a person registered. With a sweep, `probed` and `confirmed` are what runs."""

    title: str
    question: str
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    budgets: tuple[Budget, ...]
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    generation: Generation
    decision: Decision
    sweep: Sweep | None = None
    randomness: Randomness | None = None
    exclude: Exclude | None = None
    claims: tuple[Claim, ...] = ()

    def excludes(self, prompt_tokens: int) -> str | None:
        """Why a problem with a context of so many tokens is not run; None where it is."""
        if self.exclude is None or prompt_tokens <= self.exclude.prompt_tokens_above:
            return None
        return f"prompt_tokens: {prompt_tokens}, above {self.exclude.prompt_tokens_above}"

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def policy(self, name: str) -> policies.Policy:
        """The policy of an arm, with the registered interval where it evicts and has none of its own, and
        the prompt pinned where that is registered.
        """
        policy = policies.get(self.arm(name).policy)
        if not policy.evicts:
            return policy
        if self.generation.prompt == "pinned":
            policy = policies.pinned(policy)
        interval = self.generation.interval
        if interval is None or policy.cadence.interval is not None:
            return policy
        slack = self.generation.cadence != "exact"
        return replace(policy, cadence=replace(policy.cadence, interval=interval, slack=slack))

    def probed(self) -> Design:
        """What a probe runs: every arm and the first comparator again or, with a sweep, its candidates and
        its baseline twice, with its seeds.
        """
        if self.sweep is None:
            again = self.arm(self.decision.against[0])
            return replace(self, arms=(*self.arms, again._replace(name=again.name + AGAIN)))
        base = self.arm(self.sweep.baseline)
        candidates = (self.arm(name) for name in self.sweep.candidates)
        arms = (*candidates, base, base._replace(name=base.name + AGAIN))
        return replace(self, arms=arms, seeds=self.sweep.seeds, sweep=None)

    def confirmed(self, winner: str) -> Design:
        """What confirming a sweep runs: the policy of the candidate `winner` under the sweep's name, in place
        of the candidates.
        """
        sweep = self.sweep
        assert sweep is not None
        chosen = self.arm(winner)._replace(name=sweep.name)
        arms = (chosen if arm.name == sweep.candidates[0] else arm for arm in self.arms)
        kept = tuple(arm for arm in arms if arm.name not in sweep.candidates)
        return replace(self, arms=kept, sweep=None)

    def family(self) -> list[str]:
        """The model of every contrast: one for each (model, task, budget, comparator)."""
        each = len(self.tasks) * len(self.budgets) * len(self.decision.against)
        return [model for model in self.models for _ in range(each)]

    def content(self) -> dict[str, Any]:
        """The protocol as canonical JSON can hold it: what the lock records beside the digest of the file."""
        return {
            "title": self.title,
            "question": self.question,
            "models": list(self.models),
            "seeds": list(self.seeds),
            "budgets": [str(budget) for budget in self.budgets],
            "tasks": [task._asdict() for task in self.tasks],
            "arms": {arm.name: {"policy": arm.policy} for arm in self.arms},
            "generation": self.generation.content(),
            "decision": self.decision.content(),
            **({} if self.sweep is None else {"sweep": self.sweep.content()}),
            **({} if self.randomness is None else {late_randomness.FIELD: self.randomness.content()}),
            **({} if self.exclude is None else {"exclude": vars(self.exclude)}),
            **({"claims": {claim.name: claim.content() for claim in self.claims}} if self.claims else {}),
        }


def parse(data: bytes, where: str) -> Design:
    """The protocol in `data`. Raises BadInput, one line that names the field and the fix."""
    if data.startswith(codecs.BOM_UTF8):
        raise BadInput(f"{where}: begins with a byte order mark; save the file as UTF-8 without one")
    try:
        document = tomllib.loads(data.decode("utf-8"), parse_float=Decimal)
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 at byte {error.start}; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where}: not valid TOML: {error}") from error
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply for a protocol; write plain lists and tables") from None
    except (ValueError, ArithmeticError):  # thousands of digits, or an exponent of as many
        raise BadInput(f"{where}: has a number that nobody can mean; write one of a few digits") from None
    top = _Table(document, where)
    protocol = Design(
        title=top.text("title"),
        question=top.text("question"),
        models=tuple(top.texts("models")),
        seeds=tuple(top.integers("seeds")),
        budgets=tuple(
            _budget(value, f"{where}: budgets[{i}]") for i, value in enumerate(top.entries("budgets"))
        ),
        tasks=tuple(_task(table) for table in top.tables("tasks")),
        arms=tuple(_arm(name, table) for name, table in top.named_tables("arms")),
        generation=_generation(top.table("generation")),
        decision=_decision(top.table("decision")),
        sweep=_sweep(top.table("sweep")) if "sweep" in top.values else None,
        randomness=_randomness(top.table(late_randomness.FIELD))
        if late_randomness.FIELD in top.values
        else None,
        exclude=_exclude(top.table("exclude")) if "exclude" in top.values else None,
        claims=tuple(_claim(*one) for one in top.named_tables("claims")) if "claims" in top.values else (),
    )
    top.done()
    _cross_check(protocol, where)
    return protocol


def _budget(value: Any, at: str) -> Budget:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 2**24:
            raise BadInput(f"{at}: {value} slots; write 1 to {2**24}, or a share in (0, 1) with a point")
        return Budget(None, value)
    if isinstance(value, Decimal):
        if not (value.is_finite() and 0 < value < 1):
            raise BadInput(
                f"{at}: a share of the prompt lies in (0, 1), not {value}; whole slots have no point"
            )
        if value != round(value, DECIMALS):
            raise BadInput(f"{at}: {value} has more than {DECIMALS} decimals; write fewer")
        return Budget(value, None)
    raise BadInput(f"{at}: write a number, a share such as 0.3 or whole slots such as 128, not {value!r}")


def _task(table: _Table) -> Task:
    task = Task(
        name=table.choice("name", tasks.names()),
        query=table.choice("query", QUERIES),
        max_new_tokens=table.integer("max_new_tokens", 1, 65536),
    )
    table.done()
    return task


def _arm(name: str, table: _Table) -> Arm:
    arm = Arm(name, table.choice("policy", policies.names()))
    table.done()
    return arm


def _claim(name: str, table: _Table) -> Claim:
    says = table.choice("says", SAYS)
    claim = Claim(
        name,
        table.text("arm"),
        says,
        table.text("parent") if "parent" in table.values else None,
        table.decimal("margin", *MARGIN) if says == "same" else None,
    )
    table.done()
    return claim


def _generation(table: _Table) -> Generation:
    generation = Generation(
        temperature=table.decimal("temperature", Decimal(0), Decimal(5)),
        dtype=table.choice("dtype", ("float32", "bfloat16")),
        device=table.choice("device", ("cpu", "cuda")),
        threads=table.integer("threads", 1, 1024),
        problems_per_batch=table.optional("problems_per_batch", 1, 1024),
        lanes_per_batch=table.optional("lanes_per_batch", 1, 65_536),
        prefill_chunk=table.optional("prefill_chunk", 1, 2**24),
        interval=table.optional("interval", 1, 1_000_000),
        cadence=table.choice("cadence", CADENCES) if "cadence" in table.values else None,
        prompt=table.choice("prompt", PROMPTS) if "prompt" in table.values else None,
        workers=table.optional("workers", 1, 256),
    )
    if generation.cadence is not None and generation.interval is None:
        raise BadInput(f"{table.prefix}cadence: needs an interval; give one or leave both out")
    table.done()
    return generation


def _decision(table: _Table) -> Decision:
    rule = table.choice("rule", RULES)
    decision = Decision(
        rule=rule,
        subject=table.text("subject"),
        against=tuple(table.texts("against")),
        alpha=table.decimal("alpha", Decimal("0.0001"), Decimal("0.2")),
        method=table.choice("method", METHODS),
        draws=table.integer("draws", 1000, 10_000_000),
        seed=table.integer("seed", 0, 2**53 - 1),
        cache_tolerance=table.decimal("cache_tolerance", Decimal(0), Decimal("0.5")),
        missing=table.choice("missing", MISSING),
        at_least=table.integer("at_least", 1, 10_000) if rule == "superior" else None,
        primary_model=table.text("primary_model") if rule == "branch" else None,
        transfer_model=table.text("transfer_model") if rule == "branch" else None,
        margin=table.decimal("margin", *MARGIN) if rule in LOSSLESS else None,
        beside=tuple(table.texts("beside")) if "beside" in table.values else None,
        memory=table.choice("memory", MEMORIES) if "memory" in table.values else None,
    )
    table.done()
    if rule == "branch" and decision.method == "max-t":
        raise BadInput(
            f"{table.prefix}method: max-t is for whole families, and branch takes each contrast at alpha; "
            "name bootstrap, t or sign-flip"
        )
    if rule in LOSSLESS and decision.method != "t":
        raise BadInput(
            f"{table.prefix}method: {decision.method} has no test of a margin here; write t, which {rule} "
            "keeps at or above the exact chance where few problems differ"
        )
    return decision


def _sweep(table: _Table) -> Sweep:
    sweep = Sweep(
        name=_name(table.text("name"), f"{table.prefix}name: "),
        candidates=tuple(table.texts("candidates")),
        baseline=table.text("baseline"),
        seeds=tuple(table.integers("seeds")),
        tolerance=table.decimal("tolerance", Decimal(0), Decimal("0.1")),
    )
    if len(sweep.candidates) < 2:
        raise BadInput(f"{table.prefix}candidates: name at least two; one needs no sweep")
    table.done()
    return sweep


def _randomness(table: _Table) -> Randomness:
    source = table.choice("source", late_randomness.SOURCES)
    nonce, beacon = source == "nonce", source == "beacon"
    randomness = Randomness(
        source=source,
        auditor=table.text("auditor") if nonce else None,
        name=table.text("name") if beacon else None,
        round=table.integer("round", 1, 2**53 - 1) if beacon else None,
    )
    if randomness.auditor is not None and not AUDITOR.fullmatch(randomness.auditor):
        raise BadInput(
            f"{table.prefix}auditor: write the auditor's public key, ssh-ed25519 AAAA..., without a comment"
        )
    table.done()
    return randomness


def _exclude(table: _Table) -> Exclude:
    exclude = Exclude(prompt_tokens_above=table.integer("prompt_tokens_above", 1, 2**24))
    table.done()
    return exclude


def _cross_check(protocol: Design, where: str) -> None:
    """What only the whole protocol can show: repeated names, names that are not defined, an impossible
    rule.
    """
    decision, sweep = protocol.decision, protocol.sweep
    repeated = {
        "models": protocol.models,
        "seeds": protocol.seeds,
        "budgets": [str(budget) for budget in protocol.budgets],
        "tasks": [task.name for task in protocol.tasks],
        "decision.against": decision.against,
        "decision.beside": decision.beside or (),
        "sweep.candidates": sweep.candidates if sweep else (),
        "sweep.seeds": sweep.seeds if sweep else (),
    }
    for field, values in repeated.items():
        twice = sorted({str(value) for value in values if list(values).count(value) > 1})
        if twice:
            raise BadInput(f"{where}: {field}: {twice[0]} stands twice; name each once")
    policy_of = {arm.name: protocol.policy(arm.name) for arm in protocol.arms}
    evicting = [name for name, policy in policy_of.items() if policy.evicts]
    for name in evicting:
        if policy_of[name].cadence.interval is not None and policy_of[name].uncarried:
            raise BadInput(
                f"{where}: generation.interval: {type(policy_of[name].uncarried[0]).__name__}, which arm "
                f"{name!r} needs, cannot be measured while decoding; leave the interval or the arm out"
            )
    if sweep is not None:
        _check_sweep(sweep, decision, [arm.name for arm in protocol.arms], evicting, where)
        evicting = [name for name in evicting if name not in sweep.candidates] + [sweep.name]
    fields = {"subject": [decision.subject], "against": decision.against, "beside": decision.beside or ()}
    for field, names in fields.items():
        for name in names:
            if name not in evicting:
                raise BadInput(f"{where}: decision.{field}: " + _unknown(name, evicting, "evicting arm"))
    if decision.subject in decision.against:
        raise BadInput(
            f"{where}: decision.against: {decision.subject} is the subject; compare it with others"
        )
    if compared := {decision.subject, *decision.against} & set(decision.beside or ()):
        raise BadInput(
            f"{where}: decision.beside: {min(compared)} is in the family already; name arms that are not"
        )
    for claim in protocol.claims:
        parent = claim.parent or decision.subject
        for field, name in {"arm": claim.arm, "parent": parent}.items():
            if name not in evicting:
                raise BadInput(
                    f"{where}: claims.{claim.name}.{field}: " + _unknown(name, evicting, "evicting arm")
                )
        if claim.arm == parent:
            raise BadInput(f"{where}: claims.{claim.name}.arm: {parent} is its own parent; name another arm")
    contrasts = len(protocol.family())
    if decision.at_least is not None and decision.at_least > contrasts:
        raise BadInput(
            f"{where}: decision.at_least: {decision.at_least} of {contrasts} contrasts never hold; lower it"
        )
    for field in ("primary_model", "transfer_model"):
        model = getattr(decision, field)
        if model is not None and model not in protocol.models:
            raise BadInput(f"{where}: decision.{field}: " + _unknown(model, protocol.models, "model"))
    if decision.rule == "branch" and decision.primary_model == decision.transfer_model:
        raise BadInput(f"{where}: decision.transfer_model: name another model than primary_model")


def _check_sweep(
    sweep: Sweep, decision: Decision, arms: Sequence[str], evicting: Sequence[str], where: str
) -> None:
    if sweep.name in arms:
        raise BadInput(f"{where}: sweep.name: {sweep.name!r} is an arm; give the winner a name of its own")
    if decision.subject != sweep.name:
        raise BadInput(
            f"{where}: decision.subject: is {decision.subject!r}; a sweep confirms its winner, {sweep.name!r}"
        )
    for field, names in {"candidates": sweep.candidates, "baseline": (sweep.baseline,)}.items():
        for name in names:
            if name not in evicting:
                raise BadInput(f"{where}: sweep.{field}: " + _unknown(name, evicting, "evicting arm"))
    if sweep.baseline in sweep.candidates:
        raise BadInput(f"{where}: sweep.baseline: {sweep.baseline} is a candidate; name another arm")


def _unknown(name: str, valid: Iterable[str], kind: str) -> str:
    valid = sorted(valid)
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)
    return f"unknown {kind} {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; none is defined")


class _Table:
    """One TOML table, read key by key; `done` refuses what was not read."""

    def __init__(self, values: Any, at: str) -> None:
        if not isinstance(values, Mapping):
            raise BadInput(f"{at}: write a table, not {values!r}")
        self.values, self.at, self.read = values, at, set[str]()
        self.prefix = f"{at}." if ": " in at else f"{at}: "

    def take(self, key: str) -> Any:
        self.read.add(key)
        if key not in self.values:
            near = difflib.get_close_matches(key, self.values, n=1)
            raise BadInput(f"{self.prefix}{key}: missing" + (f"; {near[0]!r} is unknown" if near else ""))
        return self.values[key]

    def done(self) -> None:
        for key in self.values:
            if key not in self.read:
                raise BadInput(f"{self.prefix}{key}: " + _unknown(key, self.read, "field"))

    def text(self, key: str) -> str:
        return _text(self.take(key), f"{self.prefix}{key}")

    def choice(self, key: str, valid: Iterable[str]) -> str:
        value = self.text(key)
        if value not in valid:
            raise BadInput(f"{self.prefix}{key}: " + _unknown(value, valid, key))
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadInput(f"{self.prefix}{key}: write a whole number from {low} to {high}, not {value!r}")
        return value

    def optional(self, key: str, low: int, high: int) -> int | None:
        self.read.add(key)
        return self.integer(key, low, high) if key in self.values else None

    def decimal(self, key: str, low: Decimal, high: Decimal) -> Decimal:
        value = self.take(key)
        number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(number, Decimal) or not number.is_finite() or not low <= number <= high:
            raise BadInput(f"{self.prefix}{key}: write a number from {low:f} to {high:f}, not {value}")
        return number

    def entries(self, key: str) -> list[Any]:
        value = self.take(key)
        if not isinstance(value, list) or not value:
            raise BadInput(f"{self.prefix}{key}: write a list with at least one entry")
        return value

    def texts(self, key: str) -> list[str]:
        return [_text(value, f"{self.prefix}{key}[{i}]") for i, value in enumerate(self.entries(key))]

    def integers(self, key: str) -> list[int]:
        values = self.entries(key)
        for i, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
                raise BadInput(
                    f"{self.prefix}{key}[{i}]: write a whole number from 0 to 2^53-1, not {value!r}"
                )
        return values

    def table(self, key: str) -> _Table:
        return _Table(self.take(key), f"{self.prefix}{key}")

    def tables(self, key: str) -> list[_Table]:
        return [_Table(value, f"{self.prefix}{key}[{i}]") for i, value in enumerate(self.entries(key))]

    def named_tables(self, key: str) -> list[tuple[str, _Table]]:
        outer = self.table(key)
        if not outer.values:
            raise BadInput(f"{self.prefix}{key}: define at least one arm")
        return [
            (_name(name, outer.prefix), _Table(value, f"{outer.prefix}{name}"))
            for name, value in outer.values.items()
        ]


def _name(value: str, prefix: str) -> str:
    if value.endswith(AGAIN):
        raise BadInput(f"{prefix}{value}: a name ending in {AGAIN!r} is a probe's second run; rename it")
    if not NAME.fullmatch(value):
        raise BadInput(
            f"{prefix}{value!r}: arm names are ASCII letters, digits and . _ + -, beginning with one of the "
            f"first two; rename it"
        )
    return value


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{at}: write text, not {value!r}")
    if unicodedata.normalize("NFC", value) != value:
        raise BadInput(f"{at}: text is not NFC; normalise it (two spellings of one text hash differently)")
    for character in value:
        if unicodedata.category(character)[0] == "C" and character != "\n":
            raise BadInput(f"{at}: has U+{ord(character):04X}, which cannot be seen; delete it")
    if PLACEHOLDER.search(value):
        raise BadInput(f"{at}: placeholder left unfilled: {value!r}")
    return value
