"""Options that commands share: the parser with --json, the folder, and the external witnesses to trust."""

import argparse
from pathlib import Path

from protocol import witnesses
from protocol.evidence.bytes import usage
from protocol.evidence.outside.anchors import Witness
from protocol.evidence.run.registration import Registration
from protocol.texts import menu
from protocol.witnesses.remote import BRANCH

__all__ = ["Options", "Trust", "folder", "identity", "parser", "trust", "trusted"]


class Options(argparse.Namespace):
    """Parsed arguments of a command that takes `folder`; each command adds its own options."""

    json: bool
    folder: Path


class Trust(Options):
    """Parsed arguments with the options of `add_trust`."""

    ca: Path | None
    headers: Path | None
    remote: str | None
    branch: str
    require_anchor: bool


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json whose help is the docstring of the command."""
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
    """Add the options that say which external witnesses to trust."""
    made.add_argument("--ca", type=Path, metavar="FILE", help="PEM certificates of authorities to trust")
    made.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    made.add_argument("--remote", metavar="URL", help="the git remote to trust")
    made.add_argument("--branch", default=BRANCH, help="its branch (default: %(default)s)")
    made.add_argument(
        "--require-anchor", action="store_true", help="status 5 unless a proof holds for each document"
    )


def trusted(args: Trust) -> list[Witness]:
    """Return the witnesses that the options of `add_trust` select for the registration in `args.folder`."""
    study = Registration(args.folder)
    return witnesses.trusted(study, ca=args.ca, headers=args.headers, remote=args.remote, branch=args.branch)
