"""The command line of programs that read finished studies: it takes paths and prints results or refusals."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from analysis.output import phases
from protocol.evidence.mistakes import OneLine, of_system
from analysis.output.printed import dumps
from protocol.evidence.bytes.shown import print_bytes, put
from analysis.output.told import plain

__all__ = ["UNREADABLE", "command", "named", "said"]

Refusals: TypeAlias = type[Exception] | tuple[type[Exception], ...]
Made = TypeVar("Made")
UNREADABLE: Refusals = (ValueError, OSError)  # raised for a folder that is no study


class Parser(OneLine):
    """A parser whose messages repeat what was typed, with control characters escaped."""

    def _print_message(self, message: str, file: Any = None) -> None:
        put(message, file or sys.stderr)


def named(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Build the parser of the command kv-prereg `name`; its help is `doc`."""
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
    """Run `kv-prereg <name> PATH...`: print the result of read(**paths, **options), formatted by `show`.

    paths, options: the help of each, by name; an option that is not given is None. text: formats the result
    of `to_plain` as lines for people; with --json it is printed as canonical JSON. Exit status: 0 printed; 2
    for one of `refusals`, for an error of the system and for a document of another format, in one line.
    Control characters are escaped.
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
        with phases.showing(), phases.phase(f"reading {' '.join(str(one) for one in given.values() if one)}"):
            made = act(**given)
            if text is None:
                printed = show(made)
            else:
                found = plain(made)
                printed = dumps(found) if as_json else _lines(text(found))
    except refused as refusal:
        return _refuse(f"{type(refusal).__name__}: {said(refusal)}")
    except Exception as fault:
        # A document of another format or a fault of this program: the two look the same at this point.
        if sys.flags.dev_mode:
            raise
        where = " ".join(str(one) for one in given.values() if one is not None)
        if isinstance(fault, KeyError):
            return _refuse(
                f"{where}: a file is not of the documented format: it lacks the field {fault}, since it was "
                "edited or another version wrote it; kv-prereg audit says which files hold"
            )
        return _refuse(
            f"{where}: a file is not of the documented format, or this command has a fault "
            f"({type(fault).__name__}: {fault}); kv-prereg audit says whether the files hold, "
            f"python -X dev -m protocol {name} where the fault is"
        )
    print_bytes(printed)
    return 0


def said(refusal: Exception) -> str:
    """Return the message of a refusal of ours or of the system, in one line."""
    return " ".join((of_system(refusal) if isinstance(refusal, OSError) else str(refusal)).split())


def _refuse(why: str) -> int:
    put(" ".join(why.split()) + "\n", sys.stderr)
    return 2
