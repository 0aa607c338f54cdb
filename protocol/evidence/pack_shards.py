"""Pack the shards of finished studies: python -m protocol.evidence.pack_shards registrations/NAME/records/shard-0.jsonl

Each plain shard is replaced by one gzip file of a tenth of its size. Digests are those of the plain lines, so
seals and audits stay as they are; `gunzip` gives the plain shard back. Exit status: 0 packed; 2 to 5 refused.
"""

import gzip
import sys
from pathlib import Path

from protocol.evidence import ledger, records
from protocol.formats import files, shards
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput, Refusal


def pack(path: Path) -> Path:
    """Replace a plain shard by its packed form; return the path of that.

    Raises BadInput unless the ledger of its study is closed, so that no run appends to it, and Tampered for a line that
    does not verify.
    """
    if path.parent.name not in records.FOLDERS.values() or path not in shards.list_shards(path.parent):
        raise BadInput(f"{path} is not a shard; name records/shard-0.jsonl or probe/shard-0.jsonl of a registration")
    if shards.is_packed(path):
        raise BadInput(f"{path} is packed already")
    if ledger.closing_entry(ledger.read(path.parent.parent)) is None:
        raise BadInput(f"{path}: its study has not ended; only shards of finished studies can be packed")
    content = records.read_shard(path)
    if content.torn:
        raise BadInput(f"{path}: ends in a torn line")
    packed = path.with_name(path.name + shards.PACKED)
    temporary = path.with_name(f".{packed.name}")
    files.create(temporary, gzip.compress(shards.read(path), compresslevel=9, mtime=0))
    if records.read_shard(temporary).sha256 != content.sha256:
        raise BadInput(f"{temporary}: has lines that differ from {path.name}, which was left unchanged")
    path.unlink()  # before the packed form has its name: a shard in both forms is refused
    temporary.rename(packed)
    files.sync_folder(path.parent)
    return packed


def main(arguments: list[str]) -> int:
    try:
        for argument in arguments:
            print_escaped(str(pack(Path(argument))), sys.stdout)
    except Refusal as error:
        print_escaped(str(error), sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
