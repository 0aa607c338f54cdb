"""What the observed fields of a lock show by themselves: nobody can have registered such values.

What follows from the design is derived (`derive_lock`); the form of each value is declared (`lock.FIELDS`).
Needs no torch.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from protocol.formats.citations import CITES, FIELD
from protocol.lock import closure
from protocol.models import sources
from protocol.workspace import differences

REQUIRED_PACKAGES = ("policies", "protocol", "splits", "analysis")
TOKENIZER_PREFIXES = ("tokenizer", "vocab")


def find_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message for each value that registering cannot have written."""
    if locked["parent"] is not None and locked["amends"] is not None:
        yield "amends: a replication cannot also be an amendment"
    if (locked["parent"] or {}).get("selection") and "sweep" not in locked["protocol"]["content"]:
        yield "parent.selection: is present, but no sweep is registered"
    yield from _source_faults(locked["sources"])
    for name in (locked["git"] or {"differs": ()})["differs"]:
        if name not in locked["sources"]:
            yield f"git.differs: {differences.format_value(name)} is not a locked source"
    yield from _opened_faults(locked["opened"], locked["items"])
    cited = {arm: entry["name"] for arm, entry in locked.get(CITES, {}).items()}
    yield from differences.diff_values(cited, locked["protocol"]["content"].get(FIELD, {}), CITES)
    yield from _check_faults(locked["checks"], locked["protocol"]["content"])
    yield from _full_use_faults(locked)
    yield from _weight_faults(locked["weights"], locked["sources"])
    if not locked["environment"]["distributions"]:
        yield "environment.distributions: is empty, although nothing runs without torch"
    if any(not text for text in locked["asked"].values()):
        yield "asked: has an empty text; an arm without an extra prompt must have no entry"


def _source_faults(locked: Mapping[str, str]) -> Iterator[str]:
    """Check that all sources are below the packages, and that the packages without which nothing runs are there."""
    packages = {name.partition("/")[0] for name in locked}
    for foreign in sorted(name for name in locked if name.partition("/")[0] not in closure.PACKAGES):
        yield f"sources.{differences.format_value(foreign)}: is in none of the packages {', '.join(closure.PACKAGES)}"
    for package in REQUIRED_PACKAGES:
        if package not in packages:
            yield f"sources: has no file of {package}, which every run needs"


def _opened_faults(opened: Any, items: Mapping[str, Any]) -> Iterator[str]:
    for entry in opened:
        for task, problems in entry["problems"].items():
            held_out = set(items.get(task, {}).get("confirm", ()))
            location = f"opened.{differences.format_value(entry['name'])}.{task}"
            if unknown := [problem for problem in problems if problem not in held_out]:
                yield f"{location}: {differences.format_value(unknown[0])} is not a held-out problem of this study"
            if len(set(problems)) < len(problems):
                yield f"{location}: has a problem twice"
        if (entry["lock"] is None) != (not entry["problems"]):
            yield f"opened.{differences.format_value(entry['name'])}: must have both a lock and problems, or neither"


def _check_faults(checks: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Check what the numbers and names of simulated results show by themselves."""
    for word in ("confirmed", "refuted") if checks["decision_errors"] else ():
        shares = checks["decision_errors"][word]
        if not shares["low"] <= shares["share"] <= shares["high"]:
            yield f"checks.decision_errors.{word}: the share is not between its low and its high end"
    if (same_slots := checks["same_kept"]) is not None:
        model_names = sorted(same_slots["on"])
        yield from differences.diff_values(model_names, sorted(content["models"]), "checks.same_kept.on")
        arm_names = {arm for pair in same_slots["pairs"] for arm in pair["arms"]} | set(same_slots["left_out"])
        for arm in sorted(arm_names - content["arms"].keys()):
            yield f"checks.same_kept: {differences.format_value(arm)} is not an arm"


def _full_use_faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Check that the full cache was measured on development problems, on all of them if none was excluded."""
    for model, tasks in locked["full_use"].items():
        for task, entry in tasks.items():
            measured, dev = entry["held"].keys(), set(locked["items"].get(task, {}).get("dev", ()))
            location = f"full_use.{model!a}.{task!a}.held"
            if measured - dev:
                yield f"{location}: {min(measured - dev)!a} is not a development problem"
            elif measured != dev and "exclude" not in locked["protocol"]["content"]:
                yield f"{location}: has {len(measured)} of {len(dev)} development problems, although none was excluded"


def _weight_faults(weights: Mapping[str, Mapping[str, str]], bundled: Mapping[str, str]) -> Iterator[str]:
    """Check that each model has weights, a configuration and a tokenizer, and of an embedded one those of the bundle.

    bundled: the field `sources`.
    """
    for model, names in weights.items():
        location = f"weights.{differences.format_value(model)}"
        for name, digest in names.items():
            source = bundled.get(f"protocol/embedded/{model}/{name}", digest)
            if source != digest:
                yield f"{location}: {differences.format_value(name)} differs from the file in the bundle"
            if not any(fnmatchcase(name, pattern) for pattern in sources.PATTERNS):
                yield f"{location}: {differences.format_value(name)} is not a file from which a model is read"
        if not any(name.endswith(".safetensors") and not name.startswith(sources.CALIBRATED) for name in names):
            yield f"{location}: has no *.safetensors"
        if "config.json" not in names:
            yield f"{location}: has no config.json"
        if not any(name.startswith(TOKENIZER_PREFIXES) or name.endswith((".model", ".txt")) for name in names):
            yield f"{location}: has no tokenizer file"
