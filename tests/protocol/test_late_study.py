"""A study whose held-out problems are drawn with an auditor's nonce, through the commands of the project."""

import hashlib
import hmac
import shutil
import subprocess
from dataclasses import replace

import pytest
import studies

import splits
from protocol import tasks
from protocol.evidence import claim, late_randomness, records
from protocol.evidence.registration import Registration
from protocol.lock import lock
from protocol.models import load
from protocol.regrade import regrade
from protocol.tasks import prompting

TASK = "needle-256"
NONCE, OTHER = "5eed" * 16, "cafe" * 16


pytestmark = pytest.mark.usefixtures("same_environment")


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    key = tmp_path_factory.mktemp("auditor") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


@pytest.fixture(scope="module")
def registered(tiny_model, auditor, tmp_path_factory):
    public = " ".join(auditor.with_suffix(".pub").read_text().split()[:2])
    changes = {
        **studies.ONE_TASK,
        'missing = "inconclusive"': (f'missing = "inconclusive"\n[randomness]\nsource = "nonce"\nauditor = "{public}"'),
    }
    folder = studies.write(tmp_path_factory.mktemp("registrations") / "study", tiny_model, changes)
    studies.ran(0, "register", folder)
    return folder


def signed(auditor, path, digest, nonce=NONCE):
    """What the auditor hands over: FILE and FILE.sig."""
    path.write_text(f"{digest} {nonce}\n")
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "kv-prereg-nonce", "-f", str(auditor), str(path)]
    subprocess.run(sign, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path


def digest(folder):
    return hashlib.sha256((folder / "lock.json").read_bytes().removesuffix(b"\n")).hexdigest()


def by_hand(folder, name):
    """HKDF written out: salt the lock's digest, then the name and the byte 1."""
    key = hmac.digest(bytes.fromhex(digest(folder)), bytes.fromhex(NONCE), "sha256")
    return int.from_bytes(hmac.digest(key, name + b"\x01", "sha256")[:8], "big")


def prompts(task, tiny_model):
    tokenizer = load.tokenizer(f"path:{tiny_model}", tiny_model)
    count = prompting.counter(tokenizer)
    rendered = {
        item: prompting.render(task.build(item, count), tokenizer, "inside") for item in splits.load(TASK).confirm
    }
    return {item: prompting.digest(*asked) for item, asked in rendered.items()}


def test_no_value_and_a_value_for_another_lock_confirm_nothing(registered, auditor, tmp_path):
    """A value cannot be had before the lock: what is signed names it."""
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    with studies.unchanged(folder):
        studies.refused(2, f"ask the auditor to write '{digest(folder)} HEX' to FILE", "confirm", folder)
        early, due = signed(auditor, tmp_path / "early", "0" * 64), f"'{digest(folder)} HEX'"
        studies.refused(2, f"was made for {'0' * 64}; this study needs {due}", "confirm", folder, "--value", early)


def test_held_out_prompts_did_not_exist_before_the_nonce_and_follow_from_it(registered, auditor, tiny_model, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    file = signed(auditor, tmp_path / "nonce", digest(folder))
    held = lock.read(folder)
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration.with_lock(folder, held), file)  # a run that was killed after its claim
    with studies.unchanged(folder):
        other = signed(auditor, tmp_path / "other", digest(folder), OTHER)
        studies.refused(2, "claim.json already has a different value", "confirm", folder, "--value", other)

    studies.ran((10, 11), "confirm", folder)
    bodies = [record["body"] for record in records.read_records(folder / "records")]
    assert {body["problem"] for body in bodies} == set(splits.load(TASK).confirm)
    assert {body["cell"]["seed"] for body in bodies} == {0}
    found = {body["problem"]: body["prompt"] for body in bodies}
    task = tasks.get(TASK)
    assert not set(found.values()) & set(prompts(task, tiny_model).values())
    drawn = replace(task, seed=by_hand(folder, b"problems"))
    assert found == prompts(drawn, tiny_model)

    assert "auditor signed" in late_randomness.verify(held, Registration.with_lock(folder, held).claim)
    item = splits.load(TASK).confirm[0]
    key = Registration.with_lock(folder, held).claim.content["randomness"]["key"]
    body = next(body for body in bodies if body["problem"] == item and body["state"] == "ok")
    told = body | {"text": f" {drawn.gold(item)}.", "grade": "correct"}
    assert regrade([told], key).changed == ()
    assert len(regrade([told]).changed) == 1
    assert studies.here("regrade", folder).returncode == 0
