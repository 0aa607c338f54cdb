"""What of the process an own policy has to leave as it is: environment, threads, random states and all settings."""

import _signal  # type: ignore[import-not-found]  # not `signal`, which looks handlers up by value
import atexit
import contextvars
import csv
import decimal
import faulthandler
import gc
import itertools
import locale
import os
import random
import re
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from protocol.run.executors.surroundings import count_registrations, get_load_recorder


def read_process() -> dict[str, object]:
    return {where: read() for where, read in _PROCESS.items()}


def read_kernels() -> dict[str, int]:
    """Return a hash of what is registered for each operator of torch, but for `vmap`, which registers it when used."""
    return {name: hash(_VMAP.sub("", _core._dispatch_dump(name))) for name in list_operators()}


def list_operators() -> list[str]:
    return [name for name in _core._dispatch_get_all_op_names() if name.startswith("aten::")]


_core: Any = torch._C
DISPATCHER = "the dispatcher of torch"
_PRECISIONS = (("generic", "all"), *itertools.product(("cuda", "mkldnn"), ("all", "conv", "rnn", "matmul")))
_READS = re.compile(r"_?(get|is)_(?!grad|fwd_grad|inference|multithreading|caught|thread|autocast_(?:[cgix]))")
_TIMERS = signal.ITIMER_REAL, signal.ITIMER_PROF, signal.ITIMER_VIRTUAL
_VMAP = re.compile("\nFuncTorch.*")
_KEYS = re.compile(r"\b(?!Autograd|ADInplace)\w+")  # of the dispatcher, but for gradients


def read_dispatcher() -> list[list[str]]:
    """Return by which keys torch chooses kernels in this thread, but for those of gradients."""
    keys = _core._dispatch_tls_local_include_set(), _core._dispatch_tls_local_exclude_set()
    return [_KEYS.findall(str(each)) for each in keys]


def _list_getters() -> list[Callable[[], object]]:
    """Return what reads a setting of torch: functions of its core whose names say so, that take no argument and return
    a short value without identity. Whether gradients are computed changes where the engine begins and ends.
    """
    getters: list[Callable[[], object]] = [partial(_core._get_fp32_precision_getter, *each) for each in _PRECISIONS]
    for name, read in vars(_core).items():
        if _READS.match(name) is None or isinstance(read, type):
            continue
        try:
            value = repr(read())
        except (TypeError, RuntimeError):
            continue  # takes an argument, or is not of this build
        if len(value) < 200 and " at 0x" not in value:
            getters.append(read)
    return getters


def _read_setting(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except RuntimeError as error:  # settings of old and new names contradict each other
        return str(error)


_GETTERS = tuple(_list_getters())
_PROCESS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "the environment": lambda: dict(os.environ),
        "the working directory": os.getcwd,
        "signal handlers": lambda: [
            *(id(_signal.getsignal(number)) for number in _signal.valid_signals()),
            *sorted(_signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        ],
        "signal timers": lambda: [bool(time) for timer in _TIMERS for time in signal.getitimer(timer)],
        "the functions that run at exit": atexit._ncallbacks,
        "garbage collector callbacks": lambda: [*map(id, gc.callbacks)],
        "the garbage collector": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "the threads of the process": lambda: frozenset(sys._current_frames()),
        "the trace functions of the process": lambda: (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "interpreter limits": lambda: (
            *(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
            *(sys.dont_write_bytecode, faulthandler.is_enabled(), sys.get_asyncgen_hooks()),
            *(sys.getdlopenflags(), sys.get_coroutine_origin_tracking_depth(), threading.stack_size()),
            *(locale.setlocale(locale.LC_ALL), tracemalloc.get_traceback_limit(), tuple(csv.list_dialects())),
            *(os.nice(0), tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()),
        ),
        "registrations of abstract classes": lambda: count_registrations() - get_load_recorder().registrations,
        "the import path": lambda: [*map(id, (*sys.path, *sys.meta_path, *sys.path_hooks))],
        "the decimal context": lambda: repr(decimal.getcontext()),  # which is made, in a variable, when first read
        "numpy's error settings": lambda: (tuple(np.geterr().items()), id(np.geterrcall())),
        "context variables": lambda: {id(key): id(value) for key, value in contextvars.copy_context().items()},
        "the random state of Python": lambda: hash(random.getstate()),
        "the random state of numpy": lambda: [
            each.tobytes() if isinstance(each, np.ndarray) else each for each in np.random.get_state()
        ],
        "the random state of torch": lambda: hash(torch.get_rng_state().numpy().tobytes()),
        "the default dtype of torch": torch.get_default_dtype,
        "the settings of torch": lambda: (
            *(torch.get_default_device(), (torch.tensor([1e-39]) * 2).item()),  # 0 where denormals are flushed
            *map(_read_setting, _GETTERS),
            *(_core._len_torch_function_stack(), _core._len_torch_dispatch_stack()),
            _core._autograd._top_saved_tensors_default_hooks(True),
        ),
        DISPATCHER: read_dispatcher,
    }
)
