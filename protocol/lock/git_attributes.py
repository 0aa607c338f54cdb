"""The .gitattributes of a registration, which keeps git from converting line endings in a clone."""

from pathlib import Path

from protocol.formats import files

NAME = ".gitattributes"
CONTENT = b"# Evidence is hashed byte for byte: git must not rewrite line endings here.\n* -text\n"


def write(folder: Path) -> None:
    """Create the file unless it exists: its owner may have edited it."""
    if not files.exists(folder / NAME):
        files.create(folder / NAME, CONTENT)
