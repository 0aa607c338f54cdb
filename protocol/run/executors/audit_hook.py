"""The audit hook of the interpreter (PEP 578) that refuses, while an own policy runs, what no policy needs.

It reads arguments of the very types str, bytes, int and Path: methods of a subclass would run inside the hook. An
event that the hook itself raises is let pass once; it has no time in which it ignores others.
"""

import collections
import enum
import logging
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path, PosixPath
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

TASK_MODULES = ("protocol.tasks.", "protocol.grading.", "lm_eval")  # not imported by a policy: they have answers
# What an import raises, besides.
LOADING_EVENTS = frozenset({"sys._getframe", "object.__getattr__", "object.__setattr__", "object.__delattr__"})
# What imports and ordinary Python raise.
HARMLESS_EVENTS = frozenset({"builtins.id", "array.__new__", "marshal.load"})
CODE_EVENTS = frozenset({"exec", "compile", "marshal.loads", "code.__new__"})  # code whose file name is not its own
HARMLESS_ATTRIBUTES = frozenset({"__code__", "f_code", "__defaults__", "__kwdefaults__"})  # they lead to no frame
HARMLESS_WRITES = frozenset({"__doc__", "__module__"})
FOLDER_EVENTS = frozenset({"os.listdir", "os.scandir"})
# They keep what they are given in the interpreter, where nothing can read it back, and raise no event by themselves.
REGISTERS = ("codecs.register", "codecs.unregister", "codecs.register_error", "csv.field_size_limit")
PATH_FINDER = "<frozen importlib._bootstrap_external>"  # no own code has this name: it cannot be made
CODE_SUFFIXES = (".py", ".pyc", ".so")


def _frame_readers() -> frozenset[CodeType]:
    """Return the functions of libraries that read the frame of their caller and keep it to themselves."""
    functions: tuple[Any, ...] = (
        *(collections.namedtuple, typing.NamedTuple, typing._caller, logging.Logger.findCaller),  # type: ignore[attr-defined]
        *(enum.EnumType.__call__, enum.EnumType._create_, torch.library.Library.__init__),  # type: ignore[attr-defined]
    )
    return frozenset(function.__code__ for function in functions)


class Confined(RuntimeError):
    """Code of an arm asked for something that no policy needs."""


class Rules(NamedTuple):
    """What is refused. answers: names of modules that have answers. code: files and folders of the code that is
    confined. readable: folders of libraries, whose code is trusted. base: the frame that began, in which no such code
    runs; None between two runs, when only the files of the code itself are confined. attempts: receives what was
    refused.
    """

    answers: frozenset[str]
    code: tuple[str, ...]
    readable: tuple[str, ...]
    base: FrameType | None
    attempts: list[str]
    is_loading: bool

    def is_own(self, frame: FrameType) -> bool:
        """Return whether a frame may be of the code that is confined, or of what it made by `exec`."""
        name = frame.f_code.co_filename
        if name.startswith(self.code) or self.base is None:
            return name.startswith(self.code)
        if name.startswith("<"):  # a named tuple and a dataclass have such functions too
            module = sys.modules.get(frame.f_globals.get("__name__", ""))
            return not name.startswith("<frozen ") and (module is None or vars(module) is not frame.f_globals)
        return not name.startswith(self.readable)


@cache
def announce_registers() -> None:
    """Make REGISTERS raise an event of their names, in all modules that have them."""
    for name in REGISTERS:
        module, function = name.split(".")
        for owner in (sys.modules[module], sys.modules[f"_{module}"]):
            setattr(owner, function, _announce(name, getattr(owner, function)))


def _announce(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def announced(*arguments: Any) -> Any:
        sys.audit(name)
        return function(*arguments)

    return announced


@cache
def get_guard() -> tuple[Callable[[Rules], None], Callable[[Rules], None]]:
    """Install the hook of this process, once; return what begins and what ends a confinement."""
    active: list[Rules] = []
    asks_for_its_frame = False
    get_frame, frame_readers = sys._getframe, _frame_readers()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal asks_for_its_frame
        if not active or event in HARMLESS_EVENTS:
            return
        if asks_for_its_frame and event == "sys._getframe":
            asks_for_its_frame = False
            return
        if event == "object.__getattr__" and type(arguments[1]) is str and arguments[1] in HARMLESS_ATTRIBUTES:
            return
        rules = active[-1]
        if rules.is_loading and event in LOADING_EVENTS:
            return
        asks_for_its_frame = True
        caller = get_frame(1)
        if reason := _describe_attempt(event, arguments, rules, caller, frame_readers):
            rules.attempts.append(reason)
            raise Confined(f"a policy used {reason}")

    def begin(rules: Rules) -> None:
        active.append(rules)

    def end(rules: Rules) -> None:
        active.remove(rules)

    sys.addaudithook(hook)
    return begin, end  # a method of the list would hand the list to whoever asks for its `__self__`


def _describe_attempt(
    event: str, arguments: tuple[Any, ...], rules: Rules, caller: FrameType, frame_readers: frozenset[CodeType]
) -> str:
    """Return what own code asks for; empty if it is no own code, or harmless. caller: the frame that asks."""
    first = arguments[0] if arguments else None
    if event == "import" and type(first) is str and not first.startswith((*TASK_MODULES, *rules.answers)):
        return ""
    if event in CODE_EVENTS and not rules.is_own(caller):
        return ""
    if event == "object.__setattr__" and type(arguments[1]) is str and arguments[1] in HARMLESS_WRITES:
        return ""
    frame: FrameType | None = caller
    while frame is not None and frame is not rules.base and not rules.is_own(frame):
        frame = frame.f_back
    if frame is None or frame is rules.base:
        return ""
    if event in ("sys._getframe", "object.__setattr__"):
        asking = caller.f_back if caller.f_code.co_name == "<lambda>" else caller  # logging.currentframe
        if asking is not None and asking.f_code in frame_readers:
            return ""
    if event in ("open", *FOLDER_EVENTS) and first is not None and type(first) in (str, bytes, PosixPath):
        path = os.path.realpath(os.fsdecode(first))
        is_for_import = caller.f_code.co_filename == PATH_FINDER and first in sys.path
        if event in FOLDER_EVENTS and (is_for_import or f"{path}{os.sep}".startswith((*rules.readable, *rules.code))):
            return ""
        is_reading = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if is_reading and (path.startswith(rules.readable) or path.endswith(CODE_SUFFIXES)):
            return ""
    odd = next((type(each).__name__ for each in arguments if _is_subclass_of_text(each)), None)
    if odd is not None:
        return f"{event} with a text of a class of its own, {odd}"
    return f"{event} {next((each for each in arguments if type(each) is str), '')}".strip()


def _is_subclass_of_text(value: object) -> bool:
    return type(value) not in (str, bytes) and (str in type(value).__mro__ or bytes in type(value).__mro__)


def list_readable_folders() -> tuple[str, ...]:
    """Return the folders of installed code: not that of a study, of data or of another process."""
    root = Path(__file__).resolve().parents[3]
    places = [root / name for name in ("protocol", "policies")]
    places += [
        Path(os.path.realpath(place)) for place in (*sys.path, os.path.dirname(os.__file__)) if _is_library(place)
    ]
    return tuple(f"{place}{os.sep}" for place in places)


def _is_library(place: str) -> bool:
    return os.path.basename(place) in (
        "site-packages",
        "dist-packages",
        "lib-dynload",
        f"python3.{sys.version_info[1]}",
    )


def list_code_files(modules: Iterable[str]) -> Iterator[str]:
    """Yield the file of each module, or the folder of each package."""
    from importlib.util import find_spec

    for name in modules:
        spec = find_spec(name)
        if spec is not None:
            yield from (f"{place}{os.sep}" for place in spec.submodule_search_locations or ())
            if spec.origin is not None and not spec.submodule_search_locations:
                yield spec.origin
