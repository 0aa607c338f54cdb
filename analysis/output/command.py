"""The command line of whatever reads finished studies: paths in, what was found or written out."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from analysis.output.printed import dumps
from analysis.output.told import plain

__all__ = ["UNREADABLE", "command"]

Refusals: TypeAlias = type[Exception] | tuple[type[Exception], ...]
Made = TypeVar("Made")
UNREADABLE: Refusals = (ValueError, OSError)  # what a folder that is no study raises


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
) -> int:
    """`python -m <name> PATH...`: prints what act(**paths) makes, as `show` says it.

    paths: what each is, by name. text: lines for people, of a finding as `plain` has it; with --json it is
    printed as canonical JSON.
    Exit status: 0 printed; 2 for one of `refusals`, or for a document that is none of ours, in one line.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for path, what in paths.items():
        parser.add_argument(path, type=Path, help=what)
    if text is not None:
        parser.add_argument("--json", action="store_true", help="print canonical JSON")
    given = vars(parser.parse_args(argv))
    as_json = given.pop("json", False)
    try:
        made = act(**given)
    except refusals as refusal:
        print(f"{type(refusal).__name__}: {refusal}", file=sys.stderr)
        return 2
    except (LookupError, TypeError, AttributeError) as fault:
        # A document that parses and is none of ours, or a fault of this program: nothing here can tell which.
        where = " ".join(map(str, given.values()))
        print(
            f"{where}: a file is not of the documented format, or this command has a fault "
            f"({type(fault).__name__}: {fault}); python -m protocol.audit says whether the files hold",
            file=sys.stderr,
        )
        return 2
    if text is None:
        printed = show(made)
    else:
        found = plain(made)
        printed = dumps(found) if as_json else _lines(text(found))
    sys.stdout.buffer.write(printed.encode() + b"\n")
    return 0
