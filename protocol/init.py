"""Begin a study: a commented protocol that can be registered as it is, in a folder of its own.

    kv-prereg init                                      registrations/001-mine, or the next number
    kv-prereg init registrations/002-mine --like lossless
    kv-prereg init --list                               what there is to begin with

Writes protocol.toml and, for templates that ask the questions of a file, questions.jsonl: chains of
arithmetic, drawn at that moment, so that nobody has seen a model answer one. Replace either by your own.
Nothing is locked. Needs no torch and no weights.

Exit status: 0 written; 2 bad input: an unknown template, or a study that is there already.
"""

import secrets
import shlex
import sys
from pathlib import Path

from protocol import command
from protocol.acts import init
from protocol.acts.init import TEMPLATES

REGISTRATIONS = Path("registrations")
SEEDS = 1 << 53  # JSON represents integers below this exactly
NEXT_STEPS = {
    "rehearse": "would it run? a few problems; nothing is kept",
    "register": "checks it and freezes it; once",
    "confirm": "runs, judges and draws it; once",
}


class Options(command.Options):
    like: str
    list: bool


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("protocol.init", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new one (default: registrations/NNN-mine)")
    parser.add_argument(
        "--like", default=TEMPLATES[0], metavar="NAME", help=f"{', '.join(TEMPLATES)} (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="what each of these is; nothing is written")
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: print_templates(args) if args.list else begin_study(args))


def print_templates(args: Options) -> int:
    descriptions = {name: init.describe_template(name) for name in TEMPLATES}
    margin = 2 + max(map(len, descriptions))
    command.print_result(
        args.json,
        "\n".join(f"{name:<{margin}}{description}" for name, description in descriptions.items()),
        descriptions,
    )
    return 0


def begin_study(args: Options) -> int:
    folder = args.folder or init.next_free_folder(REGISTRATIONS)
    written = init.create_registration(folder, args.like, secrets.randbelow(SEEDS))
    steps = {f"kv-prereg {name} {shlex.quote(str(folder))}": why for name, why in NEXT_STEPS.items()}
    margin = 2 + max(map(len, steps))
    descriptions = [written.question, f"{written.question_count} questions, drawn now: no model has answered one"]
    lines = [f"wrote {path}: {description}" for path, description in zip(written.paths, descriptions, strict=False)]
    lines += ["next, in this order:", *(f"  {step:<{margin}}{why}" for step, why in steps.items())]
    values = {"folder": str(folder), "written": [str(path) for path in written.paths], "next": [*steps]}
    command.print_result(args.json, "\n".join(lines), values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
