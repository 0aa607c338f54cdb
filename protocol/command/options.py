"""Options that commands share: the parser with --json, the folder, and the external witnesses to trust."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from protocol.evidence.external.anchors import BRANCH, FOLDER, Witness
from protocol.evidence.registration import Registration
from protocol.formats import command_line, escape, files


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
    sigstore_root: Path | None
    require_anchor: bool


def make_parser(name: str, doc: str | None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with --json for the command of this name in the menu. doc, words: of its help."""
    parser = command_line.make_parser(f"kv-prereg {name}", doc, words)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return parser


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=read_folder, help="a registration, e.g. registrations/quickstart")


def read_folder(text: str) -> Path:
    """Return the path of a folder whose name is one line, so that it prints no line of its own."""
    if not escape.is_one_line(text):
        raise argparse.ArgumentTypeError("has a line break in its name; rename the folder")
    return Path(text)


def add_identity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--identity", type=Path, metavar="FILE", help="the private key (age, ssh) that decrypts the problems"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which external witnesses to trust."""
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="file with PEM certificates of the time-stamping authorities to trust"
    )
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="folder with further Bitcoin block headers")
    parser.add_argument("--remote", metavar="URL", help="the git remote to trust")
    parser.add_argument("--branch", default=BRANCH, help="the branch of --remote (default: %(default)s)")
    parser.add_argument(
        "--sigstore-root", type=Path, metavar="FILE", help="sigstore's trusted_root.json (default: the library's own)"
    )
    parser.add_argument(
        "--require-anchor", action="store_true", help="exit with status 5 unless every document has a valid proof"
    )


def trusted_witnesses(args: Trust) -> list[Witness]:
    """Return the witnesses that the options of `add_trust` select for the proofs of the registration in
    `args.folder`; none where it has no proof and nothing is named that would have to be there.
    """
    study = Registration(args.folder)
    if not (files.exists(study.folder / FOLDER) or args.ca or args.headers or args.sigstore_root):
        return []
    return make_witnesses(study, args)


def make_witnesses(study: Registration, args: Trust) -> list[Witness]:
    """Return the witnesses that the options of `add_trust` select."""
    from protocol import witnesses

    trusted = {"ca": args.ca, "headers": args.headers, "sigstore_root": args.sigstore_root}
    return witnesses.make_witnesses(study, **trusted, remote=args.remote, branch=args.branch)
