"""Copies of shipped studies that a test changes, and the report that is written of them."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import studies
from pages import Element, parsed

from figures import report

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "registrations"
JUDGED = sorted(path.parent for path in SHIPPED.glob("*/verdict.json"))
HOSTILE = """<script>alert("1")</script>'><img src=x onerror='alert(2)'>&lt;"""


def copied(target: Path, source: str = "quickstart") -> Path:
    """Without its sources and what is derived; its shards are plain."""
    shutil.copytree(SHIPPED / source, target, ignore=shutil.ignore_patterns("*.html", "figures", "*.zip"))
    for packed in target.glob("*/shard-0.jsonl.xz"):
        studies.unpack_shard(target, packed.parent.name)
    return target


def rewrite(folder: Path, **changes: Any) -> None:
    """Change documents by functions named after them, and let everything cite the new ones."""
    for name in ("lock", "claim", "seal", "verdict"):
        path = folder / f"{name}.json"
        content = json.loads(path.read_bytes())
        changes.get(name, lambda content: None)(content)
        for cited in ("lock", "claim", "seal"):
            if cited in content and cited != name:
                content[cited] = digest(folder, cited)
        path.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
    for shard in folder.glob("*/shard-0.jsonl"):
        old = re.compile(r'"registration":"[0-9a-f]{64}"')
        shard.write_text(old.sub(f'"registration":"{digest(folder, "lock")}"', shard.read_text()))
    ledger = folder / "ledger.jsonl"
    named = re.compile(r'\{"sha256":"[0-9a-f]{64}"\},"event":"verdict"')
    whole = hashlib.sha256((folder / "verdict.json").read_bytes()).hexdigest()  # with its line feed
    now = f'{{"sha256":"{whole}"}},"event":"verdict"'
    ledger.write_text(named.sub(now, ledger.read_text()))


def rename(folder: Path, names: dict[str, str]) -> None:
    """Another study of the same form: arms, models and families of problems by other names."""
    for path in (folder / "lock.json", folder / "records" / "shard-0.jsonl", folder / "verdict.json"):
        text = path.read_text()
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old}/', f'"{new}/')
        path.write_text(text)
    rewrite(folder)


def gridded(folder: Path) -> Path:
    """A copied study whose four arms besides crystal are locked as ones that differ in two settings alone."""
    place = {"snapkv": ("1", "a"), "h2o": ("1", "b"), "streaming": ("2", "a"), "random": ("2", "b")}
    held = {
        arm: {"scoring": "policies.made.Up()", "scoring.x": x, "scoring.y": f"'{y}'"} for arm, (x, y) in place.items()
    }
    rewrite(copied(folder), lock=lambda lock: lock.update(policies=held | {"crystal": {"scoring": "other"}}))
    return folder


def digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / f"{name}.json").read_bytes().removesuffix(b"\n")).hexdigest()


def written(folder: Path, **how: str) -> Element:
    return parsed(report.report(folder, **how).read_text())
