"""Messages with a suggested fix for unknown names, wrong options and files that cannot be opened."""

import errno
import re
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, NoReturn

__all__ = ["NONE_MEANT", "OneLine", "hint", "near", "of_system", "unknown"]

ALIKE = 0.75  # least difflib ratio of a suggestion; gpu and cpu have two thirds
A_SLIP = 0.9  # from this ratio on one letter is wrong, and names with the same prefix are not suggested
LONG = 3  # fewest letters for which a prefix or a ratio is meaningful
MOST_NAMES = 16  # names that a message lists before it cuts the list
NONE_MEANT: Mapping[str, str] = MappingProxyType({})


def near(name: str, names: Iterable[str], alike: float = ALIKE) -> list[str]:
    """Return the names that `name` may stand for: the nearest one, several of one family, or none.

    Case and separators between words do not count. Names that differ only in their numbers are a family, and
    all of it is returned: 300 is no typo of 768.
    """
    known, own = list(dict.fromkeys(names)), _folded(name)
    folded = {other: _folded(other) for other in known}
    if same := [other for other in known if folded[other] == own]:
        return same[:1]
    if family := [other for other in known if _family(name, other)]:
        return family
    if len(own) < LONG or not known:
        return []
    likeness = {other: SequenceMatcher(None, own, folded[other]).ratio() for other in known}
    nearest = max(known, key=lambda one: likeness[one])
    begun = [other for other in known if folded[other].startswith(own)]
    if begun and likeness[nearest] < A_SLIP:
        return begun
    return [nearest] if likeness[nearest] >= alike else []


def hint(name: str, names: Iterable[str], listing: str = "", meant: Mapping[str, str] = NONE_MEANT) -> str:
    """Return what to write instead of `name`: its correction, the nearest names or, without any, all names.

    list_command: the command that prints all names, where they are many. corrections: the right name, or a
    sentence that says what to write, by what people write instead.
    """
    known, by_folded = list(names), {_folded(other): fix for other, fix in meant.items()}
    if (fix := by_folded.get(_folded(name))) is not None:
        return f"did you mean {fix!r}?" if fix in known else fix
    if not known:
        return "none is defined"
    found = near(name, known)
    if len(found) == 1:
        return f"did you mean {found[0]!r}?"
    if found and not set(found) >= set(known):
        return f"write {_listed(found)}" + (f"; {listing} lists all {len(known)}" if listing else "")
    if len(known) <= MOST_NAMES or not listing:
        return f"write {_listed(known)}"
    return f"{listing} lists all {len(known)}"


def unknown(
    kind: str, name: str, names: Iterable[str], listing: str = "", meant: Mapping[str, str] = NONE_MEANT
) -> str:
    return f"unknown {kind} {name!r}; {hint(name, names, listing, meant)}"


def _listed(names: list[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"one of {', '.join(names[:MOST_NAMES])}, ..."
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _folded(name: str) -> str:
    return re.sub(r"[\s._/-]+", "", name.casefold())


def _family(name: str, other: str) -> bool:
    """Return whether two names differ only in their numbers."""
    stem = re.sub("[0-9]+", "#", _folded(name))
    return "#" in stem and stem == re.sub("[0-9]+", "#", _folded(other))


# Messages of argparse, which are replaced by the argument and the fix.
NO_OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
NO_CHOICE = re.compile(r"argument (.+?): invalid choice: (.*) \(choose from (.*)\)", re.DOTALL)
NO_NUMBER = re.compile(r"argument (.+?): invalid (int|float) value: (.*)", re.DOTALL)
ONE_OF = re.compile(r"one of the arguments (.*) is required")
BESIDE = re.compile(r"argument (.+): not allowed with argument (.+)")
MISSING = re.compile(r"the following arguments are required: (.*)")


class OneLine(ArgumentParser):
    """A parser that rejects a command line with a one-line message: the fix, without the usage."""

    def __init__(self, **settings: Any) -> None:
        """Options cannot be abbreviated: a prefix may become ambiguous in the next version."""
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_of_arguments(message, self._actions)}\n")


def _of_arguments(message: str, actions: Iterable[Action]) -> str:
    """Return argparse's error `message` as one line with the fix. actions: the parser's."""
    named = {name: action for action in actions for name in _names(action)}
    if wrong := NO_OPTION.fullmatch(message):
        first = wrong[1].split()[0] if wrong[1].split() else "''"
        if not first.startswith("-"):
            return f"{first!r} is an argument too many; leave it out, or put a text with spaces in quotes"
        options = [name for name in named if name.startswith("--")]
        return unknown("option", first.partition("=")[0], options, meant={"-h": "--help"})
    if wrong := NO_CHOICE.fullmatch(message):
        choices = re.findall(r"[\w.:-]+", wrong[3])
        return f"{wrong[1]}: {unknown('value', wrong[2].strip(chr(39)), choices)}"
    if wrong := NO_NUMBER.fullmatch(message):
        return f"{wrong[1]}: write a {'whole ' * (wrong[2] == 'int')}number, not {wrong[3]}"
    if wrong := ONE_OF.fullmatch(message):
        return f"missing: {' or '.join(wrong[1].split())}; --help shows an example"
    if wrong := BESIDE.fullmatch(message):
        return f"{wrong[1]}: stands beside {wrong[2]}; leave one of both out"
    if wrong := MISSING.fullmatch(message):
        asked = [
            f"{name} ({named[name].help})" if name in named and named[name].help else name
            for name in wrong[1].split(", ")
        ]
        return f"missing: {', '.join(asked)}; --help shows an example"
    return message


def _names(action: Action) -> list[str]:
    if action.option_strings:
        return list(action.option_strings)
    return [str(action.metavar or action.dest)]


# Messages for errors of the operating system, with the fix.
REMEDIES = {
    errno.ENOENT: "no such file or folder; name one that is there",
    errno.EEXIST: "is there already; name another",
    errno.EISDIR: "is a folder; name a file",
    errno.ENOTDIR: "stands where a folder is expected, and is a file; name a folder",
    errno.EACCES: "may not be opened by you; change its permissions, or name another",
    errno.EPERM: "may not be changed by you; change its permissions, or name another",
    errno.EROFS: "lies where nothing can be written; name another folder",
    errno.ENOSPC: "the disk is full; make room, then run the same command again",
    errno.EDQUOT: "your quota of the disk is used up; make room, then run the same command again",
    errno.ELOOP: "is a link that leads to itself; name the file or folder itself",
    errno.ENAMETOOLONG: "is longer than a path can be; name a shorter one",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, then run the same command again",
}


def of_system(error: OSError) -> str:
    """Return the path, the reason and the fix of a system error, without its number."""
    says = REMEDIES.get(error.errno or 0) or error.strerror or str(error)
    where = error.filename if isinstance(error.filename, str | bytes) else None
    place = where.decode(errors="replace") if isinstance(where, bytes) else where
    return says if place is None else f"{_short(place)}: {says}"


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:97]}...{path[-97:]}"
