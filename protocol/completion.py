"""Print what a shell completes kv-prereg with: commands, options, registrations, names of policies and tasks.

    kv-prereg completion bash > ~/.local/share/bash-completion/completions/kv-prereg
    kv-prereg completion zsh > ~/.zfunc/_kv-prereg                with ~/.zfunc in fpath, before compinit
    kv-prereg completion fish > ~/.config/fish/completions/kv-prereg.fish

The script is made by shtab from the parsers of the commands that this installation can load, which takes some
seconds; it starts no Python when a key is pressed. Print it again after an upgrade.

Exit status: 0 printed; 2 not one of these shells.
"""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from protocol import command
from protocol.command.menu import MENU, PROGRAM
from protocol.formats import command_line
from protocol.formats.escape import print_escaped
from protocol.formats.progress_display import phase

SHELLS = ("bash", "fish", "zsh")
REGISTRATIONS = {"bash": "_kv_prereg_registration_dirs", "zsh": "_kv_prereg_registrations"}
REGISTRATIONS["fish"] = "(_kv_prereg_registrations)"
PREAMBLE = {
    "bash": """
_kv_prereg_registration_dirs() {
  local place
  for place in registrations/"$1"*/; do
    [ -e "${place}protocol.toml" ] && echo "${place%/}"
  done
  compgen -d -- "$1"
}
""",
    "zsh": """
_kv_prereg_registrations() {
  local -a places
  places=(registrations/*/protocol.toml(N:h))
  _alternative "registrations:registration:($places)" "folders:folder:_files -/"
}
""",
    "fish": """
function _kv_prereg_registrations
    for place in registrations/*/protocol.toml
        string replace /protocol.toml '' $place
    end
    __fish_complete_directories
end
""",
}
FOLDER_ARGUMENTS = {"folder", "old", "new"}


class Options(argparse.Namespace):
    json: bool = False
    shell: str


def main(argv: list[str] | None = None) -> int:
    parser = command_line.make_parser(f"{PROGRAM} completion", __doc__)
    parser.add_argument("shell", choices=SHELLS)
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    with phase("loading the commands"):
        script = format_script(args.shell)
    print_escaped(script, sys.stdout)
    return 0


def format_script(shell: str) -> str:
    """Return the script of a shell, from the parsers of all commands."""
    import shtab

    return str(shtab.complete(build_parser(), shell, preamble=PREAMBLE))  # type: ignore[arg-type]


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of kv-prereg with all commands as its subcommands."""
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False)
    subparsers = parser.add_subparsers()
    names = list_names()
    for name, entry in MENU.items():
        with suppress(ModuleNotFoundError):  # needs an extra that is not installed
            command_parser = load_parser(entry.module)
            parents = [] if command_parser is None else list(mark_completions(name, "", command_parser, names))[-1:]
            subparsers.add_parser(name, parents=parents, add_help=False, help=entry.summary)
    help_parser = subparsers.add_parser("help", add_help=False, help="describe a command")
    help_parser.add_argument("command", choices=list(MENU))
    parser.add_argument("--version", action="store_true", help="of the package, its source code and Python")
    parser.add_argument("--help", action="store_true", help="all commands")
    return parser


def list_names() -> Mapping[tuple[str, str, str], Iterable[str]]:
    """Return the names that an argument takes, by command, subcommand and argument."""
    from protocol.models.sources import MODELS
    from protocol.tasks.dataset import Dataset
    from protocol.tasks.registry import TASKS

    published = [name for name, task in TASKS.items() if isinstance(task, Dataset)]
    names: dict[tuple[str, str, str], Iterable[str]] = {
        ("tasks", "fetch", "name"): published,
        ("tasks", "freeze", "name"): TASKS,
        ("tasks", "seal", "name"): published,
        ("models", "fetch", "source"): MODELS,
        ("calibrate", "", "model"): MODELS,
        ("calibrate", "", "task"): TASKS,
    }
    with suppress(ModuleNotFoundError):  # torch
        from policies.catalogue import CATALOGUE
        from policies.descriptions import FAMILIES

        names |= {("policies", "", "name"): CATALOGUE, ("policies", "", "family"): FAMILIES}
    return MappingProxyType(names)


class ParserBuilt(Exception):
    """The main function of a command has built its parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def load_parser(module: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command's main function; None for a command with the parser of another program."""
    main_module = f"{module}.__main__" if hasattr(importlib.import_module(module), "__path__") else module
    command_main: Callable[[list[str]], int] = importlib.import_module(main_module).main
    if "argv" in command_main.__code__.co_varnames:
        with stop_at_parsing(), suppress(SystemExit):
            try:
                command_main([])
            except ParserBuilt as built:
                return built.parser
    return None


@contextmanager
def stop_at_parsing() -> Iterator[None]:
    """Raise ParserBuilt inside when a command line is parsed."""

    def stop(parser: argparse.ArgumentParser, *_: Any) -> Any:
        raise ParserBuilt(parser)

    parse_known_args = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = stop  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def mark_completions(
    name: str, subcommand: str, parser: argparse.ArgumentParser, names: Mapping[tuple[str, str, str], Iterable[str]]
) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of the subcommands and `parser`, after adding what their arguments are completed from."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner_name, inner_parser in action.choices.items():
                yield from mark_completions(name, inner_name, inner_parser, names)
        elif choices := names.get((name, subcommand, action.dest)):
            action.choices = list(choices)
        elif action.dest in FOLDER_ARGUMENTS:
            action.complete = REGISTRATIONS  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    yield parser


if __name__ == "__main__":
    sys.exit(main())
