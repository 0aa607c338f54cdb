"""Code of an arm that is not of this project: what it may do while lanes decode, and what it must leave as it is.

A policy of another distribution is called by the engine, in the process that decodes. While it runs, an audit hook of
the interpreter (PEP 578) refuses whatever scores of slots do not need: files, processes, sockets, threads, the frames
of callers, the garbage collector. After every step the engine, torch, the environment and the state of the policy's
own modules are compared with what they were: nothing is kept from one event to the next but the memory that a scoring
declares, which is counted. This is no sandbox: docs/threat-model.md says what it leaves open.
"""

import atexit
import gc
import os
import random
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from policies import catalogue
from protocol import grading
from protocol.formats.policy_facts import is_own_policy
from protocol.formats.refusals import Tampered
from protocol.plan.design import Design
from protocol.tasks import registry

__all__ = ["Confined", "Confinement", "confine", "is_run"]

TASK_MODULES = ("protocol.tasks.", "protocol.grading.", "lm_eval")  # not imported by a policy: they have answers
LOADING_EVENTS = frozenset({"sys._getframe", "object.__getattr__", "object.__setattr__", "object.__delattr__"})
# What imports and ordinary Python raise; `open`, `import` and folders are looked at.
HARMLESS_EVENTS = frozenset(
    {"exec", "compile", "marshal.load", "marshal.loads", "code.__new__", "builtins.id", "import", "array.__new__"}
)
FOLDER_EVENTS = frozenset({"os.listdir", "os.scandir"})
PROTECTED = ("protocol.engine", "protocol.run", "policies", "protocol.models.load")
LAZY_NAMES = ("__warningregistry__", "__abstractmethods__", "__annotations__", "__path__")  # set when first read
LIBRARIES = ("builtins", "torch", "torch.nn.functional", "os", "sys", "time", "math", "threading", "gc")
CHECK_SHARE = 50  # of the time that passes between two checks, one takes one part
MAX_VALUES = 100_000  # of the modules of an own policy


class Confined(RuntimeError):
    """Code of an arm asked for something that no policy needs."""


def is_run(design: Design) -> bool:
    """Return whether some arm runs code that is not of this project: a press, or a policy of another distribution."""
    return any(arm.press is not None or is_own_policy(arm.policy) for arm in design.arms)


@contextmanager
def confine(design: Design) -> Iterator["Confinement | None"]:
    """Import the policies of a design; yield their confinement, or None if all are of this project or a press."""
    names = sorted({arm.policy for arm in design.arms if arm.policy is not None and is_own_policy(arm.policy)})
    if not names:
        yield None
        return
    confinement = Confinement(names)
    with confinement.apply(is_loading=True):
        yield confinement


class Confinement:
    """The confinement of the policies of these names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._label = ", ".join(names)
        points = [catalogue.PLUGINS.points()[name] for name in names]
        self._modules = frozenset(point.module.partition(".")[0] for point in points)
        self._attempts: list[str] = []
        self._answer_modules = _modules_with_answers()
        self._surroundings, self._process = _list_surroundings(), {where: read() for where, read in _PROCESS.items()}
        self._next_check = 0.0
        self._network: nn.Module | None = None
        self._state: dict[str, object] = {}
        self._policies: tuple[Any, ...] = ()

    @contextmanager
    def apply(self, *, is_loading: bool = False) -> Iterator[None]:
        """Refuse, inside the context, what the code of these policies may not do. Raises Tampered at its end for what
        it tried and for what it changed.
        """
        check = self.check  # as it is before their code could replace it
        begin, end = _guard()
        token = begin(self._modules, self._answer_modules, self._attempts, is_loading)
        try:
            yield
        except Exception:
            check()
            raise
        finally:
            end(token)
        check()

    @contextmanager
    def confine_run(self, network: nn.Module, build: Callable[[], Iterable[Any]]) -> Iterator[Callable[[], None]]:
        """Confine a run of the engine on a network; yield what is to be called after each of its steps.

        build: returns the policies that run. Their state, and that of their modules, has to remain as it is then.
        """
        if network is not self._network:
            self._refuse_patches(network)
            self._network = network
        before = _network_state(network)
        # Loading a model may have changed torch.
        self._surroundings, self._process = _list_surroundings(), {where: read() for where, read in _PROCESS.items()}
        check = self.check_now_and_then
        with self.apply():
            self._policies = tuple(build())
            self._state = self._read_state()
            yield check
        if _network_state(network) != before:
            raise self._tampered("changed the network")

    def check_now_and_then(self) -> None:
        """Check, unless that would take more than a fiftieth of the time."""
        self._refuse_attempts()
        start = perf_counter()
        if start >= self._next_check:
            self.check()
            now = perf_counter()
            self._next_check = now + CHECK_SHARE * (now - start)

    def check(self) -> None:
        """Raise Tampered if this code tried what it may not, changed what is not its own, or keeps anything."""
        self._refuse_attempts()
        for where, before in self._process.items():
            now = _PROCESS[where]()
            has_ended_threads = isinstance(now, frozenset) and isinstance(before, frozenset) and now < before
            if now != before and not has_ended_threads:
                raise self._tampered(f"changed {where}")
        for where, (owner, names) in self._surroundings.items():
            if name := _first_change(vars(owner), names):
                raise self._tampered(f"changed {where}.{name}")
        if self._state and (now_state := self._read_state()) != self._state:
            paths = [
                path for path in now_state.keys() | self._state.keys() if now_state.get(path) != self._state.get(path)
            ]
            raise self._tampered(f"keeps something between events, in {min(paths, key=len)}")

    def _refuse_patches(self, network: nn.Module) -> None:
        """Raise Tampered if a function that this code defines stands in the engine, torch or the network's modules."""
        roots = tuple(_module_files(self._modules))
        owners = {where: owner for where, (owner, _) in self._surroundings.items()}
        owners |= {name: sys.modules[name] for name in {type(module).__module__ for module in network.modules()}}
        for where, owner in sorted(owners.items()):
            for name, value in list(vars(owner).items()):
                code = getattr(value, "__code__", None) if isinstance(value, FunctionType) else None
                if code is not None and code.co_filename.startswith(roots):
                    raise self._tampered(f"put a function of its own at {where}.{name}")

    def _read_state(self) -> dict[str, object]:
        state: dict[str, object] = {}
        seen: dict[int, object] = {}
        for name in [name for name in sys.modules if name.partition(".")[0] in self._modules]:
            _walk(name, vars(sys.modules[name]), self._modules, state, seen)
        for number, policy in enumerate(self._policies):
            _walk(f"policy {number}", policy, self._modules, state, seen)
        return state

    def _refuse_attempts(self) -> None:
        if self._attempts:
            raise self._tampered(f"asked for {self._attempts[0]}, which scores of slots do not need")

    def _tampered(self, what: str) -> Tampered:
        return Tampered(f"policy {self._label}: its code {what}; nothing of this batch is recorded")


@cache
def _guard() -> tuple[Callable[..., object], Callable[[object], None]]:
    """Install the audit hook of this process, once; return what begins and what ends a confinement."""
    active: list[tuple[frozenset[str], frozenset[str], list[str], bool, tuple[str, ...], tuple[str, ...]]] = []
    busy = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if not active or busy or event in HARMLESS_NAMES:
            return
        busy = True
        try:
            _, answers, attempts, is_loading, roots, readable = active[-1]
            reason = _describe_attempt(event, arguments, answers, is_loading, roots, readable)
        finally:
            busy = False
        if reason:
            attempts.append(reason)
            raise Confined(f"a policy asked for {reason}")

    HARMLESS_NAMES = HARMLESS_EVENTS - {"import"}
    sys.addaudithook(hook)

    def begin(modules: frozenset[str], answers: frozenset[str], attempts: list[str], is_loading: bool) -> object:
        entry = (modules, answers, attempts, is_loading, tuple(_module_files(modules)), _readable_roots())
        active.append(entry)
        return entry

    def end(entry: object) -> None:
        active.remove(entry)  # type: ignore[arg-type]

    return begin, end


def _describe_attempt(
    event: str,
    arguments: tuple[Any, ...],
    answers: frozenset[str],
    is_loading: bool,
    roots: tuple[str, ...],
    readable: tuple[str, ...],
) -> str:
    """Return what own code asks for; empty if it is no own code, or harmless."""
    if is_loading and event in LOADING_EVENTS:
        return ""
    if event == "import" and not str(arguments[0]).startswith((*TASK_MODULES, *answers)):
        return ""
    frame: Any = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(roots):
        frame = frame.f_back
    if frame is None:
        return ""
    if event == "open":
        path, _, flags = arguments
        is_reading = not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if is_reading and isinstance(path, str | bytes) and os.path.realpath(os.fsdecode(path)).startswith(readable):
            return ""
    if event in FOLDER_EVENTS and arguments and os.path.realpath(str(arguments[0])).startswith(readable):
        return ""
    detail = next((str(argument) for argument in arguments if isinstance(argument, str)), "")
    return f"{event} {detail}".strip()


def _readable_roots() -> tuple[str, ...]:
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


def _module_files(modules: Iterable[str]) -> Iterator[str]:
    """Yield the file of each module, or the folder of each package."""
    from importlib.util import find_spec

    for name in modules:
        spec = find_spec(name)
        if spec is not None:
            yield from (f"{place}{os.sep}" for place in spec.submodule_search_locations or ())
            if spec.origin is not None and not spec.submodule_search_locations:
                yield spec.origin


def _modules_with_answers() -> frozenset[str]:
    groups = (registry.PLUGINS, grading.PLUGINS)
    return frozenset(point.module for plugins in groups for point in plugins.points().values())


def _is_below(name: str, modules: Iterable[str]) -> bool:
    return name.partition(".")[0] in modules


def _first_change(now: Mapping[str, object], before: Mapping[str, object]) -> str:
    """Return the first name of a module or class that another value stands at; empty if there is none. Submodules may
    be added, and what Python sets when it is first read.
    """
    try:
        if now == before:  # values are compared by identity first
            return ""
    except Exception:  # values that cannot be compared
        pass
    changed = (name for name in [*before, *now] if now.get(name, before) is not before.get(name, before))
    return min(
        (name for name in changed if not (isinstance(now.get(name), ModuleType) or name in LAZY_NAMES)), default=""
    )


_PROCESS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "the environment": lambda: dict(os.environ),
        "handlers of signals": lambda: [signal.getsignal(number) for number in range(1, signal.NSIG) if number < 32],
        "timers of signals": lambda: [signal.getitimer(timer)[1] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "what runs at exit": atexit._ncallbacks,
        "callbacks of the garbage collector": lambda: list(gc.callbacks),
        "the threads of the process": lambda: frozenset(sys._current_frames()),
        "the random state of Python": lambda: hash(random.getstate()),
        "the random state of torch": lambda: hash(torch.get_rng_state().numpy().tobytes()),
        "the default dtype of torch": torch.get_default_dtype,
    }
)


def _list_surroundings() -> dict[str, tuple[Any, dict[str, object]]]:
    """Return the modules and classes that own code has to leave as they are, by name, with their names and values."""
    owners: dict[str, Any] = {name: sys.modules[name] for name in LIBRARIES}
    owners |= {f"{kind.__module__}.{kind.__name__}": kind for kind in (Tensor, nn.Module, nn.Linear)}
    for name in [name for name in sys.modules if name.startswith(PROTECTED)]:
        owners[name] = sys.modules[name]
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, type) and value.__module__ == name:
                owners[f"{name}.{value.__name__}"] = value
    return {where: (owner, dict(vars(owner))) for where, owner in owners.items()}


def _network_state(network: nn.Module) -> object:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "forward")
    modules = [
        [(name, len(vars(each)[name]) if name[0] == "_" else True) for name in hooks if name in vars(each)]
        for each in network.modules()
    ]
    sums = [
        (each._version, each.data_ptr(), each.detach().sum(dtype=torch.float64).item()) for each in network.parameters()
    ]
    return modules, sums


def _walk(path: str, value: Any, modules: frozenset[str], state: dict[str, object], seen: dict[int, object]) -> None:
    """Enter a value, and what can be reached from it without leaving the own modules, in `state` by path."""
    if len(state) > MAX_VALUES:
        raise Tampered(f"{path}: has over {MAX_VALUES:,} values; a policy holds its settings and nothing else")
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        state[path] = (type(value).__name__, value)
        return
    if id(value) in seen:
        state[path] = id(value)
        return
    seen[id(value)] = value
    kind = type(value)
    if isinstance(value, Tensor):
        content = value.detach().double().sum().item() if value.dtype != torch.bool else int(value.sum())
        state[path] = (id(value), value._version, tuple(value.shape), content)
    elif isinstance(value, dict | MappingProxyType):
        state[path] = (id(value) if isinstance(value, dict) else 0, len(value))
        for key, inner in list(value.items()):
            if not (isinstance(key, str) and key in ("__builtins__", "__warningregistry__", "__doc__", "__loader__")):
                label = key if isinstance(key, str) else f"{kind.__name__} {len(state)}"
                _walk(f"{path}.{label}", inner, modules, state, seen)
                if not isinstance(key, str):
                    _walk(f"{path}.{label} (key)", key, modules, state, seen)
    elif isinstance(value, list | tuple | deque):
        state[path] = (id(value), len(value))
        for number, inner in enumerate(list(value)):
            _walk(f"{path}[{number}]", inner, modules, state, seen)
    elif isinstance(value, set | frozenset):
        state[path] = (id(value), len(value), hash(frozenset(map(id, value))))
    elif isinstance(value, bytearray | memoryview):
        state[path] = (id(value), bytes(value))
    elif isinstance(value, FunctionType):
        if _is_below(value.__module__ or "", modules) or _is_below(value.__globals__.get("__name__", ""), modules):
            state[path] = (id(value), id(value.__code__))
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            parts = {"defaults": value.__defaults__, "keywords": value.__kwdefaults__, "closure": cells}
            _walk_parts(path, parts | {"attributes": dict(value.__dict__)}, modules, state, seen)
        else:
            state[path] = id(value)
    elif isinstance(value, type):
        state[path] = id(value)
        home = sys.modules.get(value.__module__)
        is_there = home is not None and vars(home).get(value.__qualname__.partition(".")[0]) is not None
        if _is_below(value.__module__, modules) or not is_there:  # or it names a module that it is not of
            _walk_parts(path, dict(vars(value)), modules, state, seen)
    elif isinstance(value, staticmethod | classmethod | property):
        names = ("fget", "fset") if isinstance(value, property) else ("__func__",)
        _walk_parts(path, {name: getattr(value, name) for name in names}, modules, state, seen)
    elif isinstance(value, ModuleType):
        state[path] = id(value)
    elif hasattr(kind, "cache_info"):  # of functools.cache
        state[path] = (id(value), tuple(value.cache_info())[3])
    elif isinstance(value, random.Random):
        state[path] = (id(value), random.Random.getstate(value))
    else:
        state[path] = (id(value), kind.__name__, _opaque_state(value))
        if isinstance(inner := getattr(value, "__dict__", None), dict) and not _is_shared(kind):
            _walk_parts(path, dict(inner), modules, state, seen)
        for name in (slot for base in kind.__mro__ for slot in _slots(base)):
            if hasattr(value, name):
                _walk(f"{path}.{name}", getattr(value, name), modules, state, seen)


def _walk_parts(
    path: str, parts: Mapping[str, Any], modules: frozenset[str], state: dict[str, object], seen: dict[int, object]
) -> None:
    state[f"{path}/"] = tuple(sorted(parts))
    for name, inner in parts.items():
        if name not in ("__dict__", "__weakref__", "__doc__", "__builtins__"):
            _walk_fresh(f"{path}.{name}", inner, modules, state, seen)


def _walk_fresh(
    path: str, value: Any, modules: frozenset[str], state: dict[str, object], seen: dict[int, object]
) -> None:
    """As `_walk`, for containers that were made for the walk: their identity says nothing."""
    if type(value) is dict or (type(value) is list and path.endswith("closure")):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items):
            _walk(f"{path}.{key}", inner, modules, state, seen)
        state[f"{path}/"] = len(value)
        return
    _walk(path, value, modules, state, seen)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_shared(kind: type) -> bool:
    """Return whether objects of this type lead to all of a library, as loggers and modules do."""
    return kind.__module__.partition(".")[0] in ("logging", "importlib", "_frozen_importlib", "torch", "transformers")


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (
        (slots,) if isinstance(slots, str) else tuple(name for name in slots if name not in ("__dict__", "__weakref__"))
    )


def _opaque_state(value: Any) -> str:
    """Return what an object of the standard library says of its state: iterators, counters, context variables."""
    kind = type(value)
    if kind.__flags__ & 1 << 9:  # made by a class statement: its attributes are walked
        return ""
    if kind.__name__ == "ContextVar":
        return repr(value.get(None))
    try:
        return repr(value.__reduce_ex__(2))[:1000]
    except Exception:
        return ""
