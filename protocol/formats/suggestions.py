"""Messages with a suggested fix for unknown names and files that cannot be opened."""

import errno
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from types import MappingProxyType

MIN_SIMILARITY = 0.75  # least difflib ratio of a suggestion; gpu and cpu have two thirds
TYPO_SIMILARITY = 0.9  # from this ratio on one letter is wrong, and names with the same prefix are not suggested
MIN_LETTERS = 3  # fewest letters for which a prefix or a ratio is meaningful
MAX_NAMES = 16  # names that a message lists before it cuts the list
NO_CORRECTIONS: Mapping[str, str] = MappingProxyType({})


def nearest_names(name: str, names: Iterable[str], min_similarity: float = MIN_SIMILARITY) -> list[str]:
    """Return the names that `name` may stand for: the nearest one, several of one family, or none.

    Case and separators between words do not count. Names that differ only in their numbers are a family, and
    all of it is returned: 300 is no typo of 768.
    """
    known, target = list(dict.fromkeys(names)), _normalise(name)
    folded = {other: _normalise(other) for other in known}
    if same := [other for other in known if folded[other] == target]:
        return same[:1]
    if relatives := [other for other in known if _is_same_family(name, other)]:
        return relatives
    if len(target) < MIN_LETTERS or not known:
        return []
    similarity = {other: SequenceMatcher(None, target, folded[other]).ratio() for other in known}
    nearest = max(known, key=lambda candidate: similarity[candidate])
    prefixed = [other for other in known if folded[other].startswith(target)]
    if prefixed and similarity[nearest] < TYPO_SIMILARITY:
        return prefixed
    return [nearest] if similarity[nearest] >= min_similarity else []


def suggest(
    name: str, names: Iterable[str], list_command: str = "", corrections: Mapping[str, str] = NO_CORRECTIONS
) -> str:
    """Return what to write instead of `name`: its correction, the nearest names or, without any, all names.

    list_command: the command that prints all names, where they are many. corrections: the right name, or a
    sentence that says what to write, by what people write instead.
    """
    known, fixes = list(names), {_normalise(other): fix for other, fix in corrections.items()}
    if (fix := fixes.get(_normalise(name))) is not None:
        return f"did you mean {fix!r}?" if fix in known else fix
    if not known:
        return "none exist"
    matches = nearest_names(name, known)
    if len(matches) == 1:
        return f"did you mean {matches[0]!r}?"
    if matches and not set(matches) >= set(known):
        return f"write {_format_names(matches)}" + (f"; {list_command} lists all {len(known)}" if list_command else "")
    if len(known) <= MAX_NAMES or not list_command:
        return f"write {_format_names(known)}"
    return f"{list_command} lists all {len(known)}"


def unknown_message(
    kind: str, name: str, names: Iterable[str], list_command: str = "", corrections: Mapping[str, str] = NO_CORRECTIONS
) -> str:
    return f"unknown {kind} {name!r}; {suggest(name, names, list_command, corrections)}"


def _format_names(names: list[str]) -> str:
    if len(names) > MAX_NAMES:
        return f"one of {', '.join(names[:MAX_NAMES])}, ..."
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _normalise(name: str) -> str:
    return re.sub(r"[\s._/-]+", "", name.casefold())


def _is_same_family(name: str, other: str) -> bool:
    """Return whether two names differ only in their numbers."""
    stem = re.sub("[0-9]+", "#", _normalise(name))
    return "#" in stem and stem == re.sub("[0-9]+", "#", _normalise(other))


# Messages for errors of the operating system, with the fix.
REMEDIES = {
    errno.ENOENT: "no such file or folder; name an existing one",
    errno.EEXIST: "exists already; name another",
    errno.EISDIR: "is a folder; name a file",
    errno.ENOTDIR: "is a file, but a folder is expected; name a folder",
    errno.EACCES: "no permission to open it; change its permissions, or name another",
    errno.EPERM: "no permission to change it; change its permissions, or name another",
    errno.EROFS: "is on a read-only file system; name another folder",
    errno.ENOSPC: "the disk is full; free some space, then run the same command again",
    errno.EDQUOT: "your disk quota is used up; free some space, then run the same command again",
    errno.ELOOP: "is a link that leads to itself; name the file or folder itself",
    errno.ENAMETOOLONG: "is too long for a path; name a shorter one",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, then run the same command again",
}


def explain_os_error(error: OSError) -> str:
    """Return the path, the reason and the fix of a system error, without its number."""
    reason = REMEDIES.get(error.errno or 0) or error.strerror or str(error)
    filename = error.filename if isinstance(error.filename, str | bytes) else None
    path = filename.decode(errors="replace") if isinstance(filename, bytes) else filename
    return reason if path is None else f"{_shorten(path)}: {reason}"


def _shorten(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:97]}...{path[-97:]}"
