"""The design of an experiment: the fields of protocol.toml, declared once, and their values.

protocol.plan.toml_reader reads protocol.toml into a `Design`; docs/protocol.md is generated from the fields.
Numbers with a point are decimals, not binary floats, so that the hash covers exactly what was written.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import field as dataclass_field
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from analysis.rules.rule import arm_pairs
from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import (
    Choice,
    ExtendedTable,
    Field,
    Integer,
    ListOf,
    MapOf,
    declaration,
    declare,
    optional,
    table_of,
)
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.registry import load_attribute, loader
from protocol.formats.vocabulary import LATE_SOURCES, RERUN_SUFFIX
from protocol.plan.budget import Budget, BudgetKind
from protocol.plan.decision import DECISION, Decision
from protocol.plan.field_kinds import (
    ArmName,
    DeferredKind,
    Number,
    PolicySettings,
    SettingGrids,
    TableArray,
    TablesByName,
    VisibleLine,
    VisibleText,
)
from protocol.plan.gate import Gate
from protocol.plan.generation import Generation
from protocol.plan.policy_name import POLICY
from protocol.plan.task import TASK, Task

if TYPE_CHECKING:
    from policies import Policy


PRESS = VisibleText(r"kvpress:[A-Za-z]+", '"kvpress:" followed by the name of a press, such as kvpress:SnapKVPress')
# As ssh-keygen prints it, without the comment: the kind, then 51 bytes with a fixed prefix of 19.
AUDITOR = VisibleText(
    r"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}",
    "the auditor's public key, ssh-ed25519 AAAA..., without a comment",
)
ADDRESS = VisibleText(r"(?!\w+://[^/@]*:[^/@]*@)\S+", "an address without a password, which the lock would publish")
SEEDS = ListOf(Integer(0, MAX_INTEGER), 1)
ARMS = ListOf(VisibleText(), 1)
STUDY = VisibleText(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "the name of a folder next to this one, without a path")
MARGIN = Number("0.001", "0.5")  # accuracy points


@declaration()
class Arm:
    """A policy, or a press of kvpress, with a name."""

    name: str
    policy: str | None = optional(
        DeferredKind(POLICY), "The policy, by its name.", "snapkv", if_absent="the arm is a press"
    )
    set: Mapping[str, Any] | None = optional(
        PolicySettings(),
        (
            "Settings of the policy, by the paths that `kv-prereg policies NAME` prints. For a press: its "
            "own arguments, by their names (docs/presses.md)."
        ),
        {"scoring.window": 64},
        if_absent="the policy's own settings",
    )
    press: str | None = optional(
        PRESS,
        "A press of kvpress in place of a policy; kvpress must be installed. Without compression_ratio in "
        "`set`, the press gets the ratio that leaves the budget.",
        "kvpress:SnapKVPress",
        if_absent="the arm is a policy",
    )


ARM = replace(table_of(Arm), corrections=loader("protocol.plan.aliases:ARM"))


@declaration()
class Claim:
    """A claim about an arm in every cell, which the rule does not test."""

    name: str
    arm: str = declare(VisibleText(), "The arm that the claim is about.", "1d_div-0.5")
    says: str = declare(
        Choice("worse", "same", "better", noun="value", corrections=lambda: {"equal": "same", "equivalent": "same"}),
        "The claim about the arm's accuracy, compared with its parent's.",
        "worse",
    )
    parent: str | None = optional(
        VisibleText(),
        "The arm with which it is compared; this may be the full cache, which holds more on purpose.",
        "1d",
        if_absent="the subject",
    )
    margin: Decimal | None = optional(
        MARGIN, "The difference in accuracy within which the two count as the same.", 0.03, only_if=("says", ("same",))
    )


@declaration()
class Sweep:
    """Candidates, one of which is chosen as the subject of the decision, on development problems only."""

    name: str = declare(ArmName(), "The name of the arm that stands for the winner.", "chosen")
    candidates: tuple[str, ...] = declare(ARMS, "At least two arms; in a tie the earlier one wins.", ["h2o", "random"])
    baseline: str = declare(VisibleText(), "The arm with which the candidates are compared.", "streaming")
    seeds: tuple[int, ...] = declare(SEEDS, "The seeds of the probe.", [3, 4])
    tolerance: Decimal = declare(Number("0", "0.1"), "Differences of accuracy up to this size count as ties.", 0.005)
    grid: Mapping[str, Mapping[str, Any]] | None = optional(
        SettingGrids(),
        (
            "Settings to vary, by candidate. The candidate is replaced by one new candidate for each "
            "combination of values, such as crystal+max_trunk-16; the last setting changes fastest. The lock "
            "lists the resulting candidates."
        ),
        {"crystal": {"scoring.max_trunk": [16, 24, 32, 48]}},
        if_absent="candidates are the arms as written",
    )


@declaration()
class Randomness:
    """The source of a value, known only after the lock, from which seeds and generated held-out problems are
    drawn: see protocol.evidence.late_randomness. Without it they are as registered.
    """

    source: str = declare(Choice(*LATE_SOURCES), "The source of the value.", "nonce")
    auditor: str | None = optional(AUDITOR, "The public key that will sign the nonce.", only_if=("source", ("nonce",)))
    name: str | None = optional(VisibleText(), "The beacon.", "drand quicknet", only_if=("source", ("beacon",)))
    round: int | None = optional(Integer(1, MAX_INTEGER), "Its round.", 12_345_678, only_if=("source", ("beacon",)))


@declaration()
class Witness:
    """Who is asked by `register` to stamp the digest of the lock: see protocol.witnesses.registered."""

    kind: str = declare(
        Choice("git", "ots", "rfc3161", "sigstore", "none"),
        "A git remote, OpenTimestamps, a time-stamping authority, a public log, or none.",
        "git",
    )
    remote: str | None = optional(
        ADDRESS, "A remote of this repository, or its address.", "origin", only_if=("kind", ("git",))
    )
    authority: str | None = optional(ADDRESS, "Its address.", "https://freetsa.org/tsr", only_if=("kind", ("rfc3161",)))
    identity: str | None = optional(
        VisibleText(), "The identity that signs the lock.", "me@example.org", only_if=("kind", ("sigstore",))
    )
    issuer: str | None = optional(
        ADDRESS,
        "The login provider that vouches for this identity.",
        "https://github.com/login/oauth",
        only_if=("kind", ("sigstore",)),
    )


@declaration()
class Outcome:
    """What arms are compared by, where it is not what their answers are worth."""

    kind: str = declare(
        Choice("agreement", noun="value"),
        (
            "Agreement with the full cache: an arm is fed the full cache's text and evicts as usual; the "
            "outcome is the share of positions at which it would have produced the same token. The answers "
            "of the full cache itself are graded, for the gate."
        ),
        "agreement",
    )


@declaration()
class Exclude:
    """Problems that are recorded as excluded and not run, also in the probe."""

    prompt_tokens_above: int = declare(
        Integer(1, 2**24), "Problems whose context has more tokens than this are excluded.", 4096
    )


@declaration()
class Design:
    """A registered design. With a sweep, `probe_design` and `confirm_design` are what runs."""

    title: str = declare(VisibleLine(), "The title of the study.", "SnapKV against StreamingLLM")
    question: str = declare(
        VisibleLine(), "The question that the rule answers.", "At equal memory, is SnapKV more accurate?"
    )
    models: tuple[str, ...] = declare(
        ARMS,
        "Models, by name, as hf:<owner>/<name>@<commit> or as path:<folder>. Budgets apply to layers of full "
        "attention; sliding-window layers keep their window in every arm.",
        ["smollm2-135m"],
    )
    seeds: tuple[int, ...] = declare(
        SEEDS, "One lane is decoded for each seed; lanes of different seeds differ only if they are sampled.", [0]
    )
    budgets: tuple[Budget, ...] = declare(
        ListOf(BudgetKind(), 1), "The number of slots that each KV head of each layer may keep.", [0.3, 128]
    )
    tasks: tuple[Task, ...] = declare(TableArray(TASK, 1), "The tasks.")
    arms: tuple[Arm, ...] = declare(TablesByName(ARM, "arm"), "The policies.")
    generation: Generation = declare(
        replace(table_of(Generation), corrections=loader("protocol.plan.aliases:GENERATION")),
        "The settings of decoding.",
    )
    decision: Decision = declare(DECISION, "The question, and the rule that answers it.")
    gate: Gate | None = optional(
        table_of(Gate),
        "What the full cache must reach for every model and task; otherwise the verdict is INCONCLUSIVE.",
        if_absent="refused, except in replications of a shipped study without one",
    )
    sweep: Sweep | None = optional(
        table_of(Sweep), "The candidates among which the probe chooses the subject.", if_absent="no choice"
    )
    randomness: Randomness | None = optional(
        table_of(Randomness), "A value made after the lock.", if_absent="seeds and problems as registered"
    )
    witness: Witness | None = optional(
        table_of(Witness), "The witness that stamps the lock.", if_absent="nobody: CONFIRMED (UNWITNESSED)"
    )
    outcome: Outcome | None = optional(
        table_of(Outcome),
        "The outcome by which arms are compared.",
        if_absent="the accuracy of the answers, as the task grades them",
    )
    exclude: Exclude | None = optional(table_of(Exclude), "Problems that are not run.", if_absent="none")
    cite: Mapping[str, str] | None = optional(
        MapOf(STUDY, 1, "arms with the name of a study"),
        (
            "Arms that are not decoded again: for each arm, the folder (next to this one) of a study whose sealed "
            "records are used, if everything that a lane depends on is equal "
            "(docs/decisions/69-baselines-run-once.md)."
        ),
        {"1d": "001-baselines"},
        if_absent="all arms are decoded",
    )
    claims: tuple[Claim, ...] = optional(
        TablesByName(table_of(Claim), "claim"), "Claims of arms, outside the rule.", if_absent="none", default=()
    )
    neighbours: tuple[Budget, ...] = optional(
        ListOf(BudgetKind(), 1),
        (
            "Additional budgets at which only the comparators are decoded. If the subject holds more than "
            "its comparator, it must also win against the comparator at the nearest of all budgets that "
            "holds as much. Without neighbours, the subject is charged with everything that the comparator "
            "gains up to its next budget."
        ),
        [132],
        if_absent="none",
        default=(),
    )
    instruments: Mapping[str, Any] = dataclass_field(default_factory=dict)  # the tables of instruments by name

    @property
    def all_budgets(self) -> tuple[Budget, ...]:
        return (*self.budgets, *self.neighbours)

    @property
    def decodes(self) -> bool:
        """Whether this project decodes, so that policies, budgets and generation are registered."""
        return True

    def own_faults(self) -> Iterator[str]:
        """Yield the faults of a design that another harness runs."""
        yield from ()

    def is_full(self, name: str) -> bool:
        """Return whether an arm is the full cache: it never evicts, and its slots are stored and read as computed."""
        return self.arm(name).press is None and self.policy(name).is_full

    def exclusion_reason(self, prompt_tokens: int) -> str | None:
        """Return why a problem with a context of so many tokens is excluded; None if it is run."""
        if self.exclude is None or prompt_tokens <= self.exclude.prompt_tokens_above:
            return None
        return f"prompt_tokens: {prompt_tokens}, above {self.exclude.prompt_tokens_above}"

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def policy(self, name: str) -> Policy:
        """Return the policy of an arm with its settings and those registered for all arms: what it protects,
        and the interval if it evicts and sets none. For a press, return its wrapper.
        """
        import policies  # imports torch; parsing and other checks do not need it

        arm = self.arm(name)
        if arm.press is not None:
            from protocol.presses.pressed import build_press_policy

            return build_press_policy(arm.press, arm.set)
        assert arm.policy is not None
        policy = policies.get(arm.policy, arm.set)
        if not policy.evicts:
            return policy
        if self.generation.prompt == "pinned":
            policy = policies.pin_prompt(policy)
        if (preserve := self.generation.preserve) is not None:
            protect = policies.Preserve(preserve.prompt, preserve.recent)
            if preserve.sinks is not None:
                protect = policies.Boundary(preserve.prompt, preserve.recent, preserve.sinks)
            lines = preserve.lines
            policy = replace(policy, protect=protect if lines is None else policies.Marked(protect, lines))
        interval = self.generation.interval
        if interval is None or policy.cadence.interval is not None:
            return policy
        slack = self.generation.cadence != "exact"
        return replace(policy, cadence=replace(policy.cadence, interval=interval, slack=slack))

    def promises(self) -> dict[str, dict[str, Any]]:
        """Return the field `promises` of a lock: what the policy of each arm declares of its eviction steps."""
        return {arm.name: self.policy(arm.name).promises._asdict() for arm in self.arms}

    def policy_settings(self, name: str) -> dict[str, str]:
        """Return the settings of an arm's policy as a lock has them, by path, with the distribution of a plugin."""
        from policies.catalogue import PLUGINS
        from policies.structure import structure

        distribution = PLUGINS.distribution(self.arm(name).policy or "")
        return structure(self.policy(name)) | ({"distribution": distribution} if distribution else {})

    def extra_prompt(self, name: str) -> str:
        """Return the text that an arm adds to the prompt of a problem, or an empty text."""
        policy = self.policy(name)
        return policy.decoding.extra_prompt if policy.evicts else ""

    def probe_design(self) -> Design:
        """Return the design of a probe: all arms, the first comparator twice. With a sweep: its candidates,
        and its baseline twice, with its seeds.
        """
        if self.sweep is None:
            repeated = self.arm(self.decision.against[0])
            return replace(self, arms=(*self.arms, replace(repeated, name=repeated.name + RERUN_SUFFIX)))
        base = self.arm(self.sweep.baseline)
        candidates = (self.arm(name) for name in self.sweep.candidates)
        arms = (*candidates, base, replace(base, name=base.name + RERUN_SUFFIX))
        return replace(self, arms=arms, seeds=self.sweep.seeds, sweep=None, neighbours=())

    def confirm_design(self, winner: str) -> Design:
        """Return the design that confirms a sweep: `winner`, named as the sweep, replaces all candidates."""
        sweep = self.sweep
        assert sweep is not None
        chosen = replace(self.arm(winner), name=sweep.name)
        arms = (chosen if arm.name == sweep.candidates[0] else arm for arm in self.arms)
        remaining = tuple(arm for arm in arms if arm.name not in sweep.candidates)
        return replace(self, arms=remaining, sweep=None)

    def designs_by_phase(self) -> dict[str, Design]:
        """Return the designs of probe and confirm before a probe: with a sweep, its first candidate wins."""
        confirmed = self if self.sweep is None else self.confirm_design(self.sweep.candidates[0])
        return {"probe": self.probe_design(), "confirm": confirmed}

    def contrast_models(self) -> list[str]:
        """Return the model of every contrast; contrasts are (model, task, budget, pair of arms)."""
        contrasts = len(self.tasks) * len(self.budgets) * len(arm_pairs(self.content()["decision"]))
        return [model for model in self.models for _ in range(contrasts)]

    def content(self) -> dict[str, Any]:
        """Return the protocol as JSON values, as in the lock; grids are expanded to arms."""
        content = DESIGN.to_json(self)
        content.get("sweep", {}).pop("grid", None)
        return content


def _make_design(**values: Any) -> Design:
    tables = {instrument.name: values.pop(instrument.name, None) for instrument in INSTRUMENTS}
    return Design(**values, instruments={name: table for name, table in tables.items() if table is not None})


def _instrument_fields(names: Container[str]) -> dict[str, Field]:
    """Return the fields of the tables of these instruments."""
    return {
        instrument.name: Field(load_attribute(instrument.table), instrument.description, if_absent=instrument.if_absent)
        for instrument in INSTRUMENTS
        if instrument.name in names
    }


DESIGN = ExtendedTable(
    table_of(Design).fields,
    constructor=_make_design,
    attributes=lambda design: {**vars(design), **design.instruments},
    corrections=loader("protocol.plan.aliases:DESIGN"),
    further_of=_instrument_fields,
    all_further=lambda: _instrument_fields([instrument.name for instrument in INSTRUMENTS]),
)
