"""Checks of the fields of a lock that hold whatever its age: fields that occur together, names that are
registered.

Needs no torch.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any

from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from protocol.evidence import ledger
from protocol.evidence.external import git_history
from protocol.formats import fields
from protocol.formats.fields import Choice, Field, Integer, ListOf, MapOf, Table, Text
from protocol.lock import closure, known_versions
from protocol.models import sources
from protocol.plan import full_use, slot_bytes
from protocol.workspace import differences, drift

__all__ = [
    "LOCK_WRITERS",
    "faults",
    "is_folder_name",
    "is_todays_sources",
    "read_fault",
    "unknown_age_fault",
    "unknown_fields",
]

FIELDS_BY_AGE = (("batch",), ("policies", "amends", "git", "signer", "ledger"), ("opened",))
"""Fields that were added to locks on the same day, oldest first: a lock with later ones has the earlier
ones.
"""
CHECK_FIELDS = {"corrected_alpha", "problems", "tests", "rule", "decision_errors", "same_kept"}
SIZE_FIELDS = {"type_one_over_nominal", "type_one_setting", "minimal_detectable_effect"}
ENVIRONMENT_TABLE = Table(
    {
        **{name: Field(Text(), name) for name in ("python", "implementation", "system", "machine")},
        "torch": Field(
            Table(
                {name: Field(Text(), name) for name in ("build", "cpu", "device", "version")}
                | {"threads": Field(Integer(1), "threads")}
            ),
            "How it was built and run.",
        ),
    },
    allow_extra=True,
)
"""The fields of the environment that locks of all ages have."""
REQUIRED_PACKAGES = ("policies", "protocol", "splits", "analysis")  # older locks do not contain figures
PLAIN_DECODING, STATE_LINES = "policies.decoding.Plain()", "policies.decoding.StateLines()"
SIGNER_PATTERN = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}")
NAME_PATTERN = re.compile(r"[^/\\\0]+")
TOKENIZER_PREFIXES = ("tokenizer", "vocab")
BEFORE_CHECK = "a lock of before it was found"
SHARE_KIND = Text(r"[01]\.\d{6}", "a share with six digits")
VERDICTS_KIND = MapOf(Choice(CONFIRMED, REFUTED, INCONCLUSIVE))
SHARES_TABLE = Table({name: Field(SHARE_KIND, name) for name in ("low", "share", "high")})
SIZE_TABLE = Table(
    {
        "type_one_over_nominal": Field(Text(r"\d+\.\d{3}"), "Of the method at this size."),
        "minimal_detectable_effect": Field(MapOf(Text(r"none|0\.\d{3}|1\.000")), "By discordance."),
    },
    allow_extra=True,
)
CHECKS_TABLE = Table(
    {
        "tests": Field(Integer(1), "Of the family."),
        "corrected_alpha": Field(SHARE_KIND, "Of each."),
        "problems": Field(MapOf(SIZE_TABLE), "By number of problems, or of clusters of a task that has some."),
        "scored": Field(ListOf(Text(), 1), "Tasks.", if_absent="no answer has a score"),
        "rule": Field(
            Table({name: Field(VERDICTS_KIND, name) for name in ("verdicts", "gates")}),
            "Tried.",
            if_absent=BEFORE_CHECK,
        ),
        "decision_errors": Field(
            Table({word: Field(SHARES_TABLE, word) for word in ("confirmed", "refuted")}, allow_extra=True),
            "Where nothing differs.",
            if_absent=BEFORE_CHECK,
        ),
        "same_kept": Field(
            Table(
                {
                    "pairs": Field(ListOf(Table({"arms": Field(ListOf(Text(), 2), "Two.")}, allow_extra=True)), ""),
                    "on": Field(MapOf(Text()), "What ran for each model."),
                    "left_out": Field(ListOf(Text()), "Arms."),
                }
            ),
            "Arms that are alike.",
            if_absent=BEFORE_CHECK,
        ),
    },
    allow_extra=True,
)
"""The results of the checks before registering, in the form that locks of all ages share."""
LOCK_WRITERS = (
    "protocol/register.py",
    "protocol/preflight/lock_content.py",
    "protocol/preflight/rule_checks.py",
)
"""The files that determine which fields a lock has."""


def is_todays_sources(locked: Mapping[str, Any], names: tuple[str, ...] = LOCK_WRITERS) -> bool:
    """Whether these locked sources are today's, byte for byte."""
    paths = {name: drift.ROOT / name for name in names}
    return all(
        path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == locked["sources"].get(name)
        for name, path in paths.items()
    )


def unknown_fields(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message for each field of `checks` that today's code does not write."""
    checks = locked["checks"]
    for name in sorted(checks.keys() - CHECK_FIELDS - {"golds", "scored"}):
        yield f"checks.{differences.format_value(name)}: is no field of a lock"
    for size, entry in checks["problems"].items():
        path = f"checks.problems.{differences.format_value(size)}"
        for name in sorted(entry.keys() - SIZE_FIELDS):
            yield f"{path}.{differences.format_value(name)}: is no field of a lock"


def is_folder_name(text: str) -> bool:
    """Whether a folder can have this name."""
    return NAME_PATTERN.fullmatch(text) is not None and text not in (".", "..")


def faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message for each field that registering cannot have written this way."""
    yield from _age_faults(locked)
    content, items = locked["protocol"]["content"], locked["items"]
    if "ledger" in locked:
        yield from differences.diff_values(locked["ledger"], dict(ledger.head_of([])), "ledger")
    if "policies" in locked:
        yield from differences.diff_values(sorted(locked["policies"]), sorted(content["arms"]), "policies")
    yield from _setting_faults(locked.get("policies", {}), content["arms"])
    yield from _extra_prompt_faults(locked)
    if locked["parent"] is not None and locked.get("amends") is not None:
        yield "amends: a replication amends nothing"
    for field in ("parent", "amends"):
        reference = locked.get(field)
        if reference is not None and not is_folder_name(reference["name"]):
            yield f"{field}.name: {differences.format_value(reference['name'])} is not the name of a folder"
    yield from _source_faults(locked["sources"])
    yield from _git_faults(locked)
    if (signer := locked.get("signer")) is not None and not SIGNER_PATTERN.fullmatch(signer):
        yield f"signer: {differences.format_value(signer)} is not a public key"
    yield from _opened_faults(locked.get("opened", ()), items)
    yield from _check_faults(locked["checks"], content)
    yield from full_use.faults(locked)
    yield from slot_bytes.faults(locked)
    yield from _weight_faults(locked["weights"])
    yield from _environment_faults(locked)


def _source_faults(locked: Mapping[str, str]) -> Iterator[str]:
    """Check that all sources are below the packages, and that the packages without which nothing runs are
    there.
    """
    packages = {name.partition("/")[0] for name in locked}
    for foreign in sorted(name for name in locked if name.partition("/")[0] not in closure.PACKAGES):
        yield f"sources.{differences.format_value(foreign)}: lies below none of {', '.join(closure.PACKAGES)}"
    for package in REQUIRED_PACKAGES:
        if package not in packages:
            yield f"sources: has no file of {package}, without which nothing runs"


def read_fault(locked: Mapping[str, Any]) -> str | None:
    """Return the fault that keeps `checks` from being read at all."""
    return fields.find_fault(CHECKS_TABLE, locked["checks"], "checks")


def _setting_faults(policies: Mapping[str, Any], arms: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of an arm that differ from those that the lock has of its policy, as text."""
    for name, arm in arms.items():
        settings = arm.get("set", {})
        if not isinstance(settings, Mapping):
            location = f"arms.{differences.format_value(name)}.set"
            yield f"{location}: {differences.format_value(settings)} is no table of settings"
            continue
        locked, prefix = policies.get(name, {}), ""
        if (press := arm.get("press")) is not None:
            prefix = "press."
            settings = {"": str(press).removeprefix("kvpress:"), **settings}
        for path, value in settings.items():
            pinned_path = path.replace("protect.", "protect.inner.", 1)
            locked_values = [
                locked.get(f"{prefix}{setting_path}".removesuffix(".")) for setting_path in (path, pinned_path)
            ]
            is_press_name = prefix and f"kvpress.{value}()" in locked_values  # the press itself, or one inside it
            if not is_press_name and not any(
                isinstance(text, str) and _matches_setting(text, value) for text in locked_values
            ):
                location = (
                    f"policies.{differences.format_value(name)}.{prefix}{differences.format_value(path)}".removesuffix(
                        "."
                    )
                )
                locked_text = differences.format_value(locked_values[0])
                yield f"{location}: {locked_text}, where the arm sets {differences.format_value(value)}"


def _extra_prompt_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Check that the extra prompts of arms follow from the settings of their policies, if the decoding is a
    built-in one; for a plugin's only the installed plugin can tell.
    """
    extra_prompts, locked_policies = locked.get("asked", {}), locked.get("policies", {})
    if "asked" in locked and not extra_prompts:
        yield "asked: is about no arm; a lock of which no arm says anything has no such field"
    for arm in sorted(extra_prompts.keys() - locked_policies.keys()):
        yield f"asked.{differences.format_value(arm)}: is no arm whose settings are locked"
    expected = {}
    for arm, settings in locked_policies.items():
        kind, has_extra_prompt = settings.get("decoding"), settings.get("decoding.asked") == "True"
        if kind == STATE_LINES and has_extra_prompt:
            wording, line = (_parse_text(settings.get(f"decoding.{name}")) for name in ("wording", "line"))
            expected[arm] = wording.replace("{line}", line)
        elif kind not in (PLAIN_DECODING, STATE_LINES) and arm in extra_prompts:
            expected[arm] = extra_prompts[arm]
    locked_prompts = {arm: text for arm, text in extra_prompts.items() if arm in locked_policies}
    yield from differences.diff_values(locked_prompts, expected, "asked")


def _parse_text(locked: Any) -> str:
    """Return the value of a setting that is a text; empty for anything else."""
    try:
        value = ast.literal_eval(locked)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""
    return value if isinstance(value, str) else ""


def _matches_setting(text: str, setting: Any) -> bool:
    """Whether `text` is the Python literal of a setting: a number in any spelling, a list as a tuple."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    if isinstance(value, tuple) and isinstance(setting, list):
        return len(value) == len(setting) and all(
            _matches_setting(repr(item), setting_item) for item, setting_item in zip(value, setting, strict=True)
        )
    if type(value) in (int, float) and type(setting) in (int, str):
        try:
            return Decimal(repr(value)) == Decimal(setting)
        except InvalidOperation:
            return False
    return type(value) is type(setting) and bool(value == setting)


def _age_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    missing = [[name for name in age if name not in locked] for age in FIELDS_BY_AGE]
    for index, age in enumerate(FIELDS_BY_AGE):
        later_fields = [name for names in FIELDS_BY_AGE[index + 1 :] for name in names if name in locked]
        present = [name for name in age if name in locked]
        if missing[index] and (later_fields or present or is_todays_sources(locked)):
            yield f"{missing[index][0]}: missing, and a lock like this one has it"
    if is_todays_sources(locked) and (missing_checks := CHECK_FIELDS - locked["checks"].keys()):
        yield f"checks.{min(missing_checks)}: missing, and a lock like this one has it"
    if "opened" in locked and "first_event" not in locked.get("batch", {}):
        yield "batch.first_event: missing, and a lock like this one has it"


def unknown_age_fault(locked: Mapping[str, Any]) -> str | None:
    """Return what is undetermined for a lock without fields that today's locks have: whether the code that
    wrote it knew these fields. That is only known of older versions of this project. A fork may have been
    honest.
    """
    missing = [name for age in FIELDS_BY_AGE for name in age if name not in locked]
    missing += [f"checks.{name}" for name in sorted(CHECK_FIELDS - locked["checks"].keys())]
    if "first_event" not in locked.get("batch", {"first_event": None}):
        missing.append("batch.first_event")
    if not missing or known_versions.is_known_version(locked["sources"]):
        return None
    return (
        f"lock.json lacks {', '.join(missing)}, and its sources are no version that is known to have locked "
        "none; ask its author for a study that is locked anew, by a release of this package"
    )


def _git_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    if (git := locked.get("git")) is None:
        return
    if not git_history.COMMIT_ID.fullmatch(git["commit"]):
        yield f"git.commit: {differences.format_value(git['commit'])} is not the full id of a commit"
    for name in git["differs"]:
        if name not in locked["sources"]:
            yield f"git.differs: {differences.format_value(name)} is no locked source"


def _opened_faults(opened: Any, items: Mapping[str, Any]) -> Iterator[str]:
    for entry in opened:
        for task, problems in entry["problems"].items():
            held_out = set(items.get(task, {}).get("confirm", ()))
            location = f"opened.{differences.format_value(entry['name'])}.{task}"
            if unknown := [problem for problem in problems if problem not in held_out]:
                yield f"{location}: {differences.format_value(unknown[0])} is no held-out problem of this study"
            if len(set(problems)) < len(problems):
                yield f"{location}: has a problem twice"
        if (entry["lock"] is None) != (not entry["problems"]):
            yield f"opened.{differences.format_value(entry['name'])}: a lock and problems stand together"


def _check_faults(checks: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Check what the numbers and names of simulated results show by themselves."""
    for word, shares in checks.get("decision_errors", {}).items():
        if word in ("confirmed", "refuted") and not shares["low"] <= shares["share"] <= shares["high"]:
            yield f"checks.decision_errors.{word}: the share is not between its low and its high end"
    if (same_slots := checks.get("same_kept")) is not None:
        model_names = sorted(same_slots["on"])
        yield from differences.diff_values(model_names, sorted(content["models"]), "checks.same_kept.on")
        arm_names = {arm for pair in same_slots["pairs"] for arm in pair["arms"]} | set(same_slots["left_out"])
        for arm in sorted(arm_names - content["arms"].keys()):
            yield f"checks.same_kept: {differences.format_value(arm)} is no arm"


def _weight_faults(weights: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Check that each model has weights, a configuration and a tokenizer."""
    for model, names in weights.items():
        location = f"weights.{differences.format_value(model)}"
        for name in names:
            if not any(fnmatchcase(name, pattern) for pattern in sources.PATTERNS):
                yield f"{location}: {differences.format_value(name)} is no file that a model is read from"
        if not any(name.endswith(".safetensors") and not name.startswith(sources.CALIBRATED) for name in names):
            yield f"{location}: has no *.safetensors"
        if "config.json" not in names:
            yield f"{location}: has no config.json"
        if not any(name.startswith(TOKENIZER_PREFIXES) or name.endswith((".model", ".txt")) for name in names):
            yield f"{location}: has no file of a tokenizer"


def _environment_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    environment = locked["environment"]
    if fault := fields.find_fault(ENVIRONMENT_TABLE, environment, "environment"):
        yield fault
    if not environment["distributions"]:
        yield "environment.distributions: is empty, and nothing runs without torch"
    for name in ("library", "altered", "own"):
        if name not in environment and is_todays_sources(locked):
            yield f"environment.{name}: missing, and a lock like this one has it"
