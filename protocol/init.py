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

SHELF = Path("registrations")
SEEDS = 1 << 53  # JSON represents integers below this exactly
NEXT = {
    "rehearse": "would it run? a few problems; nothing is kept",
    "register": "checks it and freezes it; once",
    "confirm": "runs, judges and draws it; once",
}


class Options(command.Options):
    like: str
    list: bool


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.init", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new one (default: registrations/NNN-mine)")
    parser.add_argument(
        "--like", default=TEMPLATES[0], metavar="NAME", help=f"{', '.join(TEMPLATES)} (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="what each of these is; nothing is written")
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: listed(args) if args.list else begun(args))


def listed(args: Options) -> int:
    told = {name: init.told(name) for name in TEMPLATES}
    margin = 2 + max(map(len, told))
    command.say(args.json, "\n".join(f"{name:<{margin}}{what}" for name, what in told.items()), told)
    return 0


def begun(args: Options) -> int:
    folder = args.folder or init.free(SHELF)
    written = init.begin(folder, args.like, secrets.randbelow(SEEDS))
    steps = {f"kv-prereg {name} {shlex.quote(str(folder))}": why for name, why in NEXT.items()}
    margin = 2 + max(map(len, steps))
    what = [written.question, f"{written.questions} questions, drawn now: no model has answered one"]
    lines = [f"wrote {path}: {words}" for path, words in zip(written.paths, what, strict=False)]
    lines += ["next, in this order:", *(f"  {step:<{margin}}{why}" for step, why in steps.items())]
    values = {"folder": str(folder), "written": [str(path) for path in written.paths], "next": [*steps]}
    command.say(args.json, "\n".join(lines), values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
