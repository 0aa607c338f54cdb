"""For an audit: check that a lock follows from its sources, with the auditor's own code and without torch.

Derived here: `protocol.content`, `grid`, `items`, `rule`, `batch`, `data`, `checks.tests` and
`checks.corrected_alpha`, the counts of golds, and error rates that are in the table; the weights of embedded
models and the width of their caches; slots and intervals of `slot_bytes`, from its sizes; and the protocol's
part of `environment.torch`. `check_policies` derives `policies` and the sizes, with torch.

For `full_use` the means and the slots are derived from the use of each problem that the lock gives: confirm
measures it again, and an invariant compares it with the prompts of the probe.

Not derived here: the simulated numbers of `checks`, `checks.rule` and `checks.same_kept`, which take seconds
and the libraries of that time (confirm derives them before a claim); unregistered `batch.lanes`, `git`,
`environment`, `opened` and `name`, which describe the machine, the repository and the folder at the time of
locking; `parent`, `amends`, `signer`, `sources`, `bundle` and `weights` of models that are not embedded,
which other audit items check or which an auditor cannot check. The form of all of these is checked.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from analysis.rules import RULES
from analysis.stats.methods import resampled
from protocol.acts.locking import beside, form, problems_again
from protocol.evidence.bytes import canonical, line_endings
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.lock import closure, lock
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import differences, drift
from protocol.models import sources
from protocol.plan import checks, full_use, grid, reading, slot_bytes
from protocol.plan.design import ARM, Design

__all__ = ["check", "check_policies"]

TABLE = (
    "analysis/trial/error_table.json",
    "analysis/trial/error_table.py",
    "analysis/trial/populations.py",
    "analysis/trial/type_one.py",
    "protocol/acts/locking/rule_checks.py",
)
EARLIER_SOURCES = ("analysis/decisions.py",)
"""The file that contained all rules before each had its own."""
REFUSALS = ("protocol/plan/checks.py",)
"""The code that refuses a protocol; and below, the code that finds previously opened problems."""
OPENED = ("protocol/acts/locking/opened_before.py",)
POLICIES = ("policies/catalogue.py", "policies/settings.py")
"""The code that builds the policy of an arm."""
LOADED = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
"""Files of an embedded model that affect its output; these names never change their meaning."""


def check(study: Registration) -> str:
    """Return the audit's sentence. Raises Tampered with every value that does not follow, by its path;
    CannotTell where today's code does not read this protocol, or where the installed manifests were altered.
    """
    locked = study.lock.content
    if unreadable := form.unreadable(locked):
        raise Tampered(f"{lock.NAME}: {unreadable}")
    untold = [said] if (said := form.unknown_age(locked)) else []
    wrong = [*_file(study), *form.faults(locked), *problems_again.items(study, untold), *_weights(locked)]
    wrong += [*_widths(locked), *_of_others(study, untold)]
    (wrong if form.as_today(locked) else untold).extend(form.unheard_of(locked))
    try:
        design = _design(study)
    except CannotTell as gap:
        untold.append(str(gap))
    else:
        for derive in (_content, _grid, _batch, _rule, _checks, _environment):
            wrong += derive(design, locked)
        found = locked["checks"].get("golds", {})
        wrong += differences.between(found, problems_again.golds(study), "checks.golds")
        wrong += problems_again.scored(study, untold)
        wrong += _refused(study, design, untold)
    wrong += problems_again.data(study)
    differences.refuse(wrong)
    if untold:
        raise CannotTell("; ".join(untold))
    tasks = " and ".join(locked["items"])
    return (
        f"{len(locked['grid'])} cells, the split of {tasks}, the rule and {locked['checks']['tests']} tests "
        f"follow from protocol.toml and the manifests; {_measured(locked)}simulated checks are derived by "
        "confirm alone"
    )


def _measured(locked: Mapping[str, Any]) -> str:
    if full_use.FIELD not in locked:
        return ""
    return (
        "shares of the full cache's use from what the lock says that it held, which confirm alone measures "
        "again; "
    )


def check_policies(study: Registration) -> str:
    """Return the audit's sentence about the settings of each arm's policy: they equal those of the auditor's
    registry.

    Raises Tampered with each difference and for a setting that its policy refuses, CannotTell without torch
    and for a policy that is not installed here, NotRun for a lock that predates locked settings.
    """
    if (held := study.lock.content.get("policies")) is None:
        raise NotRun(f"{lock.NAME} is of before the settings of a policy were locked; it names them")
    try:
        from policies.catalogue import CATALOGUE
        from policies.structure import structure
    except ImportError as missing:
        raise CannotTell(f"needs {missing.name}; run: pip install '.[run]'") from None
    design = _design(study)
    mine = form.as_today(study.lock.content, POLICIES)
    due: dict[str, dict[str, str]] = {}
    asked: dict[str, str] = {}
    untold: dict[str, list[str]] = {}  # arms by reason
    for arm in design.arms:
        try:
            due[arm.name] = structure(design.policy(arm.name))
            asked[arm.name] = design.asks(arm.name)
            if arm.press and due[arm.name]["version"] != (of := held.get(arm.name, {}).get("version")):
                untold.setdefault(f"is of kvpress {of}, another one is installed", []).append(arm.name)
                del due[arm.name]
        except ValueError as refused:  # a policy or setting that is not installed
            if mine and arm.policy in CATALOGUE:
                differences.refuse([f"arms.{arm.name}.set.{refused}"])
            untold.setdefault(str(refused), []).append(arm.name)
    if untold:  # compare what is known first, so that no arm hides another
        known = {arm: settings for arm, settings in held.items() if arm in due}
        differences.refuse(differences.between(known, due, "policies"))
        raise CannotTell("; ".join(f"arm {', '.join(arms)}: {why}" for why, arms in untold.items()))
    cells = [list(cell) for cell in grid.cells(design)]
    wrong = differences.between(study.lock.content["grid"], cells, "grid")
    wrong += [*differences.between(held, due, "policies"), *_slots(design, study.lock.content)]
    said = {arm: text for arm, text in asked.items() if text}
    differences.refuse([*wrong, *differences.between(study.lock.content.get("asked", {}), said, "asked")])
    return f"{sum(map(len, held.values()))} settings of {len(held)} arms are those of the installed policies"


def _slots(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare the bytes of a slot of each arm, which its policy's state determines."""
    for model, one in (slot_bytes.of_lock(locked) or {}).items():
        held = {arm: had["bytes"] for arm, had in locked[slot_bytes.FIELD][model]["arms"].items()}
        due = {arm.name: slot_bytes.slot_of(design, arm.name, one).own for arm in design.arms}
        yield from differences.between(held, due, f"{slot_bytes.FIELD}.{model}.bytes")


def _file(study: Registration) -> list[str]:
    data, locked = drift.written(study.folder), study.lock.content["protocol"]["sha256"]
    line_endings.refuse_instead_of(PROTOCOL, data, locked)
    return differences.between(locked, closure.digest_of(data), "protocol.sha256")


def _design(study: Registration) -> Design:
    """Read the protocol with today's declarations. Raises Tampered for a file that cannot have the locked
    content, CannotTell for one that today's reader refuses: it may have been written for another version.
    """
    data = drift.written(study.folder)
    try:
        return reading.read(data, PROTOCOL)
    except BadInput as refused:
        differences.refuse(_as_written(data, study.registered))
        raise CannotTell(f"today's reader refuses {refused}") from None


def _as_written(data: bytes, content: Mapping[str, Any]) -> list[str]:
    """Return where the lock has another value than the file, whatever the fields mean."""
    try:
        document = tomllib.loads(data.decode(), parse_float=Decimal)
    except (ValueError, RecursionError):
        raise Tampered(f"{PROTOCOL}: is no TOML, and {lock.NAME} says that a protocol was read") from None
    return differences.between(_plain(content), _plain(document), "protocol.content")


def _plain(value: Any) -> Any:
    """Convert all values to text, and numbers to one spelling: a lock stores decimals as text."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    try:
        return f"{Decimal(str(value)).normalize():f}"
    except (InvalidOperation, ValueError):
        return str(value)


def _content(design: Design, locked: Mapping[str, Any]) -> list[str]:
    due = canonical.loads(canonical.dumps(design.content()), PROTOCOL)
    return differences.between(locked["protocol"]["content"], due, "protocol.content")


def _grid(design: Design, locked: Mapping[str, Any]) -> list[str]:
    due = [list(cell) for cell in grid.cells(design, _never_evicts(locked))]
    return differences.between(locked["grid"], due, "grid")


def _never_evicts(locked: Mapping[str, Any]) -> Callable[[Design, str], bool]:
    """Return a predicate that works without torch: it uses the settings that the lock has of an arm with the
    same policy and the same `set`, or else the name of the policy.
    """
    arms = locked["protocol"]["content"]["arms"]
    settings = [(arms[arm], own) for arm, own in locked.get("policies", {}).items() if arm in arms]

    def whole(design: Design, arm: str) -> bool:
        written = ARM.content(design.arm(arm))
        held: Mapping[str, str] = next((own for one, own in settings if one == written), {})
        return written == {"policy": grid.FULL} or held.get("cadence.at_prefill") == "False"

    return whole


def _of_others(study: Registration, untold: list[str]) -> Iterator[str]:
    """Yield the contradictions with other registrations, as far as these are available."""
    yield from beside.contradictions(study)
    opened = list(beside.opened(study))
    if form.as_today(study.lock.content, OPENED):
        yield from opened
    else:
        untold += opened


def _refused(study: Registration, design: Design, untold: list[str]) -> Iterator[str]:
    """Yield the faults that registering refuses and that need neither torch nor a simulation. Code other than
    today's may have accepted them.
    """
    locked = study.lock.content
    whole = _never_evicts(locked)
    faults = list(checks.faults(design, lambda arm: not whole(design, arm)))
    if "opened" in locked and (lacks := list(_required(design))):
        match beside.gateless(study):
            case None:
                untold += (
                    f"{PROTOCOL}: {fault}, unless what it repeats or amends is older" for fault in lacks
                )
            case False:
                faults += lacks
    if form.as_today(locked, REFUSALS):
        yield from (f"{PROTOCOL}: {fault}" for fault in faults)
    else:
        untold += (f"{PROTOCOL}: today's code refuses {fault}" for fault in faults)


def _required(design: Design) -> Iterator[str]:
    for require in (checks.require_gate, checks.require_memory):
        try:
            require(design, Path(PROTOCOL))
        except BadInput as refused:
            yield str(refused).removeprefix(f"{PROTOCOL}: ")


def _batch(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    """Check `batch`. A replication has the first event of its parent, whose lock may predate the setting."""
    batch = locked.get("batch")
    if batch is None:
        return
    registered, models = design.generation.lanes_per_batch, list(design.models)
    yield from differences.between(sorted(batch["lanes"]), sorted(models), "batch.lanes")
    if registered is not None:
        due = dict.fromkeys(batch["lanes"], registered)
        yield from differences.between(batch["lanes"], due, "batch.lanes")
    if "first_event" in batch and locked["parent"] is None:
        yield from differences.between(batch["first_event"], design.generation.waits, "batch.first_event")


def _rule(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    rule, name = locked["rule"], design.decision.rule
    yield from differences.between(rule["name"], name, "rule.name")
    yield from differences.between(rule["sha256"], locked["sources"].get(rule["source"]), "rule.sha256")
    if rule["source"] not in EARLIER_SOURCES or RULES[name].source in locked["sources"]:
        yield from differences.between(rule["source"], RULES[name].source, "rule.source")


def _checks(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    checks, tests = locked["checks"], len(design.family())
    corrected = float(design.decision.alpha) / tests
    due = {"tests": tests, "corrected_alpha": f"{corrected:.6f}"}
    yield from differences.between({name: checks.get(name) for name in due}, due, "checks")
    sizes = sorted({str(len(resampled(item))) for item in locked["items"].values()})
    yield from differences.between(sorted(checks.get("problems", {})), sizes, "checks.problems")
    for size, found in checks.get("problems", {}).items():
        if (looked_up := _looked_up(design, locked, int(size), corrected)) is not None:
            at = f"checks.problems.{size}.type_one_over_nominal"
            yield from differences.between(found.get("type_one_over_nominal"), looked_up, at)


def _looked_up(design: Design, locked: Mapping[str, Any], problems: int, corrected: float) -> str | None:
    """Return the ratio from the table of error rates if the lock was made with today's table and it has this
    design.
    """
    if not form.as_today(locked, TABLE):
        return None
    from protocol.acts.locking import rule_checks  # imports scipy, which the other checks do without

    found = rule_checks.looked_up(design, design.decision.method, problems, corrected)
    return None if found is None else f"{found.ratio:.3f}"


def _widths(locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare heads and their width, for embedded models, with their configurations."""
    for model, one in (slot_bytes.of_lock(locked) or {}).items():
        if model not in sources.MODELS or not sources.embedded(model):
            continue
        config = json.loads((sources.EMBEDDED / model / "config.json").read_bytes())
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        due = slot_bytes.Widths(config["num_hidden_layers"] * config["num_key_value_heads"], width)
        yield from differences.between(one._asdict(), due._asdict(), f"{slot_bytes.FIELD}.{model}")


def _weights(locked: Mapping[str, Any]) -> Iterator[str]:
    models = locked["protocol"]["content"]["models"]
    yield from differences.between(sorted(locked["weights"]), sorted(models), "weights")
    for model, files in locked["weights"].items():
        if model not in sources.MODELS or not sources.embedded(model):
            continue
        for name in LOADED:
            data = (sources.EMBEDDED / model / name).read_bytes()
            # A clone may have converted the line endings.
            own = {hashlib.sha256(each).hexdigest() for each in (data, data.replace(b"\r\n", b"\n"))}
            if files.get(name) not in own:
                yield f"weights.{model}.{name}: is not the file of the embedded model"


def _environment(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    found = locked["environment"].get("torch")
    if isinstance(found, Mapping):
        threads = design.generation.threads
        yield from differences.between(found.get("threads"), threads, "environment.torch.threads")
        if design.generation.device == "cpu":
            yield from differences.between(found.get("device"), "cpu", "environment.torch.device")
