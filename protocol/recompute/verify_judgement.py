"""Judge a study again with the auditor's own analysis: if it reproduces the verdict, this follows from the records."""

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from analysis.judgement import compare_judgements, judgement, study_table
from analysis.judgement.compare_judgements import FieldDifference, JudgementDifferences
from analysis.rules import verdict_line
from analysis.stats.methods import draws_and_seed
from protocol.evidence.records import Record
from protocol.evidence.registration import VERDICT, Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.json_text import dumps
from protocol.formats.refusals import SHAPE_ERRORS, Tampered
from protocol.lock import installed_versions, lock, version_1
from protocol.workspace import drift

ALIKE_TEXT = "reproduced by today's analysis"
PACKAGE = "analysis"
COMPUTING = ("numpy", "pandas", "scipy", "statsmodels")
MAX_DRAWN = 30_000_000_000  # draws, which take minutes; the slowest shipped study has a tenth
SPLITS = ("dev", "confirm")
COUNTED_FIELDS = frozenset(
    ("name", "title", "rule", "method", "at_least", "family", "alpha", "corrected_alpha", "margin", "registered")
) | frozenset(
    ("model", "task", "budget", "subject", "against", "arm", "n", "seeds", "gains", "losses", "difference", "clusters")
)
"""Fields of a judgement that follow from lock and records, whatever computes."""
COMPUTED_FIELDS = frozenset((*compare_judgements.LOW, *compare_judgements.HIGH, *compare_judgements.P_FIELDS))
MAX_DIFFERENCES = 3  # in a message


class InstalledAnalysis(NamedTuple):
    """The analysis that is installed here, compared with the locked one."""

    differing_files: list[str]  # paths of files that differ or exist on one side only; files of both sides come first
    file_count: int  # on both sides together
    differing_packages: list[str]  # packages whose installed version is not the locked one
    is_other_code: bool  # whether other code than that of this release judged the study
    is_shipped: bool  # whether the study ships with this project, and so was judged by a known older version

    @property
    def is_same(self) -> bool:
        """Whether nothing here explains another judgement. Bundled files explain none: their author chose them."""
        return not self.is_other_code and not self.differing_packages

    def __str__(self) -> str:
        if self.differing_files:
            share = f"{len(self.differing_files)} of {self.file_count} files of {PACKAGE}"
            example = compare_judgements.shorten_printable(self.differing_files[0])
            return f"{share} differ from the locked ones, e.g. {example}"
        unchanged = f"its {self.file_count} files match the lock"
        return (
            f"{unchanged}, with another {', '.join(self.differing_packages)}" if self.differing_packages else unchanged
        )


def judge_study(study: Registration) -> dict[str, Any]:
    """Return the judgement that the installed analysis derives from the records. Raises SHAPE_ERRORS errors
    for a lock or a record of the wrong shape, Tampered for a lock that would take hours to judge.
    """
    return through_json(judgement.judge_study(*read_for_judgement(study)))


def read_for_judgement(study: Registration) -> tuple[study_table.Study, dict[str, Any] | None]:
    """Return the lanes to judge, and the selection of a sweep. Raises as `judge_study` does."""
    refuse_costly(study, _count_confirmed_lanes(study), study.confirm_records)
    locked = study.lock
    confirmed_study = study_table.build_study(
        study.folder, locked.digest, locked.content, name_records(study.confirm_records)
    )
    selected = judgement.selection_summary(study.selection.digest, study.selection.content) if study.has_sweep else None
    return confirmed_study, selected


def check(study: Registration, judge: Callable[[], dict[str, Any]] | None = None) -> str:
    """Check that the installed analysis gives the judgement in verdict.json.

    judge: `judge_study` of this study, if the caller needs it too. Raises NotRun without a verdict; Tampered
    if a different judgement can only be the result of an edit; CannotTell, with the differences and the
    remedy, if another version of the analysis may explain it.
    """
    if not study.has(VERDICT):
        raise NotRun
    recorded = study.verdict.content["judged"]
    computed, comparison = judge_again(study, VERDICT, recorded, judge or (lambda: judge_study(study)))
    recorded_verdict, verdict_word = recorded["verdict"], verdict_line.format_verdict(computed)
    if recorded_verdict != computed["verdict"]:
        verdict_word = f"{recorded_verdict}, today {verdict_word}"
    return f"{verdict_word}, {comparison}"


def compare_installed(study: Registration, *more: str) -> InstalledAnalysis:
    """Compare the installed analysis with the locked one. more: folders that belong to it, of an instrument."""
    content = study.lock.content
    folders = (f"{PACKAGE}/", *more)
    differing = drift.differing_sources(content["sources"], *folders)
    file_count = sum(name.startswith(folders) for name in content["sources"].keys() | differing)
    return InstalledAnalysis(
        differing,
        file_count,
        differing_packages(content),
        lock.is_of_other_code(study.lock),
        study.lock.digest in version_1.PROTOCOLS,
    )


def differing_packages(content: Mapping[str, Any]) -> list[str]:
    """Return the packages and properties of the machine that affect a judgement and differ from the lock."""
    locked, installed = content["environment"], installed_versions.versions()
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    names = [name for name in COMPUTING if locked.get("distributions", {}).get(name) != installed.get(name)]
    return names + [name for name, value in machine.items() if locked.get(name) != value]


def through_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content after a round trip through JSON."""
    document: dict[str, Any] = json.loads(dumps(content))
    return document


def judge_again(
    study: Registration, name: str, recorded: Any, judge: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any], str]:
    """Judge again and describe how the recorded judgement compares. Raises as `check` does. judge: gives plain JSON."""
    try:
        computed = judge()
    except SHAPE_ERRORS as problem:
        message = compare_judgements.shorten_printable(f"{type(problem).__name__}: {problem}", most=300)
        is_other_code = lock.is_of_other_code(study.lock)  # no library makes records of a wrong shape
        _refuse_difference(study, f"{name}: today's analysis cannot judge the records: {message}", is_other_code)
    differences, installed = compare_judgements.find_differences(recorded, computed), compare_installed(study)
    only_packages_differ = installed.differing_packages and not (
        differences.sentences or differences.later
    )  # explain bounds and p values only
    is_excused = installed.is_shipped if installed.is_other_code else only_packages_differ
    if differences.decisive or (differences.all and not is_excused):
        message = _format_first(differences.decisive or differences.all, len(differences.all))
        is_explained = installed.is_shipped or _is_of_numbers(differences, installed.is_other_code)
        _refuse_difference(study, f"{name}: differs from what today's analysis gives: {message}", is_explained)
    return computed, f"{_describe_differences(differences)}; {installed}"


def _is_of_numbers(differences: JudgementDifferences, is_other_code: bool) -> bool:
    """Whether other code or libraries may have made these differences: they compute other bounds and p, from which
    words and sentences follow, but count no other problems and read no other title. Where no number decides
    otherwise, only other code has other words.
    """
    fields = {difference.path.rpartition(".")[2].partition("[")[0] for difference in differences.all}
    return not fields & COUNTED_FIELDS and (is_other_code or bool(fields & COMPUTED_FIELDS))


def _refuse_difference(study: Registration, message: str, is_excused: bool) -> NoReturn:
    """Raise Tampered if nothing here explains a different judgement, else CannotTell with the remedy.

    is_excused: whether another release or library explains such a difference.
    """
    installed = compare_installed(study)
    if installed.is_same or not is_excused:
        raise Tampered(f"{message}; {installed}")
    remedy = (
        "--run-locked lets the locked code judge in a sandbox"
        if installed.is_other_code
        else "install the locked versions"
    )
    raise CannotTell(f"{message}; {installed}; {remedy}")


def _describe_differences(differences: JudgementDifferences) -> str:
    """Describe the differences of a judgement that agrees in everything decisive."""
    if not differences.all:
        return ALIKE_TEXT
    parts = []
    if differences.computed:
        limits = "none of them crosses zero or a level, and none is far off"
        parts += [
            f"{len(differences.computed)} bounds and p values differ, {limits}: "
            f"{_format_first(differences.computed[:1])}"
        ]
    if differences.sentences:
        parts += [f"different sentences in {', '.join(sentence.path for sentence in differences.sentences)}"]
    if differences.later:
        fields = sorted({sentence.path.rpartition(".")[2] for sentence in differences.later} - {"verdict"})
        parts += [f"only today's has {', '.join(fields)}"]
    return f"words, counts and estimates {ALIKE_TEXT}; {'; '.join(parts)}"


def _format_first(differences: Sequence[FieldDifference], total: int = 0) -> str:
    listed = differences[:MAX_DIFFERENCES]
    rest = f" and {total - len(listed)} more" if total > len(listed) else ""
    return f"{'; '.join(map(str, listed))}{rest}"


def refuse_costly(study: Registration, registered: int, records: Sequence[Record]) -> None:
    """Raise Tampered for a lock that registers more lanes than were recorded, since it may register any
    number, and CannotTell for a judgement that would take minutes.
    """
    if registered > len(records):
        raise Tampered(f"{registered} lanes are registered, but {len(records)} are recorded")
    content = study.protocol
    decision = content["decision"]
    against, others, extra_arms = (len(decision.get(name) or ()) for name in ("against", "others", "beside"))
    pairs = (1 + others) * against + extra_arms * (1 + against)  # not those of `sides`: any number
    cells = len(content["models"]) * len(content["tasks"]) * len(content["budgets"])
    max_problems = max(len(item[split]) for item in study.lock.content["items"].values() for split in SPLITS)
    draw_count, _ = draws_and_seed(decision)
    if (drawn := draw_count * pairs * cells * max_problems) > MAX_DRAWN:
        command = f"kv-prereg judge {study.folder}"
        raise CannotTell(f"{drawn:.0e} draws take many minutes; to do it, run: {command}")


def _count_confirmed_lanes(study: Registration) -> int:
    return sum(len(study.due_items[cell[1]]["confirm"]) for cell in study.lock.content["grid"])


def name_records(records: Sequence[Record]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, record in enumerate(records, 1):
        yield f"record {number}", record
