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

from analysis.judgement import arm_text, full_cache_use, previously_opened, same_retained_slots
from protocol import command
from protocol.acts.register import register
from protocol.evidence.registration import Registration
from protocol.formats import terms
from protocol.lock import installed_files
from protocol.messages import slot_sizes
from protocol.models import sources
from protocol.workspace import imports

# Words of the output that the help explains.
TERMS = (
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


def main(argv: list[str] | None = None, *, is_typed: bool = False) -> int:
    """is_typed: run from a shell; then refuse import paths that `confirm` would refuse."""
    parser = command.make_parser("protocol.register", __doc__)
    parser.epilog = terms.format_terms(*TERMS)
    command.add_folder(parser)
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the lock with")
    args = parser.parse_args(argv)

    def act() -> int:
        if is_typed:
            imports.refuse_uncovered()
        locked = register(args.folder, sources.cache_home(), key=args.sign)
        # Imported late: scipy is slow, and --help and the refusals above do not need it.
        from analysis.simulation import power_text

        checks, decision = locked.content["checks"], locked.content["protocol"]["content"]["decision"]
        power = power_text.describe_power(checks, decision["method"])
        lines = [
            f"locked {args.folder} as {locked.digest}",
            f"{len(locked.content['grid'])} cells; {checks['tests']} tests at {checks['corrected_alpha']} each",
            *(format_type_one(count, check) for count, check in checks["problems"].items()),
            *format_scored(checks),
            *power,
            *format_errors(checks),
            *arm_text.extra_prompt_sentences(locked.content),
            *arm_text.differing_prompt_sentences(locked.content),
            *full_cache_use.describe_full_use(locked.content.get(full_cache_use.FIELD, {})),
            *slot_sizes.describe_slots(locked.content),
            *previously_opened.describe_opened(locked.content),
            *previously_opened.describe_shared_clusters(locked.content),
            *same_retained_slots.describe_pairs(checks["same_kept"]),
            *installed_files.format_altered(locked.content["environment"]["altered"]),
            f"next: kv-prereg probe {args.folder}, "
            f"{'then' if Registration(args.folder).has_sweep else 'or'} kv-prereg confirm {args.folder}",
        ]
        values = {"lock": locked.digest, "checks": checks, "opened": locked.content["opened"], "power": power}
        command.print_result(args.json, "\n".join(lines), values)
        return 0

    return command.execute(args.json, act)


def format_errors(checks: dict[str, Any]) -> list[str]:
    """Format how often the whole decision is wrong when no arms differ."""
    shares = checks["decision_errors"]
    confirmed, refuted = (float(shares[outcome]["share"]) for outcome in ("confirmed", "refuted"))
    return [
        f"where nothing differs the rule says CONFIRMED in {confirmed:.1%} and REFUTED in {refuted:.1%} of "
        f"studies, at worst (where {shares['setting']})"
    ]


def format_scored(checks: dict[str, Any]) -> list[str]:
    """Note the tasks with scores, which the simulated error rates and power do not cover."""
    tasks = checks.get("scored", [])
    return [f"errors and power are of right and wrong answers; those of {', '.join(tasks)} have scores"] * bool(tasks)


def format_type_one(problems: str, check: dict[str, Any]) -> str:
    return f"{problems} problems: type-I error {check['type_one_over_nominal']} x nominal"


if __name__ == "__main__":
    sys.exit(main(is_typed=True))
