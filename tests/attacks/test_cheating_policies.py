"""Policies that cheat: each is stopped by name, changes nothing, or is in the threat model with what tells."""

import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import studies

from protocol.formats.refusals import Tampered
from protocol.plan import grid, toml_reader
from protocol.run.executors import Job, answers, audit_hook, local, process_pool, process_state, surroundings
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

# Modules that no policy here changes: half of all names, which are read and compared in the runs of the engine.
BESIDE = ("sympy", "scipy", "mpmath", "huggingface_hub", "accelerate", "jinja2", "numpy.", "httpx")
BESIDE += tuple(f"torch.{part}" for part in ("_", "distributed", "fx", "ao", "onnx", "jit", "distributions", "testing"))

HIDING = """
@dataclass(frozen=True)
class Hiding:
    shown: torch.Tensor

    def retain(self, retained):
        return self
"""
KEEPS = "keeps state between events in"
RECENT = 'set = { "protect.recent" = 8, "protect.sinks" = 0 }'

CHEATS = tomllib.loads((Path(__file__).parent / "cheating_policies.toml").read_text("utf-8"))


class Cheat(NamedTuple):
    """Of a module: what it has besides, what runs at each event, what its refusal says."""

    setup: str
    event: str
    says: str


def read_cheats(kind: str) -> dict[str, Cheat]:
    return {
        name: Cheat(
            cheat.get("setup", "").replace("<same>", CHEATS["same"]),
            cheat["event"].replace("\n", "\n        "),
            cheat.get("says", KEEPS),
        )
        for name, cheat in CHEATS[kind].items()
    }


STOPPED, PATCHED, HONEST, WAITING = map(read_cheats, ("stopped", "patched", "honest", "waiting"))
HARMLESS = CHEATS["harmless"]
EVERYTHING = "does all of these"


@pytest.fixture
def undone():
    """What a policy changed is as it was after the test."""
    import atexit
    import csv
    import decimal
    import gc
    import linecache
    import os
    import signal
    import statistics

    import numpy as np
    import torch

    import policies.selection
    from protocol.engine import sampling, slots
    from protocol.formats import canonical
    from protocol.run.executors import own_code

    settings = (sys.path[:], sys.meta_path[:], sys.getrecursionlimit(), torch.get_num_threads(), np.geterr())
    mean, digest, extra_repr = statistics.mean, canonical.digest, torch.nn.Linear.extra_repr

    def put_back():
        sys.path[:], sys.meta_path[:] = settings[:2]
        sys.setrecursionlimit(settings[2])
        torch.set_num_threads(settings[3])
        np.seterr(**settings[4])
        torch.set_default_dtype(torch.float32)
        torch.set_flush_denormal(False)
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.set_autocast_enabled("cpu", False)
        torch.backends.cuda.enable_math_sdp(True)
        torch._C._set_fp32_precision_setter("mkldnn", "matmul", "none")
        if torch._C._autograd._top_saved_tensors_default_hooks(True):
            torch._C._autograd._pop_saved_tensors_default_hooks()
        torch._C._dispatch_tls_set_dispatch_key_excluded("Functionalize", False)
        torch.nn.modules.module._global_forward_hooks.clear()
        if kernel := linecache.cache.pop("kernel", None):
            kernel.reset()
        assert torch.dot(torch.ones(2), torch.ones(2)) == 2
        decimal.setcontext(decimal.Context())
        for name in ("hidden", "registering", "sched"):
            sys.modules.pop(name, None)
        sys.modules["statistics"] = statistics
        csv.field_size_limit(131072)
        statistics.__dict__.pop("hidden", None)
        canonical.digest = digest
        torch.nn.Linear.extra_repr = extra_repr
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


# What runs at each event, and what is changed: parts of the network that a run has loaded.
@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with every policy of this file installed, so that Python's path is read once."""
    site = tmp_path_factory.mktemp("own") / "site-packages"
    (site / "cheats-1.dist-info").mkdir(parents=True)
    (site / "cheats-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cheats\nVersion: 1\n")
    sources = {name: cheat[:2] for name, cheat in (STOPPED | PATCHED | HONEST | WAITING).items()}
    (site / "registering.py").write_text(
        "import collections.abc\nclass Late: pass\ncollections.abc.Sized.register(Late)\n"
    )
    sources |= {cheat: ("", body) for cheat, body in HARMLESS.items()} | {"honest": ("", "pass")}
    sources["hides"] = (HIDING, "return Scores(slots, memory=Hiding(torch.zeros(10_000)[:1]))")
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
def plan_policy(tmp_path, tiny_model, site, undone):
    """Return a function that plans a lane of a policy of this file, with several events."""
    planned_names = []

    def plan(cheat):
        name = module_name(cheat)
        planned_names.append(name)
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
        return planned, Job(cells[0].model, task, tuple(load(task).dev[:1]), cells)

    yield plan
    for name in planned_names:
        sys.modules.pop(name, None)


@pytest.fixture
def run_policy(loaded, plan_policy):
    """Return a function that decodes a lane of a policy of this file."""

    def run(cheat):
        planned, job = plan_policy(cheat)
        result = local.make_executor(planned, {}, load_model=lambda model: loaded)(job)
        bodies = {cell.arm: body for (cell, _), (body, _) in result.records.items()}
        return [bodies[arm] | {"cell": None} for arm in ("crystal", "streaming")]

    return run


def test_an_honest_policy_of_another_distribution_runs(run_policy):
    body, _ = run_policy("honest")
    assert body["state"] == "ok"
    assert len(body["cache"]["events"]) > 1


@pytest.mark.parametrize("cheat", ["keeps a shadow cache", "opens the problems", "replaces it when it is imported"])
def test_a_policy_that_cheats_is_stopped_in_a_run(cheat, run_policy):
    with pytest.raises(Tampered, match=re.escape(STOPPED[cheat].says)):
        run_policy(cheat)


def test_memory_that_a_policy_does_not_show_is_counted(run_policy):
    """It shows one number of 10,000, and stores the rest of the view in a place that no method names."""
    honest, hidden = ([body["cache"]["state_bytes"] for body in run_policy(each)] for each in ("honest", "hides"))
    assert hidden[0] >= honest[0] + 40_000
    assert hidden[1] == honest[1]


def test_whoever_may_begin_a_confinement_cannot_reach_those_that_are_active():
    assert not any(hasattr(each, "__self__") for each in audit_hook.get_guard())


class Pipe:
    """The end of a worker's connection. requests: what it receives until the other end is closed."""

    def __init__(self, requests):
        self.requests, self.answers = requests, []

    def recv(self):
        if not self.requests:
            raise EOFError
        return self.requests.pop(0)

    def poll(self, timeout):
        return bool(self.requests)

    def send(self, answer):
        self.answers.append(answer)


def test_of_batches_that_wait_for_one_check_none_counts_when_the_first_changed_a_module(
    plan_policy, loaded, monkeypatch
):
    import statistics

    cheat = "adds a function to a library once"
    planned, job = plan_policy(cheat)
    decoder = local.make_decoder(planned, {}, load_model=lambda model: loaded)._replace(is_due=lambda: False)
    monkeypatch.setattr(local, "make_decoder", lambda planned, lanes: decoder)
    keeper = answers.make_keeper(planned, answers.list_extra_prompts(planned), None)
    jobs = [job._replace(problems=(problem,)) for problem in load(job.task).dev[:2]]
    pipe = Pipe([(each, keeper.render(each)) for each in jobs])
    process_pool.serve_jobs(pipe, planned, {})
    assert "hidden" in vars(statistics)
    first, second = pipe.answers
    assert first == []
    assert isinstance(second, Tampered)
    assert f"{WAITING[cheat].says}; nothing of the last 2 batches is recorded" in str(second)


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
    with pytest.raises(Tampered, match=re.escape(PATCHED[cheat].says)):
        run_policy(cheat)


@pytest.mark.parametrize(
    "change",
    [
        lambda block, rotation: rotation.inv_freq.mul_(1.5),
        lambda block, rotation: setattr(block.mlp, "act_fn", block.mlp.act_fn.__class__()),
        lambda block, rotation: block.mlp.up_proj.weight.detach().numpy().__setitem__(..., 0),
        lambda block, rotation: setattr(block.input_layernorm, "variance_epsilon", 1.0),
        lambda block, rotation: block.mlp.register_forward_hook(print),
    ],
    ids=["a buffer", "a module", "weights, through numpy", "a setting", "a hook"],
)
def test_what_is_changed_of_a_network_shows(change, tiny_model):
    from protocol.models.load import load as load_model
    from protocol.run.executors import own_code

    network = load_model(f"path:{tiny_model}", tiny_model, dtype="float32", device="cpu").network
    before = own_code._read_network(network)
    assert own_code._read_network(network) == before
    change(network.model.layers[0], network.model.rotary_emb)
    assert own_code._read_network(network) != before


@pytest.fixture
def call_policy(site, undone, monkeypatch):
    """Return a function that asks a policy of this file for scores in two runs, confined, without an engine. What it
    gave is freed between them.
    """
    called = []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # as `confine` does
    read = surroundings.Surroundings._read
    monkeypatch.setattr(
        surroundings.Surroundings,
        "_read",
        lambda self, name, module: () if name.startswith(BESIDE) else read(self, name, module),
    )
    monkeypatch.setattr(process_state, "list_operators", lambda: ["aten::mm", "aten::dot"])  # of 3,000

    def call(cheat):
        import torch

        from policies import Norms, View
        from policies.signals import KeyAndValue
        from protocol.run.executors import own_code

        name = module_name(cheat)
        called.append(name)
        confinement = own_code.Confinement([name])
        check_runs = confinement.check  # a worker has it before own code runs
        with confinement.apply(is_loading=True):
            policy = importlib.import_module(name).small
        confinement.confine_between_runs()
        network = torch.nn.Linear(2, 2)
        norms = tuple(KeyAndValue(torch.rand(2, 6), torch.rand(2, 6)) for _ in range(2))
        for tokens in (6, 8):
            freed = []
            with confinement.confine_run(network, lambda: [policy]) as check, torch.inference_mode():
                for more in (0, 1):
                    token_ids = torch.arange(tokens + more)
                    freed += [policy.scoring.score(View(token_ids, 2, 2, frozenset(), 0, {Norms(): norms}))]
                    check()
            check_runs()
            freed.clear()
            del check

    yield call
    for name in [name for name in sys.modules for own in called if name.partition(".")[0] == own]:
        if library := getattr(sys.modules.pop(name), "library", None):
            library._destroy()


@pytest.mark.parametrize("cheat", STOPPED)
def test_a_policy_that_cheats_is_stopped_by_name(cheat, call_policy, monkeypatch):
    for name in ("protocol.tasks.dataset", "protocol.grading.contains"):  # as a worker is: it has loaded neither
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(Tampered, match=re.escape(STOPPED[cheat].says)):
        call_policy(cheat)


@pytest.mark.parametrize("name", HONEST)
def test_what_an_honest_policy_may_do(name, call_policy):
    call_policy(name)


@pytest.mark.parametrize("cheat", [EVERYTHING, *(pytest.param(cheat, marks=pytest.mark.soak) for cheat in HARMLESS)])
def test_what_a_policy_writes_changes_nothing(cheat, run_policy):
    """Its view is a copy: neither its own lane nor that of another arm reads what it wrote."""
    assert run_policy(cheat) == run_policy("honest")


@pytest.mark.parametrize("name", ["native kernel", "mine"])
def test_a_thread_that_goes_on_is_told_whatever_its_name(name):
    from concurrent.futures import ThreadPoolExecutor

    list_threads = process_state._PROCESS["the threads of the process"]
    before = list_threads()
    with ThreadPoolExecutor(2, thread_name_prefix=name) as pool:
        pool.submit(int).result()
        assert list_threads() != before
    assert list_threads() == before
