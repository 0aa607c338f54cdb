""".gitattributes of a registration: what keeps git from rewriting its bytes in somebody's clone."""

from pathlib import Path

from protocol.evidence.bytes import files

__all__ = ["CONTENT", "NAME", "write"]

NAME = ".gitattributes"
CONTENT = b"# Evidence is hashed byte for byte: git must not rewrite line endings here.\n* -text\n"


def write(folder: Path) -> None:
    """Make the file, unless there is one: what somebody wrote into it is theirs."""
    if not files.there(folder / NAME):
        files.create(folder / NAME, CONTENT)
