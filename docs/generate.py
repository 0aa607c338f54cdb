"""Write the pages of this folder that follow from the code.

python docs/generate.py           writes them all
python docs/generate.py --check   exits 1, naming each page that the code no longer gives
"""

import ast
import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = ("protocol", "policies", "splits", "analysis", "figures", "benchmarks")
sys.path.insert(0, str(ROOT))  # the tree that these pages are of, whatever is installed

from protocol.evidence.bytes.fields import DIGEST, Field, Kind, Schema, Table  # noqa: E402
from protocol.evidence.run import record_fields  # noqa: E402


def schema(title: str, kind: Kind, **more: object) -> str:
    """A JSON Schema as a file."""
    standard = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps({"$schema": standard, "title": title, **kind.schema(), **more}, indent=2) + "\n"


def record() -> str:
    """A line of a shard. What a state goes with is code in record_fields, said here a second time."""
    line = Table(
        {
            "body": Field(record_fields.BODY, "What the lane produced."),
            "costs": Field(record_fields.COSTS, "What producing it took."),
            "sha256": Field(DIGEST, "Digest of the canonical {body, costs}."),
            "chain": Field(DIGEST, "Digest of the chain of the line before followed by this sha256."),
        }
    )
    nothing: Schema = {name: {"type": "null"} for name in (*record_fields.MEASURED, "trajectory")}
    by_state = {
        "if": {"properties": {"state": {"const": "ok"}}},
        "then": {
            "properties": {
                "reason": {"const": ""},
                **{name: {"not": {"type": "null"}} for name in record_fields.MEASURED},
            }
        },
        "else": {"properties": {"reason": {"minLength": 1}, "grade_second": False, **nothing}},
    }
    properties = line.schema()["properties"]
    return schema(
        "One line of records/shard-0.jsonl or probe/shard-0.jsonl",
        line,
        properties=properties | {"body": properties["body"] | by_state},
    )


def said(path: Path) -> list[str]:
    """The paragraphs of a module's docstring, each on one line. Raises ValueError where there is none."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    if not doc:
        raise ValueError(f"{path}: begin it with a docstring of one sentence, for docs/files.md")
    return [" ".join(paragraph.split()) for paragraph in doc.split("\n\n")]


def files() -> str:
    """Every module in the first sentence of its docstring, below its folder's."""
    parts = ["# Every file", "Generated from the docstrings: `python docs/generate.py`."]
    for room in (path for name in PACKAGES for path in sorted((ROOT / name).rglob("__init__.py"))):
        first, *_, rule = said(room)
        inside = (path for path in sorted(room.parent.glob("*.py")) if path != room)
        listed = "\n".join(wrapped(f"- `{path.name}`: {said(path)[0]}") for path in inside)
        parts += [f"## {room.parent.relative_to(ROOT)}/", f"{wrapped(first)}\n{wrapped(rule)}", listed]
    return "\n\n".join(filter(None, parts)) + "\n"


def wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


FILES: Mapping[str, Callable[[], str]] = MappingProxyType({"files.md": files, "record.schema.json": record})


def main(arguments: list[str]) -> int:
    pages = {HERE / name: text() for name, text in FILES.items()}
    if arguments == ["--check"]:
        old = [page.name for page, text in pages.items() if not page.exists() or page.read_text() != text]
        print("\n".join(f"docs/{name}: run python docs/generate.py" for name in old), end="\n" if old else "")
        return 1 if old else 0
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
