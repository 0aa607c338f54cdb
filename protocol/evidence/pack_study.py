"""Pack studies that have ended: python -m protocol.evidence.pack_study registrations/NAME ...

The shards and the journals of instruments are replaced by files of xz, which have about a sixteenth of their size.
Digests are those of the plain lines, so seals and audits stay as they are; `xz -d` gives the plain file back. With
--share-sources, sources.zip is moved into sources.tar.xz beside the folder, which has each version of a file once.
Exit status: 0 packed; 2 to 5 refused.
"""

import argparse
import hashlib
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.evidence import ledger, records
from protocol.evidence.registration import Registration
from protocol.formats import files, shards
from protocol.formats.escape import print_escaped
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import BadInput, Refusal, Tampered
from protocol.lock import bundle


def pack(folder: Path, *, share_sources: bool = False) -> Iterator[Path]:
    """Pack the files of a study; yield the path of each packed one. What is packed already is left as it is.

    Raises BadInput unless the ledger is closed, so that no run appends to it, and Tampered for a shard that does not
    verify.
    """
    study = Registration(folder)
    sources = study.lock.content["sources"]
    if ledger.closing_entry(study.entries) is None:
        raise BadInput(f"{folder}: has not ended; only studies that have ended can be packed")
    for name in records.FOLDERS.values():
        for path in shards.list_shards(folder / name):
            if path.suffix != shards.PACKED:
                if records.read_shard(path).torn:
                    raise BadInput(f"{path}: ends in a torn line")
                yield _pack_file(path)
    for instrument in INSTRUMENTS:
        for path in files.list_folder(folder / instrument.name):
            if path.suffix == ".jsonl":
                yield _pack_file(shards.find_form(path))
    if share_sources and study.bundle.name == bundle.NAME:
        yield bundle.share(folder, sources)


def _pack_file(path: Path) -> Path:
    lines = shards.read(path)
    packed = path.with_name(shards.plain_name(path) + shards.PACKED)
    temporary = path.with_name(f".{packed.name}")
    files.create(temporary, lzma.compress(lines, preset=9))
    if hashlib.sha256(shards.read(temporary)).digest() != hashlib.sha256(lines).digest():
        raise Tampered(f"{temporary}: has lines that differ from {path.name}, which was left unchanged")
    path.unlink()  # before the packed form has its name: a file in both forms is refused
    temporary.rename(packed)
    files.sync_folder(path.parent)
    return packed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m protocol.evidence.pack_study", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="folder", help="registrations/NAME, which has ended")
    parser.add_argument("--share-sources", action="store_true", help="move sources.zip into sources.tar.xz beside it")
    options = parser.parse_args(arguments)
    try:
        for folder in options.folders:
            for path in pack(folder, share_sources=options.share_sources):
                print_escaped(str(path), sys.stdout)
    except Refusal as error:
        print_escaped(str(error), sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
