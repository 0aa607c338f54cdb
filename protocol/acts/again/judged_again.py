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
from analysis.output import headline
from analysis.output.printed import dumps
from analysis.stats.methods import draws
from analysis.studies import alike, judgement, study_files
from analysis.studies.alike import Apart, Unlike
from protocol.acts.locking import known_code
from protocol.evidence.bytes import canonical
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.lock import bundle, closure, installed_files
from protocol.evidence.lock.lock import NAME
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import selection
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import PROTOCOL, SELECTION, VERDICT, Registration
from protocol.locked import contained, drift
from protocol.locked.contained import LIMITS, Limits, Ran, Way

__all__ = ["Own", "check", "check_locked", "check_selection", "judged", "own"]

ALIKE = "judged alike by today's analysis"
PACKAGE = "analysis"
COMPUTING = ("numpy", "pandas", "scipy", "statsmodels")
LARGEST = 30_000_000_000  # draws, which take minutes; the slowest shipped study has a tenth
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[.\w]*'$")
SPLITS = ("dev", "confirm")
SHOWN = 3  # in a message
# Errors of code that trusts its records, given a lock or record of the wrong shape.
WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class Own(NamedTuple):
    """The analysis that is installed here, compared with the locked one."""

    files: list[str]  # paths of files that differ or exist on one side only; files of both sides come first
    of: int  # on both sides together
    others: list[str]  # packages whose installed version is not the locked one
    known: bool  # whether the locked files are a known older version of this project

    @property
    def same(self) -> bool:
        """Whether nothing here explains a different judgement."""
        return not self.files and not self.others

    def __str__(self) -> str:
        if self.files:
            share = f"{len(self.files)} of {self.of} files of {PACKAGE}"
            return f"{share} are not those that were locked, e.g. {alike.plain(self.files[0])}"
        same = f"its {self.of} files are those that were locked"
        return f"{same}, with another {', '.join(self.others)}" if self.others else same


def judged(study: Registration) -> dict[str, Any]:
    """Return the judgement that the installed analysis derives from the records. Raises WRONG_SHAPE errors
    for a lock or a record of the wrong shape, Tampered for a lock that would take hours to judge.
    """
    _refuse_long(study, _confirmed_lanes(study), study.confirmed)
    lock = study.lock
    read = study_files.confirmed(study.folder, lock.digest, lock.content, _named(study.confirmed))
    chosen = judgement.selected(study.selection.digest, study.selection.content) if study.swept else None
    return _as_written(judgement.judged(read, chosen))


def check(study: Registration, judge: Callable[[], dict[str, Any]] | None = None) -> str:
    """Check that the installed analysis gives the judgement in verdict.json.

    judge: `judge_study` of this study, if the caller needs it too. Raises NotRun without a verdict; Tampered
    if a different judgement can only be the result of an edit; CannotTell, with the differences and the
    remedy, if another version of the analysis may explain it.
    """
    if not study.has(VERDICT):
        raise NotRun
    written = study.verdict.content["judged"]
    here, told = _again(study, VERDICT, written, judge or (lambda: judged(study)))
    given, word = written["verdict"], headline.word(here)
    return f"{word if given == here['verdict'] else f'{given}, today {word}'}, {told}"


def check_selection(study: Registration) -> str:
    """Check that the installed analysis gives the selection in a sweep's selection.json.

    Raises as `check` does, and NotRun for a selection that was taken from a parent, whose own audit checks
    it.
    """
    if not study.swept or not study.has(SELECTION):
        raise NotRun
    if selection.inherited(study):
        raise NotRun("the selection is that of the study that this one replicates")
    written = study.selection.content["selected"]

    def select() -> dict[str, Any]:
        _refuse_long(study, _probed_lanes(study), study.probed)
        lock = study.lock
        read = study_files.probed(study.folder, lock.digest, lock.content, _named(study.probed))
        return _as_written(rule.selected(study.folder, read))

    here, told = _again(study, SELECTION, written, select)
    return f"{here['winner']}, {told}"


def check_locked(study: Registration, limits: Limits = LIMITS, ways: Sequence[Way] = contained.WAYS) -> str:
    """Check that the locked code prints the judgement in verdict.json (and the selection), from a copy of the
    records. It runs as its author wrote it, in a sandbox; its output is treated as data.

    Raises NotRun without a verdict; CannotTell if no sandbox is available, a dependency is missing or a limit
    was reached; Tampered if it prints anything else.
    """
    if not study.has(VERDICT):
        raise NotRun
    asked = [("analysis.judge", VERDICT, study.verdict.content["judged"])]
    if study.swept and not selection.inherited(study):
        asked.insert(0, ("analysis.selection", SELECTION, study.selection.content["selected"]))
    with tempfile.TemporaryDirectory(prefix="kv-prereg-judged-") as private:
        tree, copy = Path(private).resolve() / "tree", Path(private).resolve() / "registration"
        bundle.extract(study.bundle, study.lock.content["sources"], tree)
        _copy(study, copy)
        for module, name, written in asked:
            # -s -E: ignore user packages and the environment; the tree comes first on the path.
            command = [sys.executable, "-s", "-E", "-B", "-X", "utf8", "-m", module, str(copy)]
            ran = contained.run(command, tree, given=[tree, copy], limits=limits, ways=ways)
            if ran.stopped or _read(ran.stdout) != canonical.dumps(written):
                _explain(study, f"the locked {module} ({ran.how})", name, ran, limits)
    return f"the locked code says so too, word for word, {ran.how}"


def _read(printed: bytes) -> bytes:
    """Return the output as canonical JSON, since characters that a terminal hides are printed escaped. Output
    that is not JSON is returned unchanged.
    """
    try:
        return canonical.dumps(json.loads(printed))
    except (ValueError, RecursionError, BadInput):
        return printed


def own(study: Registration) -> Own:
    """Compare the installed analysis with the locked one."""
    content = study.lock.content
    inside = f"{PACKAGE}/"
    differing = drift.apart(content["sources"], inside)
    of = sum(name.startswith(inside) for name in content["sources"].keys() | differing)
    return Own(differing, of, others(content), known_code.known(content["sources"]))


def others(lock: Mapping[str, Any]) -> list[str]:
    """Return the packages and properties of the machine that affect a judgement and differ from the lock."""
    locked, here = lock["environment"], installed_files.versions()
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    found = [name for name in COMPUTING if locked.get("distributions", {}).get(name) != here.get(name)]
    return found + [name for name, value in machine.items() if locked.get(name) != value]


def _as_written(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content after a round trip through JSON."""
    read: dict[str, Any] = json.loads(dumps(made))
    return read


def _again(
    study: Registration, name: str, written: Any, judge: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any], str]:
    """Judge again and describe how the recorded judgement compares; raises as `check` does. judge: returns
    plain JSON.
    """
    try:
        here = judge()
    except WRONG_SHAPE as problem:
        said = alike.plain(f"{type(problem).__name__}: {problem}", most=300)
        _refuse(study, f"{name}: today's analysis cannot judge the records: {said}")
    apart, mine = alike.unlike(written, here), own(study)
    packages = mine.others and not (apart.sentences or apart.later)  # explain bounds and p values only
    excused = mine.known if mine.files else packages
    if apart.decisive or (apart.all and not excused):
        said = _first(apart.decisive or apart.all, len(apart.all))
        _refuse(study, f"{name}: is not what today's analysis says: {said}")
    return here, f"{_told(apart)}; {mine}"


def _refuse(study: Registration, said: str) -> NoReturn:
    """Raise Tampered if nothing here explains a different judgement, else CannotTell with the remedy."""
    mine = own(study)
    if mine.same:
        raise Tampered(f"{said}; {mine}")
    remedy = "--run-locked lets the locked code judge, contained" if mine.files else "install what was locked"
    raise CannotTell(f"{said}; {mine}; {remedy}")


def _told(apart: Apart) -> str:
    """Describe the differences of a judgement that agrees in everything decisive."""
    if not apart.all:
        return ALIKE
    named = []
    if apart.computed:
        where = "none across zero or a level, none far"
        named += [f"{len(apart.computed)} bounds and p differ, {where}: {_first(apart.computed[:1])}"]
    if apart.sentences:
        named += [f"other sentences in {', '.join(one.path for one in apart.sentences)}"]
    if apart.later:
        fields = sorted({one.path.rpartition(".")[2] for one in apart.later} - {"verdict"})
        named += [f"today's alone has {', '.join(fields)}"]
    return f"words, counts and estimates {ALIKE}; {'; '.join(named)}"


def _first(found: Sequence[Unlike], of: int = 0) -> str:
    shown = found[:SHOWN]
    more = f" and {of - len(shown)} more" if of > len(shown) else ""
    return f"{'; '.join(map(str, shown))}{more}"


def _explain(study: Registration, who: str, name: str, ran: Ran, limits: Limits) -> NoReturn:
    """Raise the error for a run that did not print the content of `name`."""
    if ran.stopped == "time":
        raise CannotTell(f"{who} was ended after {limits.seconds} s; a faster machine may tell")
    if ran.stopped == "output":
        raise Tampered(f"{who} prints more than {limits.output} bytes, which is no judgement")
    errors = ran.stderr.decode(errors="replace").strip().splitlines() or [""]
    last = alike.plain(errors[-1], most=200)
    if (missing := MISSING.match(last)) and not _here(missing[1]):
        raise CannotTell(f"{who} needs what is not installed here: {last}")
    if "MemoryError" in last or ran.status - 128 in (signal.SIGXCPU, signal.SIGKILL):
        within = f"its limits are {limits.cpu} s of processor and {limits.memory} bytes"
        raise CannotTell(f"{who} was ended ({last or f'status {ran.status}'}); {within}")
    shown = alike.plain(ran.stdout.decode(errors="replace"), most=100)
    said = f"{who} says otherwise than {name}: '{shown}'"
    if found := others(study.lock.content):
        raise CannotTell(f"{said} {last}; {', '.join(found)} not as locked; install what was locked")
    raise Tampered(f"{said} {last}".rstrip())


def _here(module: str) -> bool:
    """Whether a module is one of the locked packages or is installed where the sandbox can read it."""
    if module in closure.PACKAGES:
        return True
    try:
        found = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as __main__
        return True
    if found is None:
        return False
    places = [found.origin or "", *(found.submodule_search_locations or ())]
    seen = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    outside = [place for place in places if Path(place).is_absolute()]
    return not outside or any(Path(place).resolve().is_relative_to(one) for place in outside for one in seen)


def _copy(study: Registration, to: Path) -> None:
    """Copy the files that a judgement depends on: regular files alone, no links."""
    (to / "records").mkdir(parents=True)
    (to / "probe").mkdir()
    shards = [path for phase in ("confirm", "probe") for path in study.place(phase).glob("shard-*.jsonl")]
    documents = [study.folder / name for name in (NAME, PROTOCOL, SELECTION)]
    for path in (*documents, *shards):
        if path.is_file() and not path.is_symlink():
            shutil.copyfile(path, to / path.relative_to(study.folder))


def _refuse_long(study: Registration, registered: int, records: Sequence[Record]) -> None:
    """Raise Tampered for a lock that registers more lanes than were recorded, since it may register any
    number, and CannotTell for a judgement that would take minutes.
    """
    if registered > len(records):
        raise Tampered(f"{registered} lanes are registered and {len(records)} recorded")
    content = study.registered
    decision = content["decision"]
    against, others, beside = (len(decision.get(name) or ()) for name in ("against", "others", "beside"))
    pairs = (1 + others) * against + beside * (1 + against)  # not those of `sides`: any number
    cells = len(content["models"]) * len(content["tasks"]) * len(content["budgets"])
    most = max(len(item[split]) for item in study.lock.content["items"].values() for split in SPLITS)
    times, _ = draws(decision)
    if (drawn := times * pairs * cells * most) > LARGEST:
        command = f"kv-prereg judge {study.folder}"
        raise CannotTell(f"{drawn:.0e} draws take many minutes; run: {command}")


def _confirmed_lanes(study: Registration) -> int:
    items = study.lock.content["items"]
    return sum(len(items[cell[1]]["confirm"]) for cell in study.lock.content["grid"])


def _probed_lanes(study: Registration) -> int:
    content, items = study.registered, study.lock.content["items"]
    sweep, problems = content["sweep"], sum(len(items[task["name"]]["dev"]) for task in content["tasks"])
    arms = len(sweep["candidates"]) + 2  # and the baseline twice
    return len(content["models"]) * len(content["budgets"]) * len(sweep["seeds"]) * arms * problems


def _named(records: Sequence[Record]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, record in enumerate(records, 1):
        yield f"record {number}", record
