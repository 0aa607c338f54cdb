"""What the audits of the shipped studies say, item by item, and whether they say it still.

    python tests/protocol/golden_audits.py               compare every locked folder with golden_audits.json
    python tests/protocol/golden_audits.py alpha-chain   compare one
    python tests/protocol/golden_audits.py --write       record what they say now, after a change that was intended

Exit status: 0 nothing changed; 3 an exit status, a verdict or the status of an item differs.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_suffix(".json")


def audit(folder: Path) -> dict[str, Any]:
    """The exit status of an audit, its verdict, and the status of every item."""
    command = [sys.executable, "-m", "protocol.audit", str(folder), "--json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not result.stdout.startswith("{"):
        return {"exit": result.returncode, "message": result.stderr.splitlines()[-1:]}
    document = json.loads(result.stdout)
    items = {finding["item"]: finding["status"] for finding in document["findings"]}
    return {"exit": result.returncode, "verdict": document["verdict"], "anchors": document["anchors"], "items": items}


def locked_folders() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "registrations").glob("*/lock.json"))


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    names = [argument for argument in arguments if argument != "--write"]
    folders = [folder for folder in locked_folders() if not names or folder.name in names]
    audits = {}
    golden = {} if write and not names else json.loads(GOLDEN.read_text())
    changed = False
    for folder in folders:
        audits[folder.name] = audit(folder)
        same = write or audits[folder.name] == golden.get(folder.name)
        changed |= not same
        print(f"{folder.name}: {'recorded' if write else 'as before' if same else 'CHANGED'}", flush=True)
        if not same:
            print(f"  before {golden.get(folder.name)}\n  now    {audits[folder.name]}")
    if write:
        GOLDEN.write_text(json.dumps({**golden, **audits}, indent=1, sort_keys=True) + "\n")
    return 3 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
