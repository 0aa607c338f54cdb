"""Policies that cheat: each is stopped by name, changes nothing, or is in the threat model with what tells."""

import importlib
import re
import sys

import pytest
import studies

from protocol.formats.refusals import Tampered
from protocol.plan import grid, toml_reader
from protocol.run.executors import Job, local
from protocol.workspace.planned_study import PlannedStudy
from splits import load

MODULE = """
from dataclasses import dataclass
import gc, os, sys, time
import torch
from torch import stack
from policies import Norms, Policy, Scores, read_signal
{setup}

@dataclass(frozen=True)
class Small:
    needs = frozenset({{Norms()}})

    def score(self, view):
        slots = -stack([n.value for n in read_signal(view, Norms())])
        {body}
        return Scores(slots)

small = Policy(scoring=Small())
"""

KEEPS = "keeps something between events, in"
SAME = (
    "class Same:\n    __hash__ = None\n    def __init__(self, kept):\n        self.kept = kept\n"
    "    def __eq__(self, other):\n        return True\n"
    "    def __call__(self, *about, **more):\n        return self.kept(*about, **more)\n"
)
RECENT = 'set = { "protect.recent" = 8, "protect.sinks" = 0 }'

# name -> (what the module has besides, what runs at each event, what the refusal says; None: nothing is gained)
STOPPED = {
    "walks the garbage collector": ("", "gc.get_objects()", "asked for gc.get_objects"),
    "follows referrers": ("", "gc.get_referrers(view)", "asked for gc.get_referrers"),
    "reads the frames of its callers": ("", "sys._getframe(1).f_locals", "asked for sys._getframe"),
    "reads them by inspect": ("import inspect", "inspect.currentframe()", "asked for sys._getframe"),
    "reads them by a traceback": (
        "",
        "try:\n            1 / 0\n        except ZeroDivisionError as e:\n            e.__traceback__.tb_frame",
        "asked for object.__getattr__ tb_frame",
    ),
    "traces the process": ("", "sys.settrace(lambda *a: None)", "asked for sys.settrace"),
    "opens the problems": ("", "open('questions.jsonl').read()", "asked for open questions.jsonl"),
    "opens them and says nothing": (
        "",
        "try:\n            open('questions.jsonl')\n        except Exception:\n            pass",
        "asked for open questions.jsonl",
    ),
    "looks at its memory in /proc": ("", "open('/proc/self/mem', 'rb')", "asked for open /proc/self/mem"),
    "remembers in a register of codecs": (
        "import codecs",
        "codecs.register_error(f'kept{view.token_ids.shape[0]}', codecs.ignore_errors)",
        "asked for codecs.register_error",
    ),
    "searches for codecs": ("", "__import__('_codecs').register(lambda name: None)", "asked for codecs.register"),
    "remembers in the limit of csv": (
        "from csv import field_size_limit",
        "field_size_limit(7)",
        "asked for csv.field_size_limit",
    ),
    "replaces it by what is equal to all": (SAME, "torch.cumsum = Same(torch.cumsum)", "changed torch.cumsum"),
    "replaces a method by what is equal to all": (
        f"import policies.selection\n{SAME}",
        "policies.selection.TopK.select = Same(policies.selection.TopK.select)",
        "changed policies.selection.TopK.select",
    ),
    "keeps it in the path": (SAME, "sys.path[-1] = Same(slots)", "changed the path of imports"),
    "keeps it in a handler of signals": (
        f"import signal\n{SAME}",
        "signal.signal(signal.SIGUSR1, Same(slots))",
        "changed handlers of signals",
    ),
    "keeps it in a function of a library": (
        "import statistics",
        "statistics.mean = lambda kept=slots: kept",
        "changed statistics.mean",
    ),
    "adds a function to a library": (
        "import statistics",
        "statistics.hidden = lambda: slots",
        "changed statistics.hidden",
    ),
    "adds a partial function to a library": (
        "import functools, statistics",
        "statistics.hidden = functools.partial(print, slots)",
        "changed statistics.hidden",
    ),
    "adds a method of a list to a library": (
        "import statistics",
        "statistics.hidden = [slots].__getitem__",
        "changed statistics.hidden",
    ),
    "lists processes": ("", "os.listdir('/proc')", "asked for os.listdir /proc"),
    "leaves a file for another lane": ("", "open('/tmp/kv', 'w').write('1')", "asked for open /tmp/kv"),
    "opens by a descriptor": ("", "os.open('lock.json', os.O_RDONLY)", "asked for open lock.json"),
    "asks a server": ("import socket", "socket.socket()", "asked for socket.__new__"),
    "starts a process": ("import subprocess", "subprocess.run(['true'])", "asked for subprocess.Popen"),
    "forks": ("", "os.fork()", "asked for os.fork"),
    "starts a thread": (
        "import threading",
        "threading.Thread(target=time.sleep, args=(1,), daemon=True).start()",
        "changed the threads of the process",
    ),
    "calls C": ("import ctypes", "ctypes.CDLL(None)", "asked for ctypes.dlopen"),
    "builds the problems again": ("", "import protocol.tasks.dataset", "asked for import protocol.tasks.dataset"),
    "grades by itself": ("", "import protocol.grading.contains", "asked for import protocol.grading.contains"),
    "writes into the environment": ("", "os.environ['KV'] = '1'", "asked for os.putenv"),
    "counts its calls": ("calls = [0]", "calls[0] += 1", "keeps something between events, in"),
    "counts in a global": ("calls = 0", "global calls\n        calls += 1", "keeps something between events, in"),
    "counts in a class": ("class Box:\n    calls = 0", "Box.calls += 1", "keeps something between events, in"),
    "counts in a class that says it is ours": (
        "class Box:\n    calls = 0\nBox.__module__ = 'policies.selection'",
        "Box.calls += 1",
        "keeps something between events, in",
    ),
    "counts in a function": (
        "def box():\n    pass",
        "box.calls = getattr(box, 'calls', 0) + 1",
        "keeps something between events, in",
    ),
    "counts by an iterator": ("import itertools\nticks = itertools.count()", "next(ticks)", "holds a count in"),
    "keeps a shadow cache": ("shadow = {}", "shadow[len(shadow)] = slots", "keeps something between events, in"),
    "keeps it in a default argument": (
        "def box(cache=[]):\n    return cache",
        "box().append(slots)",
        "keeps something between events, in",
    ),
    "keeps it in a closure": (
        "def make():\n    cache = []\n    return lambda x: cache.append(x)\nbox = make()",
        "box(slots)",
        "keeps something between events, in",
    ),
    "keeps it in its settings": ("", "object.__setattr__(self, 'cache', slots)", "keeps something between events"),
    "keeps it in a thread-local": (
        "import threading\nplace = threading.local()",
        "place.cache = slots",
        "holds a _local in",
    ),
    "keeps it in a context variable": (
        "import contextvars\nplace = contextvars.ContextVar('place', default=None)",
        "place.set(len(view.token_ids))",
        "holds a ContextVar in",
    ),
    "remembers by lru_cache": (
        "from functools import lru_cache\n@lru_cache\ndef box(tokens):\n    return tokens",
        "box(len(view.token_ids))",
        "keeps something between events, in",
    ),
    "writes into a tensor of its own": (
        "place = torch.zeros(4)",
        "place[0] = len(view.token_ids)",
        "keeps something between events, in",
    ),
    "writes into it past its version": (
        "place = torch.zeros(4)",
        "place.numpy()[0] = len(view.token_ids)",
        "keeps something between events, in",
    ),
    "hides it in torch": ("", "torch.hidden = slots", "changed torch.hidden"),
    "hides it in a module of ours": (
        "import policies.selection",
        "policies.selection.hidden = slots",
        "changed policies.selection.hidden",
    ),
    "replaces the softmax": (
        "",
        "real = torch.softmax\n        torch.softmax = lambda *a, **k: real(*a, **k)",
        "changed torch.softmax",
    ),
    "replaces a method of tensors": ("", "torch.Tensor.softmax = lambda *a, **k: 0", "changed torch.Tensor.softmax"),
    "replaces the sampler": (
        "import protocol.engine.sampling as s",
        "s.is_usable = lambda logits: True",
        "changed protocol.engine.sampling.is_usable",
    ),
    "replaces it when it is imported": (
        "import protocol.engine.sampling as s\nreal = s.is_usable\ns.is_usable = lambda logits: real(logits)",
        "pass",
        "protocol.engine.sampling.is_usable",
    ),
    "replaces a method of the engine": (
        "from protocol.engine.slots import Pool",
        "Pool.bytes = lambda self: 0",
        "changed protocol.engine.slots.Pool.bytes",
    ),
    "replaces the code of a function": (
        "from protocol.engine import sampling",
        "sampling.is_usable.__code__ = (lambda logits: True).__code__",
        "asked for object.__setattr__ __code__",
    ),
    "replaces what checks it": (
        "from protocol.run.executors import own_code",
        "own_code.Confinement.check = lambda self: None",
        "changed protocol.run.executors.own_code.Confinement.check",
    ),
    "waits for the end": ("import atexit", "atexit.register(print)", "changed what runs at exit"),
    "waits for a timer": (
        "import signal",
        "signal.signal(signal.SIGALRM, lambda *a: None)",
        "changed handlers of signals",
    ),
    "waits for the collector": ("", "gc.callbacks.append(lambda *a: None)", "changed callbacks of the garbage"),
    "draws from a stream of its own": ("", "slots = torch.rand_like(slots)", "changed the random state of torch"),
    "sets the seed": ("", "torch.manual_seed(0)", "asked for sys._getframe"),
    # State that a comparison of values, or of their descriptions, does not see.
    "keeps it in an attribute of a tensor": ("place = torch.zeros(1)", "place.cache = slots", KEEPS),
    "keeps it in an attribute of a list": ("class Box(list):\n    pass\nplace = Box()", "place.cache = slots", KEEPS),
    "keeps it in an attribute of a text": ("class Box(str):\n    pass\nplace = Box('a')", "place.cache = slots", KEEPS),
    "keeps it in a set": ("place = set()", "place.add(len(place))", KEEPS),
    "keeps it in a slot": ("class Box:\n    __slots__ = ('a',)\nplace = Box()", "place.a = slots", KEEPS),
    "turns the numbers of a tensor": (
        "place = torch.tensor([1.0, 2.0, 3.0])",
        "place.numpy()[:] = place.numpy()[[1, 2, 0]]",
        KEEPS,
    ),
    "writes behind a view of a tensor": (
        "whole = torch.zeros(8)\nplace = whole[:0]\ndel whole",
        "place.untyped_storage()[0] = (place.untyped_storage()[0] + 1) % 9",
        KEEPS,
    ),
    "writes behind a view of an array": ("import numpy as np\nplace = np.zeros(8)[:0]", "place.base[0] += 1", KEEPS),
    "writes far into a long array": ("import array\nplace = array.array('q', [0] * 9999)", "place[9998] += 1", KEEPS),
    "keeps it in a property": (
        "cache = []\nclass Box:\n    at = property(lambda self, cache=cache: cache)\ndel cache",
        "Box().at.append(1)",
        KEEPS,
    ),
    "keeps it in a class of a class": (
        "class Meta(type):\n    calls = 0\nclass Box(metaclass=Meta):\n    pass",
        "Meta.calls += 1",
        KEEPS,
    ),
    "keeps it in a bound method": ("place = [].append", "place(1)", KEEPS),
    "keeps it in a partial": ("from functools import partial\nplace = partial(list.append, [])", "place(1)", KEEPS),
    "keeps it behind a weak reference": (
        "import weakref\nclass Box:\n    pass\nplace = weakref.ref(torch.Box if hasattr(torch, 'Box') else Box)",
        "place().calls = getattr(place(), 'calls', 0) + 1",
        KEEPS,
    ),
    "keeps it in the specification of its module": ("", "__spec__.cache = slots", KEEPS),
    "keeps it in a buffer": ("import io\nplace = io.BytesIO()", "place.write(b'1')", KEEPS),
    "counts the answers of a cache": (
        "from functools import lru_cache\n@lru_cache\ndef box():\n    return 1\nbox()",
        "box()",
        KEEPS,
    ),
    "counts by a random stream": ("import random\nplace = random.Random(0)", "place.random()", KEEPS),
    "counts by a stream of torch": ("place = torch.Generator()", "torch.rand(1, generator=place)", KEEPS),
    "counts in a generator": ("def box():\n    yield from range(9)\nplace = box()", "next(place)", "holds a generator"),
    "counts in a digest": ("import hashlib\nplace = hashlib.sha256()", "place.update(b'1')", "holds a HASH"),
    "keeps it in a lock": ("import threading\nplace = threading.Lock()", "place.acquire(False)", "holds a lock"),
    "keeps a graph": (
        "place = torch.zeros(1, requires_grad=True) * 1",
        "place.grad_fn.metadata['cache'] = slots",
        "holds a tensor with a graph",
    ),
    "hides it in another module": ("import statistics", "statistics.hidden = slots", "changed statistics.hidden"),
    "hides it in a class of another module": (
        "import statistics",
        "statistics.NormalDist.hidden = slots",
        "changed statistics.NormalDist.hidden",
    ),
    "hides it behind a name without letters": (
        "import statistics",
        "setattr(statistics, '', 0); statistics.hidden = slots",
        "changed statistics.",
    ),
    "hides it behind a name that is false": (
        "class Name(str):\n    def __bool__(self):\n        return False\nname = Name('A')",
        "vars(torch)[name] = 0; torch.hidden = slots",
        "changed torch.<a name of its own class>",
    ),
    "hides it at a name that is equal to all": (
        "class Name(str):\n    __hash__ = str.__hash__\n    def __eq__(self, other):\n        return True\n"
        "name = Name('hidden')",
        "vars(torch)[name] = slots",
        "changed torch.<a name of its own class>",
    ),
    "keeps it in the version of its warnings": ("", "globals()['__warningregistry__'] = {'version': slots}", KEEPS),
    "keeps it at a name that calls itself otherwise": (
        "class Name(str):\n    def __format__(self, form):\n        return 'small'\nglobals()[Name('kept')] = 0",
        "globals()['kept'] = slots",
        "has a name of its own class in cheat_keeps_it_at_a_name_that_calls_itself_otherwise",
    ),
    "keeps it at the name of something else": (
        "import types\nlate = sys.modules[f'{__name__}.late'] = types.ModuleType('late')\nlate.kept = 0\n"
        "globals()['late.kept'] = 0",
        "late.kept = slots",
        KEEPS,
    ),
    "hides it among the modules": ("", "sys.modules['hidden'] = [slots]", "changed what is loaded"),
    "loads a module that it wrote": (
        "",
        "import types; sys.modules[__name__ + '.late'] = types.ModuleType('late')",
        "loads cheat_loads_a_module_that_it_wrote.late while it runs",
    ),
    "registers with an abstract class": (
        "import collections.abc",
        "collections.abc.Sized.register(type('Box', (), {}))",
        "changed registrations of abstract classes",
    ),
    # Settings of the process, which the engine's arithmetic reads too.
    "sets the default dtype": ("", "torch.set_default_dtype(torch.float64)", "changed the default dtype"),
    "sets the threads of torch": ("", "torch.set_num_threads(torch.get_num_threads() + 1)", "changed the settings"),
    "allows what is not deterministic": ("", "torch.use_deterministic_algorithms(True, warn_only=True)", "changed "),
    "leaves memory unfilled": (
        "import torch.utils.deterministic as d",
        "d.fill_uninitialized_memory = False",
        "changed the settings of torch",
    ),
    "flushes denormals": ("", "torch.set_flush_denormal(True)", "changed the settings of torch"),
    "sets how numpy errs": ("import numpy as np", "np.seterr(all='ignore')", "changed the errors of numpy"),
    "draws from numpy": ("import numpy as np", "np.random.rand()", "changed the random state of numpy"),
    "draws from Python": ("import random", "random.random()", "changed the random state of Python"),
    "sets decimals": ("import decimal", "decimal.getcontext().prec += 1", "changed the decimal context"),
    "sets a limit": ("", "sys.setrecursionlimit(sys.getrecursionlimit() + 1)", "changed limits of the interpreter"),
    "stops the collector": ("", "gc.disable()", "changed the garbage collector"),
    "adds to the path": ("", "sys.path.append('/tmp')", "changed the path of imports"),
    "adds an importer": ("", "sys.meta_path.append(Small)", "changed the path of imports"),
    # Words to the hook.
    "opens by a text of its own": (
        "class Path(str):\n    def __str__(self):\n        return 'a.py'\n    __fspath__ = __str__",
        "os.listdir(Path('/proc'))",
        "asked for os.listdir with a text of its own class, Path",
    ),
    "scores by code without a file": ("", "exec('1')", "asked for compile"),
    "scores by code of a file that it names": ("", "compile('1', torch.__file__, 'exec')", "asked for compile"),
    "renames its code": ("", "(lambda: 1).__code__.replace(co_filename=torch.__file__)", "asked for code.__new__"),
    "reads the frame of a generator": ("", "g = (1 for _ in [1]); g.gi_frame", "asked for object.__getattr__ gi_frame"),
    "reads frames by logging": ("import logging", "logging.currentframe()", "asked for sys._getframe"),
    "reads frames by the threads": ("", "sys._current_frames()", "asked for sys._current_frames"),
    "adds a hook of its own": ("", "sys.addaudithook(lambda *a: None)", "asked for sys.addaudithook"),
    "shares memory": (
        "from multiprocessing import shared_memory",
        "shared_memory.SharedMemory(create=True, size=8)",
        "asked for os.truncate",
    ),
    "reads its arguments as a file": ("", "open('/proc/self/environ')", "asked for open /proc/self/environ"),
    "opens a pipe that it found": ("", "open(0)", "asked for open"),
    "sends itself a signal": ("", "os.kill(os.getpid(), 0)", "asked for os.kill"),
}


# name -> (what the module has besides, what runs at each event)
HONEST = {
    "warns": ("import warnings", "warnings.warn(f'{len(view.token_ids)} tokens')"),
    "logs": ("import logging\nlog = logging.getLogger(__name__)", "log.warning('small'); log.debug('smaller')"),
    "makes a named tuple": ("from collections import namedtuple", "namedtuple('A', 'b')(1)"),
    "makes a typed one": ("import typing", "typing.NamedTuple('A', [('b', int)])"),
    "makes an enumeration": ("import enum", "enum.Enum('A', 'b')"),
    "makes a dataclass": ("from dataclasses import make_dataclass", "make_dataclass('A', ['b'])(1)"),
    "reads a signature": ("import inspect", "inspect.signature(read_signal)"),
    "maps over an axis": ("", "torch.vmap(lambda a: a * 2)(slots)"),
    "draws by the seed of its lane": ("", "torch.rand(3, generator=torch.Generator().manual_seed(view.seed))"),
    "has a constant that is no number": ("place = torch.full((3,), torch.nan)", "place.isnan()"),
    "loads a library late": ("", "import statistics, colorsys, numpy.polynomial"),
    "loads a library late that registers its classes": (
        "",
        "import registering",  # of no distribution: a library
    ),
    "reads a limit of the interpreter": ("", "sys.getrecursionlimit()"),
    "compares with an abstract class": ("import collections.abc", "isinstance(slots, collections.abc.Sized)"),
    "has a table, a pattern and a layer": (
        "import re, decimal, datetime, pathlib, fractions, numpy as np\n"
        "PLACE = [re.compile('a'), decimal.Decimal(1), datetime.date(2026, 1, 1), pathlib.Path('a'), np.float32(1),\n"
        "         fractions.Fraction(1, 2), np.arange(3), torch.nn.Softmax(-1), torch.float16, range(3), np.exp]",
        "PLACE[0].match('a'), vars(self), slots.unfold(-1, 2, 1), torch.linalg.svd(slots[0])",
    ),
}


# What gains nothing: the lane answers as that of an honest policy does.
HARMLESS = {
    "sleeps": "time.sleep(0)",
    "reads the environment": "os.environ.get('HOME')",
    "reads the clock": "time.time()",
    "writes into its signals": "[tensor.zero_() for n in read_signal(view, Norms()) for tensor in n]",
    "writes into the text": "view.token_ids.zero_()",
    "writes into the positions": "None if view.stored is None else view.stored.zero_()",
    "writes into the rotation": "view.rotation.frequencies.zero_()",
    "replaces its signals": "view.signals.clear()",
}
EVERYTHING = "does all of these"


@pytest.fixture
def undone():
    """What a policy changed is as it was after the test."""
    import atexit
    import csv
    import decimal
    import gc
    import os
    import signal
    import statistics

    import numpy as np
    import torch

    import policies.selection
    from protocol.engine import sampling, slots
    from protocol.run.executors import own_code

    settings = (sys.path[:], sys.meta_path[:], sys.getrecursionlimit(), torch.get_num_threads(), np.geterr())
    mean = statistics.mean

    def put_back():
        sys.path[:], sys.meta_path[:] = settings[:2]
        sys.setrecursionlimit(settings[2])
        torch.set_num_threads(settings[3])
        np.seterr(**settings[4])
        torch.set_default_dtype(torch.float32)
        torch.set_flush_denormal(False)
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
        decimal.setcontext(decimal.Context())
        sys.modules.pop("hidden", None)
        sys.modules.pop("registering", None)
        csv.field_size_limit(131072)
        for owner in (statistics, statistics.NormalDist):
            vars(owner).get("hidden") is None or delattr(owner, "hidden")
        statistics.mean = mean

    selection = policies.selection, policies.selection.TopK
    owners = (torch, torch.Tensor, *selection, sampling, slots.Pool, own_code.Confinement)
    before = [dict(vars(owner)) for owner in owners]
    yield
    for owner, names in zip(owners, before, strict=True):
        for name in [name for name, value in vars(owner).items() if names.get(name) is not value]:
            setattr(owner, name, names[name]) if name in names else delattr(owner, name)
    os.environ.pop("KV", None)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    atexit.unregister(print)
    gc.callbacks.clear()
    gc.enable()
    put_back()


LLAMA = "sys.modules['transformers.models.llama.modeling_llama']"
# What runs at each event, and what is changed: parts of the network that a run has loaded.
PATCHED = {
    "patches the class of a layer": (
        f"kept = {LLAMA}.LlamaMLP.forward; {LLAMA}.LlamaMLP.forward = lambda *about: kept(*about)",
        "changed transformers.models.llama.modeling_llama.LlamaMLP.forward",
    ),
    "patches a function of the network": (
        f"{LLAMA}.rotate_half = torch.neg",
        "changed transformers.models.llama.modeling_llama.rotate_half",
    ),
    "takes the place of the attention": (
        "functions = sys.modules['transformers.modeling_utils'].ALL_ATTENTION_FUNCTIONS._global_mapping\n"
        "        functions |= {name: lambda *about, f=f, **more: f(*about, **more) for name, f in functions.items()}",
        "changed the attention",
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with every policy of this file installed, so that Python's path is read once."""
    site = tmp_path_factory.mktemp("own") / "site-packages"
    (site / "cheats-1.dist-info").mkdir(parents=True)
    (site / "cheats-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cheats\nVersion: 1\n")
    sources = {cheat: (setup, body) for cheat, (setup, body, _) in STOPPED.items()}
    sources |= {cheat: ("", body) for cheat, (body, _) in PATCHED.items()}
    (site / "registering.py").write_text(
        "import collections.abc\nclass Late: pass\ncollections.abc.Sized.register(Late)\n"
    )
    sources |= {cheat: ("", body) for cheat, body in HARMLESS.items()} | HONEST | {"honest": ("", "pass")}
    sources[EVERYTHING] = ("", "; ".join(HARMLESS.values()))
    for cheat, (setup, body) in sources.items():
        (site / f"{module_name(cheat)}.py").write_text(MODULE.format(setup=setup, body=body))
    points = "".join(f"{module_name(cheat)} = {module_name(cheat)}:small\n" for cheat in sources)
    (site / "cheats-1.dist-info" / "entry_points.txt").write_text(f"[kv_prereg.policies]\n{points}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield


def module_name(cheat):
    return "cheat_" + re.sub(r"\W", "_", cheat)


@pytest.fixture(scope="module")
def loaded(tiny_model):
    from protocol.models.load import load as load_model

    return load_model(f"path:{tiny_model}", tiny_model, dtype="float32", device="cpu")


@pytest.fixture
def run_policy(tmp_path, tiny_model, loaded, site, undone):
    """Return a function that decodes a lane of a policy of this file, with several events."""
    ran = []

    def run(cheat):
        name = module_name(cheat)
        ran.append(name)
        changes = {
            **studies.ONE_TASK,
            'crystal = { policy = "crystal-token-level" }': f'crystal = {{ policy = "{name}", {RECENT} }}',
            "budgets = [0.8]": "budgets = [0.5]",
            # It reads the same norms.
            'streaming = { policy = "streaming" }': f'streaming = {{ policy = "knorm", {RECENT} }}',
            "threads = 1": "threads = 1\ninterval = 2",
            "max_new_tokens = 24": "max_new_tokens = 8",
        }
        studies.write(tmp_path / name, tiny_model, changes)
        protocol = toml_reader.parse((tmp_path / name / "protocol.toml").read_bytes(), "protocol.toml")
        planned, task = PlannedStudy(protocol, tmp_path, folder=tmp_path / name), protocol.tasks[0].name
        cells = tuple(cell for cell in grid.cells(protocol) if cell.arm in ("crystal", "streaming"))
        execute = local.make_executor(planned, {}, load_model=lambda model: loaded)
        result = execute(Job(cells[0].model, task, tuple(load(task).dev[:1]), cells))
        bodies = {cell.arm: body for (cell, _), (body, _) in result.records.items()}
        return [bodies[arm] | {"cell": None} for arm in ("crystal", "streaming")]

    yield run
    for name in ran:
        sys.modules.pop(name, None)


def test_an_honest_policy_of_another_distribution_runs(run_policy):
    body, _ = run_policy("honest")
    assert body["state"] == "ok"
    assert len(body["cache"]["events"]) > 1


@pytest.mark.parametrize("cheat", ["keeps a shadow cache", "opens the problems", "replaces it when it is imported"])
def test_a_policy_that_cheats_is_stopped_in_a_run(cheat, run_policy):
    with pytest.raises(Tampered, match=re.escape(STOPPED[cheat][2])):
        run_policy(cheat)


@pytest.fixture
def network_put_back(loaded):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.llama import modeling_llama

    functions, owners = ALL_ATTENTION_FUNCTIONS._global_mapping, (modeling_llama, modeling_llama.LlamaMLP)
    before, names = dict(functions), [(owner, dict(vars(owner))) for owner in owners]
    yield
    functions.update(before)
    for owner, kept in names:
        for name in [name for name, value in vars(owner).items() if kept.get(name) is not value]:
            setattr(owner, name, kept[name])


@pytest.mark.usefixtures("network_put_back")
@pytest.mark.parametrize("cheat", PATCHED)
def test_a_policy_that_changes_the_network_is_stopped_in_a_run(cheat, run_policy):
    with pytest.raises(Tampered, match=re.escape(PATCHED[cheat][1])):
        run_policy(cheat)


@pytest.fixture
def call_policy(site, undone):
    """Return a function that asks a policy of this file for scores, confined as in a run, without an engine."""
    called = []

    def call(cheat):
        import torch

        from policies import Norms, View
        from policies.signals import KeyAndValue
        from protocol.run.executors import own_code

        name = module_name(cheat)
        called.append(name)
        confinement = own_code.Confinement([name])
        with confinement.apply(is_loading=True):
            policy = importlib.import_module(name).small
        network = torch.nn.Linear(2, 2)
        norms = tuple(KeyAndValue(torch.rand(2, 6), torch.rand(2, 6)) for _ in range(2))
        with confinement.confine_run(network, lambda: [policy]) as check, torch.inference_mode():
            for tokens in (6, 8):
                token_ids = torch.arange(tokens)
                policy.scoring.score(View(token_ids, 2, 2, frozenset(), 0, {Norms(): norms}))
                check()

    yield call
    for name in [name for name in sys.modules for own in called if name.partition(".")[0] == own]:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("cheat", STOPPED)
def test_a_policy_that_cheats_is_stopped_by_name(cheat, call_policy, monkeypatch):
    for name in ("protocol.tasks.dataset", "protocol.grading.contains"):  # as a worker is: it has loaded neither
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(Tampered, match=re.escape(STOPPED[cheat][2])):
        call_policy(cheat)


@pytest.mark.parametrize("name", HONEST)
def test_what_an_honest_policy_may_do(name, call_policy):
    call_policy(name)


@pytest.mark.parametrize("cheat", [EVERYTHING, *(pytest.param(cheat, marks=pytest.mark.soak) for cheat in HARMLESS)])
def test_what_a_policy_writes_changes_nothing(cheat, run_policy):
    """Its view is a copy: neither its own lane nor that of another arm reads what it wrote."""
    assert run_policy(cheat) == run_policy("honest")


@pytest.mark.parametrize(("name", "is_told"), [("native kernel", False), ("mine", True)])
def test_threads_that_the_native_kernel_begins_are_not_of_a_policy(name, is_told):
    from concurrent.futures import ThreadPoolExecutor

    from protocol.engine.native.network import THREADS
    from protocol.run.executors import own_code

    assert THREADS == "native kernel"
    before = own_code._list_threads()
    with ThreadPoolExecutor(2, thread_name_prefix=name) as pool:
        pool.submit(int).result()
        assert (own_code._list_threads() != before) == is_told
