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
from analysis.stats.methods import resampling_problems
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import canonical, line_endings
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import closure, field_checks, lock, sibling_registrations, verify_problems
from protocol.models import sources
from protocol.plan import checks, full_use, grid, slot_bytes, toml_reader
from protocol.plan.design import ARM, Design
from protocol.workspace import differences, drift

__all__ = ["check", "check_policies"]

ERROR_TABLE_SOURCES = (
    "analysis/simulation/error_table.json",
    "analysis/simulation/error_table.py",
    "analysis/simulation/null_populations.py",
    "analysis/simulation/type_one_error.py",
    "protocol/preflight/rule_checks.py",
)
FORMER_RULE_SOURCES = ("analysis/decisions.py",)
"""The file that contained all rules before each had its own."""
REFUSAL_SOURCES = ("protocol/plan/checks.py",)
"""The code that refuses a protocol; and below, the code that finds previously opened problems."""
PREVIOUSLY_OPENED_SOURCES = ("protocol/lock/previously_opened.py",)
POLICY_SOURCES = ("policies/catalogue.py", "policies/settings.py")
"""The code that builds the policy of an arm."""
LOADED_FILES = (
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
    if fault := field_checks.read_fault(locked):
        raise Tampered(f"{lock.NAME}: {fault}")
    undetermined = [message] if (message := field_checks.unknown_age_fault(locked)) else []
    wrong = [
        *_file_faults(study),
        *field_checks.faults(locked),
        *verify_problems.item_faults(study, undetermined),
        *_weight_faults(locked),
    ]
    wrong += [*_width_faults(locked), *_sibling_faults(study, undetermined)]
    (wrong if field_checks.is_todays_sources(locked) else undetermined).extend(field_checks.unknown_fields(locked))
    try:
        design = _read_design(study)
    except CannotTell as problem:
        undetermined.append(str(problem))
    else:
        for derive in (_protocol_faults, _grid_faults, _batch_faults, _rule_faults, _check_faults, _environment_faults):
            wrong += derive(design, locked)
        golds = locked["checks"].get("golds", {})
        wrong += differences.diff_values(golds, verify_problems.expected_golds(study), "checks.golds")
        wrong += verify_problems.scored_faults(study, undetermined)
        wrong += _refusal_faults(study, design, undetermined)
    wrong += verify_problems.data_faults(study)
    differences.refuse_differences(wrong)
    if undetermined:
        raise CannotTell("; ".join(undetermined))
    tasks = " and ".join(locked["items"])
    return (
        f"{len(locked['grid'])} cells, the split of {tasks}, the rule and {locked['checks']['tests']} tests "
        f"follow from protocol.toml and the manifests; {_full_use_text(locked)}simulated checks are derived by "
        "confirm alone"
    )


def _full_use_text(locked: Mapping[str, Any]) -> str:
    if full_use.FIELD not in locked:
        return ""
    return "shares of the full cache's use from what the lock says that it held, which confirm alone measures again; "


def check_policies(study: Registration) -> str:
    """Return the audit's sentence about the settings of each arm's policy: they equal those of the auditor's
    registry.

    Raises Tampered with each difference and for a setting that its policy refuses, CannotTell without torch
    and for a policy that is not installed here, NotRun for a lock that predates locked settings.
    """
    if (locked_policies := study.lock.content.get("policies")) is None:
        raise NotRun(f"{lock.NAME} is of before the settings of a policy were locked; it names them")
    try:
        from policies.catalogue import CATALOGUE
        from policies.structure import structure
    except ImportError as missing:
        raise CannotTell(f"needs {missing.name}; run: pip install '.[run]'") from None
    design = _read_design(study)
    has_own_sources = field_checks.is_todays_sources(study.lock.content, POLICY_SOURCES)
    expected: dict[str, dict[str, str]] = {}
    extra_prompts: dict[str, str] = {}
    undetermined: dict[str, list[str]] = {}  # arms by reason
    for arm in design.arms:
        try:
            expected[arm.name] = structure(design.policy(arm.name))
            extra_prompts[arm.name] = design.extra_prompt(arm.name)
            if arm.press and expected[arm.name]["version"] != (
                version := locked_policies.get(arm.name, {}).get("version")
            ):
                undetermined.setdefault(f"is of kvpress {version}, another one is installed", []).append(arm.name)
                del expected[arm.name]
        except ValueError as refusal:  # a policy or setting that is not installed
            if has_own_sources and arm.policy in CATALOGUE:
                differences.refuse_differences([f"arms.{arm.name}.set.{refusal}"])
            undetermined.setdefault(str(refusal), []).append(arm.name)
    if undetermined:  # compare what is known first, so that no arm hides another
        comparable = {arm: settings for arm, settings in locked_policies.items() if arm in expected}
        differences.refuse_differences(differences.diff_values(comparable, expected, "policies"))
        raise CannotTell("; ".join(f"arm {', '.join(arms)}: {reason}" for reason, arms in undetermined.items()))
    cells = [list(cell) for cell in grid.cells(design)]
    wrong = differences.diff_values(study.lock.content["grid"], cells, "grid")
    wrong += [
        *differences.diff_values(locked_policies, expected, "policies"),
        *_slot_byte_faults(design, study.lock.content),
    ]
    expected_prompts = {arm: text for arm, text in extra_prompts.items() if text}
    differences.refuse_differences(
        [*wrong, *differences.diff_values(study.lock.content.get("asked", {}), expected_prompts, "asked")]
    )
    setting_count = sum(map(len, locked_policies.values()))
    return f"{setting_count} settings of {len(locked_policies)} arms are those of the installed policies"


def _slot_byte_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare the bytes of a slot of each arm, which its policy's state determines."""
    for model, widths in (slot_bytes.read_widths(locked) or {}).items():
        locked_bytes = {arm: entry["bytes"] for arm, entry in locked[slot_bytes.FIELD][model]["arms"].items()}
        expected = {arm.name: slot_bytes.slot_of(design, arm.name, widths).stored for arm in design.arms}
        yield from differences.diff_values(locked_bytes, expected, f"{slot_bytes.FIELD}.{model}.bytes")


def _file_faults(study: Registration) -> list[str]:
    data, locked = drift.read_protocol_bytes(study.folder), study.lock.content["protocol"]["sha256"]
    line_endings.refuse_converted(PROTOCOL, data, locked)
    return differences.diff_values(locked, closure.sha256_hex(data), "protocol.sha256")


def _read_design(study: Registration) -> Design:
    """Read the protocol with today's declarations. Raises Tampered for a file that cannot have the locked
    content, CannotTell for one that today's reader refuses: it may have been written for another version.
    """
    data = drift.read_protocol_bytes(study.folder)
    try:
        return toml_reader.parse_unchecked(data, PROTOCOL)
    except BadInput as refusal:
        differences.refuse_differences(_content_faults(data, study.protocol))
        raise CannotTell(f"today's reader refuses {refusal}") from None


def _content_faults(data: bytes, content: Mapping[str, Any]) -> list[str]:
    """Return where the lock has another value than the file, whatever the fields mean."""
    try:
        document = tomllib.loads(data.decode(), parse_float=Decimal)
    except (ValueError, RecursionError):
        raise Tampered(f"{PROTOCOL}: is no TOML, and {lock.NAME} says that a protocol was read") from None
    return differences.diff_values(_normalize(content), _normalize(document), "protocol.content")


def _normalize(value: Any) -> Any:
    """Convert all values to text, and numbers to one spelling: a lock stores decimals as text."""
    if isinstance(value, Mapping):
        return {name: _normalize(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    try:
        return f"{Decimal(str(value)).normalize():f}"
    except (InvalidOperation, ValueError):
        return str(value)


def _protocol_faults(design: Design, locked: Mapping[str, Any]) -> list[str]:
    expected = canonical.loads(canonical.dumps(design.content()), PROTOCOL)
    return differences.diff_values(locked["protocol"]["content"], expected, "protocol.content")


def _grid_faults(design: Design, locked: Mapping[str, Any]) -> list[str]:
    expected = [list(cell) for cell in grid.cells(design, _full_cache_predicate(locked))]
    return differences.diff_values(locked["grid"], expected, "grid")


def _full_cache_predicate(locked: Mapping[str, Any]) -> Callable[[Design, str], bool]:
    """Return a predicate that works without torch: it uses the settings that the lock has of an arm with the
    same policy and the same `set`, or else the name of the policy.
    """
    arms = locked["protocol"]["content"]["arms"]
    settings = [
        (arms[arm], settings_of_arm) for arm, settings_of_arm in locked.get("policies", {}).items() if arm in arms
    ]

    def never_evicts(design: Design, arm: str) -> bool:
        written = ARM.to_json(design.arm(arm))
        locked_settings: Mapping[str, str] = next(
            (arm_settings for arm_table, arm_settings in settings if arm_table == written), {}
        )
        return written == {"policy": grid.FULL} or locked_settings.get("cadence.at_prefill") == "False"

    return never_evicts


def _sibling_faults(study: Registration, undetermined: list[str]) -> Iterator[str]:
    """Yield the contradictions with other registrations, as far as these are available."""
    yield from sibling_registrations.find_contradictions(study)
    opened = list(sibling_registrations.find_opened_faults(study))
    if field_checks.is_todays_sources(study.lock.content, PREVIOUSLY_OPENED_SOURCES):
        yield from opened
    else:
        undetermined += opened


def _refusal_faults(study: Registration, design: Design, undetermined: list[str]) -> Iterator[str]:
    """Yield the faults that registering refuses and that need neither torch nor a simulation. Code other than
    today's may have accepted them.
    """
    locked = study.lock.content
    never_evicts = _full_cache_predicate(locked)
    faults = list(checks.faults(design, lambda arm: not never_evicts(design, arm)))
    if "opened" in locked and (missing := list(_requirement_faults(design))):
        match sibling_registrations.predates_gates(study):
            case None:
                undetermined += (f"{PROTOCOL}: {fault}, unless what it repeats or amends is older" for fault in missing)
            case False:
                faults += missing
    if field_checks.is_todays_sources(locked, REFUSAL_SOURCES):
        yield from (f"{PROTOCOL}: {fault}" for fault in faults)
    else:
        undetermined += (f"{PROTOCOL}: today's code refuses {fault}" for fault in faults)


def _requirement_faults(design: Design) -> Iterator[str]:
    for require in (checks.require_gate, checks.require_memory):
        try:
            require(design, Path(PROTOCOL))
        except BadInput as refusal:
            yield str(refusal).removeprefix(f"{PROTOCOL}: ")


def _batch_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    """Check `batch`. A replication has the first event of its parent, whose lock may predate the setting."""
    batch = locked.get("batch")
    if batch is None:
        return
    registered, models = design.generation.lanes_per_batch, list(design.models)
    yield from differences.diff_values(sorted(batch["lanes"]), sorted(models), "batch.lanes")
    if registered is not None:
        expected = dict.fromkeys(batch["lanes"], registered)
        yield from differences.diff_values(batch["lanes"], expected, "batch.lanes")
    if "first_event" in batch and locked["parent"] is None:
        yield from differences.diff_values(
            batch["first_event"], design.generation.steps_before_eviction, "batch.first_event"
        )


def _rule_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    rule, name = locked["rule"], design.decision.rule
    yield from differences.diff_values(rule["name"], name, "rule.name")
    yield from differences.diff_values(rule["sha256"], locked["sources"].get(rule["source"]), "rule.sha256")
    if rule["source"] not in FORMER_RULE_SOURCES or RULES[name].source in locked["sources"]:
        yield from differences.diff_values(rule["source"], RULES[name].source, "rule.source")


def _check_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    checks, tests = locked["checks"], len(design.contrast_models())
    corrected = float(design.decision.alpha) / tests
    expected = {"tests": tests, "corrected_alpha": f"{corrected:.6f}"}
    yield from differences.diff_values({name: checks.get(name) for name in expected}, expected, "checks")
    sizes = sorted({str(len(resampling_problems(item))) for item in locked["items"].values()})
    yield from differences.diff_values(sorted(checks.get("problems", {})), sizes, "checks.problems")
    for size in sorted(checks.get("problems", {}).keys() & set(sizes)):
        simulated = checks["problems"][size]
        if (table_ratio := _table_ratio(design, locked, int(size), corrected)) is not None:
            path = f"checks.problems.{size}.type_one_over_nominal"
            yield from differences.diff_values(simulated.get("type_one_over_nominal"), table_ratio, path)


def _table_ratio(design: Design, locked: Mapping[str, Any], problems: int, corrected: float) -> str | None:
    """Return the ratio from the table of error rates if the lock was made with today's table and it has this
    design.
    """
    if not field_checks.is_todays_sources(locked, ERROR_TABLE_SOURCES):
        return None
    from protocol.preflight import rule_checks  # imports scipy, which the other checks do without

    error = rule_checks.look_up_type_one(design, design.decision.method, problems, corrected)
    return None if error is None else f"{error.ratio:.3f}"


def _width_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare heads and their width, for embedded models, with their configurations."""
    for model, locked_widths in (slot_bytes.read_widths(locked) or {}).items():
        if model not in sources.MODELS or not sources.is_embedded(model):
            continue
        config = json.loads((sources.EMBEDDED / model / "config.json").read_bytes())
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        expected = slot_bytes.Widths(config["num_hidden_layers"] * config["num_key_value_heads"], width)
        yield from differences.diff_values(locked_widths._asdict(), expected._asdict(), f"{slot_bytes.FIELD}.{model}")


def _weight_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    models = locked["protocol"]["content"]["models"]
    yield from differences.diff_values(sorted(locked["weights"]), sorted(models), "weights")
    for model, files in locked["weights"].items():
        if model not in sources.MODELS or not sources.is_embedded(model):
            continue
        for name in LOADED_FILES:
            data = (sources.EMBEDDED / model / name).read_bytes()
            # A clone may have converted the line endings.
            digests = {hashlib.sha256(content).hexdigest() for content in (data, data.replace(b"\r\n", b"\n"))}
            if files.get(name) not in digests:
                yield f"weights.{model}.{name}: is not the file of the embedded model"


def _environment_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    torch_settings = locked["environment"].get("torch")
    if isinstance(torch_settings, Mapping):
        threads = design.generation.threads
        yield from differences.diff_values(torch_settings.get("threads"), threads, "environment.torch.threads")
        if design.generation.device == "cpu":
            yield from differences.diff_values(torch_settings.get("device"), "cpu", "environment.torch.device")
