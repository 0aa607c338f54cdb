"""The results of policies in registrations, read from locks, ledgers and verdicts; nothing is judged again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from analysis.hypotheses.declared import DECLARED
from analysis.output import headline
from analysis.rules import RULES, full_cache
from analysis.rules.rule import FULL
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.studies import plain_files
from analysis.studies.arms import runs, words
from analysis.studies.plain_files import RecordError
from analysis.studies.study_files import document

__all__ = ["FEW", "SLOTS", "Against", "Record", "Study", "canonical", "compared", "read", "studies"]

FEW = 200  # problems; below, a study screens ("Minimal-Intervention KV Retention", section 6)
COLLAPSE, WRONG = 0.44, 20  # of at least 20 wrong answers, the share without an answer that the paper reports
DEADLY = ("iso-cache underperformance", "proxy-to-runtime drift")
ENDED = {"withdraw": "withdrawn", "amended": "amended"}
SLOTS = "slots"  # the unit of memory if a decision does not name one
UNJUDGED, UNINFORMATIVE = "not judged yet", "uninformative"
Place: TypeAlias = tuple[str, str, str]  # model, task, budget


class Study(NamedTuple):
    """A registration, from its files without verification."""

    name: str
    when: str
    """Date of its verdict; without one, of the last line of its ledger."""
    title: str
    said: str
    """The verdict as it is printed; without one, the reason."""
    decides: bool
    """Whether its rule confirmed or refuted. A study that is a screening, uninformative, deviated, amended,
    withdrawn, inconclusive or a replication decides nothing.
    """
    order: str
    """The time by which studies are sorted."""
    judged: bool
    memory: str
    """The unit in which memory is matched: "slots", "bytes" or "total"."""
    replicates: str
    """The study whose problems it runs again; else empty."""


class Against(NamedTuple):
    """The registered contrasts of a policy with another one, from the policy's side. Better and worse are at
    the corrected level of the rule; if memory did not match, neither counts.
    """

    policy: str
    """The name with its changed settings, which make it another policy."""
    cells: int
    better: tuple[str, ...]
    """The model of each cell in which it is better."""
    worse: tuple[str, ...]
    unmatched: int
    problems: tuple[int, int]
    """In the smallest contrast and in the largest."""
    models: tuple[str, ...]


class Record(NamedTuple):
    """The result of a policy in a study."""

    policy: str
    arm: str
    """The policy with its changed settings; empty without any."""
    study: Study
    role: str
    against: tuple[Against, ...]
    notes: tuple[str, ...]
    """Notes with numbers: failure modes, and what the contrasts leave undetermined."""
    changed: bool = False
    """Whether it ran with a changed setting."""
    alike: tuple[str, ...] = ()
    """The policies, with changed settings, that retained the same slots when the study was locked."""

    @property
    def modes(self) -> list[str]:
        """The notes that say why a policy failed, by name."""
        named = (note.partition(": ")[0] for note in self.notes)
        return [mode for mode in named if mode in DEADLY]


class Seen(NamedTuple):
    """A contrast, from one of its two sides."""

    other: str
    row: Mapping[str, Any]
    sign: int  # of its difference, from this side

    @property
    def counts(self) -> bool:
        """Whether memory matched or, against the full cache, was saved."""
        return bool(self.row["matched"]) and self.row.get("saves") is not False

    @property
    def better(self) -> bool:
        return bool(self.row["better" if self.sign > 0 else "worse"])

    @property
    def worse(self) -> bool:
        return bool(self.row["worse" if self.sign > 0 else "better"])


def canonical(policy: str) -> str:
    """Return the first name of a policy that has two."""
    row = DECLARED.get(policy)
    return row.parent if row is not None and row.parent and not row.component else policy


def studies(folder: Path) -> list[Path]:
    """Return the locked registrations in FOLDER, by name."""
    return sorted(path.parent for path in folder.glob("*/lock.json"))


def read(folder: Path) -> list[Record]:
    """Read the results of each policy that a registration ran; presses and the full cache are left out.

    Raises RecordError for files that do not follow the documented format.
    """
    try:
        plain_files.refuse_other(folder)
        _, lock = document(folder / "lock.json")
        judged = _judged(folder)
        study = _study(folder, lock, judged)
        return list(_records(lock, study, judged, _development(folder)))
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise RecordError(
            f"{folder}: a file is not of the documented format ({type(problem).__name__}: {problem}); "
            f"run: kv-prereg audit {folder}"
        ) from None


def compared(records: Iterable[Record]) -> list[Record]:
    """Return the records with a registered contrast, oldest study first."""
    return sorted((one for one in records if one.against), key=lambda one: one.study.order)


def _judged(folder: Path) -> dict[str, Any] | None:
    if not (folder / "verdict.json").exists():
        return None
    _, verdict = document(folder / "verdict.json")
    own = hashlib.sha256(plain_files.read(folder / "verdict.json")).hexdigest()
    named = [act["body"]["sha256"] for act in _acts(folder / "ledger.jsonl") if act["event"] == "verdict"]
    if own not in named:
        raise RecordError(
            f"{folder}: verdict.json is not the one that ledger.jsonl names; run: kv-prereg audit {folder}"
        )
    return dict(verdict["judged"])


def _study(folder: Path, lock: Mapping[str, Any], judged: Mapping[str, Any] | None) -> Study:
    acts = _acts(folder / "ledger.jsonl")
    last = next((act for act in acts if act["event"] == "verdict"), acts[-1])
    when, title = str(last["time"]), str(lock["protocol"]["content"]["title"])
    ended = ENDED.get(acts[-1]["event"])
    memory = str(lock["protocol"]["content"]["decision"].get("memory", SLOTS))
    parent = str((lock.get("parent") or {"name": ""})["name"])
    if judged is None:
        return Study(folder.name, when[:10], title, ended or UNJUDGED, False, when, False, memory, parent)
    rule = RULES.get(judged["rule"])
    letters = () if rule is None else rule.words.letters(judged)
    fault = full_cache.fault(judged).partition(":")[0]
    said = headline.line(judged, fault, f" ({', '.join(letters)})" if letters else "")
    said += "" if ended is None else f", then {ended}"
    decides = judged["verdict"] in (CONFIRMED, REFUTED) and judged["label"] != UNINFORMATIVE
    decides = decides and ended is None and not parent
    return Study(folder.name, when[:10], title, said, decides, when, True, memory, parent)


def _acts(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a ledger, at least one."""
    try:
        lines = [dict(json.loads(line)) for line in plain_files.read(path).split(b"\n")[:-1]]
        return [lines[0], *lines[1:]]
    except (OSError, ValueError, TypeError, IndexError, RecursionError):
        raise RecordError(f"{path}: is no ledger; run: kv-prereg audit {path.parent}") from None


def _development(folder: Path) -> dict[Place, float]:
    """Return subject minus baseline on development problems for a sweep; empty without one."""
    if not (folder / "selection.json").exists():
        return {}
    _, selection = document(folder / "selection.json")
    chosen = selection["selected"]
    return {
        (one["model"], one["task"], one["budget"]): float(one["difference"])
        for one in chosen["cells"]
        if one["candidate"] == chosen["winner"]
    }


def _records(
    lock: Mapping[str, Any],
    study: Study,
    judged: Mapping[str, Any] | None,
    development: Mapping[Place, float],
) -> Iterator[Record]:
    """Yield a record for each arm. The winner of a sweep is the subject, under the name that contrasts use
    for it.
    """
    content = lock["protocol"]["content"]
    arms, sweep = dict(content["arms"]), content.get("sweep")
    chosen = (judged or {}).get("selected")
    if sweep is not None and chosen is not None:
        del arms[chosen["arm"]]
        arms[sweep["name"]] = {name: chosen[name] for name in ("policy", "press", "set") if name in chosen}
    label = {arm: words(spec) if spec.get("set") else canonical(runs(spec)) for arm, spec in arms.items()}
    candidate = {arm: chosen["arm"] if chosen and arm not in content["arms"] else arm for arm in arms}
    for arm, spec in arms.items():
        if "press" in spec or label[arm] == FULL:
            continue
        rows = [] if judged is None else list(_seen(arm, judged["contrasts"]))
        beside = [] if judged is None else list(_seen(arm, _beside(judged)))
        against = tuple(_against(label.get(other, other), of) for other, of in _by_other(rows).items())
        alike = tuple(label[other] for other in arms if _alike(lock, {candidate[arm], candidate[other]}))
        notes = list(_notes(arm, study, judged, rows, development)) if judged is not None and rows else []
        if rows:
            notes += _confounded(lock, candidate, arm, rows, label)
            notes += [f"kept the same slots as {other}: one experiment" for other in alike]
            notes += [f"the problems of {study.replicates} run again"] if study.replicates else []
        yield Record(
            canonical(runs(spec)),
            words(spec) if spec.get("set") else "",
            study,
            _role(arm, content, rows, beside),
            against,
            tuple(notes),
            bool(spec.get("set")),
            alike,
        )


def _alike(lock: Mapping[str, Any], arms: set[str]) -> bool:
    """Return whether two arms retained the same slots when the study was locked."""
    found = (lock.get("checks") or {}).get("same_kept") or {"pairs": []}
    return len(arms) > 1 and any({*pair["arms"]} == arms for pair in found["pairs"])


def _confounded(
    lock: Mapping[str, Any],
    candidate: Mapping[str, str],
    arm: str,
    rows: Iterable[Seen],
    label: Mapping[str, str],
) -> Iterator[str]:
    """Yield a note on opponents whose prompt differed: the difference is not due to the caches alone."""
    asked: Mapping[str, str] = lock.get("asked", {})
    own = asked.get(candidate.get(arm, arm), "")
    others = [one for one in _by_other(rows) if asked.get(candidate.get(one, one), "") != own]
    if others:
        yield f"asked something else than {_and(label.get(other, other) for other in others)}"


def _role(arm: str, content: Mapping[str, Any], rows: list[Seen], beside: list[Seen]) -> str:
    if rows:
        return "subject" if arm == content["decision"]["subject"] else "comparator"
    if beside:
        return "beside the rule"
    sweep = content.get("sweep")
    return "a candidate of the sweep" if sweep and arm in sweep["candidates"] else "in no contrast"


def _seen(arm: str, contrasts: Iterable[Mapping[str, Any]]) -> Iterator[Seen]:
    for row in contrasts:
        if arm == row["subject"]:
            yield Seen(row["against"], row, 1)
        elif arm == row["against"]:
            yield Seen(row["subject"], row, -1)


def _beside(judged: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    beside = judged.get("beside")
    return [] if beside is None else [*beside["contrasts"], *beside["auxiliary"]]


def _by_other(rows: Iterable[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for one in rows:
        found.setdefault(one.other, []).append(one)
    return found


def _against(policy: str, rows: list[Seen]) -> Against:
    sizes = [one.row["n"] for one in rows]
    told = [one for one in rows if one.counts]
    return Against(
        policy,
        len(rows),
        tuple(one.row["model"] for one in told if one.better),
        tuple(one.row["model"] for one in told if one.worse),
        len(rows) - len(told),
        (min(sizes), max(sizes)),
        tuple(dict.fromkeys(one.row["model"] for one in rows)),
    )


def _notes(
    arm: str,
    study: Study,
    judged: Mapping[str, Any],
    rows: list[Seen],
    development: Mapping[Place, float],
) -> Iterator[str]:
    """Yield the failure modes of section 3.2 as far as a judgement shows them.

    If the full cache is the only opponent of an arm, memory is unequal on purpose.
    """
    told = [one for one in rows if one.counts and one.other != FULL]
    if (lost := sum(one.worse for one in told)) and study.decides:
        yield f"iso-cache underperformance: worse at matched memory in {lost} of {len(rows)} cells"
    if (few := headline.fewest([one.row for one in rows]))[0] < FEW:
        yield f"n = 50 instability: {few[1]} screens"
    if drifted := list(_drifted(rows, development)):
        yield (
            f"proxy-to-runtime drift: the sign on development problems turned in {len(drifted)} of "
            f"{len(development)} cells"
        )
    models = dict.fromkeys(one.row["model"] for one in rows)
    if len(models) == 1:
        yield f"cross-model transfer failure cannot be told: {next(iter(models))} alone"
    for other, of in _by_other(told).items():
        better = {one.row["model"] for one in of if one.better}
        worse = {one.row["model"] for one in of if one.worse}
        if better and worse and not better & worse:
            yield (
                f"cross-model transfer failure: better than {other} on {_and(sorted(better))}, worse on "
                f"{_and(sorted(worse))}"
            )
    if collapsed := list(_collapsed(arm, judged)):
        yield f"extraction collapse (a caveat) at {', '.join(dict.fromkeys(collapsed))}"


def _drifted(rows: Iterable[Seen], development: Mapping[Place, float]) -> Iterator[Place]:
    for one in rows:
        place = one.row["model"], one.row["task"], one.row["budget"]
        held = one.row["difference"]
        if one.sign > 0 and held is not None and development.get(place, 0.0) * float(held) < 0:
            yield place


def _collapsed(arm: str, judged: Mapping[str, Any]) -> Iterator[str]:
    """Yield the budgets at which 44 % or more of at least 20 wrong answers of the arm are no answer at all.
    """
    seeds = judged["contrasts"][0]["seeds"]
    if any("scored" in one for one in judged["contrasts"]):
        return
    for one in judged["arms"]:
        if one["arm"] == arm and one["accuracy"] is not None:
            wrong = one["n"] * seeds * (1 - float(one["accuracy"]))
            if wrong >= WRONG and one["no_answer"] / wrong >= COLLAPSE:
                yield one["budget"]


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
