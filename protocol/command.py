"""What every command shares: one line for a refusal, the exit statuses, the folder argument."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol import witnesses
from protocol.evidence import extras
from protocol.evidence.bytes import usage
from protocol.evidence.bytes.shown import put
from protocol.evidence.outside.anchors import Witness
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run.registration import Registration
from protocol.texts import menu
from protocol.witnesses.remote import BRANCH

__all__ = [
    "STATUS",
    "Options",
    "Trust",
    "answer",
    "folder",
    "identity",
    "parser",
    "say",
    "tell",
    "trust",
    "trusted",
]

# SCREENED decides as little as INCONCLUSIVE
STATUS = {"CONFIRMED": 0, "REFUTED": 10, "INCONCLUSIVE": 11, "SCREENED": 11, "DEVIATED": 12}


class Options(argparse.Namespace):
    """What was given to a command that has `folder`; a command's own adds the options that it declares."""

    json: bool
    folder: Path


class Trust(Options):
    """With the options of `trust`."""

    ca: Path | None
    headers: Path | None
    remote: str | None
    branch: str
    require_anchor: bool


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the command's docstring, with --json."""
    made = usage.parser(menu.typed(module), doc)
    made.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return made


def folder(made: argparse.ArgumentParser) -> None:
    made.add_argument("folder", type=Path, help="a registration, e.g. registrations/quickstart")


def identity(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--identity", type=Path, metavar="FILE", help="the private key (age, ssh) of encrypted problems"
    )


def trust(made: argparse.ArgumentParser) -> None:
    """The options that say which outside witnesses are believed."""
    made.add_argument("--ca", type=Path, metavar="FILE", help="PEM certificates of authorities to trust")
    made.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    made.add_argument("--remote", metavar="URL", help="the git remote to trust")
    made.add_argument("--branch", default=BRANCH, help="its branch (default: %(default)s)")
    made.add_argument(
        "--require-anchor", action="store_true", help="status 5 unless a proof holds for each document"
    )


def trusted(args: Trust) -> list[Witness]:
    """The witnesses that `trust`'s options believe, for the registration in `args.folder`."""
    study = Registration(args.folder)
    return witnesses.trusted(study, ca=args.ca, headers=args.headers, remote=args.remote, branch=args.branch)


def say(as_json: bool, text: str, values: dict[str, Any]) -> None:
    put(json.dumps(values, sort_keys=True) if as_json else text, sys.stdout)


def tell(line: str) -> None:
    """Say what is no result, on standard error."""
    put(line, sys.stderr)


def answer(as_json: bool, act: Callable[[], int]) -> int:
    """Run `act`; a refusal becomes one line on standard error and its own exit status, and so does what the
    system refuses (a folder that cannot be written, a full disk), with status 2, and whatever else a file of
    a stranger provokes. (`python -X dev` shows where that came from.)
    """
    try:
        return act()
    except (Refusal, OSError) as refused:
        status = refused.exit_status if isinstance(refused, Refusal) else Refusal.exit_status
        return _refuse(as_json, type(refused).__name__, str(refused), status)
    except KeyboardInterrupt:
        tell("interrupted; the same command continues where it stopped")
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
    """File and line of the code that raised."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}"
