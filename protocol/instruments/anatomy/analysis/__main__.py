"""Which tokens the answers of a study needed, which signals know it, and what follows for its policies.

    python -m protocol.instruments.anatomy.analysis registrations/anatomy-chain
    python -m protocol.instruments.anatomy.analysis registrations/anatomy-chain --json

The registered test first, where it was made; all else is exploratory. Nothing here decides about a policy.

Exit status: 0 printed, whatever was found; 2 nothing was labelled, or the folder cannot be read.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.judgement import untrusted_files
from protocol.formats.command_line import UNREADABLE, run_command
from protocol.instruments.anatomy.analysis import report_text
from protocol.instruments.anatomy.analysis.exploratory import explore_anatomy
from protocol.instruments.anatomy.analysis.registered_test import VERDICT
from protocol.instruments.anatomy.analysis.traces import FOLDER


def read_findings(folder: Path) -> dict[str, Any]:
    """Return the printed data: `explore_anatomy`, and the verdict if there is one."""
    findings = explore_anatomy(folder)
    path = Path(folder) / FOLDER / VERDICT
    return {**findings, "verdict": json.loads(untrusted_files.read_bytes(path)) if path.exists() else None}


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a registration whose traces were labelled, e.g. registrations/anatomy-chain"}
    return run_command("needed", __doc__, path, read_findings, UNREADABLE, argv, text=report_text.format_report)


if __name__ == "__main__":
    sys.exit(main())
