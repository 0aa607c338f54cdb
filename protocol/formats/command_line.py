"""The parser of a command line, which rejects in one line, and how a refusal or a fault is printed."""

import argparse
import json
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from protocol.formats.escape import print_escaped
from protocol.formats.refusals import Refusal
from protocol.formats.suggestions import explain_os_error, unknown_message

FAULT_STATUS = 70  # EX_SOFTWARE of sysexits.h

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


def report_refusal(refusal: Exception) -> int:
    """Print a refusal of ours or of the system to standard error, and return its exit status."""
    print_escaped(f"{type(refusal).__name__}: {format_refusal(refusal)}", sys.stderr)
    return refusal.exit_status if isinstance(refusal, Refusal) else Refusal.exit_status
