"""Write the pages of this folder that follow from the code.

python docs/generate.py           writes them all
python docs/generate.py --check   exits 1, naming each page that the code no longer gives
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the tree that these pages are of, whatever is installed

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


FILES: Mapping[str, Callable[[], str]] = MappingProxyType({"record.schema.json": record})


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
