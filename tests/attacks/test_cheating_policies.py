"""Policies that cheat: each is stopped by name, changes nothing, or is in the threat model with what tells."""

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
    "builds the problems again": (
        "",
        "import protocol.tasks.dataset",
        "asked for import protocol.tasks.dataset",
    ),
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
    "counts by an iterator": (
        "import itertools\nticks = itertools.count()",
        "next(ticks)",
        "keeps something between events, in",
    ),
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
        "keeps something between events, in",
    ),
    "keeps it in a context variable": (
        "import contextvars\nplace = contextvars.ContextVar('place', default=None)",
        "place.set(len(view.token_ids))",
        "keeps something between events, in",
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
    "replaces a method of tensors": (
        "",
        "torch.Tensor.softmax = lambda *a, **k: 0",
        "changed torch.Tensor.softmax",
    ),
    "replaces the sampler": (
        "import protocol.engine.sampling as s",
        "s.is_usable = lambda logits: True",
        "changed protocol.engine.sampling.is_usable",
    ),
    "replaces it when it is imported": (
        "import protocol.engine.sampling as s\nreal = s.is_usable\ns.is_usable = lambda logits: real(logits)",
        "pass",
        "put a function of its own at protocol.engine.sampling.is_usable",
    ),
    "replaces a method of the engine": (
        "from protocol.engine.slots import Pool",
        "Pool.bytes = lambda self: 0",
        "changed protocol.engine.slots.Pool.bytes",
    ),
    "replaces the code of a function": (
        "from protocol.engine import sampling",
        "sampling.is_usable.__code__ = (lambda logits: True).__code__",
        "asked for object.__getattr__ __code__",
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


@pytest.fixture
def undone():
    """What a policy changed is as it was after the test."""
    import atexit
    import gc
    import os
    import signal

    import torch

    import policies.selection
    from protocol.engine import sampling, slots
    from protocol.run.executors import own_code

    owners = (torch, torch.Tensor, policies.selection, sampling, slots.Pool, own_code.Confinement)
    before = [dict(vars(owner)) for owner in owners]
    yield
    for owner, names in zip(owners, before, strict=True):
        for name in [name for name, value in vars(owner).items() if names.get(name) is not value]:
            setattr(owner, name, names[name]) if name in names else delattr(owner, name)
    os.environ.pop("KV", None)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    atexit.unregister(print)
    gc.callbacks.clear()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with every policy of this file installed, so that Python's path is read once."""
    site = tmp_path_factory.mktemp("own") / "site-packages"
    (site / "cheats-1.dist-info").mkdir(parents=True)
    (site / "cheats-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cheats\nVersion: 1\n")
    sources = {cheat: (setup, body) for cheat, (setup, body, _) in STOPPED.items()}
    sources |= {cheat: ("", body) for cheat, body in HARMLESS.items()} | {"honest": ("", "pass")}
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


@pytest.mark.parametrize("cheat", STOPPED)
def test_a_policy_that_cheats_is_stopped_by_name(cheat, run_policy, monkeypatch):
    for name in ("protocol.tasks.dataset", "protocol.grading.contains"):  # as a worker is: it has loaded neither
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(Tampered, match=re.escape(STOPPED[cheat][2])):
        run_policy(cheat)


@pytest.mark.parametrize("cheat", HARMLESS)
def test_what_a_policy_writes_changes_nothing(cheat, run_policy):
    """Its view is a copy: neither its own lane nor that of another arm reads what it wrote."""
    assert run_policy(cheat) == run_policy("honest")
