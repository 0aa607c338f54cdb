"""A command that reads a study or a file and prints a result: its parser, its refusals and its exit status."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from protocol.formats import progress_display
from protocol.formats.command_line import format_refusal, make_parser, report_fault
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.json_text import dumps
from protocol.formats.refusals import SHAPE_ERRORS, Refusal
from protocol.formats.text_tables import to_plain

Result = TypeVar("Result")


def _join_lines(items: Any) -> str:
    return "\n".join(map(str, items))


def run_command(
    name: str,
    doc: str | None,
    paths: Mapping[str, str],
    read: Callable[..., Result],
    argv: Sequence[str] | None,
    *,
    show: Callable[[Result], str] = _join_lines,
    text: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    words: Sequence[str] = (),
    formats: Mapping[str, Callable[[Result], str]] = MappingProxyType({}),
) -> int:
    """Run `kv-prereg <name> PATH...`: print the result of read(**paths, **options), formatted by `show`.

    paths, options: the help of each, by name; an option that is not given is None. words: see OneLineParser. text:
    formats the result of `to_plain` as lines for people; with --json it is printed as canonical JSON. formats: what
    prints the result in place of `show`, by the name of its option. Exit status: 0 printed; 2 for a refusal and for an
    error of the system, in one line; `command_line.FAULT_STATUS` for a fault of this program. What `read` gets was
    never checked as an audit does, so that of its errors the line says both that it may be. Control characters are
    escaped.
    """
    parser = make_parser(f"kv-prereg {name}", doc, words)
    for path, meaning in paths.items():
        parser.add_argument(path, type=Path, help=meaning)
    for option, meaning in options.items():
        parser.add_argument(f"--{option}", help=meaning)
    if text is not None:
        parser.add_argument("--json", action="store_true", help="print canonical JSON")
    choice = parser.add_mutually_exclusive_group() if formats else parser
    for form in formats:
        choice.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"print {form}")
    arguments = vars(parser.parse_args(argv))
    as_json, show = arguments.pop("json", False), formats.get(arguments.pop("form", None), show)
    try:
        with (
            progress_display.show_phases(),
            progress_display.phase(f"reading {' '.join(str(value) for value in arguments.values() if value)}"),
        ):
            try:
                result = read(**arguments)
            except SHAPE_ERRORS as error:
                if sys.flags.dev_mode or isinstance(error, Refusal):
                    raise
                return _print_refusal(
                    f"a file is not of the documented format ({type(error).__name__}: {error}); kv-prereg "
                    "audit says which files are intact; if all are, this is a bug in kv-prereg"
                )
            if text is None:
                printed = show(result)
            else:
                plain_result = to_plain(result)
                printed = dumps(plain_result) if as_json else _join_lines(text(plain_result))
    except (Refusal, OSError) as refusal:
        return _print_refusal(f"{type(refusal).__name__}: {format_refusal(refusal)}")
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        return report_fault(fault, as_json)
    print_bytes(printed)
    return 0


def _print_refusal(message: str) -> int:
    print_escaped(" ".join(message.split()), sys.stderr)
    return 2
