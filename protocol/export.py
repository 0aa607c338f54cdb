"""Write a registration as others read it: a registration text, an attestation of its verdict, a data set.

    kv-prereg export registrations/quickstart --format osf            the OSF's headings, Markdown
    kv-prereg export registrations/quickstart --format aspredicted    AsPredicted's nine questions
    kv-prereg export registrations/quickstart --format in-toto        in-toto Statement v1, JSON
    kv-prereg export registrations/quickstart --format predicate      what actions/attest takes, JSON
    kv-prereg export registrations/quickstart --format croissant      its records, as Croissant 1.0

Reads the files of a locked registration alone, and verifies no more than that they belong together: the rest
is for kv-prereg audit. An attestation and a data set need a verdict. With --to FILE the text is
written there, once; croissant.json belongs beside lock.json, since its paths begin there.

Exit status: 0 exported; 2 not a registration, not locked, no verdict, or FILE exists; 3 the files contradict
each other.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from protocol import command
from protocol.evidence.bytes import files
from protocol.evidence.lock import lock
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import ledger
from protocol.evidence.run.registration import Registration
from protocol.texts import croissant, in_toto, preregistration

__all__ = ["FORMATS", "exported", "main"]


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[Registration], str]] = MappingProxyType(
    {
        "in-toto": lambda study: _json(in_toto.of(study)),
        "predicate": lambda study: _json(in_toto.of(study)["predicate"]),
        "croissant": lambda study: _json(croissant.of(study)),
        "osf": lambda study: preregistration.osf(study.lock, study.entries),
        "aspredicted": lambda study: preregistration.as_predicted(study.lock, study.entries),
    }
)


def exported(study: Registration, form: str) -> str:
    """Return a study in one of FORMATS. Raises Tampered if its ledger does not begin with its lock, or if
    its files lack a field that the format needs.
    """
    locked = study.lock
    if [entry.body for entry in study.entries[:1]] != [{"lock": locked.digest}]:
        raise Tampered(
            f"{lock.NAME}: is not the lock that {ledger.NAME} begins with; restore the one that is"
        )
    try:
        return FORMATS[form](study)
    except (KeyError, TypeError) as gap:
        raise Tampered(
            f"{study.folder}: cannot be written as {form}, since a field is missing or misstated: {gap}"
        ) from gap


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.export", __doc__)
    command.folder(parser)
    parser.add_argument("--format", required=True, choices=FORMATS, help="what to write")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write it there instead of printing it")
    args = parser.parse_args(argv)

    def act() -> int:
        text = exported(Registration(args.folder), args.format)
        if args.to:
            files.create(args.to, text.encode())
            command.say(args.json, f"written: {args.to}", {"format": args.format, "written": str(args.to)})
        else:
            command.say(args.json, text.removesuffix("\n"), {"format": args.format, "text": text})
        return 0

    return command.answer(args.json, act)


if __name__ == "__main__":
    sys.exit(main())
