"""The command line: a parser that rejects in one line, and programs that read a study and print a result."""

import argparse
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from protocol.formats import progress_display
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.json_text import dumps
from protocol.formats.refusals import Refusal
from protocol.formats.suggestions import explain_os_error, unknown_message
from protocol.formats.text_tables import to_plain

Result = TypeVar("Result")
FAULT_STATUS = 70  # EX_SOFTWARE of sysexits.h
# What a document of the wrong shape raises where nobody checked it. A fault of a program may look the same.
SHAPE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

# Messages of argparse, which are replaced by the argument and the fix.
UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
INVALID_CHOICE = re.compile(r"argument (.+?): invalid choice: (.*) \(choose from (.*)\)", re.DOTALL)
INVALID_NUMBER = re.compile(r"argument (.+?): invalid (int|float) value: (.*)", re.DOTALL)
ONE_REQUIRED = re.compile(r"one of the arguments (.*) is required")
CONFLICTING = re.compile(r"argument (.+): not allowed with argument (.+)")
MISSING_ARGUMENTS = re.compile(r"the following arguments are required: (.*)")


class OneLineParser(argparse.ArgumentParser):
    """A parser that rejects a command line with a one-line message: the fix, without the usage."""

    def __init__(self, words: Sequence[str] = (), **settings: Any) -> None:
        """words: terms that the help ends with and explains. Options cannot be abbreviated: a prefix may become
        ambiguous in the next version.
        """
        super().__init__(**settings, allow_abbrev=False)
        self.words = words

    def format_help(self) -> str:
        if self.words:
            from protocol.formats.terms import format_terms  # which only a help needs

            self.epilog = format_terms(*self.words)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_explain_argparse(message, self._actions)}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        print_escaped(message, file or sys.stderr, end="")  # messages repeat what was typed


def _explain_argparse(message: str, actions: Iterable[argparse.Action]) -> str:
    """Return argparse's error `message` as one line with the fix. actions: the parser's."""
    actions_by_name = {name: action for action in actions for name in _action_names(action)}
    if match := UNKNOWN_OPTION.fullmatch(message):
        first = match[1].split()[0] if match[1].split() else "''"
        if not first.startswith("-"):
            return f"unexpected argument {first!r}; leave it out, or put text with spaces in quotes"
        options = [name for name in actions_by_name if name.startswith("--")]
        return unknown_message("option", first.partition("=")[0], options, corrections={"-h": "--help"})
    if match := INVALID_CHOICE.fullmatch(message):
        choices = re.findall(r"[\w.:-]+", match[3])
        return f"{match[1]}: {unknown_message('value', match[2].strip(chr(39)), choices)}"
    if match := INVALID_NUMBER.fullmatch(message):
        return f"{match[1]}: write a {'whole ' * (match[2] == 'int')}number, not {match[3]}"
    if match := ONE_REQUIRED.fullmatch(message):
        return f"missing: {' or '.join(match[1].split())}; --help shows an example"
    if match := CONFLICTING.fullmatch(message):
        return f"{match[1]}: cannot be combined with {match[2]}; leave one of them out"
    if match := MISSING_ARGUMENTS.fullmatch(message):
        arguments = ", ".join(_describe_argument(name, actions_by_name.get(name)) for name in match[1].split(", "))
        return f"missing: {arguments}; --help shows an example"
    return message


def _describe_argument(name: str, action: argparse.Action | None) -> str:
    choices = ", ".join(map(str, action.choices or ())) if action else ""
    parts = [part for part in ((action.help if action else None) or "", choices) if part]
    return f"{name} ({': '.join(parts)})" if parts else name


def _action_names(action: argparse.Action) -> list[str]:
    if action.option_strings:
        return list(action.option_strings)
    return [str(action.metavar or action.dest)]


def make_parser(command: str, doc: str | None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser. command: as people type it, "kv-prereg tasks". doc: the help text. words: see OneLineParser."""
    return OneLineParser(words, prog=command, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


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
    error of the system, in one line; FAULT_STATUS for a fault of this program. What `read` gets was never checked as an
    audit does, so that of its errors the line says both that it may be. Control characters are escaped.
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


def report_fault(fault: Exception, as_json: bool) -> int:
    """Print in one line that this program has a fault, which is not to be looked for in anyone's files."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    location = f"{Path(last.filename).name}:{last.lineno}"
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = (main.name if main else "protocol").removesuffix(".__main__")
    message = " ".join(
        f"this is a bug in kv-prereg, not in your files: {type(fault).__name__}: {fault} ({location}); please "
        f"report it, with the output of python -X dev -m {module} ... for the traceback".split()
    )
    if as_json:
        content = {"fault": type(fault).__name__, "why": message, "exit_status": FAULT_STATUS}
        print_escaped(json.dumps(content, sort_keys=True), sys.stdout)
    print_escaped(message, sys.stderr)
    return FAULT_STATUS


def format_refusal(refusal: Exception) -> str:
    """Return the message of a refusal of ours or of the system, in one line."""
    return " ".join((explain_os_error(refusal) if isinstance(refusal, OSError) else str(refusal)).split())


def _print_refusal(message: str) -> int:
    print_escaped(" ".join(message.split()), sys.stderr)
    return 2
