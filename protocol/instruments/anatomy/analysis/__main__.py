"""Which tokens the answers of a study needed, which signals know it, and what follows for its policies.

    python -m protocol.instruments.anatomy.analysis registrations/anatomy-chain
    python -m protocol.instruments.anatomy.analysis registrations/anatomy-chain --json

The registered test first, where it was made; all else is exploratory. Nothing here decides about a policy.

Exit status: 0 printed, whatever was found; 2 nothing was labelled, or the folder cannot be read.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.formats.reading_command import run_command
from protocol.instruments.anatomy.analysis import report_text
from protocol.instruments.anatomy.analysis.exploratory import explore_anatomy
from protocol.instruments.anatomy.analysis.traces import read_document
from protocol.instruments.anatomy.trace_file import VERDICT


def read_findings(folder: Path) -> dict[str, Any]:
    """Return the printed data: `explore_anatomy`, and the verdict if there is one."""
    findings = explore_anatomy(folder)
    return {**findings, "verdict": read_document(folder, VERDICT)}


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a registration whose traces were labelled, e.g. registrations/anatomy-chain"}
    return run_command("needed", __doc__, path, read_findings, argv, text=report_text.format_report)


if __name__ == "__main__":
    sys.exit(main())
