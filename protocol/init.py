"""Begin a study: a commented protocol that can be registered as it is, in a folder of its own.

    kv-prereg init                                      registrations/001-mine, or the next number
    kv-prereg init registrations/002-mine --like paper  the protocol of a paper: sweep, branch table, two models
    kv-prereg init --like outside                       lm-eval, inspect_ai or kvpress runs it (docs/outside.md)
    kv-prereg init --list                               what there is to begin with

Writes protocol.toml. Its held-out problems are drawn by confirm, after the lock (`[randomness]`), so that nobody has
seen one before, and no earlier study can have opened one; a template that another harness runs has pool.jsonl beside
it, with the ids of which some are drawn. Replace either by your own. Nothing is locked. Needs no torch and no
weights.

Exit status: 0 written; 2 bad input: an unknown template, or a study that is there already.
"""

import shlex
import sys
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from protocol import command
from protocol.evidence import late_randomness
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import unknown_message

REGISTRATIONS = Path("registrations")
NEXT_STEPS = {
    "rehearse": "checks on a few problems that it would run; keeps nothing",
    "register": "checks the study and freezes it; possible once",
    "probe": "chooses among the candidates, on development problems",
    "confirm": "runs, judges and draws the study; possible once",
}

TEMPLATES = ("paper", "quick", "reasoning", "retrieval", "lossless", "sequential", "outside")
DEFAULT = "quick"
POOL = "pool.jsonl"
POOL_SIZES: Mapping[str, int] = MappingProxyType({"outside": 1319})  # the test split of GSM8K


class NewRegistration(NamedTuple):
    """paths: the written files. question: the question of the protocol. pool_size: lines of the pool of a study that
    another harness runs. has_sweep: whether a probe chooses the subject.
    """

    paths: list[Path]
    question: str
    pool_size: int
    has_sweep: bool


class Options(command.Options):
    like: str
    list: bool


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("init", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder (default: registrations/NNN-mine)")
    parser.add_argument(
        "--like", default=DEFAULT, metavar="NAME", help=f"{', '.join(TEMPLATES)} (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="describe the choices; write nothing")
    return command.run(parser, argv, Options(), lambda args: print_templates(args) if args.list else begin_study(args))


def print_templates(args: Options) -> int:
    descriptions = {name: describe_template(name) for name in TEMPLATES}
    margin = 2 + max(map(len, descriptions))
    command.print_result(
        args.json,
        "\n".join(f"{name:<{margin}}{description}" for name, description in descriptions.items()),
        descriptions,
    )
    return 0


def begin_study(args: Options) -> int:
    folder = args.folder or next_free_folder(REGISTRATIONS)
    written = create_registration(folder, args.like)
    steps = {
        f"kv-prereg {name} {shlex.quote(str(folder))}": why
        for name, why in NEXT_STEPS.items()
        if (name != "probe" or written.has_sweep) and (name != "rehearse" or not written.pool_size)
    }
    margin = 2 + max(map(len, steps))
    descriptions = [
        written.question,
        f"the ids of {written.pool_size} problems, from which confirm will draw; replace them by yours",
    ]
    draws_late = late_randomness.FIELD in tomllib.loads(read_template(args.like))
    drawn_late = ["held-out problems: drawn by confirm after the lock, so nobody has seen them"] * draws_late
    lines = [f"wrote {path}: {description}" for path, description in zip(written.paths, descriptions, strict=False)]
    lines += [*drawn_late, "next steps, in this order:", *(f"  {step:<{margin}}{why}" for step, why in steps.items())]
    values = {"folder": str(folder), "written": [str(path) for path in written.paths], "next": [*steps]}
    command.print_result(args.json, "\n".join(lines), values)
    return 0


def read_template(name: str) -> str:
    """Return the protocol of a template. Raises BadInput for another name."""
    if name not in TEMPLATES:
        raise BadInput(f"--like: {unknown_message('template', name, TEMPLATES)}")
    return (resources.files("protocol.command") / "templates" / f"{name}.toml").read_text("utf-8")


def describe_template(name: str) -> str:
    """Return the description of a template, from its first line."""
    return read_template(name).partition("\n")[0].removeprefix("# ")


def next_free_folder(shelf: Path) -> Path:
    """Return the first NNN-mine whose number is above every number in the folder."""
    numbers = [int(head) for path in shelf.glob("[0-9]*-*") if (head := path.name.partition("-")[0]).isdecimal()]
    return shelf / f"{max(numbers, default=0) + 1:03d}-mine"


def create_registration(folder: Path, like: str) -> NewRegistration:
    """Write the template `like` into `folder`, and beside it the pool of one that another harness runs.

    Raises BadInput, and writes nothing, if there is already a registration or a file of that name, and for a
    folder of registrations.
    """
    text = read_template(like)
    pool_size = POOL_SIZES.get(like, 0)
    pool = "".join(f'{{"id": "{number}"}}\n' for number in range(pool_size))
    contents = {PROTOCOL: text} | ({POOL: pool} if pool else {})
    if folder.suffix == ".toml" or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"{folder} is not a folder; name the folder for {PROTOCOL}")
    if contains_studies(folder):
        raise BadInput(f"{folder} contains studies; name a new folder in it, such as {next_free_folder(folder)}")
    study = Registration(folder)
    if existing := [*study.written_files(), *filter(study.has, contents)]:
        raise BadInput(f"{folder / existing[0]} exists already and is never overwritten; name another folder")
    for name in reversed(contents):  # the protocol last: it makes the folder a study
        files.create(folder / name, contents[name].encode())
    protocol = tomllib.loads(text)
    return NewRegistration(
        [folder / name for name in contents], protocol["question"], pool_size, has_sweep="sweep" in protocol
    )


def contains_studies(folder: Path) -> bool:
    """Whether studies are one level below, which an index would no longer show."""
    return any(Registration(path).is_registration() for path in folder.glob("*/"))


if __name__ == "__main__":
    sys.exit(main())
