"""Write what shells complete `kv-prereg` with, from the parsers of all commands: needs shtab and torch.

python docs/completion.py           writes protocol/command/completion
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "protocol" / "texts" / "completion"
sys.path.insert(0, str(ROOT))  # the tree that this is of, whatever is installed

from policies.catalogue import CATALOGUE  # noqa: E402
from policies.descriptions import FAMILIES  # noqa: E402
from protocol.command.menu import MENU, PROGRAM  # noqa: E402
from protocol.models.sources import MODELS  # noqa: E402
from protocol.tasks.dataset import Dataset  # noqa: E402
from protocol.tasks.registry import TASKS  # noqa: E402

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
PUBLISHED = [name for name, task in TASKS.items() if isinstance(task, Dataset)]
# Names that are arguments: by command, act and argument.
NAMES = {
    ("policies", "", "name"): CATALOGUE,
    ("policies", "", "family"): FAMILIES,
    ("tasks", "fetch", "name"): PUBLISHED,
    ("tasks", "freeze", "name"): TASKS,
    ("tasks", "seal", "name"): PUBLISHED,
    ("models", "fetch", "source"): MODELS,
    ("calibrate", "", "model"): MODELS,
    ("calibrate", "", "task"): TASKS,
}
FOLDERS = {"folder", "old", "new"}


class Found(Exception):
    """The parser of a command is made."""


def parser(module: str) -> argparse.ArgumentParser | None:
    """That of a command's main function; None where it has none of its own, as lm-eval."""
    package = (ROOT.joinpath(*module.split(".")) / "__main__.py").exists()
    loaded = importlib.import_module(f"{module}.__main__" if package else module)
    made: list[argparse.ArgumentParser] = []

    def parse(self: argparse.ArgumentParser, *_: object) -> None:
        made.append(self)
        raise Found

    if "argv" in loaded.main.__code__.co_varnames:
        with (
            mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse),
            contextlib.suppress(Found),
        ):
            loaded.main([])
    return made[0] if made else None


def marked(name: str, act: str, own: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """`own` and the parsers of its acts, with what their arguments are completed from."""
    import shtab

    for action in own._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner, below in action.choices.items():
                yield from marked(name, inner, below)
        elif names := NAMES.get((name, act, action.dest)):
            action.choices = list(names)
        elif action.dest in FOLDERS:
            action.complete = REGISTRATIONS  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    yield own


def whole() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=PROGRAM, add_help=False)
    acts = made.add_subparsers()
    for name, entry in MENU.items():
        own = parser(entry.module)
        above = [] if own is None else list(marked(name, "", own))[-1:]
        acts.add_parser(name, parents=above, add_help=False, help=entry.summary)
    acts.add_parser("help", add_help=False, help="what a command does").add_argument("command", choices=list(MENU))
    made.add_argument("--version", action="store_true", help="of the package, its sources and Python")
    made.add_argument("--help", action="store_true", help="all commands")
    return made


def written() -> dict[Path, str]:
    """The script of each shell, by the path at which it lies."""
    import shtab

    return {PLACE / f"{PROGRAM}.{shell}": shtab.complete(whole(), shell, preamble=PREAMBLE) + "\n" for shell in SHELLS}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
