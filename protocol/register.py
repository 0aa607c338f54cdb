"""Freeze a protocol: hash it with code, splits, weights and environment, once.

    python -m protocol.register registrations/001-mine

Reads protocol.toml in the folder, checks every name and budget, simulates the decision's type-I error at the
planned size, then writes lock.json, sources.zip and the first ledger entry. A refusal writes nothing.

Exit status: 0 locked; 2 bad input; 3 corrupt weights; 4 the folder is locked already.
"""

import sys
from typing import Any

from protocol import command
from protocol.evidence import selection
from protocol.models import catalogue
from protocol.registration import register


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.register", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)

    def act() -> int:
        held = register(args.folder, catalogue.home())
        checks = held.content["checks"]
        lines = [
            f"locked {args.folder} as {held.digest}",
            f"{len(held.content['grid'])} cells; {checks['tests']} tests at {checks['corrected_alpha']} each",
            *(size(count, check) for count, check in checks["problems"].items()),
            f"next: python -m protocol.probe {args.folder}, "
            f"{'then' if selection.swept(held) else 'or'} python -m protocol.confirm {args.folder}",
        ]
        command.say(args.json, "\n".join(lines), {"lock": held.digest, "checks": checks})
        return 0

    return command.answer(args.json, act)


def size(problems: str, check: dict[str, Any]) -> str:
    effects = ", ".join(
        f"{effect} when {float(share):.0%} of them differ"
        for share, effect in check["minimal_detectable_effect"].items()
    )
    return (
        f"{problems} problems: type-I error {check['type_one_over_nominal']} x nominal; "
        f"smallest detectable difference {effects}"
    )


if __name__ == "__main__":
    sys.exit(main())
