"""Freeze a protocol: hash it with code, splits, weights and environment, once.

    kv-prereg register registrations/001-mine
    kv-prereg register registrations/001-mine --sign ~/.ssh/id_ed25519

Reads protocol.toml in the folder, checks every name and budget, runs the decision rule on made-up studies
that must give each verdict, simulates its type-I error at the planned size, then writes lock.json,
sources.zip and the first ledger entry; with --sign the signature of the lock too. A refusal writes nothing.

Exit status: 0 locked; 2 bad input; 3 corrupt weights; 4 the folder is locked already.
"""

import sys
from pathlib import Path
from typing import Any

from analysis.output import terms
from analysis.studies import arms, full_use, opened, same_kept
from protocol import command
from protocol.acts.register import register
from protocol.evidence.lock import installed_files
from protocol.evidence.run.registration import Registration
from protocol.locked import imports
from protocol.models import sources
from protocol.texts import slots

# Words of the output that the help explains.
WORDS = (
    "lock",
    "opened before",
    "cell",
    "contrast",
    "family",
    "type-I error",
    "detectable difference",
    "CONFIRMED",
    "REFUTED",
)


def main(argv: list[str] | None = None, *, typed: bool = False) -> int:
    """is_typed: run from a shell; then refuse import paths that `confirm` would refuse."""
    parser = command.parser("protocol.register", __doc__)
    parser.epilog = terms.told(*WORDS)
    command.folder(parser)
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the lock with")
    args = parser.parse_args(argv)

    def act() -> int:
        if typed:
            imports.refuse_uncovered()
        locked = register(args.folder, sources.home(), key=args.sign)
        # Imported late: scipy is slow, and --help and the refusals above do not need it.
        from analysis.trial import power_words

        checks, decision = locked.content["checks"], locked.content["protocol"]["content"]["decision"]
        power = power_words.words(checks, decision["method"])
        lines = [
            f"locked {args.folder} as {locked.digest}",
            f"{len(locked.content['grid'])} cells; "
            f"{checks['tests']} tests at {checks['corrected_alpha']} each",
            *(size(count, check) for count, check in checks["problems"].items()),
            *scored(checks),
            *power,
            *errors(checks),
            *arms.asked(locked.content),
            *arms.apart(locked.content),
            *full_use.words(locked.content.get(full_use.FIELD, {})),
            *slots.words(locked.content),
            *opened.words(locked.content),
            *opened.developed(locked.content),
            *same_kept.words(checks["same_kept"]),
            *installed_files.words(locked.content["environment"]["altered"]),
            f"next: kv-prereg probe {args.folder}, "
            f"{'then' if Registration(args.folder).swept else 'or'} kv-prereg confirm {args.folder}",
        ]
        values = {"lock": locked.digest, "checks": checks, "opened": locked.content["opened"], "power": power}
        command.say(args.json, "\n".join(lines), values)
        return 0

    return command.answer(args.json, act)


def errors(checks: dict[str, Any]) -> list[str]:
    """Format how often the whole decision is wrong when no arms differ."""
    shares = checks["decision_errors"]
    confirmed, refuted = (float(shares[word]["share"]) for word in ("confirmed", "refuted"))
    return [
        f"where nothing differs the rule says CONFIRMED in {confirmed:.1%} and REFUTED in {refuted:.1%} of "
        f"studies, at worst (where {shares['setting']})"
    ]


def scored(checks: dict[str, Any]) -> list[str]:
    """Note the tasks with scores, which the simulated error rates and power do not cover."""
    tasks = checks.get("scored", [])
    return [
        f"errors and power are of right and wrong answers; those of {', '.join(tasks)} have scores"
    ] * bool(tasks)


def size(problems: str, check: dict[str, Any]) -> str:
    return f"{problems} problems: type-I error {check['type_one_over_nominal']} x nominal"


if __name__ == "__main__":
    sys.exit(main(typed=True))
