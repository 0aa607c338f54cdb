"""Which tokens the answers of a study needed, which signals know it, and what follows for its policies.

    python -m analysis.anatomy registrations/anatomy-chain
    python -m analysis.anatomy registrations/anatomy-chain --json

The registered test first, where it was made; all else is exploratory. Nothing here decides about a policy.

Exit status: 0 printed, whatever was found; 2 nothing was labelled, or the folder cannot be read.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.anatomy import report_text
from analysis.anatomy.exploratory import explore_anatomy
from analysis.anatomy.registered_test import VERDICT
from analysis.anatomy.traces import FOLDER
from analysis.judgement import untrusted_files
from protocol.formats.command_line import UNREADABLE, run_command


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
