"""Code of an arm that is not of this project: what it may do while lanes decode, and what it must leave as it is.

A policy of another distribution is called by the engine, in the process that decodes. While it runs, an audit hook of
the interpreter (PEP 578) refuses whatever scores of slots do not need: files, processes, sockets, threads, the frames
of callers, the garbage collector. After every step the engine, the libraries, the environment and the state of the
policy's own modules are compared with what they were: nothing is kept from one event to the next but the memory that a
scoring declares, which is counted. This is no sandbox: docs/threat-model.md says what it leaves open.
"""

import _signal  # type: ignore[import-not-found]  # not `signal`, which looks handlers up by value
import abc
import atexit
import contextvars
import decimal
import faulthandler
import functools
import gc
import operator
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from itertools import chain
from time import perf_counter
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from policies import catalogue
from protocol import grading
from protocol.engine.native.network import THREADS
from protocol.formats.policy_facts import is_own_policy
from protocol.formats.refusals import Tampered
from protocol.plan.design import Design
from protocol.run.executors.audit_hook import (
    Rules,
    announce_registers,
    get_guard,
    list_code_files,
    list_readable_folders,
)
from protocol.run.executors.own_state import PLAIN, Keeps, ReachableState, read_bases, read_names, read_state
from protocol.tasks import registry

PROTECTED = ("protocol.engine", "protocol.run", "policies", "protocol.models.load")
LAZY_NAMES = (  # set when first read
    *("__warningregistry__", "__abstractmethods__", "__annotations__", "__path__"),
    *("_can_set_attn_implementation_cached_value", "_can_set_experts_implementation_cached_value"),  # of transformers
)
LIBRARIES = ("builtins", "torch", "torch.nn.functional", "os", "sys", "time", "math", "threading", "gc")
HOOK_COUNTERS = frozenset({"torch.utils.hooks.RemovableHandle"})
REGISTRATIONS = "registrations of abstract classes"
CHECK_SHARE = 50  # of the time that passes between two checks, one takes one part
# What to do in place of what is refused, by how the refusal begins.
INSTEAD = {
    "asked for open": "give data to a policy as settings, or as constants of its module",
    "asked for sys._getframe": "seeds, traces and logs of frames are not a policy's",
    "asked for exec": "write the function out",
    "asked for compile": "write the function out",
    "changed the random state": "draw with torch.Generator().manual_seed(view.seed)",
    "keeps something": "a scoring keeps its state in the memory of its `Scores`; a cache of a function is state too",
}


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
    sys.dont_write_bytecode = True  # of what an own policy imports
    confinement = Confinement(names, beside_press=any(arm.press is not None for arm in design.arms))
    with confinement.apply(is_loading=True):
        yield confinement


class Confinement:
    """The confinement of the policies of these names.

    beside_press: a press sets hooks, which torch counts; then the policies could count in them too.
    """

    def __init__(self, names: Iterable[str], *, beside_press: bool = False) -> None:
        announce_registers()
        self._label = ", ".join(names)
        self._counted = HOOK_COUNTERS if beside_press else frozenset[str]()
        points = [catalogue.PLUGINS.points()[name] for name in names]
        self._modules = frozenset[str]().union(*map(_list_modules, points))
        self._code, self._readable = tuple(list_code_files(self._modules)), list_readable_folders()
        # A warning that is shown is remembered in the module that warns.
        warnings.filterwarnings("ignore", module=rf"({'|'.join(sorted(self._modules))})(\.|$)")
        self._attempts: list[str] = []
        self._answer_modules = _modules_with_answers()
        self._next_check = 0.0
        self._network: nn.Module | None = None
        self._classes: set[type] = set()
        self._own_state: ReachableState | None = None
        self._policies: tuple[Any, ...] = ()
        self._own_modules: tuple[str, ...] = ()
        self._surroundings, self._modules_read = _read_surroundings(self._modules, is_wide=False), 0
        self._entries = Entries(each.owner for each in self._surroundings.values())
        self._process, self._modules_loaded = _read_process(), len(sys.modules)

    @contextmanager
    def apply(self, *, is_loading: bool = False) -> Iterator[None]:
        """Refuse, inside the context, what the code of these policies may not do. Raises Tampered at its end for what
        it tried and for what it changed.
        """
        check = self.check  # as it is before their code could replace it
        begin, end = get_guard()
        base = sys._getframe()
        while base.f_back is not None and base.f_code.co_filename in (__file__, contextmanager.__code__.co_filename):
            base = base.f_back
        rules = Rules(self._answer_modules, self._code, self._readable, base, self._attempts, is_loading)
        begin(rules)
        try:
            yield
        except Exception:
            check()
            raise
        finally:
            end(rules)
        check()

    @contextmanager
    def confine_run(self, network: nn.Module, build: Callable[[], Iterable[Any]]) -> Iterator[Callable[[], None]]:
        """Confine a run of the engine on a network; yield what is to be called after each of its steps.

        build: returns the policies that run. Their state, and that of their modules, has to remain as it is then.
        """
        if network is not self._network:
            self._classes = {
                kind for module in network.modules() for kind in type(module).__mro__ if kind is not object
            }
            self._refuse_patches()
            self._network, self._modules_read = network, 0
        before, start = _network_state(network), perf_counter()
        check = self.check_now_and_then  # as it is before their code could replace it
        if len(sys.modules) != self._modules_read or any(self._find_changes()):
            self._read_wide_surroundings()  # loading a model may have changed torch
        self._process, self._modules_loaded = _read_process(), len(sys.modules)
        with self.apply():
            self._policies = tuple(build())
            self._own_modules = self._list_own_modules()
            for name in self._own_modules:  # Python counts there which warnings it has shown, unless there is None
                vars(sys.modules[name])["__warningregistry__"] = None
            self._own_state = self._read_own_state()
            self._next_check = perf_counter() + CHECK_SHARE * (perf_counter() - start)
            yield check
        self._own_state = None
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
        now_process = _read_process()
        if len(sys.modules) != self._modules_loaded:  # a library that is loaded late registers its classes
            self._modules_loaded = len(sys.modules)
            self._process[REGISTRATIONS] = now_process[REGISTRATIONS]
        for where, before in self._process.items():
            now = now_process[where]
            has_ended_threads = isinstance(now, frozenset) and isinstance(before, frozenset) and now < before
            if now != before and not has_ended_threads:
                raise self._tampered(f"changed {where}")
        for where, name in self._find_changes():
            if where not in self._counted:
                raise self._tampered(f"changed {where}.{name}")
        for name, function in _list_attention_functions().items():
            if self._is_own(function):
                raise self._tampered(f"changed the attention {name}")
        if self._own_state is None:
            return
        if late := [name for name in self._list_own_modules() if name not in self._own_modules]:
            raise self._tampered(f"loads {late[0]} while it runs: import it at the top")
        if name := self._own_state.first_change(self._read_own_state()):
            raise self._tampered(f"keeps something between events, in {name}")

    def _find_changes(self) -> Iterator[tuple[str, str]]:
        """Yield each module or class that changed, with the first name at which another value stands."""
        if self._entries.are_same():
            return
        is_harmless = True
        for where, each in list(self._surroundings.items()):
            if (name := self._first_change(vars(each.owner), each)) is not None:
                is_harmless = False
                yield where, name
        if is_harmless:
            self._entries.accept()

    def _first_change(self, now: Mapping[str, object], each: "Surroundings") -> str | None:
        """Return the first name at which another value stands; None if there is none. Submodules may be added, and
        what Python sets when it is first read; what a library loads late may be added to what is not guarded.
        """
        before = each.names
        if not {id(name) for name in now if type(name) is not str} <= {*map(id, before)}:
            return "<a name of its own class>"  # which would be asked here
        changed = [name for name in {**before, **now} if not _is_alike(now.get(name, before), before.get(name, before))]
        return min(
            (
                name
                for name in changed
                if not (issubclass(kind := type(now.get(name)), ModuleType) or name in LAZY_NAMES)
                and (each.is_guarded or not (kind in _HARMLESS_KINDS or self._may_be_late(now.get(name))))
            ),
            default=None,
        )

    def _may_be_late(self, value: object) -> bool:
        """Return whether a library may set this when it is first used: it can be called, and is not own code's."""
        kind: Any = type(value)
        holds = kind in _HOLDERS or (kind is BuiltinFunctionType and type(value.__self__) in _NOT_MODULES)  # type: ignore[attr-defined]
        return callable(value) and not holds and not self._is_own(value)

    def _is_own(self, value: object) -> bool:
        """Return whether a function, a class or an object of one is of this code."""
        kind: Any = type(value)
        if kind is FunctionType:
            return bool(value.__code__.co_filename.startswith(self._code))  # type: ignore[attr-defined]
        classes = read_bases(value if issubclass(kind, type) else kind)  # type: ignore[arg-type]
        names = [read_names(base) for base in classes]
        modules = {each["__module__"] for each in names if type(each.get("__module__")) is str}
        inner = [value for each in names for value in each.values() if type(value) is FunctionType]
        return not self._modules.isdisjoint(name.partition(".")[0] for name in modules) or any(map(self._is_own, inner))

    def _read_wide_surroundings(self) -> None:
        self._surroundings = _read_surroundings(self._modules, self._classes)
        self._entries = Entries(each.owner for each in self._surroundings.values())
        self._modules_read = len(sys.modules)
        owners = [each.owner for each in self._surroundings.values()]
        self._foreign = {id(owner) for owner in owners} | {id(vars(each)) for each in owners if _is_module(each)}

    def _refuse_patches(self) -> None:
        """Raise Tampered if a function that this code defines stands in the engine, torch or the network's classes."""
        owners = {where: each.owner for where, each in self._surroundings.items() if each.is_guarded}
        owners |= {name: sys.modules[name] for name in {kind.__module__ for kind in self._classes} & sys.modules.keys()}
        owners |= {f"{kind.__module__}.{kind.__name__}": kind for kind in self._classes}
        for where, owner in sorted(owners.items()):
            for name, value in list(vars(owner).items()):
                if type(value) is FunctionType and self._is_own(value):
                    raise self._tampered(f"put a function of its own at {where}.{name}")

    def _list_own_modules(self) -> tuple[str, ...]:
        return tuple(name for name in sys.modules if name.partition(".")[0] in self._modules)

    def _read_own_state(self) -> ReachableState:
        roots: list[tuple[str, object]] = []
        for name in filter(sys.modules.__contains__, self._own_modules):
            namespace = vars(sys.modules[name])
            if any(type(key) is not str for key in namespace):
                raise self._tampered(f"has a name of its own class in {name}")
            roots += [(f"{name}.{key}", value) for key, value in namespace.items()]
        own = {id(vars(sys.modules[name])) for name in self._own_modules if name in sys.modules}
        roots += [(f"policy {number}", policy) for number, policy in enumerate(self._policies)]
        try:
            return read_state(roots, self._foreign | own)
        except Keeps as refusal:
            raise self._tampered(str(refusal)) from None

    def _refuse_attempts(self) -> None:
        if self._attempts:
            raise self._tampered(f"asked for {self._attempts[0]}, which scores of slots do not need")

    def _tampered(self, what: str) -> Tampered:
        advice = next((f" ({advice})" for start, advice in INSTEAD.items() if what.startswith(start)), "")
        return Tampered(f"policy {self._label}: its code {what}{advice}; nothing of this batch is recorded")


def _list_modules(point: EntryPoint) -> set[str]:
    """Return the first names of the modules that the distribution of an entry point has."""
    names = {point.module.partition(".")[0]}
    if point.dist is None:
        return names
    files = [file for file in point.dist.files or () if file.suffix == ".py" and ".." not in file.parts]
    names |= {file.parts[0].removesuffix(".py") for file in files}
    names |= set((point.dist.read_text("top_level.txt") or "").split())
    return {name for name in names if not name.startswith("__editable__")}


def _modules_with_answers() -> frozenset[str]:
    groups = (registry.PLUGINS, grading.PLUGINS)
    return frozenset(point.module for plugins in groups for point in plugins.points().values())


class Surroundings(NamedTuple):
    """A module or class with its names and values. is_guarded: no value may change, of whatever kind."""

    owner: Any
    names: dict[str, Any]
    is_guarded: bool


class Entries:
    """All names of many modules and classes, one after the other, and what stands at them."""

    def __init__(self, owners: Iterable[object]) -> None:
        self._namespaces = [vars(owner) for owner in owners]
        self._at_names = [namespace.values() for namespace in self._namespaces]
        self.accept()

    def accept(self) -> None:
        """Take what stands there now for what they are compared with."""
        self._sizes = [*map(len, self._namespaces)]
        self._names = [*chain.from_iterable(self._namespaces)]
        self._values = [*chain.from_iterable(self._at_names)]

    def are_same(self) -> bool:
        """Return whether the very same values stand at the very same names; no class of theirs is asked. One pass over
        a quarter of a million names takes half as long as a loop over modules and classes.
        """
        return (
            [*map(len, self._namespaces)] == self._sizes
            and all(map(operator.is_, chain.from_iterable(self._namespaces), self._names))
            and all(map(operator.is_, chain.from_iterable(self._at_names), self._values))
        )


def _is_alike(now: object, before: object) -> bool:
    return now is before or (type(now) is type(before) and type(now) in PLAIN and now == before)


def _list_attention_functions() -> dict[str, object]:
    """Return what transformers calls for attention, by name."""
    module = sys.modules.get("transformers.modeling_utils")
    return {} if module is None else dict(module.ALL_ATTENTION_FUNCTIONS.items())


def _is_module(value: object) -> bool:
    return issubclass(type(value), ModuleType)


def _read_surroundings(
    own: Collection[str], classes: Collection[type] = (), *, is_wide: bool = True
) -> dict[str, Surroundings]:
    """Return the modules and classes that own code has to leave as they are, by name: all but its own, or those that
    are guarded. classes: of the network; they and their modules are guarded.
    """
    surroundings: dict[str, Surroundings] = {}
    core = {id(kind) for kind in (Tensor, nn.Module, nn.Linear, *classes)}
    libraries = {*LIBRARIES, *(kind.__module__ for kind in classes)}
    # What a callback of the garbage collector counts changes at any time; own code can add none.
    counting = {getattr(callback, "__module__", None) for callback in gc.callbacks}
    for name, module in list(sys.modules.items()):
        if not _is_module(module) or name.partition(".")[0] in own or name in counting:
            continue
        is_guarded = name in libraries or name.startswith(PROTECTED)
        if not (is_guarded or is_wide):
            continue
        surroundings[name] = Surroundings(module, dict(vars(module)), is_guarded)
        for value in surroundings[name].names.values():
            if issubclass(type(value), type) and value.__module__ == name:
                is_core = (is_guarded and name.startswith(PROTECTED)) or id(value) in core
                surroundings[f"{name}.{value.__name__}"] = Surroundings(value, dict(vars(value)), is_core)
    return surroundings


def _read_process() -> dict[str, object]:
    return {where: read() for where, read in _PROCESS.items()}


_deterministic: Any = torch.utils.deterministic
_HARMLESS_KINDS = (type(None), bool, type(threading.Lock()), type(threading.RLock()), torch.library.Library)
_HOLDERS = (functools.partial, MethodType, operator.itemgetter, operator.attrgetter, operator.methodcaller)
_NOT_MODULES: tuple[type, ...] = (dict, list, tuple, str, bytes, int, float, Tensor, np.ndarray)
_PROCESS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "the environment": lambda: dict(os.environ),
        "the working directory": os.getcwd,
        "handlers of signals": lambda: [
            id(_signal.getsignal(number)) for number in range(1, signal.NSIG) if number < 32
        ],
        "timers of signals": lambda: [signal.getitimer(timer)[1] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "what runs at exit": atexit._ncallbacks,
        "callbacks of the garbage collector": lambda: [*map(id, gc.callbacks)],
        "the garbage collector": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "the threads of the process": lambda: _list_threads(),
        "what traces the process": lambda: (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "limits of the interpreter": lambda: (
            *(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
            *(sys.dont_write_bytecode, faulthandler.is_enabled(), sys.get_asyncgen_hooks()),
        ),
        REGISTRATIONS: abc.get_cache_token,
        "the path of imports": lambda: [*map(id, (*sys.path, *sys.meta_path, *sys.path_hooks))],
        "what is loaded": lambda: [name for name, module in sys.modules.items() if type(module) in _NOT_MODULES],
        "the decimal context": lambda: repr(decimal.getcontext()),  # which is made, in a variable, when first read
        "the errors of numpy": lambda: (tuple(np.geterr().items()), id(np.geterrcall())),
        "context variables": lambda: {id(key): id(value) for key, value in contextvars.copy_context().items()},
        "the random state of Python": lambda: hash(random.getstate()),
        "the random state of numpy": lambda: [
            each.tobytes() if isinstance(each, np.ndarray) else each for each in np.random.get_state()
        ],
        "the random state of torch": lambda: hash(torch.get_rng_state().numpy().tobytes()),
        "the default dtype of torch": torch.get_default_dtype,
        "the settings of torch": lambda: (
            *(torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_device()),
            *(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            torch.get_float32_matmul_precision(),
            *(_deterministic.fill_uninitialized_memory, torch.is_anomaly_enabled()),
            *((torch.tensor([1e-39]) * 2).item(), torch.backends.mkldnn.enabled),  # 0 where denormals are flushed
            *(torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        ),
    }
)


def _list_threads() -> frozenset[int | None]:
    """Return all threads but those of the native kernel, which begin with its first step; no own code starts one."""
    kernel = {thread.ident for thread in threading.enumerate() if thread.name.startswith(THREADS)}
    return frozenset(sys._current_frames()) - kernel


def _network_state(network: nn.Module) -> object:
    """Return the hooks of a network, and versions, places and sums of its weights."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "forward")
    modules = [
        [(name, len(vars(each)[name]) if name[0] == "_" else True) for name in hooks if name in vars(each)]
        for each in network.modules()
    ]
    sums = [
        (each._version, each.data_ptr(), each.detach().sum(dtype=torch.float64).item()) for each in network.parameters()
    ]
    return modules, sums
