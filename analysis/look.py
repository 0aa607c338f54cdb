"""Print whether a study with registered looks stops after the problems that have records, or goes on.

    kv-prereg look registrations/mine

`kv-prereg confirm` runs this in a separate process after each look, because code that runs cells computes no effect.
It prints "stop" or "go on" and nothing else: no number reaches the run. Exit status: 0; 2 the folder cannot be read.
"""

import sys

from analysis.judgement.judged_folder import judge
from analysis.judgement.looks import advise
from protocol.formats.reading_command import run_command


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a registration with decision.looks"}
    return run_command(
        "look", __doc__, folder, lambda folder: advise(judge(folder)), argv, show=lambda word: f"{word}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
