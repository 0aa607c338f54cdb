"""Pre-registered evaluation of KV-cache eviction policies.

    kv-prereg COMMAND ...          what it does, and its options: kv-prereg help COMMAND
    kv-prereg --version

`kv-prereg confirm FOLDER` does what `python -m protocol.confirm FOLDER` does. In a clone that is not
installed it is typed `python -m protocol confirm FOLDER`.
"""

import os
import sys

INTERRUPTED = 130  # the exit status of a command that was interrupted

try:
    import importlib
    import platform
    import runpy
    import warnings
    from collections.abc import Sequence
    from importlib import metadata

    from protocol.command import help_imports
    from protocol.command.menu import MENU, PROGRAM, STATUSES, WORKFLOW, closest_command
    from protocol.evidence.external.git_repository import Repository
    from protocol.formats import extras
    from protocol.formats.escape import print_escaped, silence_broken_pipes
    from protocol.formats.findings import CannotTell
    from protocol.formats.progress_display import phase, show_phases
    from protocol.formats.refusals import BadInput
    from protocol.lock import package_shadowing
except KeyboardInterrupt:  # nothing has started, so a traceback would not help
    sys.exit(INTERRUPTED)

HELP = ("help", "--help", "-h")
VERSION = ("--version", "-V")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status of the command (docs/commands.md), or 2 if there is no such command."""
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    _open_closed_outputs()
    if not sys.warnoptions:  # as with -W and -X dev: of libraries, for their users and not for ours
        warnings.simplefilter("ignore")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
    # Before torch is loaded: idle threads sleep, as in the Makefile; where others run, spinning costs a multiple.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _drop_script_folder()
    if message := package_shadowing.find_shadowing():
        return _refuse(message)
    name, *more = arguments or HELP[:1]
    if name in HELP and more and more[0] not in HELP:
        name, more = more[0], ["--help"]
    if name in HELP or name in VERSION:
        return _print(overview() if name in HELP else version())
    if name not in MENU:
        return _refuse(explain_unknown(name))
    if argv is None and (name == "completion" or not {"--help", "-h"}.isdisjoint(more)):
        help_imports.replace_slow_libraries()
    return run(name, more)


def run(name: str, arguments: Sequence[str]) -> int:
    """Run the module of a command as `python -m` does; that module ends the process."""
    # numpy's products are small here: a second thread would spend more time on waiting than it saves.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    old_argv = sys.argv
    sys.argv = [f"{PROGRAM} {name}", *arguments]
    try:
        _load(MENU[name].module)
        runpy.run_module(MENU[name].module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as missing:
        if sys.flags.dev_mode:
            raise
        return _refuse(f"{PROGRAM} {name}: {extras.install_hint(missing.name)}")
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        print_escaped("interrupted; type the same command again", sys.stderr)
        return INTERRUPTED
    finally:
        sys.argv = old_argv
        silence_broken_pipes()  # before Python notices at exit that the reader is gone
    return 0


def _load(module: str) -> None:
    """Import a module of analysis or figures and show progress: scipy and matplotlib take seconds to load."""
    if module.partition(".")[0] not in ("analysis", "figures"):
        return
    with show_phases(), phase("loading the libraries that judging needs"):
        loaded = importlib.import_module(module)
        if not hasattr(loaded, "__path__"):
            del sys.modules[module]  # it is run as the main module


def overview() -> str:
    """Return the help for all commands, those of the usual workflow first."""
    width = 2 + max(map(len, MENU))
    groups: dict[str, list[str]] = {}
    for name, entry in MENU.items():
        groups.setdefault(entry.group, []).append(f"  {name:<{width}}{entry.summary}")
    lines = [f"usage: {PROGRAM} COMMAND ...", "", *(__doc__ or "").splitlines()[:1]]
    for group, entries in groups.items():
        lines += ["", f"{group}:", *entries]
    lines += ["", "Exit statuses (more in docs/commands.md and in the help of each command):"]
    lines += [f"  {status.number:<{width}}{status.brief}" for status in STATUSES if status.brief]
    return "\n".join([*lines, "", f"{PROGRAM} help COMMAND, {PROGRAM} --version"])


def version() -> str:
    """Return the version of the package, the commit if this is a clone, and the version of Python."""
    try:
        parts = [f"{PROGRAM} {metadata.version(PROGRAM)}"]
    except metadata.PackageNotFoundError:
        parts = [f"{PROGRAM}, not installed"]
    if (package_shadowing.ROOT / ".git").exists():
        try:
            parts.append(f"commit {(Repository(package_shadowing.ROOT).head() or 'none yet')[:12]}")
        except CannotTell as why:
            parts.append(f"commit unknown ({why})")
    return ", ".join([*parts, f"Python {platform.python_version()}", f"in {package_shadowing.ROOT}"])


def explain_unknown(name: str) -> str:
    if name.startswith("-"):
        return f"unknown option {name}: write options after a command, as in: {PROGRAM} status {name}"
    if (near := closest_command(name)) is not None:
        return f"unknown command {name!r}; did you mean {near!r}?"
    first = [command for command, entry in MENU.items() if entry.group == WORKFLOW]
    return f"unknown command {name!r}; {PROGRAM} help lists all: {', '.join(first)}, ..."


def _print(text: str) -> int:
    print_escaped(text, sys.stdout)
    return 0


def _refuse(message: str) -> int:
    print_escaped(f"{BadInput.__name__}: {message}", sys.stderr)
    return BadInput.exit_status


def _open_closed_outputs() -> None:
    """Open the null device in place of outputs that the shell closed (`>&-`): else the next file that is opened
    takes their number, and what another process prints lands in it.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_WRONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
            if name == "stdout":
                print_escaped("standard output is closed: the result is not printed", sys.stderr)


def _drop_script_folder() -> None:
    """Remove the folder of the installed script from sys.path: no lock covers it (workspace.imports)."""
    script = os.path.realpath(sys.argv[0])
    if sys.path and sys.path[0] in (script, os.path.dirname(script)):
        del sys.path[0]


if __name__ == "__main__":
    sys.exit(main())
