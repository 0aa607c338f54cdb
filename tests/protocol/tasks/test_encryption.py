"""Held-out problems encrypted to a second party: nobody here reads them before that party lends its key."""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import finished_study
import pyrage
import pytest
import studies
from studies import words

import splits
from protocol import tasks
from protocol.evidence import claim, ledger, records
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput, Drifted
from protocol.lock import lock
from protocol.tasks import __main__, dataset, encryption, held_out_guard

TASK = "aime24"
FROZEN = splits.load(TASK)
FILLER = "Write the sum as one whole number, show each step of the way, and check it at the end. " * 8


def line(item, add=5):
    """A problem of ours under the id of a published one; "quokka" stands in each and nowhere else."""
    number = int(item.rpartition("/")[2])
    text = f"A quokka asks: what is {number} + {add}? {FILLER}"
    row = {"answer": f"{number + add:03d}", "level": "", "problem": text, "unique_id": item}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


WHOLE = b"".join(map(line, FROZEN.ids))
DEV = b"".join(line(item) for item in FROZEN.ids if item in FROZEN.dev)
HELD = b"".join(line(item) for item in FROZEN.ids if item in FROZEN.confirm)


pytestmark = pytest.mark.usefixtures("same_environment")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "data"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def task(home, monkeypatch):
    ours = replace(tasks.get(TASK), sha256=hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setattr(tasks.registry, "TASKS", dict(tasks.TASKS) | {TASK: ours})
    (home / "aime24.jsonl").write_bytes(WHOLE)
    return ours


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Private keys by name, the public one of each beside it, in the forms of age-keygen and ssh-keygen."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("age", "other"):
        made = pyrage.x25519.Identity.generate()
        (folder / name).write_text(f"# created: now\n# public key: {made.to_public()}\n{made}\n")
        (folder / f"{name}.pub").write_text(f"{made.to_public()}\n")
    for name, phrase in (("ssh", ""), ("locked", "a passphrase")):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", str(folder / name)]
        subprocess.run(made, check=True)
    return folder


def public(keys, name):
    return (keys / f"{name}.pub").read_text()


@pytest.fixture
def sealed(task, home, keys):
    task.encrypt([public(keys, "age"), public(keys, "ssh")])
    (home / "aime24.jsonl").unlink()
    return task


def claimed(folder, identity):
    """The door of a study that holds out what the manifest does, claimed and its ids asked for."""
    folder.mkdir()
    items = {TASK: {"manifest": FROZEN.digest, "dev": list(FROZEN.dev), "confirm": list(FROZEN.confirm)}}
    held = finished_study.lock_content(items=items)
    ledger.append(folder, "register", {"lock": lock.write(folder, held)})
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration(folder))
    held_out = HeldOutGuard(lock.read(folder), folder, identity)
    held_out.ids(TASK, "a test")
    return held_out


def test_sealing_splits_the_data_file_and_encrypts_what_is_held_out(task, home, keys):
    parts = task.encrypt([public(keys, "age")])
    assert parts == (home / "aime24.dev.jsonl", home / "aime24.confirm.jsonl.age")
    assert parts.dev.read_bytes() == DEV
    hidden = parts.confirm.read_bytes()
    assert b"quokka" not in hidden
    assert b"quokka" in parts.dev.read_bytes()
    secret = (keys / "age").read_text().splitlines()[-1]
    assert pyrage.decrypt(hidden, [pyrage.x25519.Identity.from_str(secret)]) == HELD
    assert (home / "aime24.jsonl").read_bytes() == WHOLE


@pytest.mark.skipif(shutil.which("age") is None, reason="the age tool is not installed")
def test_the_age_tool_opens_the_file_too(sealed, home, keys):
    opened = subprocess.run(
        ["age", "-d", "-i", str(keys / "age"), str(home / "aime24.confirm.jsonl.age")], check=True, capture_output=True
    )
    assert opened.stdout == HELD


def test_a_task_is_refused_while_its_plain_file_lies_beside_the_encrypted_one(task, home, keys):
    task.encrypt([public(keys, "age")])
    reads = (task.digest, task.fetch, lambda: task.build(FROZEN.dev[0], words), lambda: task.encrypt(["age1"]))
    for read in reads:
        with pytest.raises(
            BadInput, match=r"aime24\.jsonl contains in the clear what .*\.age keeps encrypted; remove one"
        ):
            read()


def test_a_task_is_sealed_once_and_not_fetched_over(sealed, home, keys):
    with studies.unchanged(home):
        with pytest.raises(BadInput, match="is sealed: "):
            sealed.encrypt([public(keys, "other")])
        with pytest.raises(BadInput, match=r"is sealed; to use the unencrypted task, remove .*\.age"):
            sealed.fetch()


def test_sealing_goes_on_where_a_crash_stopped_it_and_over_nothing_else(task, home, keys):
    (home / "aime24.dev.jsonl").write_bytes(DEV.replace(b"quokka", b"wombat", 1))
    with pytest.raises(BadInput, match="exists already and is never overwritten"):
        task.encrypt([public(keys, "age")])
    assert not (home / "aime24.confirm.jsonl.age").exists()
    (home / "aime24.dev.jsonl").write_bytes(DEV)
    assert task.encrypt([public(keys, "age")]).confirm.exists()


def test_without_the_key_development_problems_are_as_ever_and_held_out_ones_are_not_to_be_had(sealed, home):
    for item in FROZEN.dev:
        row = json.loads(line(item))
        built = tasks.build(TASK, item, words)
        assert (built.context, built.gold) == (row["problem"].strip() + dataset.INSTRUCTION, row["answer"])
        assert tasks.gold(TASK, item) == row["answer"]
    for item in FROZEN.confirm:
        for read in (lambda item: sealed.build(item, words), sealed.gold, lambda item: tasks.gold(TASK, item)):
            with pytest.raises(BadInput, match=f"{item}.*is encrypted; pass the key: --identity FILE"):
                read(item)
        with pytest.raises(BadInput, match="is held out; only confirm may read it"):
            tasks.build(TASK, item, words)
    with pytest.raises(BadInput, match="is not in this task"):
        sealed.gold("aime24/6")


def test_the_lock_names_both_files(sealed, home):
    digests = {
        "dev": hashlib.sha256(DEV).hexdigest(),
        "confirm": hashlib.sha256((home / "aime24.confirm.jsonl.age").read_bytes()).hexdigest(),
    }
    assert tasks.data_digests({name: tasks.get(name) for name in (TASK, "needle-256")}) == {TASK: digests}
    assert held_out_guard.is_encrypted(tasks.get(TASK))
    assert not held_out_guard.is_encrypted(tasks.get("needle-256"))
    (home / "aime24.dev.jsonl").unlink()
    with pytest.raises(BadInput, match=r".* is there without .*aime24\.dev\.jsonl; restore both"):
        tasks.data_digests({TASK: tasks.get(TASK)})


@pytest.mark.parametrize("name", ["age", "ssh"])
def test_each_recipient_opens_the_held_out_problems_under_the_claim(sealed, keys, tmp_path, name):
    held_out_guard.refuse_missing_key([tasks.get(TASK), tasks.get("needle-256")], keys / name)
    held_out = pickle.loads(pickle.dumps(claimed(tmp_path / "study", keys / name)))  # as to another process
    for item in FROZEN.confirm:
        row = json.loads(line(item))
        built = tasks.build(TASK, item, words, held_out)
        assert (built.context, built.gold) == (row["problem"].strip() + dataset.INSTRUCTION, row["answer"])
        assert tasks.gold(TASK, item, identity=keys / name) == row["answer"]


def test_the_key_opens_nothing_without_the_claim(sealed, keys, tmp_path):
    held = claimed(tmp_path / "study", keys / "age")
    (tmp_path / "study" / claim.NAME).unlink()
    with pytest.raises(BadInput, match="no claim"):
        tasks.build(TASK, FROZEN.confirm[0], words, held)


def test_another_key_opens_nothing(sealed, keys, tmp_path):
    held_out = claimed(tmp_path / "study", keys / "other")
    for read in (
        lambda: tasks.build(TASK, FROZEN.confirm[0], words, held_out),
        lambda: held_out_guard.refuse_missing_key([tasks.get(TASK)], keys / "other"),
    ):
        with pytest.raises(BadInput, match=r"other: is not a key for which .*\.age was encrypted"):
            read()


def test_a_key_is_asked_for_exactly_where_something_is_encrypted(sealed, keys):
    with pytest.raises(BadInput, match="its held-out problems are encrypted; get the private key"):
        held_out_guard.refuse_missing_key([tasks.get(TASK), tasks.get("needle-256")], None)
    with pytest.raises(BadInput, match="no task of this study is encrypted here; leave it out"):
        held_out_guard.refuse_missing_key([tasks.get("needle-256")], keys / "age")
    held_out_guard.refuse_missing_key([tasks.get("needle-256")], None)


def test_whether_a_key_fits_is_told_by_a_file_whose_content_is_gone(sealed, home, keys):
    """So nothing of the content is decrypted for it."""
    hidden = home / "aime24.confirm.jsonl.age"
    header = hidden.read_bytes()[: -len(HELD)]  # the content and its authentication are longer than HELD
    hidden.write_bytes(header)
    held_out_guard.refuse_missing_key([tasks.get(TASK)], keys / "age")
    with pytest.raises(BadInput, match="is not a key"):
        held_out_guard.refuse_missing_key([tasks.get(TASK)], keys / "other")
    with pytest.raises(Drifted, match="was altered after it was encrypted"):
        encryption.decrypt(hidden, keys / "age")
    hidden.write_bytes(b"no header")
    with pytest.raises(Drifted, match="was altered after it was encrypted"):
        held_out_guard.refuse_missing_key([tasks.get(TASK)], keys / "age")


def test_a_flipped_byte_of_the_encrypted_file_is_found_wherever_it_is(sealed, home, keys):
    hidden = home / "aime24.confirm.jsonl.age"
    whole, opened = hidden.read_bytes(), sealed.with_identity(keys / "age")
    assert opened.gold(FROZEN.confirm[0])
    for place in {*range(0, len(whole), 29), len(whole) - 1}:
        flipped = bytearray(whole)
        flipped[place] ^= 1
        hidden.write_bytes(flipped)
        with pytest.raises((Drifted, BadInput), match=r"altered|not a key"):
            opened.gold(FROZEN.confirm[0])
    hidden.write_bytes(whole)
    assert opened.gold(FROZEN.confirm[0])


FIRST, LAST = FROZEN.confirm[0], FROZEN.confirm[-1]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (HELD.replace(line(LAST), b""), "not contain exactly the 16 problems"),
        (HELD + line(FROZEN.dev[0]), "not contain exactly the 16 problems"),
        (HELD + line(LAST), "not contain exactly the 16 problems"),
        (HELD.replace(line(LAST), b"") + b"\n", "not contain exactly the 16 problems"),
        (b"quokka", "not contain exactly the 16 problems"),
        (HELD.replace(line(FIRST), line(FIRST, add=6)), "not the pinned"),
    ],
)
def test_what_was_encrypted_has_to_be_the_held_out_problems_of_the_pinned_file(sealed, home, keys, content, why):
    hidden = home / "aime24.confirm.jsonl.age"
    hidden.write_bytes(encryption.encrypt(content, [public(keys, "age")]))
    with pytest.raises(Drifted, match=why):
        sealed.with_identity(keys / "age").gold(FIRST)


def test_altered_development_problems_are_found_when_the_others_are_opened(sealed, home, keys):
    dev = home / "aime24.dev.jsonl"
    dev.write_bytes(DEV.replace(line(FROZEN.dev[0]), line(FROZEN.dev[0], add=6)))
    with pytest.raises(Drifted, match="not the pinned"):
        sealed.with_identity(keys / "age").gold(FIRST)
    for bad in (DEV + line(FIRST), DEV[:-1], DEV.replace(line(FROZEN.dev[0]), b""), b"\xff", b""):
        dev.write_bytes(bad)
        with pytest.raises(Drifted, match=r"aime24\.dev\.jsonl: does not contain exactly the 14 problems"):
            sealed.digest()


@pytest.mark.parametrize("to", ["", "age1zz", "ssh-ed25519 AAAA", "AGE-SECRET-KEY-1QQ", "ecdsa-sha2-nistp256 A"])
def test_what_is_no_public_key_is_refused_unshown_and_nothing_is_written(task, home, keys, to):
    with studies.unchanged(home):
        with pytest.raises(BadInput, match="--to: is not a public key; use age1") as refusal:
            task.encrypt([public(keys, "age"), to])
        assert not to or to not in str(refusal.value)


def test_what_is_no_private_key_is_refused_by_its_file(sealed, keys, tmp_path):
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "torn").write_bytes((keys / "ssh").read_bytes()[:90])
    files = [keys / "age.pub", keys / "ssh.pub", keys / "locked", *map(tmp_path.joinpath, ("empty", "bytes", "torn"))]
    for file in files:
        with pytest.raises(BadInput, match=f"--identity {file}: is not a private key of age or ssh without"):
            held_out_guard.refuse_missing_key([tasks.get(TASK)], file)
    with pytest.raises(BadInput, match="could not be read: No such file"):
        held_out_guard.refuse_missing_key([tasks.get(TASK)], tmp_path / "nowhere")


def test_without_pyrage_a_sealed_task_says_how_to_get_it_and_is_not_registered(sealed, keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyrage", None)
    for read in (
        lambda: tasks.data_digests({TASK: tasks.get(TASK)}),
        lambda: held_out_guard.refuse_missing_key([tasks.get(TASK)], keys / "age"),
    ):
        with pytest.raises(BadInput, match=r"pip install '\.\[seal\]'"):
            read()
    assert tasks.gold(TASK, FROZEN.dev[0])


def test_the_command_seals_and_says_what_is_left_to_do(task, home, keys, capsys):
    to = ["--to", public(keys, "age"), "--to", public(keys, "ssh")]
    assert __main__.main(["seal", TASK, *to]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        f"14 development problems: {home / 'aime24.dev.jsonl'}",
        f"16 held-out problems, encrypted: {home / 'aime24.confirm.jsonl.age'}",
    ]
    assert said[2] == f"now remove {home / 'aime24.jsonl'}; until then the task is refused"
    assert __main__.main(["seal", "needle-256", *to]) == 2
    assert "is generated; there is nothing to seal" in capsys.readouterr().err


def test_a_study_of_sealed_problems_is_confirmed_with_the_lent_key_alone(sealed, home, keys, tiny_model, tmp_path):
    folder = studies.write(
        tmp_path / "registrations" / "study",
        tiny_model,
        {
            **studies.ONE_TASK,
            'name = "needle-256"': f'name = "{TASK}"',
            'streaming = { policy = "streaming" }\n': "",
            'against = ["random", "streaming"]': 'against = ["random"]',
            "max_new_tokens = 24": "max_new_tokens = 4",
        },
    )
    studies.ran(0, "register", folder)
    content = studies.content(folder / "lock.json")
    assert set(content["data"][TASK]) == {"dev", "confirm"}
    assert content["checks"]["golds"] == {TASK: {"purpose": "gold self-check", "dev": 14, "confirm": 0}}

    before = studies.snapshot(folder)
    for more, why in (((), "--identity FILE"), (("--identity", keys / "other"), "is not a key for which")):
        studies.refused(2, why, "confirm", folder, *more)
        assert studies.snapshot(folder) == before

    studies.ran((10, 11), "confirm", folder, "--identity", keys / "age")
    bodies = [record["body"] for record in records.read_records(folder / "records")]
    assert {body["problem"] for body in bodies} == set(FROZEN.confirm)
    assert {body["state"] for body in bodies} == {"ok"}
    opened = [entry.body for entry in ledger.read(folder) if entry.event == "held-out"]
    assert opened == [{"task": TASK, "purpose": "confirm, decrypted"}]
    done = studies.here("audit", folder)  # the grades of what is encrypted, the key's holder alone can tell
    assert (done.returncode, "undetermined: grades" in done.stdout) == (7, True)
    assert studies.here("audit", folder, "--identity", keys / "age").returncode == 0

    done = studies.here("regrade", folder)
    assert (done.returncode, "is encrypted; pass the key" in done.stderr) == (2, True)
    assert studies.here("regrade", folder, "--identity", keys / "ssh").returncode == 0
    plain = {path for path in tmp_path.rglob("*") if path.is_file() and b"quokka" in path.read_bytes()}
    assert plain == {home / "aime24.dev.jsonl"}
