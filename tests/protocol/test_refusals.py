"""What a person can get wrong: each mistake has one clear line, its own exit status, and writes nothing."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest
import studies
import torch

import splits
from policies import Routes, Statistics, Thresholds
from protocol import tasks
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.refusals import BadInput, Drifted
from protocol.models import __main__ as fetch_models
from protocol.models import calibration, calibration_paths, load
from protocol.preflight import task_splits
from protocol.tasks import __main__ as fetch_tasks
from protocol.tasks import prompting, registry
from protocol.tasks.dataset import Dataset
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import open_study, refuse_drift


@pytest.fixture(scope="module")
def locked(registered, tmp_path_factory):
    """A study that was registered from a tree of these bytes; each test leaves it as it was."""
    return shutil.copytree(registered, tmp_path_factory.mktemp("registrations") / "study")


def refused(status, said, *arguments, tree=None, folder):
    """The command refuses with `status`, one line containing `said`, and leaves the folder byte-identical."""
    with studies.unchanged(folder):
        studies.refused(status, said, *arguments, folder, tree=tree)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({'models = ["path:': 'models = ["smolm2-135m", "path:'}, "did you mean 'smollm2-135m'?"),
        ({'models = ["path:': 'models = ["path:/no/such'}, "/no/such"),
        ({"budgets = [0.8]": "budgets = [0.1]"}, "the 132 that arm 'crystal' protects"),
        ({"threads = 1": 'threads = 1\nprompt = "pinned"'}, "fewer than the"),
        (
            {"threads = 1": 'threads = 1\npreserve = { prompt = true, recent = "K/4" }'},
            "raise the budget, or let generation.preserve protect less",
        ),
        (
            {"threads = 1": "threads = 1\ninterval = 4\nthink_only = true"},
            "has no token </think> and none that begins with \\boxed, so the end of its thinking cannot be recognised;",
        ),
        ({"draws = 10000": "draws = 1000", '"sign-flip"': '"bootstrap"'}, "decision.draws: with 1000 draws"),
        ({'"sign-flip"': '"bootstrap"', '["random", "streaming"]': '["random"]'}, "decision.method: bootstrap at"),
    ],
)
def test_register_refuses_by_field(tmp_path, tiny_model, changes, said):
    folder = studies.write(tmp_path / "study", tiny_model, changes)
    refused(2, said, "register", folder=folder)


def test_a_device_that_is_not_here_is_refused_in_one_line(tmp_path, tiny_model, locked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = studies.write(tmp_path / "study", tiny_model, {'device = "cpu"': 'device = "cuda"'})
    with studies.unchanged(folder):
        studies.refused(2, 'generation.device: torch finds no "cuda" here', "register", folder)
    study = open_study(Registration(locked), tmp_path)
    elsewhere = replace(study.protocol, generation=replace(study.protocol.generation, device="cuda"))
    with pytest.raises(BadInput, match=r"generation\.device"):  # what probe and confirm ask first
        refuse_drift(replace(study, planned=PlannedStudy(elsewhere, tmp_path)), with_weights=True)


@pytest.fixture
def calibrated(tmp_path, tiny_model, monkeypatch):
    """Writes statistics of the tiny model, with what they say of themselves changed, and a study of them.

    Of its queries or, as "thoughts", thresholds, or "routes". there: whether they are written.
    """
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "home"))
    source, home = f"path:{tiny_model}", tmp_path / "home"

    def write(name="traces", *, there=True, **about):
        mean = torch.ones(2, 4, 4, dtype=torch.complex64)
        queries = Statistics(mean, mean.abs(), torch.ones(8) / 8**0.5, torch.ones(4).double(), 1.0)
        others = {"thoughts": Thresholds((0, 1), 0.2, 0.4), "routes": Routes(torch.ones(2, 2) > 0)}
        found = others.get(name, queries)
        about = {"weights": calibration.weights_digest(source, home), "problems": "{}", **about}
        if there:
            calibration.write_value(calibration_paths.statistics_paths(source, home)[name], found, about)
        policy = {"traces": "q_stats", "thoughts": "thinkv"}[name]
        changes = {**studies.ONE_TASK, 'policy = "crystal-token-level"': f'policy = "{policy}"'}
        return studies.write(tmp_path / "study", tiny_model, changes)

    return write


@pytest.mark.parametrize("name", ["traces", "thoughts"])
@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"there": False}, "which an arm needs; run: kv-prereg calibrate path:"),
        ({"weights": "0" * 64}, ".safetensors: was measured on weights other than those of path:"),
        (
            {"problems": json.dumps({splits.load("needle-256").confirm[1]: "", "elsewhere/1": ""})},
            f"held-out problems of needle-256 (1, the first is {splits.load('needle-256').confirm[1]})",
        ),
    ],
)
def test_statistics_that_are_not_fit_for_a_study_are_refused_before_it_is_locked(calibrated, about, said, name):
    folder = calibrated(name, **about)
    with studies.unchanged(folder):
        studies.refused(2, said, "register", folder)


def test_what_the_system_refuses_is_one_line(tmp_path, monkeypatch, capsys):
    """Statistics in a folder that is a file, models whose home is one, and tasks that meet one later."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "file"))
    mean = torch.ones(2, 4, 4, dtype=torch.complex64)
    found = Statistics(mean, mean.abs(), torch.ones(8) / 8**0.5, torch.ones(4).double(), 1.0)
    with pytest.raises(OSError, match="file"):
        calibration.write_value(tmp_path / "file" / "traces.safetensors", found, {})
    assert fetch_models.main(["fetch", "smollm2-135m"]) == 2
    monkeypatch.setattr(Dataset, "fetch", lambda self, file: (tmp_path / "file" / "data").mkdir())
    assert fetch_tasks.main(["fetch", "math500"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["BadInput", "NotADirectoryError"]


def test_a_held_out_prompt_that_was_calibrated_on_under_another_id_stops_confirm(calibrated, tiny_model):
    words = load.tokenizer(f"path:{tiny_model}", tiny_model)
    held_out = splits.load("needle-256").confirm[-1]
    built = tasks.get("needle-256").build(held_out, prompting.counter(words))
    context, query = prompting.render(built, words, "inside")
    used = {"elsewhere/1": canonical.digest([list(context), list(query)])}
    used |= dict.fromkeys(splits.load("needle-256").dev, "")  # these may be looked at
    folder = calibrated(problems=json.dumps(used))
    studies.ran(0, "register", folder)
    studies.refused(
        2, f"problem {held_out!r}: statistics of path:{tiny_model} were measured on its prompt", "confirm", folder
    )
    assert not (folder / "records").exists()


def test_an_empty_split_is_refused(monkeypatch):
    manifest = splits.load("needle-256")
    monkeypatch.setattr(registry.splits, "load", lambda name: manifest._replace(confirm=()))
    with pytest.raises(BadInput, match="needle-256: its confirm split is empty"):
        task_splits.read_split("needle-256", tasks.get("needle-256"))


def test_a_task_that_is_not_the_frozen_one_is_refused(monkeypatch):
    manifest = splits.load("needle-256")
    monkeypatch.setattr(registry.splits, "load", lambda name: manifest._replace(source="0" * 64))
    with pytest.raises(Drifted, match="needle-256: is not the task from which"):
        task_splits.read_split("needle-256", tasks.get("needle-256"))


def test_register_refuses_an_altered_split(sources, tiny_model, edited, tmp_path, monkeypatch):
    folder = studies.write(tmp_path / "registrations" / "altered", tiny_model)
    edited(sources / "splits" / "needle-256.json", lambda data: data.replace(b"0", b"1", 1))
    monkeypatch.setattr(registry.splits, "load", partial(splits.load, folder=sources / "splits"))
    refused(3, "splits/needle-256.json: was altered", "register", folder=folder)


def test_confirm_refuses_what_was_never_registered(tmp_path, tiny_model):
    folder = studies.write(tmp_path / "study", tiny_model)
    refused(2, "kv-prereg register", "confirm", folder=folder)


def test_a_folder_without_a_protocol_is_named(tmp_path):
    refused(2, "no protocol.toml here", "register", folder=tmp_path)


def test_replicate_refuses_a_study_without_a_verdict(locked):
    refused(2, "has no verdict to compare with", "replicate", folder=locked)
