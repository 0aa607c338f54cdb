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

from analysis.anatomy import told
from analysis.anatomy.explored import explored
from analysis.anatomy.judging import VERDICT
from analysis.anatomy.reading import FOLDER
from analysis.output.command import UNREADABLE, command
from analysis.studies import plain_files


def found(folder: Path) -> dict[str, Any]:
    """Return the printed data: `explore_anatomy`, and the verdict if there is one."""
    made = explored(folder)
    path = Path(folder) / FOLDER / VERDICT
    return {**made, "verdict": json.loads(plain_files.read(path)) if path.exists() else None}


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a registration whose traces were labelled, e.g. registrations/anatomy-chain"}
    return command("needed", __doc__, path, found, UNREADABLE, argv, text=told.lines)


if __name__ == "__main__":
    sys.exit(main())
