"""For an audit: check that a lock follows from its sources, with the auditor's own code and without torch.

The lock is derived by `derive_lock` and compared as a whole. An auditor has the protocol, the manifests and files
of the problems, the embedded models and a parent that is beside it. What an auditor cannot know is taken from
the lock: settings, promises and extra prompts of policies, which `check_policies` derives with torch; weights of
models that are not embedded; what the full cache held and which arms keep the same slots, which confirm measures
again; what takes long to simulate, which confirm and `check_simulated` do; and what describes the machine, the
repository and the folder at the time of locking. `field_checks` and other audit items look at these.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis.judgement.judging_rules import read_judging
from analysis.stats.methods import resampling_problems
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import line_endings
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.policy_facts import read_policy_facts
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import closure, installed_versions, judging_version, lock, version_1
from protocol.lock.promises import PARTS, derive_promises, state_settings
from protocol.models import sources
from protocol.plan import checks, full_use, slot_bytes, toml_reader
from protocol.plan.design import Arm, Design
from protocol.preflight import field_checks, sibling_registrations, task_splits, verify_problems
from protocol.preflight.derive import Promises, derive_lock, full_caches
from protocol.preflight.verify_problems import ProblemFields
from protocol.tasks import registry
from protocol.workspace import differences, drift

LOADED_FILES = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
"""Files of an embedded model that affect its output; these names never change their meaning."""
MOST_UNITS = 20_000
"""Problems or clusters of a task for which an audit simulates: more of them take gigabytes."""
SIMULATED = ("problems", "rule", "decision_errors")
"""Fields of `checks` that `check_simulated` derives."""


def check(study: Registration) -> str:
    """Return the audit's sentence. Raises Tampered with every value that does not follow, by its path;
    CannotTell where today's code does not read this protocol, or where the installed manifests were altered.
    """
    locked, is_shipped = study.lock.content, study.lock.digest in version_1.PROTOCOLS
    is_other_code = lock.is_of_other_code(study.lock)
    problems = verify_problems.derive_problem_fields(study)
    undetermined = problems.undetermined
    wrong = [
        *_file_faults(study),
        *problems.faults,
        *field_checks.find_faults(locked),
        *sibling_registrations.find_contradictions(study),
    ]
    if not is_shipped:
        _check_release(locked["release"], wrong, undetermined)
    # Other code may have had other recipes of problems, and may have accepted another protocol.
    by_code = undetermined if is_other_code else wrong
    opened = sibling_registrations.check_opened(study)
    by_code.extend(opened.faults)
    undetermined.extend(opened.undetermined)
    try:
        design = _read_design(study)
    except CannotTell as problem:
        by_code.append(str(problem))
    else:
        promises = locked["promises"]
        wrong.extend(
            f"promises.{arm.name}.is_press: does not follow from the arm"
            for arm in design.arms
            if arm.name in promises and promises[arm.name]["is_press"] != (arm.press is not None)
        )
        if unknown := [arm.name for arm in design.arms if design.decodes and arm.name not in promises]:
            differences.refuse_differences([f"promises.{unknown[0]}: missing, although it is an arm of the protocol"])
        inputs = _observe(study, design, problems)
        expected = derive_lock(design, promises, inputs)
        if is_shipped:
            expected = version_1.restore(expected, locked)
        else:
            expected |= judging_version.shipped_judging(study.lock.digest)
            for arm in design.arms if design.decodes else ():
                _check_arm(arm, locked, wrong, undetermined)
            by_library = wrong if _has_libraries_of(locked) and not is_other_code else undetermined
            by_library.extend(_effect_faults(design, problems.items, locked["checks"]["problems"]))
        wrong += differences.diff_values(locked, expected)
        by_code.extend(_refused(study, design, promises, is_other_code))
    differences.refuse_differences(wrong)
    if undetermined:
        raise CannotTell("; ".join(undetermined))
    tasks = " and ".join(locked["items"])
    by_audit = "" if read_judging(locked) < 3 else " or by audit --simulate"
    return (
        f"{len(locked['grid'])} cells, the split of {tasks}, the rule and {locked['checks']['tests']} tests "
        f"follow from protocol.toml and the manifests; {_full_use_text(locked)}{_opened_text(study)}simulated "
        f"checks are rederived by confirm{by_audit or ' only'}"
    )


def check_simulated(study: Registration) -> str:
    """Simulate again what registering simulated, and return the audit's sentence. Raises Tampered for another result,
    CannotTell where other code or other libraries may have given it, NotRun for a study that ships.
    """
    from protocol.preflight import rule_checks

    locked, items = study.lock.content, verify_problems.derive_problem_fields(study).items
    if read_judging(locked) < 3:
        raise NotRun("simulated by an earlier version of the code")
    if max((len(resampling_problems(item)) for item in items.values()), default=0) > MOST_UNITS:
        raise CannotTell(f"more than {MOST_UNITS} problems of a task")
    try:
        expected = rule_checks.check_rule(
            _read_design(study), items, is_replication=study.reproduces, scored=locked["checks"]["scored"]
        )
    except BadInput as refusal:
        raise Tampered(f"{lock.NAME}: registering refuses {refusal}") from None
    wrong = differences.diff_values(
        {name: locked["checks"][name] for name in SIMULATED}, {name: expected[name] for name in SIMULATED}, "checks"
    )
    if wrong and (lock.is_of_other_code(study.lock) or not _has_libraries_of(locked)):
        raise CannotTell("; ".join(wrong[:1]))
    differences.refuse_differences(wrong)
    return (
        f"{locked['checks']['decision_errors']['studies']} simulated studies and the self-test of the rule give "
        "the same results"
    )


def _has_libraries_of(locked: Mapping[str, Any]) -> bool:
    """Return whether the libraries whose numbers a simulation depends on are those of the lock."""
    distributions = locked["environment"]["distributions"]
    return all(distributions.get(name, {}).get("version") == version(name) for name in ("numpy", "scipy"))


def _effect_faults(design: Design, items: Mapping[str, Any], locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare the smallest differences that the method detects at the planned size."""
    from protocol.preflight import planned_size

    known = {name: item for name, item in items.items() if item and len(resampling_problems(item)) <= MOST_UNITS}
    try:
        expected = planned_size.detectable_effects(design, known)["problems"]
    except (BadInput, ValueError):  # too few clusters or problems, which is refused by name
        return
    for size, effects in expected.items():
        if size in locked:
            effect = "minimal_detectable_effect"
            yield from differences.diff_values(
                locked[size][effect], effects[effect], f"checks.problems.{size}.{effect}"
            )


def _check_release(release: str, wrong: list[str], undetermined: list[str]) -> None:
    """Add to the faults, or to what cannot be told, for a release whose locks this one cannot judge."""
    match lock.compare_release(release):
        case "unknown":
            wrong.append(f"release: {differences.format_value(release)} is not a release that wrote such locks")
        case "undetermined":
            known = f"release: {differences.format_value(release)} is unknown to {installed_versions.release()}"
            undetermined.append(f"{known}, which is installed here; run the audit with that release or a later one")


def _check_arm(arm: Arm, locked: Mapping[str, Any], wrong: list[str], undetermined: list[str]) -> None:
    """Compare what an arm registers, its locked settings and its promises, without torch. What a part promises that
    `derive_promises` does not list, `check_policies` can tell, where torch and the policy are installed.
    """
    settings, where = locked["policies"].get(arm.name) or {}, differences.format_value(arm.name)
    if missing := [part for part in PARTS if part not in settings]:
        wrong.append(f"policies.{where}: has no {missing[0]}, which every policy must have")
        return
    registered_settings = dict(arm.set or {}) if arm.press is None else {}
    if isinstance(state := registered_settings.pop("state", None), str):
        registered_settings = {**state_settings(state), **registered_settings}
    for path, value in registered_settings.items():
        locked_value, registered = settings.get(path, "").strip("'"), _normalize(value)
        if isinstance(value, str | int | Decimal) and _normalize(locked_value) != registered:
            wrong.append(f"policies.{where}.{path}: {locked_value!a}, but the arm sets {registered!a}")
    if arm.press is None and arm.policy not in read_policy_facts() and not _is_of_plugin(arm.policy):
        undetermined.append(f"arm {where}: the policy {differences.format_value(arm.policy)} is not installed here")
    try:
        promises = derive_promises(settings)
    except (KeyError, ValueError) as problem:
        wrong.append(f"policies.{where}: no policy can have these settings: {problem}")
        return
    if promises is not None:
        wrong.extend(differences.diff_values(locked["promises"][arm.name], promises, f"promises.{arm.name}"))
    elif find_spec("torch") is None:
        undetermined.append(f"arm {where}: checking its promises needs torch; run: pip install '.[run]'")


def _is_of_plugin(policy: str | None) -> bool:
    return policy in {point.name for point in entry_points(group="kv_prereg.policies")}


def _observe(study: Registration, design: Design, problems: ProblemFields) -> dict[str, Any]:
    """Return the inputs of `derive_lock` that an auditor can get, the others from the lock."""
    locked = study.lock.content
    batch = {"lanes": locked["batch"]["lanes"]}
    if _inherits_first_event(study, design):
        batch["first_event"] = locked["batch"]["first_event"]
    checks = {**locked["checks"], "golds": problems.golds, "scored": problems.scored}
    if not lock.is_of_other_code(study.lock):
        checks["problems"] = {
            size: simulated | _tabulated(design, int(size), problems)
            for size, simulated in checks["problems"].items()
            if size.isascii() and size.isdigit()
        }
    return {
        **locked,
        "items": problems.items,
        "data": problems.data,
        "batch": batch,
        "weights": {model: _embedded_files(model, files) for model, files in locked["weights"].items()},
        "slot_bytes": {model: _embedded_widths(model, entry) for model, entry in locked["slot_bytes"].items()},
        "checks": checks,
    }


def _opened_text(study: Registration) -> str:
    """Name the studies that had opened its problems, as the lock says, and that are not here."""
    missing = sibling_registrations.list_missing_opened(study)
    return f"opened names {', '.join(missing)}, whose folders are not here; " if missing else ""


def _inherits_first_event(study: Registration, design: Design) -> bool:
    """Whether a reproduction has its first event from its parent: from one that is here, with which it is compared,
    or from a shipped one, of which some fired from step 0. A parent that nobody has frees nothing.
    """
    locked = study.lock.content
    if not study.reproduces or not design.decodes:
        return False
    if study.find_parent() is not None:
        return True
    is_first = locked["batch"]["first_event"] in (0, design.generation.steps_before_eviction)
    return is_first and version_1.is_replicated(locked["parent"], locked["protocol"]["sha256"])


def _full_use_text(locked: Mapping[str, Any]) -> str:
    if not locked[full_use.FIELD]:
        return ""
    return "shares of the full cache's use follow from its slots in the lock, which only confirm measures again; "


def check_policies(study: Registration) -> str:
    """Return the audit's sentence about the policy of each arm: its settings, promises and extra prompt equal
    those of the auditor's registry.

    Raises Tampered with each difference and for a setting that its policy refuses, CannotTell without torch
    and for a policy that is not installed here, NotRun for a lock that predates locked settings.
    """
    locked = study.lock.content
    locked_policies = locked["policies"]
    if not locked_policies and study.lock.digest in version_1.PROTOCOLS:
        raise NotRun(f"{lock.NAME} is older than the locking of policy settings; it only names the policies")
    try:
        from policies.catalogue import CATALOGUE
    except ImportError as missing:
        raise CannotTell(f"needs {missing.name}; run: pip install '.[run]'") from None
    design = _read_design(study)
    expected: dict[str, dict[str, Any]] = {"policies": {}, "promises": {}, "asked": {}}
    undetermined: dict[str, list[str]] = {}  # arms by reason
    for arm in design.arms:
        try:
            policy, extra_prompt = design.policy(arm.name), design.extra_prompt(arm.name)
        except ValueError as refusal:  # a policy or setting that is not installed
            if arm.policy in CATALOGUE and not lock.is_of_other_code(study.lock):
                differences.refuse_differences([f"arms.{arm.name}.set.{refusal}"])
            undetermined.setdefault(str(refusal), []).append(arm.name)
            continue
        settings = design.policy_settings(arm.name)
        locked_version = locked_policies.get(arm.name, {}).get("version")
        if arm.press and settings["version"] != locked_version:
            reason = f"is from kvpress {locked_version}, but another version is installed"
            undetermined.setdefault(reason, []).append(arm.name)
            continue
        expected["policies"][arm.name] = settings
        expected["promises"][arm.name] = policy.promises._asdict()
        if extra_prompt:
            expected["asked"][arm.name] = extra_prompt
    unknown = {arm for arms in undetermined.values() for arm in arms}
    comparable = {
        field: {arm: value for arm, value in locked[field].items() if arm not in unknown} for field in expected
    }
    wrong = differences.diff_values(comparable, expected)
    if not unknown:
        wrong += _slot_byte_faults(design, locked)
    differences.refuse_differences(wrong)
    if undetermined:
        raise CannotTell("; ".join(f"arm {', '.join(arms)}: {reason}" for reason, arms in undetermined.items()))
    setting_count = sum(map(len, locked_policies.values()))
    return f"{setting_count} settings of {len(locked_policies)} arms match the installed policies"


def _slot_byte_faults(design: Design, locked: Mapping[str, Any]) -> Iterator[str]:
    """Compare the bytes of a slot of each arm, which its policy's state determines."""
    for model, widths in (slot_bytes.read_widths(locked) or {}).items():
        arms = locked[slot_bytes.FIELD][model]["arms"]
        locked_bytes = {arm: [entry["bytes"], entry.get("recent", 0)] for arm, entry in arms.items()}
        slots = {arm.name: slot_bytes.slot_of(design, arm.name, widths) for arm in design.arms}
        expected = {arm: [slot.stored, slot.recent] for arm, slot in slots.items()}
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
        raise Tampered(f"{PROTOCOL}: invalid TOML, although {lock.NAME} has a protocol that was read from it") from None
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


def _refused(study: Registration, design: Design, promises: Promises, is_other_code: bool) -> Iterator[str]:
    """Yield the faults that registering refuses and that need neither torch nor a simulation."""
    is_full = full_caches(design, promises, study.lock.content.get("policies", {}))
    faults = list(checks.faults(design, lambda arm: not is_full(design, arm)))
    if study.lock.digest not in version_1.PROTOCOLS and not version_1.is_replicated(
        study.parent, study.lock.content["protocol"]["sha256"]
    ):
        items = {name: item for name, item in study.lock.content["items"].items() if name in registry.TASKS}
        for refuse in (
            partial(checks.require_gate, design, Path(PROTOCOL)),
            partial(checks.require_memory, design, Path(PROTOCOL)),
            partial(checks.require_floor, design, Path(PROTOCOL)),
            partial(task_splits.refuse_few_topics, items, registry.TASKS),
        ):
            try:
                refuse()
            except BadInput as refusal:
                faults.append(str(refusal).removeprefix(f"{PROTOCOL}: "))
    said = f"{PROTOCOL}: today's code refuses" if is_other_code else f"{PROTOCOL}:"
    yield from (f"{said} {fault}" for fault in faults)


def _tabulated(design: Design, size: int, problems: ProblemFields) -> dict[str, str]:
    """Return the error rate of the method at a size, if the table of error rates has this design: of tasks of right
    and wrong answers without clusters.
    """
    from protocol.preflight import planned_size  # imports scipy, which the other checks do without

    units = [planned_size.describe_units(item, name in problems.scored) for name, item in problems.items.items()]
    at_size = [task_units for task_units in units if task_units.effective == size]
    if not at_size or not all(task_units.counts_answers for task_units in at_size):
        return {}
    corrected = float(design.decision.alpha) / len(design.contrast_models())
    error = planned_size.look_up_type_one(design, design.decision.method, size, corrected)
    return {} if error is None else {"type_one_over_nominal": f"{error.ratio:.3f}"}


def _embedded_widths(model: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a model in `slot_bytes` with its widths by the configuration, if it is embedded."""
    if model not in sources.MODELS or not sources.is_embedded(model):
        return entry
    config = json.loads((sources.EMBEDDED / model / "config.json").read_bytes())
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    heads = config["num_hidden_layers"] * config["num_key_value_heads"]
    return {**entry, "heads": heads, "width": width}


def _embedded_files(model: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the files of a model, those of an embedded one from its files."""
    expected = dict(files)
    for name in LOADED_FILES if model in sources.MODELS and sources.is_embedded(model) else ():
        data = (sources.EMBEDDED / model / name).read_bytes()
        # A clone may have converted the line endings.
        digests = [hashlib.sha256(content).hexdigest() for content in (data, data.replace(b"\r\n", b"\n"))]
        if files.get(name) not in digests:
            expected[name] = digests[1]
    return expected
