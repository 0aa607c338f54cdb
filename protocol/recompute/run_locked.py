"""Judge a study again with the code that its author locked, in a sandbox, on request.

That it reproduces the verdict proves nothing if it does so whatever the records are: see
`protocol.recompute.verify_judgement`.
"""

import importlib.util
import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from analysis.judgement import compare_judgements
from protocol.evidence import selection
from protocol.evidence.registration import PROTOCOL, SELECTION, VERDICT, Registration
from protocol.formats import canonical, shards
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import bundle, closure, lock
from protocol.recompute.verify_judgement import differing_packages
from protocol.sandbox import sandbox
from protocol.sandbox.sandbox import LIMITS, Limits, Mechanism, SandboxResult

MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)[.\w]*'$")


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
    return f"the locked code gives the same result word for word, {outcome.how}"


def _canonical_output(output: bytes) -> bytes:
    """Return the output as canonical JSON, since characters that a terminal hides are printed escaped. Output
    that is not JSON is returned unchanged.
    """
    try:
        return canonical.dumps(json.loads(output))
    except (ValueError, RecursionError, BadInput):
        return output


def _raise_difference(study: Registration, runner: str, name: str, outcome: SandboxResult, limits: Limits) -> NoReturn:
    """Raise the error for a run that did not print the content of `name`."""
    if outcome.stopped == "time":
        raise CannotTell(f"{runner} was stopped after {limits.seconds} s; try a faster machine")
    if outcome.stopped == "output":
        raise Tampered(f"{runner} prints more than {limits.output} bytes, which cannot be a judgement")
    errors = outcome.stderr.decode(errors="replace").strip().splitlines() or [""]
    last_line = compare_judgements.shorten_printable(errors[-1], most=200)
    if (missing := MISSING_MODULE.match(last_line)) and not _is_available(missing[1]):
        raise CannotTell(f"{runner} needs a package that is not installed here: {last_line}")
    if "MemoryError" in last_line or outcome.status - 128 in (signal.SIGXCPU, signal.SIGKILL):
        limits_text = f"its limits are {limits.cpu} s of processor time and {limits.memory} bytes"
        raise CannotTell(f"{runner} was ended ({last_line or f'status {outcome.status}'}); {limits_text}")
    output = compare_judgements.shorten_printable(outcome.stdout.decode(errors="replace"), most=100)
    message = f"{runner} contradicts {name}: '{output}'"
    if packages := differing_packages(study.lock.content):
        raise CannotTell(f"{message} {last_line}; {', '.join(packages)} not as locked; install the locked versions")
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
