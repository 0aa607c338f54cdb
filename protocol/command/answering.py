"""Run a command and report its result: text or one JSON object, a refusal in one line, the exit status."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from analysis.output import phases
from protocol.evidence import extras
from protocol.evidence.bytes.shown import put
from protocol.evidence.refusals import BadInput, Refusal, of_system

__all__ = ["STATUS", "answer", "say", "tell"]

# SCREENED is as undecided as INCONCLUSIVE
STATUS = {"CONFIRMED": 0, "REFUTED": 10, "INCONCLUSIVE": 11, "SCREENED": 11, "DEVIATED": 12}


def say(as_json: bool, text: str, values: dict[str, Any]) -> None:
    put(json.dumps(values, sort_keys=True) if as_json else text, sys.stdout)


def tell(line: str) -> None:
    """Print a message that is not part of the result to standard error."""
    put(line, sys.stderr)


def answer(as_json: bool, act: Callable[[], int], *, resumes: bool = False) -> int:
    """Run `act`, show its phases and return its exit status.

    A refusal becomes one line on standard error and its own exit status. Errors of the system (no permission,
    a full disk) and any other exception, for example from an untrusted file, become one line and status 2;
    `python -X dev` shows the traceback of the latter. resumes: whether an interrupted command continues.
    """
    try:
        with phases.showing():
            return act()
    except Refusal as refused:
        return _refuse(as_json, type(refused).__name__, str(refused), refused.exit_status)
    except OSError as refused:
        return _refuse(as_json, type(refused).__name__, of_system(refused), Refusal.exit_status)
    except KeyboardInterrupt:
        tell(f"interrupted; the same command {'continues where it stopped' if resumes else 'begins anew'}")
        return 130
    except ModuleNotFoundError as missing:
        why = extras.needed(missing.name)
        return _refuse(as_json, BadInput.__name__, why, BadInput.exit_status)
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        return _refuse(
            as_json, type(fault).__name__, f"{fault} ({_place(fault)}); {_FAULT}", Refusal.exit_status
        )


_FAULT = (
    "a file is not what this command takes, or the command has a fault: kv-prereg audit says "
    "whether the files hold; typed as python -X dev -m protocol ..., the same command says where the fault is"
)


def _refuse(as_json: bool, kind: str, why: str, status: int) -> int:
    line = " ".join(why.split())
    if as_json:
        put(json.dumps({"refused": kind, "why": line, "exit_status": status}, sort_keys=True), sys.stdout)
    tell(f"{kind}: {line}")
    return status


def _place(fault: Exception) -> str:
    """Return the file and line of the code that raised."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}"
