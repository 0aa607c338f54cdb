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
from protocol.acts.locking import known_code
from protocol.evidence.bytes import fields
from protocol.evidence.bytes.fields import Choice, Field, ListOf, MapOf, Table, Text, Whole
from protocol.evidence.lock import closure
from protocol.evidence.outside import history
from protocol.evidence.run import ledger
from protocol.locked import differences, drift
from protocol.models import sources
from protocol.plan import full_use, slot_bytes

__all__ = ["MAKERS", "as_today", "faults", "is_name", "unheard_of", "unknown_age", "unreadable"]

AGES = (("batch",), ("policies", "amends", "git", "signer", "ledger"), ("opened",))
"""Fields that were added to locks on the same day, oldest first: a lock with later ones has the earlier
ones.
"""
CHECKED = {"corrected_alpha", "problems", "tests", "rule", "decision_errors", "same_kept"}
OF_A_SIZE = {"type_one_over_nominal", "type_one_setting", "minimal_detectable_effect"}
SURROUNDINGS = Table(
    {
        **{name: Field(Text(), name) for name in ("python", "implementation", "system", "machine")},
        "torch": Field(
            Table(
                {name: Field(Text(), name) for name in ("build", "cpu", "device", "version")}
                | {"threads": Field(Whole(1), "threads")}
            ),
            "How it was built and run.",
        ),
    },
    others=True,
)
"""The fields of the environment that locks of all ages have."""
NEEDED = ("policies", "protocol", "splits", "analysis")  # older locks do not contain figures
PLAIN, STATE_LINES = "policies.decoding.Plain()", "policies.decoding.StateLines()"
SIGNER = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}")
NAME = re.compile(r"[^/\\\0]+")
TOKENIZER = ("tokenizer", "vocab")
EARLIER = "a lock of before it was found"
SHARE = Text(r"[01]\.\d{6}", "a share with six digits")
WORDS = MapOf(Choice(CONFIRMED, REFUTED, INCONCLUSIVE))
SHARES = Table({name: Field(SHARE, name) for name in ("low", "share", "high")})
SIZE = Table(
    {
        "type_one_over_nominal": Field(Text(r"\d+\.\d{3}"), "Of the method at this size."),
        "minimal_detectable_effect": Field(MapOf(Text(r"none|0\.\d{3}|1\.000")), "By discordance."),
    },
    others=True,
)
CHECKS = Table(
    {
        "tests": Field(Whole(1), "Of the family."),
        "corrected_alpha": Field(SHARE, "Of each."),
        "problems": Field(MapOf(SIZE), "By number of problems, or of clusters of a task that has some."),
        "scored": Field(ListOf(Text(), 1), "Tasks.", without="no answer has a score"),
        "rule": Field(
            Table({name: Field(WORDS, name) for name in ("verdicts", "gates")}), "Tried.", without=EARLIER
        ),
        "decision_errors": Field(
            Table({word: Field(SHARES, word) for word in ("confirmed", "refuted")}, others=True),
            "Where nothing differs.",
            without=EARLIER,
        ),
        "same_kept": Field(
            Table(
                {
                    "pairs": Field(
                        ListOf(Table({"arms": Field(ListOf(Text(), 2), "Two.")}, others=True)), ""
                    ),
                    "on": Field(MapOf(Text()), "What ran for each model."),
                    "left_out": Field(ListOf(Text()), "Arms."),
                }
            ),
            "Arms that are alike.",
            without=EARLIER,
        ),
    },
    others=True,
)
"""The results of the checks before registering, in the form that locks of all ages share."""
MAKERS = (
    "protocol/acts/register.py",
    "protocol/acts/locking/derived.py",
    "protocol/acts/locking/rule_checks.py",
)
"""The files that determine which fields a lock has."""


def as_today(locked: Mapping[str, Any], names: tuple[str, ...] = MAKERS) -> bool:
    """Whether these locked sources are today's, byte for byte."""
    paths = {name: drift.ROOT / name for name in names}
    return all(
        path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == locked["sources"].get(name)
        for name, path in paths.items()
    )


def unheard_of(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message for each field of `checks` that today's code does not write."""
    found = locked["checks"]
    for name in sorted(found.keys() - CHECKED - {"golds", "scored"}):
        yield f"checks.{differences.shown(name)}: is no field of a lock"
    for size, one in found["problems"].items():
        at = f"checks.problems.{differences.shown(size)}"
        for name in sorted(one.keys() - OF_A_SIZE):
            yield f"{at}.{differences.shown(name)}: is no field of a lock"


def is_name(text: str) -> bool:
    """Whether a folder can have this name."""
    return NAME.fullmatch(text) is not None and text not in (".", "..")


def faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message for each field that registering cannot have written this way."""
    yield from _ages(locked)
    content, items = locked["protocol"]["content"], locked["items"]
    if "ledger" in locked:
        yield from differences.between(locked["ledger"], dict(ledger.at([])), "ledger")
    if "policies" in locked:
        yield from differences.between(sorted(locked["policies"]), sorted(content["arms"]), "policies")
    yield from _settings(locked.get("policies", {}), content["arms"])
    yield from _asked(locked)
    if locked["parent"] is not None and locked.get("amends") is not None:
        yield "amends: a replication amends nothing"
    for field in ("parent", "amends"):
        about = locked.get(field)
        if about is not None and not is_name(about["name"]):
            yield f"{field}.name: {differences.shown(about['name'])} is not the name of a folder"
    yield from _sources(locked["sources"])
    yield from _git(locked)
    if (signer := locked.get("signer")) is not None and not SIGNER.fullmatch(signer):
        yield f"signer: {differences.shown(signer)} is not a public key"
    yield from _opened(locked.get("opened", ()), items)
    yield from _checks(locked["checks"], content)
    yield from full_use.faults(locked)
    yield from slot_bytes.faults(locked)
    yield from _weights(locked["weights"])
    yield from _environment(locked)


def _sources(locked: Mapping[str, str]) -> Iterator[str]:
    """Check that all sources are below the packages, and that the packages without which nothing runs are
    there.
    """
    packages = {name.partition("/")[0] for name in locked}
    for outside in sorted(name for name in locked if name.partition("/")[0] not in closure.PACKAGES):
        yield f"sources.{differences.shown(outside)}: lies below none of {', '.join(closure.PACKAGES)}"
    for package in NEEDED:
        if package not in packages:
            yield f"sources: has no file of {package}, without which nothing runs"


def unreadable(locked: Mapping[str, Any]) -> str | None:
    """Return the fault that keeps `checks` from being read at all."""
    return fields.fault(CHECKS, locked["checks"], "checks")


def _settings(policies: Mapping[str, Any], arms: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of an arm that differ from those that the lock has of its policy, as text."""
    for name, arm in arms.items():
        own = arm.get("set", {})
        if not isinstance(own, Mapping):
            yield f"arms.{differences.shown(name)}.set: {differences.shown(own)} is no table of settings"
            continue
        locked, above = policies.get(name, {}), ""
        if (press := arm.get("press")) is not None:
            above = "press."
            own = {"": str(press).removeprefix("kvpress:"), **own}
        for path, given in own.items():
            pinned = path.replace("protect.", "protect.inner.", 1)
            held = [locked.get(f"{above}{place}".removesuffix(".")) for place in (path, pinned)]
            names = above and f"kvpress.{given}()" in held  # the press itself, or one inside it
            if not names and not any(isinstance(text, str) and _says(text, given) for text in held):
                at = f"policies.{differences.shown(name)}.{above}{differences.shown(path)}".removesuffix(".")
                yield f"{at}: {differences.shown(held[0])}, where the arm sets {differences.shown(given)}"


def _asked(locked: Mapping[str, Any]) -> Iterator[str]:
    """Check that the extra prompts of arms follow from the settings of their policies, if the decoding is a
    built-in one; for a plugin's only the installed plugin can tell.
    """
    asked, known = locked.get("asked", {}), locked.get("policies", {})
    if "asked" in locked and not asked:
        yield "asked: is about no arm; a lock of which no arm says anything has no such field"
    for arm in sorted(asked.keys() - known.keys()):
        yield f"asked.{differences.shown(arm)}: is no arm whose settings are locked"
    due = {}
    for arm, settings in known.items():
        kind, asks = settings.get("decoding"), settings.get("decoding.asked") == "True"
        if kind == STATE_LINES and asks:
            wording, line = (_text(settings.get(f"decoding.{name}")) for name in ("wording", "line"))
            due[arm] = wording.replace("{line}", line)
        elif kind not in (PLAIN, STATE_LINES) and arm in asked:
            due[arm] = asked[arm]
    held = {arm: text for arm, text in asked.items() if arm in known}
    yield from differences.between(held, due, "asked")


def _text(locked: Any) -> str:
    """Return the value of a setting that is a text; empty for anything else."""
    try:
        held = ast.literal_eval(locked)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""
    return held if isinstance(held, str) else ""


def _says(text: str, given: Any) -> bool:
    """Whether `text` is the Python literal of a setting: a number in any spelling, a list as a tuple."""
    try:
        held = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    if isinstance(held, tuple) and isinstance(given, list):
        return len(held) == len(given) and all(
            _says(repr(one), two) for one, two in zip(held, given, strict=True)
        )
    if type(held) in (int, float) and type(given) in (int, str):
        try:
            return Decimal(repr(held)) == Decimal(given)
        except InvalidOperation:
            return False
    return type(held) is type(given) and bool(held == given)


def _ages(locked: Mapping[str, Any]) -> Iterator[str]:
    missing = [[name for name in age if name not in locked] for age in AGES]
    for place, age in enumerate(AGES):
        later = [name for names in AGES[place + 1 :] for name in names if name in locked]
        beside = [name for name in age if name in locked]
        if missing[place] and (later or beside or as_today(locked)):
            yield f"{missing[place][0]}: missing, and a lock like this one has it"
    if as_today(locked) and (gone := CHECKED - locked["checks"].keys()):
        yield f"checks.{min(gone)}: missing, and a lock like this one has it"
    if "opened" in locked and "first_event" not in locked.get("batch", {}):
        yield "batch.first_event: missing, and a lock like this one has it"


def unknown_age(locked: Mapping[str, Any]) -> str | None:
    """Return what is undetermined for a lock without fields that today's locks have: whether the code that
    wrote it knew these fields. That is only known of older versions of this project. A fork may have been
    honest.
    """
    missing = [name for age in AGES for name in age if name not in locked]
    missing += [f"checks.{name}" for name in sorted(CHECKED - locked["checks"].keys())]
    if "first_event" not in locked.get("batch", {"first_event": None}):
        missing.append("batch.first_event")
    if not missing or known_code.known(locked["sources"]):
        return None
    return (
        f"lock.json lacks {', '.join(missing)}, and its sources are no version that is known to have locked "
        "none; ask its author for a study that is locked anew, by a release of this package"
    )


def _git(locked: Mapping[str, Any]) -> Iterator[str]:
    if (git := locked.get("git")) is None:
        return
    if not history.COMMIT.fullmatch(git["commit"]):
        yield f"git.commit: {differences.shown(git['commit'])} is not the full id of a commit"
    for name in git["differs"]:
        if name not in locked["sources"]:
            yield f"git.differs: {differences.shown(name)} is no locked source"


def _opened(opened: Any, items: Mapping[str, Any]) -> Iterator[str]:
    for one in opened:
        for task, problems in one["problems"].items():
            held = set(items.get(task, {}).get("confirm", ()))
            at = f"opened.{differences.shown(one['name'])}.{task}"
            if strange := [problem for problem in problems if problem not in held]:
                yield f"{at}: {differences.shown(strange[0])} is no held-out problem of this study"
            if len(set(problems)) < len(problems):
                yield f"{at}: has a problem twice"
        if (one["lock"] is None) != (not one["problems"]):
            yield f"opened.{differences.shown(one['name'])}: a lock and problems stand together"


def _checks(checks: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Check what the numbers and names of simulated results show by themselves."""
    for word, shares in checks.get("decision_errors", {}).items():
        if word in ("confirmed", "refuted") and not shares["low"] <= shares["share"] <= shares["high"]:
            yield f"checks.decision_errors.{word}: the share is not between its low and its high end"
    if (alike := checks.get("same_kept")) is not None:
        on = sorted(alike["on"])
        yield from differences.between(on, sorted(content["models"]), "checks.same_kept.on")
        named = {arm for pair in alike["pairs"] for arm in pair["arms"]} | set(alike["left_out"])
        for arm in sorted(named - content["arms"].keys()):
            yield f"checks.same_kept: {differences.shown(arm)} is no arm"


def _weights(weights: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Check that each model has weights, a configuration and a tokenizer."""
    for model, names in weights.items():
        at = f"weights.{differences.shown(model)}"
        for name in names:
            if not any(fnmatchcase(name, pattern) for pattern in sources.PATTERNS):
                yield f"{at}: {differences.shown(name)} is no file that a model is read from"
        if not any(
            name.endswith(".safetensors") and not name.startswith(sources.CALIBRATED) for name in names
        ):
            yield f"{at}: has no *.safetensors"
        if "config.json" not in names:
            yield f"{at}: has no config.json"
        if not any(name.startswith(TOKENIZER) or name.endswith((".model", ".txt")) for name in names):
            yield f"{at}: has no file of a tokenizer"


def _environment(locked: Mapping[str, Any]) -> Iterator[str]:
    found = locked["environment"]
    if unlike := fields.fault(SURROUNDINGS, found, "environment"):
        yield unlike
    if not found["distributions"]:
        yield "environment.distributions: is empty, and nothing runs without torch"
    for name in ("library", "altered", "own"):
        if name not in found and as_today(locked):
            yield f"environment.{name}: missing, and a lock like this one has it"
