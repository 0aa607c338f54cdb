"""Export a registration to other formats: a registration text, an attestation of its verdict, a data set.

    kv-prereg export registrations/quickstart --format osf            the OSF's headings, Markdown
    kv-prereg export registrations/quickstart --format aspredicted    AsPredicted's nine questions
    kv-prereg export registrations/quickstart --format in-toto        in-toto Statement v1, JSON
    kv-prereg export registrations/quickstart --format predicate      what actions/attest takes, JSON
    kv-prereg export registrations/quickstart --format croissant      its records, as Croissant 1.0
    kv-prereg export registrations/quickstart --format prml           its lock, as a PRML 0.1 manifest
    kv-prereg export registrations/quickstart --format every-eval-ever    its arms, a line of JSON for each model

Reads only the files of a locked registration. Checks that they belong together and that the verdict follows
from the records; kv-prereg audit checks the rest. An attestation and a data set need a verdict. With --to FILE
the text is written to FILE, once. Put croissant.json next to lock.json: its paths are relative to that folder.

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
from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import Tampered
from protocol.instruments.exports import croissant, every_eval_ever, in_toto, preregistration, prml
from protocol.lock import lock


def _dump_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[Registration], str]] = MappingProxyType(
    {
        "in-toto": lambda study: _dump_json(in_toto.build_statement(study)),
        "predicate": lambda study: _dump_json(in_toto.build_statement(study)["predicate"]),
        "croissant": lambda study: _dump_json(croissant.describe_dataset(study)),
        "prml": lambda study: _dump_json(prml.build_manifest(study)),
        "every-eval-ever": lambda study: "".join(
            json.dumps(document, ensure_ascii=False) + "\n" for document in every_eval_ever.build_documents(study)
        ),
        "osf": lambda study: preregistration.format_osf(study.lock, study.entries),
        "aspredicted": lambda study: preregistration.format_as_predicted(study.lock, study.entries),
    }
)

TELLING_FORMATS = ("in-toto", "predicate", "croissant", "every-eval-ever")  # which repeat the verdict


def export_study(study: Registration, format_name: str) -> str:
    """Return a study in one of FORMATS. Raises Tampered if its ledger does not begin with its lock, or if
    its files lack a field that the format needs.
    """
    locked = study.lock
    if [entry.body for entry in study.entries[:1]] != [{"lock": locked.digest}]:
        raise Tampered(f"{lock.NAME}: is not the lock with which {ledger.NAME} begins; restore that lock")
    try:
        text = FORMATS[format_name](study)
        if format_name in TELLING_FORMATS:
            from analysis.judgement import recorded_judgement  # loads what judges; a text of a lock does not need it

            recorded_judgement.refuse_unsupported_as(Tampered, study.folder)
        return text
    except (KeyError, TypeError) as error:
        raise Tampered(
            f"{study.folder}: cannot be written as {format_name}, since a field is missing or wrong: {error}"
        ) from error


class Options(command.Options):
    format: str
    to: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("export", __doc__)
    command.add_folder(parser)
    parser.add_argument("--format", required=True, choices=FORMATS, help="the format to write")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the text to this file instead of printing it")
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    text = export_study(Registration(args.folder), args.format)
    if args.to:
        files.create(args.to, text.encode())
        command.print_result(args.json, f"written: {args.to}", {"format": args.format, "written": str(args.to)})
    else:
        command.print_result(args.json, text.removesuffix("\n"), {"format": args.format, "text": text})
    return 0


if __name__ == "__main__":
    sys.exit(main())
