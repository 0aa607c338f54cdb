"""Read objects of the git repository that contains a folder.

Settings of the environment and the repository that could change the result are ignored: GIT_* variables,
line-ending conversion, index flags, replacement refs, grafts, cached graphs. Nothing is written or fetched.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from protocol.formats.findings import CannotTell
from protocol.formats.programs import last_error_line, run_program

_MAX_BYTES = 1 << 29  # of all objects in one call: more would fill the memory
_SETTINGS = tuple(
    word
    for setting in ("core.commitGraph=false", "core.fsmonitor=false", f"core.hooksPath={os.devnull}")
    for word in ("-c", setting)
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # otherwise a partial clone fetches missing objects
    "GIT_ALLOW_PROTOCOL": "none",  # the same for older versions of git
}


class GitObject(NamedTuple):
    id: str
    kind: str  # "commit", "tree", "blob" or "tag"
    data: bytes


class Change(NamedTuple):
    path: str  # from the top of the repository
    old: str | None  # the id of the file; None where it does not exist
    new: str | None


_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--end-of-options")


def _id_or_none(identity: str) -> str | None:
    return identity if identity.strip("0") else None


def _refuse_special_files(folder: Path) -> None:
    """Raise CannotTell for a pipe, a socket or a device among the files that git reads first: it would wait for it."""
    folders = [folder, *(folder / name for name in ("info", "objects/info", "refs", "refs/heads"))]
    paths = [folder, *(path for each in folders if each.is_dir() for path in each.iterdir())]
    if special := [path for path in paths if path.exists() and not (path.is_file() or path.is_dir())]:
        raise CannotTell(
            f"{special[0].relative_to(folder.parent)} is not a plain file, and git would wait for it; remove it"
        )


class Repository:
    """The innermost repository that contains `folder`; a submodule or a linked work tree is a repository too.

    prefix: the path of the folder in it ("" for its top). is_shallow: its history is cut off. is_partial: the clone may
    lack objects. is_sparse: the checkout may lack files. Every method raises CannotTell when git is missing or fails.
    """

    def __init__(self, folder: Path):
        folder = folder.resolve()
        root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
        if root is None:
            raise CannotTell("not in a git repository")
        _refuse_special_files(root / ".git")
        self.root = root
        self.prefix = folder.relative_to(root).as_posix().removeprefix(".")
        self.is_shallow = self._git("rev-parse", "--is-shallow-repository").strip() == b"true"
        settings = self._git("config", "--list", "--name-only").lower().split()
        self.is_partial = any(
            setting == b"extensions.partialclone" or setting.endswith(b".promisor") for setting in settings
        )
        self.is_sparse = b"core.sparsecheckout" in settings
        self._hash = self._git("rev-parse", "--show-object-format").strip().decode()

    def head(self) -> str | None:
        """Return the commit that is checked out; None before the first."""
        commit = self.objects(["HEAD^{commit}"])[0]
        return commit.id if commit else None

    def commits(self, *starts: str) -> dict[str, list[str]]:
        """Return the parents of every commit reachable from `starts`, parents before children."""
        output = self._git("rev-list", "--topo-order", "--reverse", "--parents", *starts, "--")
        return {commit: parents for commit, *parents in map(str.split, output.decode().splitlines())}

    def objects(self, names: Iterable[str]) -> list[GitObject | None]:
        """Return the object of each name (an id, or `commit:path`), None where there is none."""
        names = list(names)
        if any("\n" in name for name in names):
            raise CannotTell("git cannot be asked for a path with a line break")
        request = b"".join(os.fsencode(name) + b"\n" for name in names)
        sizes = self._git("cat-file", "--batch-check=%(objectsize)", stdin=request).split(b"\n")
        if (total := sum(int(digits) for digits in sizes if digits.isdigit())) > _MAX_BYTES:
            raise CannotTell(f"git has {total} bytes under these names, too many to compare")
        output = self._git("cat-file", "--batch", stdin=request)
        found_objects: list[GitObject | None] = []
        position = 0
        for _ in names:
            end = output.index(b"\n", position)
            header = output[position:end].decode(errors="replace")
            position = end + 1
            if header.endswith((" missing", " ambiguous")):
                found_objects.append(None)
                continue
            identity, kind, size = header.split()
            found_objects.append(GitObject(identity, kind, output[position : position + int(size)]))
            position += int(size) + 1
        return found_objects

    def trees(self, names: Iterable[str]) -> list[dict[str, str] | None]:
        """Return the ids of the entries of each tree, by file name; None where there is no tree."""
        entries = self.objects(names)
        return [self._entries(entry.data) if entry and entry.kind == "tree" else None for entry in entries]

    def changes_since(self, start: str) -> list[Change]:
        """Return the changes from the merge base of HEAD and `start` to HEAD, without rename detection."""
        raw = self._git("diff", "--raw", "-z", "--no-abbrev", "--no-renames", *_DIFF_OPTIONS, f"{start}...HEAD", "--")
        parts = raw.split(b"\0")[:-1]  # ":modes old new status", path, and so on
        return [
            Change(os.fsdecode(path), *(_id_or_none(object_id.decode()) for object_id in head.split()[2:4]))
            for head, path in zip(parts[::2], parts[1::2], strict=True)
        ]

    def blob_id(self, data: bytes) -> str:
        """Return the id of these bytes as a blob."""
        digest = hashlib.new(self._hash, b"blob %d\0" % len(data))
        digest.update(data)
        return digest.hexdigest()

    def _entries(self, tree: bytes) -> dict[str, str]:
        size = hashlib.new(self._hash).digest_size
        entries, position = {}, 0
        while position < len(tree):
            end = tree.find(b"\0", position) % (len(tree) + 1)  # of mode, space, name; a broken tree may have none
            entries[os.fsdecode(tree[position:end].partition(b" ")[2])] = tree[end + 1 : end + 1 + size].hex()
            position = end + 1 + size
        return entries

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = ["git", "--no-replace-objects", *_SETTINGS, *arguments]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        settings |= _ENVIRONMENT | {"GIT_DIR": str(self.root / ".git")}
        result = run_program(command, error=CannotTell, environment=settings, data=stdin, folder=self.root)
        if result.returncode:
            raise CannotTell(f"git {arguments[0]}: {last_error_line(result)}")
        return result.stdout
