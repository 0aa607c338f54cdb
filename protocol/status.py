"""Say where each registration stands and what its one next step is.

    python -m protocol.status                 every registration below registrations/
    python -m protocol.status registrations/quickstart

Reads files only: no torch, no model. Whether the evidence verifies is for python -m protocol.audit.

Exit status: 0; 2 not a registration.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

from protocol import command
from protocol.evidence import claim, documents, lock, records, seal, selection, verdict
from protocol.evidence.refusals import BadInput


class Standing(NamedTuple):
    name: str
    state: str
    next: str

    def line(self) -> str:
        return f"{self.name:<24} {self.state:<44} next: {self.next}"


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.status", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("registrations"))
    args = parser.parse_args(argv)

    def act() -> int:
        standings = [standing(folder) for folder in found(args.folder)]
        confirmed = sum(one.state.startswith("judged") for one in standings)
        total = f"{len(standings)} registered, {confirmed} confirmed"
        text = "\n".join([*(one.line() for one in standings), total])
        command.say(args.json, text, {"registrations": [one._asdict() for one in standings], "total": total})
        return 0

    return command.answer(args.json, act)


def found(folder: Path) -> list[Path]:
    if (folder / "protocol.toml").is_file():
        return [folder]
    below = sorted(path.parent for path in folder.glob("*/protocol.toml"))
    if not below:
        raise BadInput(f"{folder}: no protocol.toml here or one level below; name a registration")
    return below


def standing(folder: Path) -> Standing:
    """The state that the files show, and the one next step."""
    name = folder.name
    if not (folder / lock.NAME).exists():
        return Standing(name, "written, not locked", f"python -m protocol.register {folder}")
    if (folder / verdict.NAME).exists():
        word = verdict.read(folder).content["judged"]["verdict"]
        return Standing(name, f"judged: {word}, UNANCHORED", f"python -m protocol.audit {folder}")
    if (folder / seal.NAME).exists():
        return Standing(name, "sealed, not judged", f"python -m protocol.confirm {folder}")
    if (folder / claim.NAME).exists():
        return Standing(name, f"claimed, {progress(folder)}", f"python -m protocol.confirm {folder}")
    if selection.swept(lock.read(folder)):
        if not (folder / selection.NAME).exists():
            return Standing(name, "locked, nothing selected", f"python -m protocol.probe {folder}")
        winner = documents.read(folder / selection.NAME).content["selected"]["winner"]
        return Standing(name, f"locked, {winner} selected", f"python -m protocol.confirm {folder}")
    return Standing(name, "locked", f"python -m protocol.confirm {folder}")


def progress(folder: Path) -> str:
    held: dict[str, Any] = lock.read(folder).content
    total = sum(len(held["items"][cell[1]]["confirm"]) for cell in held["grid"])
    written = sum(
        path.read_bytes().count(b"\n") for path in (folder / records.FOLDERS["confirm"]).glob("*.jsonl")
    )
    return f"{written} of {total} records"


if __name__ == "__main__":
    sys.exit(main())
