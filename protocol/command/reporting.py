"""Run a command and report its result: text or one JSON object, a refusal in one line, the exit status."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from protocol.formats import command_line, extras, progress_display
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput, Refusal
from protocol.formats.suggestions import explain_os_error

Args = TypeVar("Args", bound=argparse.Namespace)
# SCREENED and RE-USED decide as little as INCONCLUSIVE
EXIT_STATUS = {"CONFIRMED": 0, "REFUTED": 10, "INCONCLUSIVE": 11, "SCREENED": 11, "RE-USED": 11, "DEVIATED": 12}


def print_result(as_json: bool, text: str, values: dict[str, Any]) -> None:
    print_escaped(json.dumps(values, sort_keys=True) if as_json else text, sys.stdout)


def print_notice(message: str) -> None:
    """Print a message that is not part of the result to standard error."""
    print_escaped(message, sys.stderr)


def run(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    args: Args,
    act: Callable[[Args], int],
    *,
    resumes: bool = False,
) -> int:
    """Parse `argv` into `args`, run `act` on them as `execute` does, and return its exit status."""
    parser.parse_args(argv, namespace=args)
    return execute(args.json, lambda: act(args), resumes=resumes)


def execute(as_json: bool, act: Callable[[], int], *, resumes: bool = False) -> int:
    """Run `act`, show its phases and return its exit status.

    A refusal becomes one line on standard error and its own exit status, an error of the system (no permission,
    a full disk) one line and status 2. Any other exception is a fault of this program: see
    `command_line.report_fault`. resumes: whether an interrupted command continues.
    """
    try:
        with progress_display.show_phases():
            return act()
    except Refusal as refusal:
        return _refuse(as_json, type(refusal).__name__, str(refusal), refusal.exit_status)
    except OSError as refusal:
        return _refuse(as_json, type(refusal).__name__, explain_os_error(refusal), Refusal.exit_status)
    except KeyboardInterrupt:
        print_notice(f"interrupted; the same command {'continues where it stopped' if resumes else 'starts over'}")
        return 130
    except ModuleNotFoundError as missing:
        reason = extras.install_hint(missing.name)
        return _refuse(as_json, BadInput.__name__, reason, BadInput.exit_status)
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        return command_line.report_fault(fault, as_json)


def _refuse(as_json: bool, kind: str, reason: str, status: int) -> int:
    message = " ".join(reason.split())
    if as_json:
        print_escaped(json.dumps({"refused": kind, "why": message, "exit_status": status}, sort_keys=True), sys.stdout)
    print_notice(f"{kind}: {message}")
    return status
