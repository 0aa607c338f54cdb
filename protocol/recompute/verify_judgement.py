"""Judge a study again: always with the auditor's own analysis, and on request with the locked code.

The author wrote the locked code: that it reproduces the verdict proves nothing if it does so whatever the
records are. If the auditor's own code reproduces it, the verdict follows from the records.
"""

import importlib.util
import json
import platform
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from analysis import selection as rule
from analysis.judgement import compare_judgements, judgement, study_files
from analysis.judgement.compare_judgements import FieldDifference, JudgementDifferences
from analysis.rules import verdict_line
from analysis.stats.methods import draws_and_seed
from protocol.evidence import selection
from protocol.evidence.records import Record
from protocol.evidence.registration import PROTOCOL, SELECTION, VERDICT, Registration
from protocol.formats import canonical, shards
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.json_text import dumps
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import bundle, closure, installed_files, lock, version_1
from protocol.workspace import drift, sandbox
from protocol.workspace.sandbox import LIMITS, Limits, Mechanism, SandboxResult

__all__ = ["InstalledAnalysis", "check", "check_locked", "check_selection", "compare_installed", "judge_study"]

ALIKE_TEXT = "judged alike by today's analysis"
PACKAGE = "analysis"
COMPUTING = ("numpy", "pandas", "scipy", "statsmodels")
MAX_DRAWN = 30_000_000_000  # draws, which take minutes; the slowest shipped study has a tenth
MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)[.\w]*'$")
SPLITS = ("dev", "confirm")
COUNTED_FIELDS = frozenset(
    ("name", "title", "rule", "method", "at_least", "family", "alpha", "corrected_alpha", "margin", "registered")
) | frozenset(
    ("model", "task", "budget", "subject", "against", "arm", "n", "seeds", "gains", "losses", "difference", "clusters")
)
"""Fields of a judgement that follow from lock and records, whatever computes."""
COMPUTED_FIELDS = frozenset((*compare_judgements.LOW, *compare_judgements.HIGH, *compare_judgements.P_FIELDS))
MAX_DIFFERENCES = 3  # in a message
# Errors of code that trusts its records, given a lock or record of the wrong shape.
WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class InstalledAnalysis(NamedTuple):
    """The analysis that is installed here, compared with the locked one."""

    differing_files: list[str]  # paths of files that differ or exist on one side only; files of both sides come first
    file_count: int  # on both sides together
    differing_packages: list[str]  # packages whose installed version is not the locked one
    is_other_code: bool  # whether other code than that of this release judged the study
    is_shipped: bool  # whether the study ships with this project, and so was judged by a known older version

    @property
    def is_same(self) -> bool:
        """Whether nothing here explains a different judgement. Other bundled files are no explanation, because
        their author chose them.
        """
        return not self.is_other_code and not self.differing_packages

    def __str__(self) -> str:
        if self.differing_files:
            share = f"{len(self.differing_files)} of {self.file_count} files of {PACKAGE}"
            example = compare_judgements.shorten_printable(self.differing_files[0])
            return f"{share} are not those that were locked, e.g. {example}"
        unchanged = f"its {self.file_count} files are those that were locked"
        return (
            f"{unchanged}, with another {', '.join(self.differing_packages)}" if self.differing_packages else unchanged
        )


def judge_study(study: Registration) -> dict[str, Any]:
    """Return the judgement that the installed analysis derives from the records. Raises WRONG_SHAPE errors
    for a lock or a record of the wrong shape, Tampered for a lock that would take hours to judge.
    """
    _refuse_costly(study, _count_confirmed_lanes(study), study.confirm_records)
    locked = study.lock
    confirmed_study = study_files.build_study(
        study.folder, locked.digest, locked.content, _name_records(study.confirm_records)
    )
    selected = judgement.selection_summary(study.selection.digest, study.selection.content) if study.has_sweep else None
    return _through_json(judgement.judge_study(confirmed_study, selected))


def check(study: Registration, judge: Callable[[], dict[str, Any]] | None = None) -> str:
    """Check that the installed analysis gives the judgement in verdict.json.

    judge: `judge_study` of this study, if the caller needs it too. Raises NotRun without a verdict; Tampered
    if a different judgement can only be the result of an edit; CannotTell, with the differences and the
    remedy, if another version of the analysis may explain it.
    """
    if not study.has(VERDICT):
        raise NotRun
    recorded = study.verdict.content["judged"]
    computed, comparison = _judge_again(study, VERDICT, recorded, judge or (lambda: judge_study(study)))
    recorded_verdict, verdict_word = recorded["verdict"], verdict_line.format_verdict(computed)
    if recorded_verdict != computed["verdict"]:
        verdict_word = f"{recorded_verdict}, today {verdict_word}"
    return f"{verdict_word}, {comparison}"


def check_selection(study: Registration) -> str:
    """Check that the installed analysis gives the selection in a sweep's selection.json.

    Raises as `check` does, and NotRun for a selection that was taken from a parent, whose own audit checks
    it.
    """
    if not study.has_sweep or not study.has(SELECTION):
        raise NotRun
    if selection.inherited_digest(study):
        raise NotRun("the selection is that of the study that this one replicates")
    recorded = study.selection.content["selected"]

    def select() -> dict[str, Any]:
        _refuse_costly(study, _count_probed_lanes(study), study.probe_records)
        locked = study.lock
        probed_study = study_files.build_probe(
            study.folder, locked.digest, locked.content, _name_records(study.probe_records)
        )
        return _through_json(rule.select_from_study(study.folder, probed_study))

    computed, comparison = _judge_again(study, SELECTION, recorded, select)
    return f"{computed['winner']}, {comparison}"


def check_locked(study: Registration, limits: Limits = LIMITS, ways: Sequence[Mechanism] = sandbox.MECHANISMS) -> str:
    """Check that the locked code prints the judgement in verdict.json (and the selection), from a copy of the
    records. It runs as its author wrote it, in a sandbox; its output is treated as data.

    Raises NotRun without a verdict; CannotTell if no sandbox is available, a dependency is missing or a limit
    was reached; Tampered if it prints anything else.
    """
    if not study.has(VERDICT):
        raise NotRun
    commands = [("analysis.judge", VERDICT, study.verdict.content["judged"])]
    if study.has_sweep and not selection.inherited_digest(study):
        commands.insert(0, ("analysis.selection", SELECTION, study.selection.content["selected"]))
    with tempfile.TemporaryDirectory(prefix="kv-prereg-judged-") as temporary:
        tree, copy = Path(temporary).resolve() / "tree", Path(temporary).resolve() / "registration"
        bundle.extract(study.bundle, study.lock.content["sources"], tree)
        _copy_registration(study, copy)
        for module, name, recorded in commands:
            # -s -E: ignore user packages and the environment; the tree comes first on the path.
            command = [sys.executable, "-s", "-E", "-B", "-X", "utf8", "-m", module, str(copy)]
            outcome = sandbox.run(command, tree, readable=[tree, copy], limits=limits, mechanisms=ways)
            if outcome.stopped or _canonical_output(outcome.stdout) != canonical.dumps(recorded):
                _raise_difference(study, f"the locked {module} ({outcome.how})", name, outcome, limits)
    return f"the locked code says so too, word for word, {outcome.how}"


def _canonical_output(output: bytes) -> bytes:
    """Return the output as canonical JSON, since characters that a terminal hides are printed escaped. Output
    that is not JSON is returned unchanged.
    """
    try:
        return canonical.dumps(json.loads(output))
    except (ValueError, RecursionError, BadInput):
        return output


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
    locked, installed = content["environment"], installed_files.versions()
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    names = [name for name in COMPUTING if locked.get("distributions", {}).get(name) != installed.get(name)]
    return names + [name for name, value in machine.items() if locked.get(name) != value]


def _through_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content after a round trip through JSON."""
    document: dict[str, Any] = json.loads(dumps(content))
    return document


def _judge_again(
    study: Registration, name: str, recorded: Any, judge: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any], str]:
    """Judge again and describe how the recorded judgement compares; raises as `check` does. judge: returns
    plain JSON.
    """
    try:
        computed = judge()
    except WRONG_SHAPE as problem:
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
        _refuse_difference(study, f"{name}: is not what today's analysis says: {message}", is_explained)
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
        "--run-locked lets the locked code judge, contained" if installed.is_other_code else "install what was locked"
    )
    raise CannotTell(f"{message}; {installed}; {remedy}")


def _describe_differences(differences: JudgementDifferences) -> str:
    """Describe the differences of a judgement that agrees in everything decisive."""
    if not differences.all:
        return ALIKE_TEXT
    parts = []
    if differences.computed:
        limits = "none across zero or a level, none far"
        parts += [
            f"{len(differences.computed)} bounds and p differ, {limits}: {_format_first(differences.computed[:1])}"
        ]
    if differences.sentences:
        parts += [f"other sentences in {', '.join(sentence.path for sentence in differences.sentences)}"]
    if differences.later:
        fields = sorted({sentence.path.rpartition(".")[2] for sentence in differences.later} - {"verdict"})
        parts += [f"today's alone has {', '.join(fields)}"]
    return f"words, counts and estimates {ALIKE_TEXT}; {'; '.join(parts)}"


def _format_first(differences: Sequence[FieldDifference], total: int = 0) -> str:
    listed = differences[:MAX_DIFFERENCES]
    rest = f" and {total - len(listed)} more" if total > len(listed) else ""
    return f"{'; '.join(map(str, listed))}{rest}"


def _raise_difference(study: Registration, runner: str, name: str, outcome: SandboxResult, limits: Limits) -> NoReturn:
    """Raise the error for a run that did not print the content of `name`."""
    if outcome.stopped == "time":
        raise CannotTell(f"{runner} was ended after {limits.seconds} s; a faster machine may tell")
    if outcome.stopped == "output":
        raise Tampered(f"{runner} prints more than {limits.output} bytes, which is no judgement")
    errors = outcome.stderr.decode(errors="replace").strip().splitlines() or [""]
    last_line = compare_judgements.shorten_printable(errors[-1], most=200)
    if (missing := MISSING_MODULE.match(last_line)) and not _is_available(missing[1]):
        raise CannotTell(f"{runner} needs what is not installed here: {last_line}")
    if "MemoryError" in last_line or outcome.status - 128 in (signal.SIGXCPU, signal.SIGKILL):
        limits_text = f"its limits are {limits.cpu} s of processor and {limits.memory} bytes"
        raise CannotTell(f"{runner} was ended ({last_line or f'status {outcome.status}'}); {limits_text}")
    output = compare_judgements.shorten_printable(outcome.stdout.decode(errors="replace"), most=100)
    message = f"{runner} says otherwise than {name}: '{output}'"
    if packages := differing_packages(study.lock.content):
        raise CannotTell(f"{message} {last_line}; {', '.join(packages)} not as locked; install what was locked")
    raise Tampered(f"{message} {last_line}".rstrip())


def _is_available(module: str) -> bool:
    """Whether a module is one of the locked packages or is installed where the sandbox can read it."""
    if module in closure.PACKAGES:
        return True
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as __main__
        return True
    if spec is None:
        return False
    origins = [spec.origin or "", *(spec.submodule_search_locations or ())]
    visible_folders = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    absolute_origins = [origin for origin in origins if Path(origin).is_absolute()]
    return not absolute_origins or any(
        Path(origin).resolve().is_relative_to(visible_folder)
        for origin in absolute_origins
        for visible_folder in visible_folders
    )


def _copy_registration(study: Registration, target: Path) -> None:
    """Copy the files that a judgement depends on, shards in their plain form: regular files alone, no links."""
    (target / "records").mkdir(parents=True)
    (target / "probe").mkdir()
    for path in (study.folder / name for name in (lock.NAME, PROTOCOL, SELECTION)):
        if path.is_file() and not path.is_symlink():
            shutil.copyfile(path, target / path.name)
    for folder in (study.phase_folder("confirm"), study.phase_folder("probe")):
        for path in shards.list_shards(folder):
            with shards.open_shard(path) as lines, (target / folder.name / shards.plain_name(path)).open("wb") as copy:
                shutil.copyfileobj(lines, copy)


def _refuse_costly(study: Registration, registered: int, records: Sequence[Record]) -> None:
    """Raise Tampered for a lock that registers more lanes than were recorded, since it may register any
    number, and CannotTell for a judgement that would take minutes.
    """
    if registered > len(records):
        raise Tampered(f"{registered} lanes are registered and {len(records)} recorded")
    content = study.protocol
    decision = content["decision"]
    against, others, extra_arms = (len(decision.get(name) or ()) for name in ("against", "others", "beside"))
    pairs = (1 + others) * against + extra_arms * (1 + against)  # not those of `sides`: any number
    cells = len(content["models"]) * len(content["tasks"]) * len(content["budgets"])
    max_problems = max(len(item[split]) for item in study.lock.content["items"].values() for split in SPLITS)
    draw_count, _ = draws_and_seed(decision)
    if (drawn := draw_count * pairs * cells * max_problems) > MAX_DRAWN:
        command = f"kv-prereg judge {study.folder}"
        raise CannotTell(f"{drawn:.0e} draws take many minutes; run: {command}")


def _count_confirmed_lanes(study: Registration) -> int:
    items = study.lock.content["items"]
    return sum(len(items[cell[1]]["confirm"]) for cell in study.lock.content["grid"])


def _count_probed_lanes(study: Registration) -> int:
    content, items = study.protocol, study.lock.content["items"]
    sweep, problems = content["sweep"], sum(len(items[task["name"]]["dev"]) for task in content["tasks"])
    arms = len(sweep["candidates"]) + 2  # and the baseline twice
    return len(content["models"]) * len(content["budgets"]) * len(sweep["seeds"]) * arms * problems


def _name_records(records: Sequence[Record]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, record in enumerate(records, 1):
        yield f"record {number}", record
