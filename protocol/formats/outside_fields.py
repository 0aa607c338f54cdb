"""The fields of the list of files that were read of a study whose outputs another harness makes."""

from protocol.formats.documents import declare_document
from protocol.formats.fields import DIGEST, Field, Integer, ListOf, MapOf, Table, Text

_PART = r"(?!\.{1,2}(?:/|$))[^/\0]+"  # of a path: it leads neither up nor to where it stands
_FILE = Table(
    {
        "name": Field(
            Text(f"{_PART}(?:/{_PART})*", "a path below the folder"), "Its name below the folder of outputs."
        ),
        "sha256": Field(DIGEST, "Of its bytes, which are in outside/files."),
        "bytes": Field(Integer(), "Its size."),
    }
)
OUTPUTS = declare_document(
    "outputs",
    {
        "lock": Field(DIGEST, "The lock."),
        "claim": Field(DIGEST, "The claim."),
        "files": Field(MapOf(ListOf(_FILE, 1)), "The files that were read, by arm."),
    },
)
