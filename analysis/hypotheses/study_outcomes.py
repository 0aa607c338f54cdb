"""The results of policies in registrations, read from locks, ledgers and verdicts; nothing is judged again."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from analysis.hypotheses.policy_hypotheses import HYPOTHESES
from analysis.judgement import untrusted_files
from analysis.judgement.arm_text import describe_arm, policy_name
from analysis.judgement.outside_runs import is_outside
from analysis.judgement.study_files import read_development_differences, read_document, read_ledger
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import RULES, full_cache_gate, verdict_line
from analysis.rules.sentences import uninformative_rows
from analysis.rules.verdicts import CONFIRMED, REFUTED
from protocol.formats.vocabulary import FULL

FEW = 200  # problems; below, a study screens ("Minimal-Intervention KV Retention", section 6)
COLLAPSE, WRONG = 0.44, 20  # of at least 20 wrong answers, the share without an answer that the paper reports
DEADLY = ("iso-cache underperformance", "proxy-to-runtime drift")
ENDED = {"withdraw": "withdrawn", "amended": "amended"}
SLOTS = "slots"  # the unit of memory if a decision does not name one
UNJUDGED, UNINFORMATIVE = "not judged yet", "uninformative"
CellKey: TypeAlias = tuple[str, str, str]  # model, task, budget


class Study(NamedTuple):
    """A registration, from its files without verification."""

    name: str
    date: str
    """Date of its verdict; without one, of the last line of its ledger."""
    title: str
    verdict_text: str
    """The verdict as it is printed; without one, the reason."""
    decides: bool
    """Whether its rule confirmed or refuted. A study that is a screening, uninformative, deviated, amended,
    withdrawn, inconclusive or a replication decides nothing.
    """
    order: str
    """The time by which studies are sorted."""
    judged: bool
    memory: str
    """The unit in which memory is matched: "slots", "bytes", "total" or "reads"."""
    replicates: str
    """The study whose problems it runs again; else empty."""


class Comparison(NamedTuple):
    """The registered contrasts of a policy with another one, from the policy's side. Better and worse are at
    the corrected level of the rule; if memory did not match, or a contrast is below the floor, neither counts.
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


class PolicyRecord(NamedTuple):
    """The result of a policy in a study."""

    policy: str
    arm: str
    """The policy with its changed settings; empty without any."""
    study: Study
    role: str
    comparisons: tuple[Comparison, ...]
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


class Contrast(NamedTuple):
    """A contrast, from one of its two sides."""

    other: str
    row: Mapping[str, Any]
    sign: int  # of its difference, from this side

    @property
    def is_fair(self) -> bool:
        """Whether memory matched or, against the full cache, was saved."""
        return bool(self.row["matched"]) and self.row.get("saves") is not False

    @property
    def counts(self) -> bool:
        """Whether it says anything about the policies: memory is fair, and the contrast is above the floor."""
        return self.is_fair and not uninformative_rows([self.row])

    @property
    def better(self) -> bool:
        return bool(self.row["better" if self.sign > 0 else "worse"])

    @property
    def worse(self) -> bool:
        return bool(self.row["worse" if self.sign > 0 else "better"])


def canonical_name(policy: str) -> str:
    """Return the first name of a policy that has two."""
    row = HYPOTHESES.get(policy)
    return row.parent if row is not None and row.parent and not row.component else policy


def list_registrations(folder: Path) -> list[Path]:
    """Return the locked registrations in FOLDER, by name."""
    return sorted(path.parent for path in folder.glob("*/lock.json"))


def read_records(folder: Path) -> list[PolicyRecord]:
    """Read the results of each policy that a registration ran, without presses, other harnesses and the full cache.

    Raises RecordError for files that do not follow the documented format.
    """
    with untrusted_files.refuse_wrong_shape(folder):
        untrusted_files.refuse_special_files(folder)
        _, lock = read_document(folder / "lock.json")
        judged = _read_judgement(folder)
        study = _read_study(folder, lock, judged)
        if is_outside(lock):
            return []
        development = read_development_differences(folder) if (folder / "selection.json").exists() else {}
        return list(_policy_records(lock, study, judged, development))


def select_compared(records: Iterable[PolicyRecord]) -> list[PolicyRecord]:
    """Return the records with a registered contrast, oldest study first."""
    return sorted((record for record in records if record.comparisons), key=lambda record: record.study.order)


def _read_judgement(folder: Path) -> dict[str, Any] | None:
    if not (folder / "verdict.json").exists():
        return None
    _, verdict = read_document(folder / "verdict.json")
    digest = hashlib.sha256(untrusted_files.read_bytes(folder / "verdict.json")).hexdigest()
    recorded = [entry["body"]["sha256"] for entry in read_ledger(folder) if entry["event"] == "verdict"]
    if digest not in recorded:
        raise RecordError(
            f"{folder}: verdict.json differs from the one that ledger.jsonl names; run: kv-prereg audit {folder}"
        )
    return dict(verdict["judged"])


def _read_study(folder: Path, lock: Mapping[str, Any], judged: Mapping[str, Any] | None) -> Study:
    entries = read_ledger(folder)
    last = next((entry for entry in entries if entry["event"] == "verdict"), entries[-1])
    time, title = str(last["time"]), str(lock["protocol"]["content"]["title"])
    ended = ENDED.get(entries[-1]["event"])
    memory = str(lock["protocol"]["content"]["decision"].get("memory", SLOTS))
    cited = lock.get("parent") or {"name": ""}
    parent = "" if cited.get("fresh") else str(cited["name"])  # a fresh replication is a study of its own
    if judged is None:
        return Study(folder.name, time[:10], title, ended or UNJUDGED, False, time, False, memory, parent)
    rule = RULES.get(judged["rule"])
    letters = () if rule is None else rule.text.letters(judged)
    fault = full_cache_gate.describe_failure(judged).partition(":")[0]
    verdict_text = verdict_line.format_line(judged, fault, f" ({', '.join(letters)})" if letters else "")
    verdict_text += "" if ended is None else f", then {ended}"
    decides = judged["verdict"] in (CONFIRMED, REFUTED) and judged["label"] != UNINFORMATIVE
    decides = decides and ended is None and not parent
    return Study(folder.name, time[:10], title, verdict_text, decides, time, True, memory, parent)


def _policy_records(
    lock: Mapping[str, Any], study: Study, judged: Mapping[str, Any] | None, development: Mapping[CellKey, float]
) -> Iterator[PolicyRecord]:
    """Yield a record for each arm. The winner of a sweep is the subject, under the name that contrasts use for it."""
    content = lock["protocol"]["content"]
    arms, sweep = dict(content["arms"]), content.get("sweep")
    chosen = (judged or {}).get("selected")
    if sweep is not None and chosen is not None:
        del arms[chosen["arm"]]
        arms[sweep["name"]] = {name: chosen[name] for name in ("policy", "press", "set") if name in chosen}
    label = {
        arm: describe_arm(spec) if spec.get("set") else canonical_name(policy_name(spec)) for arm, spec in arms.items()
    }
    candidate = {arm: chosen["arm"] if chosen and arm not in content["arms"] else arm for arm in arms}
    for arm, spec in arms.items():
        if "press" in spec or label[arm] == FULL:
            continue
        contrasts = [] if judged is None else list(_contrasts_of(arm, judged["contrasts"]))
        outside_rule = [] if judged is None else list(_contrasts_of(arm, _outside_rule(judged)))
        comparisons = tuple(
            _summarise_comparison(label.get(other, other), group)
            for other, group in _group_by_opponent(contrasts).items()
        )
        alike = tuple(label[other] for other in arms if _has_same_slots(lock, {candidate[arm], candidate[other]}))
        notes: list[str] = []
        if judged is not None and contrasts:
            notes += _failure_notes(arm, study, judged, contrasts, development)
            notes += _prompt_notes(lock, candidate, arm, contrasts, label)
            notes += [f"kept the same slots as {other}, so that the two are one experiment" for other in alike]
            notes += [f"a reproduction on the problems of {study.replicates}"] if study.replicates else []
        yield PolicyRecord(
            canonical_name(policy_name(spec)),
            describe_arm(spec) if spec.get("set") else "",
            study,
            _describe_role(arm, content, contrasts, outside_rule),
            comparisons,
            tuple(notes),
            bool(spec.get("set")),
            alike,
        )


def _has_same_slots(lock: Mapping[str, Any], arms: set[str]) -> bool:
    """Return whether two arms retained the same slots when the study was locked."""
    check = (lock.get("checks") or {}).get("same_kept") or {"pairs": []}
    return len(arms) > 1 and any({*pair["arms"]} == arms for pair in check["pairs"])


def _prompt_notes(
    lock: Mapping[str, Any],
    candidate: Mapping[str, str],
    arm: str,
    contrasts: Iterable[Contrast],
    label: Mapping[str, str],
) -> Iterator[str]:
    """Yield a note on opponents whose prompt differed: the difference is not due to the caches alone."""
    prompts: Mapping[str, str] = lock.get("asked", {})
    prompt = prompts.get(candidate.get(arm, arm), "")
    others = [
        opponent
        for opponent in _group_by_opponent(contrasts)
        if prompts.get(candidate.get(opponent, opponent), "") != prompt
    ]
    if others:
        yield f"had a different prompt than {_join_names(label.get(other, other) for other in others)}"


def _describe_role(
    arm: str, content: Mapping[str, Any], contrasts: list[Contrast], outside_rule: list[Contrast]
) -> str:
    if contrasts:
        return "subject" if arm == content["decision"]["subject"] else "comparator"
    if outside_rule:
        return "outside the rule"
    sweep = content.get("sweep")
    return "candidate of the sweep" if sweep and arm in sweep["candidates"] else "in no contrast"


def _contrasts_of(arm: str, contrasts: Iterable[Mapping[str, Any]]) -> Iterator[Contrast]:
    for row in contrasts:
        if arm == row["subject"]:
            yield Contrast(row["against"], row, 1)
        elif arm == row["against"]:
            yield Contrast(row["subject"], row, -1)


def _outside_rule(judged: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    section = judged.get("beside")
    return [] if section is None else [*section["contrasts"], *section["auxiliary"]]


def _group_by_opponent(contrasts: Iterable[Contrast]) -> dict[str, list[Contrast]]:
    groups: dict[str, list[Contrast]] = {}
    for contrast in contrasts:
        groups.setdefault(contrast.other, []).append(contrast)
    return groups


def _summarise_comparison(policy: str, contrasts: list[Contrast]) -> Comparison:
    sizes = [contrast.row["n"] for contrast in contrasts]
    valid = [contrast for contrast in contrasts if contrast.counts]
    return Comparison(
        policy,
        len(contrasts),
        tuple(contrast.row["model"] for contrast in valid if contrast.better),
        tuple(contrast.row["model"] for contrast in valid if contrast.worse),
        sum(not contrast.is_fair for contrast in contrasts),
        (min(sizes), max(sizes)),
        tuple(dict.fromkeys(contrast.row["model"] for contrast in contrasts)),
    )


def _failure_notes(
    arm: str, study: Study, judged: Mapping[str, Any], contrasts: list[Contrast], development: Mapping[CellKey, float]
) -> Iterator[str]:
    """Yield the failure modes of section 3.2 as far as a judgement shows them.

    If the full cache is the only opponent of an arm, memory is unequal on purpose.
    """
    valid = [contrast for contrast in contrasts if contrast.counts and contrast.other != FULL]
    if (lost := sum(contrast.worse for contrast in valid)) and study.decides:
        yield f"iso-cache underperformance: worse at matched memory in {lost} of {len(contrasts)} cells"
    if below := len(uninformative_rows(contrast.row for contrast in contrasts)):
        yield f"below the floor in {below} of {len(contrasts)} cells: nothing is shown in these"
    if (few := verdict_line.smallest_contrast([contrast.row for contrast in contrasts]))[0] < FEW:
        yield f"n = 50 instability: {few[1]} is only a screening"
    if drifted := list(_drifted_cells(contrasts, development)):
        yield (
            "proxy-to-runtime drift: the sign on development problems was reversed on held-out ones in "
            f"{len(drifted)} of {len(development)} cells"
        )
    models = dict.fromkeys(contrast.row["model"] for contrast in contrasts)
    if len(models) == 1:
        yield f"cross-model transfer cannot be judged: {next(iter(models))} is the only model"
    for other, group in _group_by_opponent(valid).items():
        better = {contrast.row["model"] for contrast in group if contrast.better}
        worse = {contrast.row["model"] for contrast in group if contrast.worse}
        if better and worse and not better & worse:
            yield (
                f"cross-model transfer failure: better than {other} on {_join_names(sorted(better))}, worse on "
                f"{_join_names(sorted(worse))}"
            )
    if collapsed := list(_collapsed_budgets(arm, judged)):
        yield f"extraction collapse (a caveat) at budget {', '.join(dict.fromkeys(collapsed))}"


def _drifted_cells(contrasts: Iterable[Contrast], development: Mapping[CellKey, float]) -> Iterator[CellKey]:
    for contrast in contrasts:
        cell = contrast.row["model"], contrast.row["task"], contrast.row["budget"]
        difference = contrast.row["difference"]
        if (
            contrast.sign > 0
            and contrast.counts
            and difference is not None
            and development.get(cell, 0.0) * float(difference) < 0
        ):
            yield cell


def _collapsed_budgets(arm: str, judged: Mapping[str, Any]) -> Iterator[str]:
    """Yield the budgets at which 44 % or more of at least 20 wrong answers of the arm are no answer at all."""
    seeds = judged["contrasts"][0]["seeds"]
    if any("scored" in arm_row for arm_row in judged["contrasts"]):
        return
    for arm_row in judged["arms"]:
        if arm_row["arm"] == arm and arm_row["accuracy"] is not None:
            wrong = arm_row["n"] * seeds * (1 - float(arm_row["accuracy"]))
            if wrong >= WRONG and arm_row["no_answer"] / wrong >= COLLAPSE:
                yield arm_row["budget"]


def _join_names(names: Iterable[str]) -> str:
    return " and ".join(names)
