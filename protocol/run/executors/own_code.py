"""Code of an arm that is not of this project: what it may do while lanes decode, and what it must leave as it is.

A policy of another distribution is called by the engine, in the process that decodes. While it runs, an audit hook of
the interpreter (PEP 578) refuses whatever scores of slots do not need: files, processes, sockets, threads, the frames
of callers, the garbage collector. The engine, the libraries and the state of the policy's own modules are compared with
what they were, and no batch counts before the comparison that follows it: nothing is kept from one event to the next
but the memory that a scoring declares, which is counted. This is no sandbox: docs/threat-model.md says what it leaves
open.
"""

import operator
import sys
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from time import thread_time
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from policies import catalogue
from protocol import grading
from protocol.engine.own_state import PLAIN, Keeps, ReachableState, read_state
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
from protocol.run.executors.process_state import DISPATCHER, read_dispatcher, read_kernels, read_process
from protocol.run.executors.surroundings import Surroundings
from protocol.tasks import registry

HOOK_COUNTERS = frozenset({"torch.utils.hooks.RemovableHandle"})
CHECK_SHARE = 100  # of the processor time between two comparisons in a batch, one takes one part
WINDOW_SHARE = 40  # of the processor time between two comparisons of finished batches, one takes one part
# What to do in place of what is refused, by how the refusal begins.
INSTEAD = {
    "used open": "pass data to a policy as settings, or as constants of its module",
    "used sys._getframe": "a policy must not touch seeds, traces or frame logs",
    "used exec": "write the function explicitly",
    "used compile": "write the function explicitly",
    "changed the random state": "draw with torch.Generator().manual_seed(view.seed)",
    "keeps state": "a scoring must keep its state in the memory of its `Scores`; a cached function also has state",
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
    confinement.confine_between_runs()


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
        self._next_check = self._window_end = 0.0
        self._runs = 0  # since the last check
        self._is_running = False
        self._group = ("", "")
        self._network: nn.Module | None = None
        self._network_state: object = None
        self._own_state: ReachableState | None = None
        self._policies: tuple[Any, ...] = ()
        self._own_modules: tuple[str, ...] = ()
        self._surroundings = Surroundings(self._modules, self._code)
        self._process, self._kernels = read_process(), read_kernels()

    @contextmanager
    def apply(self, *, is_loading: bool = False) -> Iterator[None]:
        """Refuse, inside the context, what the code of these policies may not do. Raises Tampered at its end for what
        it tried and for what it changed.
        """
        check, check_process = self.check, self.check_process  # as they are before their code could replace them
        begin, end = get_guard()
        base = sys._getframe()
        while base.f_back is not None and base.f_code.co_filename in (__file__, contextmanager.__code__.co_filename):
            base = base.f_back
        rules = Rules(self._answer_modules, self._code, self._readable, base, self._attempts, is_loading)
        if is_loading:
            self._surroundings.record_loads()
        begin(rules)
        try:
            yield
        except Tampered:
            raise
        except Exception:
            check_process()
            check()
            raise
        finally:
            end(rules)
        check_process()
        if is_loading:
            check()

    def confine_between_runs(self) -> None:
        """Refuse, as long as this object lives, what code of these policies may not do when no run is under way: what
        is freed then may call it, and settings of an arm do.
        """
        begin, end = get_guard()
        rules = Rules(self._answer_modules, self._code, self._readable, None, self._attempts, is_loading=False)
        begin(rules)
        weakref.finalize(self, end, rules)

    def begin_group(self, model: str, task: str) -> None:
        """Check before another model is loaded, or policies of another task are built, as both change much."""
        if (model, task) != self._group and self._runs:
            self.check()
        self._group = model, task

    @contextmanager
    def confine_run(self, network: nn.Module, build: Callable[[], Iterable[Any]]) -> Iterator[Callable[[], None]]:
        """Confine a run of the engine on a network; yield what is to be called after each of its steps. The run counts
        when `check` has passed after it.

        build: returns the policies that run. Their state, and that of their modules, has to remain as it is then, from
        one run to the next.
        """
        self._refuse_attempts()
        check = self.check_now_and_then  # as it is before their code could replace it
        if network is not self._network:
            self._begin_network(network)
        elif not self._runs:
            self._accept_surroundings()
        if not self._runs:
            self._surroundings.record_loads()
        self._process = read_process()
        self._runs += 1
        self._is_running = True
        try:
            with self.apply():
                self._begin_policies(tuple(build()))
                yield check
        finally:
            self._is_running = False

    def is_due(self) -> bool:
        """Return whether `check` would take less than a small part of the time since it was called last."""
        return thread_time() >= self._window_end

    def _begin_network(self, network: nn.Module) -> None:
        if self._runs:
            self.check()
        classes = {kind for module in network.modules() for kind in type(module).__mro__ if kind is not object}
        self._surroundings.guard(classes)  # loading a model may have changed torch
        if where := self._surroundings.find_patch(classes):
            raise self._tampered(f"replaced {where} by its own function")
        self._network, self._network_state = network, _read_network(network)
        self._window_end = 0.0  # what libraries set after their first batch is accepted before the second

    def _accept_surroundings(self) -> None:
        """Compare from now on what changed between two runs. Raises Tampered for what is guarded."""
        start = thread_time()
        if self._surroundings.has_new_modules():
            self._surroundings.accept_modules()
        for namespace, name in self._surroundings.find_changes():
            if namespace.is_guarded:
                raise self._tampered(f"changed {namespace.where}.{name}")
            namespace.accept()
        self._window_end += WINDOW_SHARE * (thread_time() - start)

    def _begin_policies(self, policies: tuple[Any, ...]) -> None:
        """Read the state of these policies, if they are not those of the run before."""
        is_known = len(policies) == len(self._policies) and all(map(operator.is_, policies, self._policies))
        if self._runs > 1:
            if is_known:
                return
            self.check()
        own_modules = self._list_own_modules()
        if is_known and own_modules == self._own_modules:
            return
        self._policies, self._own_modules = policies, own_modules
        for name in own_modules:  # Python counts there which warnings it has shown, unless there is None
            vars(sys.modules[name])["__warningregistry__"] = None
        self._own_state = self._read_own_state()

    def check_now_and_then(self) -> None:
        """Check, unless that would take more than a hundredth of the time; the dispatcher always, which the end of the
        engine's run sets back.
        """
        self._refuse_attempts()
        if read_dispatcher() != self._process[DISPATCHER]:
            raise self._tampered(f"changed {DISPATCHER}")
        if thread_time() >= self._next_check:
            self.check_process()
            self.check()

    def check_process(self) -> None:
        """Raise Tampered if this code tried what it may not, or changed the process since the run began."""
        self._refuse_attempts()
        now_process = read_process()
        for where, before in self._process.items():
            now = now_process[where]
            has_ended_threads = isinstance(now, frozenset) and isinstance(before, frozenset) and now < before
            if now != before and not has_ended_threads:
                raise self._tampered(f"changed {where}")

    def check(self) -> None:
        """Raise Tampered if this code tried what it may not, changed what is not its own, or keeps anything. After
        this, the runs that have ended count.
        """
        start = thread_time()
        self._refuse_attempts()
        if self._own_state is not None and not self._runs:
            return
        if self._surroundings.has_new_modules():
            late = [name for name in self._list_own_modules() if name not in self._own_modules]
            if late and self._own_state is not None:
                raise self._tampered(f"loads {late[0]} while it runs: import it at the top of the module")
            if changed := self._surroundings.accept_loads():
                raise self._tampered(f"changed {changed}")
        for namespace, name in self._surroundings.find_changes():
            if namespace.where not in self._counted:
                raise self._tampered(f"changed {namespace.where}.{name}")
        for name, function in _list_attention_functions().items():
            if self._surroundings.is_own(function):
                raise self._tampered(f"changed the attention {name}")
        if self._own_state is not None and (name := self._own_state.first_change(self._read_own_state())):
            raise self._tampered(f"keeps state between events in {name}")
        if not self._is_running:
            kernels = read_kernels()
            if replaced := [name for name, before in self._kernels.items() if kernels.get(name) != before]:
                raise self._tampered(f"changed the operator {replaced[0]}")
            if self._network is not None and _read_network(self._network) != self._network_state:
                raise self._tampered("changed the network")
        now = thread_time()
        self._next_check = now + CHECK_SHARE * (now - start)
        if not self._is_running:
            self._runs, self._window_end = 0, now + WINDOW_SHARE * (now - start)

    def _list_own_modules(self) -> tuple[str, ...]:
        return tuple(name for name in sys.modules if name.partition(".")[0] in self._modules)

    def _read_own_state(self) -> ReachableState:
        roots: list[tuple[str, object]] = []
        for name in filter(sys.modules.__contains__, self._own_modules):
            namespace = vars(sys.modules[name])
            if any(type(key) is not str for key in namespace):
                raise self._tampered(f"has a name in {name} that is a subclass of str")
            roots += [(f"{name}.{key}", value) for key, value in namespace.items()]
            if (kind := type(sys.modules[name])) is not ModuleType:
                roots.append((f"the class of {name}", kind))
        own = {id(vars(sys.modules[name])) for name in self._own_modules if name in sys.modules}
        roots += [(f"policy {number}", policy) for number, policy in enumerate(self._policies)]
        try:
            return read_state(roots, (self._surroundings.foreign, own))
        except Keeps as refusal:
            raise self._tampered(str(refusal)) from None

    def _refuse_attempts(self) -> None:
        if self._attempts:
            raise self._tampered(f"used {self._attempts[0]}, which scoring slots does not need")

    def _tampered(self, what: str) -> Tampered:
        advice = next((f" ({advice})" for start, advice in INSTEAD.items() if what.startswith(start)), "")
        batches = "this batch" if self._runs <= 1 else f"the last {self._runs} batches"
        return Tampered(f"policy {self._label}: its code {what}{advice}; nothing of {batches} is recorded")


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


def _list_attention_functions() -> dict[str, object]:
    """Return what transformers calls for attention, by name."""
    module = sys.modules.get("transformers.modeling_utils")
    return {} if module is None else dict(module.ALL_ATTENTION_FUNCTIONS.items())


def _read_network(network: nn.Module) -> object:
    """Return what the modules of a network consist of, hooks included, and a checksum of all its numbers."""
    names = {id(tensor): _checksum(tensor) for tensor in (*network.parameters(), *network.buffers())}
    parts = [
        {
            name: {key: id(inner) for key, inner in value.items()} if isinstance(value, dict) else _describe(value)
            for name, value in vars(module).items()
        }
        for module in network.modules()
    ]
    return parts, names


def _describe(value: object) -> object:
    return value if type(value) in PLAIN else id(value)


def _checksum(tensor: Tensor) -> object:
    """Return the version and place of a tensor, and a checksum of its bytes, on the device as sums by place."""
    place = tensor._version, tensor.data_ptr()
    values = tensor.detach()
    if values.device.type == "cpu":
        return *place, zlib.crc32(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    flat = values.reshape(-1).double()
    return *place, flat.sum().item(), flat.dot(torch.arange(flat.numel(), device=flat.device).double()).item()
