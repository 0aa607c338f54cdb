"""The command line of programs that read finished studies: it takes paths and prints results or refusals."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from protocol.formats import progress_display
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.json_text import dumps
from protocol.formats.suggestions import OneLineParser, explain_os_error
from protocol.formats.text_tables import to_plain

__all__ = ["UNREADABLE", "build_parser", "format_refusal", "run_command"]

Refusals: TypeAlias = type[Exception] | tuple[type[Exception], ...]
Result = TypeVar("Result")
UNREADABLE: Refusals = (ValueError, OSError)  # raised for a folder that is no study


class EscapingParser(OneLineParser):
    """A parser whose messages repeat what was typed, with control characters escaped."""

    def _print_message(self, message: str, file: Any = None) -> None:
        print_escaped(message, file or sys.stderr, end="")


def build_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Build the parser of the command kv-prereg `name`; its help is `doc`."""
    return EscapingParser(
        prog=f"kv-prereg {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _join_lines(items: Any) -> str:
    return "\n".join(map(str, items))


def run_command(
    name: str,
    doc: str | None,
    paths: Mapping[str, str],
    read: Callable[..., Result],
    refusals: Refusals,
    argv: Sequence[str] | None,
    *,
    show: Callable[[Result], str] = _join_lines,
    text: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run `kv-prereg <name> PATH...`: print the result of read(**paths, **options), formatted by `show`.

    paths, options: the help of each, by name; an option that is not given is None. text: formats the result
    of `to_plain` as lines for people; with --json it is printed as canonical JSON. Exit status: 0 printed; 2
    for one of `refusals`, for an error of the system and for a document of another format, in one line.
    Control characters are escaped.
    """
    parser = build_parser(name, doc)
    for path, meaning in paths.items():
        parser.add_argument(path, type=Path, help=meaning)
    for option, meaning in options.items():
        parser.add_argument(f"--{option}", help=meaning)
    if text is not None:
        parser.add_argument("--json", action="store_true", help="print canonical JSON")
    arguments = vars(parser.parse_args(argv))
    as_json = arguments.pop("json", False)
    refused: Refusals = (*(refusals if isinstance(refusals, tuple) else (refusals,)), OSError)
    try:
        with (
            progress_display.show_phases(),
            progress_display.phase(f"reading {' '.join(str(value) for value in arguments.values() if value)}"),
        ):
            result = read(**arguments)
            if text is None:
                printed = show(result)
            else:
                plain_result = to_plain(result)
                printed = dumps(plain_result) if as_json else _join_lines(text(plain_result))
    except refused as refusal:
        return _print_refusal(f"{type(refusal).__name__}: {format_refusal(refusal)}")
    except Exception as fault:
        # A document of another format or a fault of this program: the two look the same at this point.
        if sys.flags.dev_mode:
            raise
        location = " ".join(str(value) for value in arguments.values() if value is not None)
        if isinstance(fault, KeyError):
            return _print_refusal(
                f"{location}: a file is not of the documented format: it lacks the field {fault}, since it was "
                "edited or another version wrote it; kv-prereg audit says which files hold"
            )
        return _print_refusal(
            f"{location}: a file is not of the documented format, or this command has a fault "
            f"({type(fault).__name__}: {fault}); kv-prereg audit says whether the files hold, "
            f"python -X dev -m protocol {name} where the fault is"
        )
    print_bytes(printed)
    return 0


def format_refusal(refusal: Exception) -> str:
    """Return the message of a refusal of ours or of the system, in one line."""
    return " ".join((explain_os_error(refusal) if isinstance(refusal, OSError) else str(refusal)).split())


def _print_refusal(message: str) -> int:
    print_escaped(" ".join(message.split()), sys.stderr)
    return 2
