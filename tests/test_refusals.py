"""What a person can get wrong: each mistake has one clear line, its own exit status, and writes nothing."""

import shutil
from dataclasses import replace

import pytest
import studies

import policies
import splits
from policies import protect
from protocol import registration
from protocol.evidence.refusals import BadInput, Drifted


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return studies.copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def locked(tree, tiny_model):
    """A study registered from a copy of the source tree, with a copy of the model beside it."""
    model = shutil.copytree(tiny_model, tree / "model")
    folder = studies.write(tree / "registrations" / "study", model)
    done = studies.command("register", folder, tree=tree)
    assert done.returncode == 0, done.stderr
    return folder


def refused(status, said, *arguments, tree=studies.ROOT, folder):
    """The command refuses with `status`, one line containing `said`, and leaves the folder byte-identical."""
    before = studies.snapshot(folder)
    done = studies.command(*arguments, folder, tree=tree)
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert studies.snapshot(folder) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({'policy = "crystal"': 'policy = "cristal"'}, "did you mean 'crystal'?"),
        ({'models = ["path:': 'models = ["smolm2-135m", "path:'}, "did you mean 'smollm2-135m'?"),
        ({'models = ["path:': 'models = ["path:/no/such'}, "/no/such"),
        ({"budgets = [0.8]": "budgets = [0.1]"}, "the 132 that arm 'crystal' protects"),
        ({"threads = 1": 'threads = 1\nprompt = "pinned"'}, "fewer than the"),
        ({"draws = 10000": "draws = 1000", '"sign-flip"': '"bootstrap"'}, "decision.draws: 1000 draws"),
        (
            {'"sign-flip"': '"bootstrap"', '["random", "streaming"]': '["random"]'},
            "decision.method: bootstrap at",
        ),
    ],
)
def test_register_refuses_by_field(tmp_path, tiny_model, changes, said):
    folder = studies.write(tmp_path / "study", tiny_model, changes)
    refused(2, said, "register", folder=folder)


@pytest.mark.parametrize(
    ("interval", "prompt", "protected"),
    [
        (None, None, 40),  # a prompt of 40 tokens is kept whole
        (16, None, 65),  # 132 slots are protected while decoding, of the 65 that outgrew the budget all
        (None, "pinned", 40),
        (16, "pinned", 65),
    ],
)
def test_what_is_protected_while_decoding_counts_before_anything_runs(interval, prompt, protected):
    policy = policies.get("random")
    policy = protect.pinned(policy) if prompt else policy
    policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
    assert registration._protected(policy, 40, 64) == protected


def test_an_empty_split_is_refused(monkeypatch):
    manifest = splits.load("needle-256")
    monkeypatch.setattr(registration.splits, "load", lambda name: manifest._replace(confirm=()))
    with pytest.raises(BadInput, match="needle-256: its confirm split is empty"):
        registration._items("needle-256")


def test_a_task_that_is_not_the_frozen_one_is_refused(monkeypatch):
    manifest = splits.load("needle-256")
    monkeypatch.setattr(registration.splits, "load", lambda name: manifest._replace(source="0" * 64))
    with pytest.raises(Drifted, match="needle-256: is not the task that"):
        registration._items("needle-256")


def test_register_refuses_an_altered_split(tree, tiny_model, edited):
    folder = studies.write(tree / "registrations" / "altered", tiny_model)
    edited(tree / "splits" / "needle-256.json", lambda data: data.replace(b"0", b"1", 1))
    refused(3, "splits/needle-256.json: altered", "register", tree=tree, folder=folder)


def test_confirm_refuses_what_was_never_registered(tmp_path, tiny_model):
    folder = studies.write(tmp_path / "study", tiny_model)
    refused(2, "python -m protocol.register", "confirm", folder=folder)


def test_a_folder_without_a_protocol_is_named(tmp_path):
    refused(2, "no protocol.toml here", "register", folder=tmp_path)


def test_replicate_refuses_a_study_without_a_verdict(locked, tree):
    refused(2, "has no verdict to agree with", "replicate", tree=tree, folder=locked)


@pytest.fixture
def edited(tree):
    """Edit a file for one test: edited(path, change) with change: bytes -> bytes."""
    undo = []

    def edit(path, change):
        undo.append((path, path.read_bytes()))
        path.write_bytes(change(path.read_bytes()))

    yield edit
    for path, data in reversed(undo):
        path.write_bytes(data)


@pytest.mark.parametrize("command", ["confirm", "probe"])
@pytest.mark.parametrize(
    "file", ["policies/h2o.py", "protocol/runner.py", "analysis/decisions.py", "policies/crystal/impact.py"]
)
def test_a_source_file_changed_after_the_lock_is_named(locked, tree, edited, command, file):
    edited(tree / file, lambda data: data + b"\n# a quiet edit\n")
    refused(3, file, command, tree=tree, folder=locked)


def test_a_helper_added_after_the_lock_is_named(locked, tree):
    helper = tree / "policies" / "helper.py"
    helper.write_text("BONUS = 1\n")
    refused(3, "policies/helper.py", "confirm", tree=tree, folder=locked)
    helper.unlink()


def test_a_changed_split_manifest_is_named(locked, tree, edited):
    edited(tree / "splits" / "needle-256.json", lambda data: data.replace(b"0", b"1", 1))
    refused(3, "splits/needle-256.json", "confirm", tree=tree, folder=locked)


def test_a_corrupt_weight_file_is_named(locked, tree, edited):
    edited(tree / "model" / "model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    refused(3, "model.safetensors", "confirm", tree=tree, folder=locked)


def test_an_edited_lock_is_refused(locked, tree, edited):
    edited(locked / "lock.json", lambda data: data.replace(b'"draws":10000', b'"draws":10001'))
    refused(3, "lock", "confirm", tree=tree, folder=locked)


def test_an_edited_protocol_is_refused(locked, tree, edited):
    edited(locked / "protocol.toml", lambda data: data.replace(b"at_least = 1", b"at_least = 2"))
    refused(3, "protocol.toml: differs from the locked file", "confirm", tree=tree, folder=locked)


def test_an_audit_holds_after_a_source_file_was_changed(locked, tree, edited):
    edited(tree / "analysis" / "bootstrap.py", lambda data: data + b"\n# later work\n")
    assert studies.command("audit", locked, tree=tree).returncode == 0
