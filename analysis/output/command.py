"""The command line of whatever reads finished studies: paths in, what was found or written out."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from analysis.output.printed import dumps
from analysis.output.shown import print_bytes, put
from analysis.output.told import plain

__all__ = ["UNREADABLE", "command", "named"]

Refusals: TypeAlias = type[Exception] | tuple[type[Exception], ...]
Made = TypeVar("Made")
UNREADABLE: Refusals = (ValueError, OSError)  # what a folder that is no study raises


class Parser(argparse.ArgumentParser):
    """Its messages repeat what was typed, or what a pattern of the shell found, and are shown as all text."""

    def _print_message(self, message: str, file: Any = None) -> None:
        put(message, file or sys.stderr)


def named(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of what is typed as kv-prereg `name`; its help is `doc`."""
    return Parser(
        prog=f"kv-prereg {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _lines(made: Any) -> str:
    return "\n".join(map(str, made))


def command(
    name: str,
    doc: str | None,
    paths: Mapping[str, str],
    act: Callable[..., Made],
    refusals: Refusals,
    argv: Sequence[str] | None,
    *,
    show: Callable[[Made], str] = _lines,
    text: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """`kv-prereg <name> PATH...`: prints what act(**paths, **options) makes, as `show` says it.

    paths, options: what each is, by name; an option that is not given is None. text: lines for people, of a
    finding as `plain` has it; with --json it is printed as canonical JSON.
    Exit status: 0 printed; 2 for one of `refusals`, for what the system refuses and for a document that is
    none of ours, in one line. Control characters are shown, not sent.
    """
    parser = named(name, doc)
    for path, what in paths.items():
        parser.add_argument(path, type=Path, help=what)
    for option, what in options.items():
        parser.add_argument(f"--{option}", help=what)
    if text is not None:
        parser.add_argument("--json", action="store_true", help="print canonical JSON")
    given = vars(parser.parse_args(argv))
    as_json = given.pop("json", False)
    refused: Refusals = (*(refusals if isinstance(refusals, tuple) else (refusals,)), OSError)
    try:
        made = act(**given)
        if text is None:
            printed = show(made)
        else:
            found = plain(made)
            printed = dumps(found) if as_json else _lines(text(found))
    except refused as refusal:
        return _refuse(f"{type(refusal).__name__}: {refusal}")
    except Exception as fault:
        # A document that parses and is none of ours, or a fault of this program: nothing here can tell which.
        if sys.flags.dev_mode:
            raise
        where = " ".join(str(one) for one in given.values() if one is not None)
        return _refuse(
            f"{where}: a file is not of the documented format, or this command has a fault "
            f"({type(fault).__name__}: {fault}); kv-prereg audit says whether the files hold, "
            f"python -X dev -m protocol {name} where the fault is"
        )
    print_bytes(printed)
    return 0


def _refuse(why: str) -> int:
    put(" ".join(why.split()) + "\n", sys.stderr)
    return 2
