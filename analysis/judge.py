"""Apply the committed rule of a study to its sealed records.

    kv-prereg judge registrations/quickstart

Prints the judgement as canonical JSON: no floats, decimals as strings with six digits. It depends only
on lock.json and records/*.jsonl (and, with a sweep, on selection.json), and is the same byte for byte
wherever it is computed. Exit status: 0 judged, whatever the verdict; 2 the folder cannot be read.
"""

import sys

from analysis.judgement.judged_folder import judge
from protocol.formats.json_text import dumps
from protocol.formats.reading_command import run_command


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a registration, e.g. registrations/quickstart"}
    return run_command("judge", __doc__, folder, judge, argv, show=dumps)


if __name__ == "__main__":
    sys.exit(main())
