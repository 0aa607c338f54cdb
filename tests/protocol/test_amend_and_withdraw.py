"""Amending and withdrawing, on a study of the tiny model: what the commands say, write and refuse."""

import json
import shutil

import pytest
import studies

from protocol.evidence import ledger
from protocol.lock import lock

pytestmark = pytest.mark.usefixtures("same_environment")

WHY = ("--reason", "The seed was mistyped.")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """What status remembers of weights goes nowhere else."""
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def registered(tiny_model, tmp_path_factory):
    """A locked study that nobody has claimed; copy it before use."""
    folder = studies.write(tmp_path_factory.mktemp("made") / "registrations" / "study", tiny_model, studies.ONE_TASK)
    studies.ran(0, "register", folder)
    return folder


@pytest.fixture
def old(registered, tmp_path):
    return shutil.copytree(registered, tmp_path / "registrations" / "study")


@pytest.fixture(scope="module")
def first(registered, tmp_path_factory):
    """The study before its claim, amended by `second`; and what the command said."""
    shelf = tmp_path_factory.mktemp("first") / "registrations"
    shutil.copytree(registered, shelf / "study")
    return shelf, amend(shelf / "study", "second", 1)


@pytest.fixture(scope="module")
def history(first, tmp_path_factory):
    """From there on: `second` confirmed and then amended by `third`, which is confirmed too."""
    shelf = shutil.copytree(first[0], tmp_path_factory.mktemp("history") / "registrations")
    confirm(shelf / "second")
    said = amend(shelf / "second", "third", 2)
    confirm(shelf / "third")
    return shelf, said


@pytest.fixture
def amended(first, tmp_path):
    return shutil.copytree(first[0], tmp_path / "registrations")


def amend(old, name, seed):
    return studies.ran(0, "amend", old, changed(old, name, seed), *WHY)


def confirm(folder):
    studies.ran((10, 11, 12), "confirm", folder)


def edit(folder, seed):
    path = folder / "protocol.toml"
    lines = [f"seeds = [{seed}]" if line.startswith("seeds") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


def changed(old, name="new", seed=1):
    """A folder beside `old` with its protocol, another seed in it."""
    new = old.parent / name
    new.mkdir()
    shutil.copyfile(old / "protocol.toml", new / "protocol.toml")
    edit(new, seed)
    return new


def refused(status, words, name, *arguments, unchanged):
    """The command refuses in one line and leaves `unchanged` as it is."""
    with studies.unchanged(unchanged):
        done = studies.here(name, *arguments)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_without_a_protocol_the_old_one_is_copied_and_nothing_locked(old):
    new = old.parent / "new"
    before = studies.snapshot(old)
    done = studies.here("amend", old, new, *WHY)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"edit {new / 'protocol.toml'}, then run the same command again" in done.stdout
    assert studies.snapshot(new) == {"protocol.toml": before["protocol.toml"]}
    assert studies.snapshot(old) == before


def test_a_copy_that_nobody_edited_is_no_amendment(old):
    studies.here("amend", old, old.parent / "new", *WHY)
    refused(2, "changes nothing", "amend", old, old.parent / "new", *WHY, unchanged=old.parent)


def test_an_amendment_is_locked_and_closes_the_old_study(registered, first, amended):
    said, old, new = first[1], amended / "study", amended / "second"
    assert said.stderr == ""
    assert "protocol/seeds/0: 0 -> 1" in said.stdout
    about = studies.content(new / "lock.json")["amends"]
    assert about["diff"] == [{"path": "protocol/seeds/0", "was": 0, "is": 1}]
    assert (about["name"], about["lock"]) == ("study", lock.read(registered).digest)
    assert (about["reason"], about["after_claim"]) == ("The seed was mistyped.", False)
    before, after = studies.snapshot(registered), studies.snapshot(old)
    assert {name for name in after if after[name] != before.get(name)} == {"ledger.jsonl"}
    assert [(entry.event, entry.body) for entry in ledger.read(old)][1:] == [
        ("amended", {"lock": lock.read(new).digest, "reason": "The seed was mistyped."})
    ]


def test_what_was_amended_is_neither_run_nor_amended_nor_withdrawn(amended):
    old, new = amended / "study", amended / "second"
    for act in ("probe", "confirm"):
        refused(4, "was amended (The seed was mistyped.)", act, old, unchanged=amended)
    refused(4, "already", "amend", old, new, *WHY, unchanged=amended)
    refused(4, "amend its newest version instead", "amend", old, amended / "other", *WHY, unchanged=amended)
    refused(4, "was amended", "withdraw", old, *WHY, unchanged=amended)
    found = json.loads(studies.here("status", amended, "--json").stdout)
    assert [registration["state"] for registration in found["registrations"]] == ["locked", "amended"]
    assert found["registrations"][0]["drifted"] == []


def test_a_protocol_that_is_refused_leaves_the_old_study_open(old):
    new = changed(old)
    studies.edit(new / "protocol.toml", 'method = "sign-flip"', 'method = "wishing"')
    refused(2, "decision.method", "amend", old, new, *WHY, unchanged=old.parent)


@pytest.mark.parametrize("entered", [True, False])
def test_an_amendment_that_a_crash_cut_off_is_completed(amended, entered):
    old, new, whole = amended / "study", amended / "second", studies.snapshot(amended)
    lines = (old / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (old / "ledger.jsonl").write_bytes(lines[0])
    if entered:
        refused(2, "amending was interrupted", "confirm", new, unchanged=amended)
    else:
        (new / "ledger.jsonl").unlink()
    studies.ran(0, "amend", old, new, "--reason", "Another reason comes too late.")
    again = studies.snapshot(amended)
    assert again.keys() == whole.keys()
    assert {name for name in whole if again[name] != whole[name]} <= {"study/ledger.jsonl", "second/ledger.jsonl"}
    assert [(each.event, each.body.get("reason")) for each in ledger.read(old)] == [
        ("register", None),
        ("amended", "The seed was mistyped."),
    ]


def test_an_amendment_stands_beside_what_it_amends(old, tmp_path):
    for new in (old, tmp_path / "elsewhere", old / "inside"):
        refused(2, "next to the one that it amends", "amend", old, new, *WHY, unchanged=tmp_path)


@pytest.mark.parametrize("command", ["amend", "withdraw"])
def test_neither_goes_without_a_reason(old, command):
    new = (old.parent / "new",) if command == "amend" else ()
    refused(2, "--reason: is empty", command, old, *new, "--reason", " ", unchanged=old.parent)


def test_before_the_claim_an_amendment_is_judged_by_its_rule(history):
    judged = studies.content(history[0] / "second" / "verdict.json")["judged"]
    assert (judged["verdict"], judged["rule_says"]) == ("SCREENED", "INCONCLUSIVE")


def test_after_the_claim_an_amendment_says_so_and_deviates(history):
    shelf, said = history
    assert (
        said.stderr == f"the amended study had been claimed, so the verdict of {shelf / 'third'} will be DEVIATED, "
        "whatever the rule says\n"
    )
    about = studies.content(shelf / "third" / "lock.json")["amends"]
    assert about["after_claim"]
    assert about["seen"]["verdict"] == "SCREENED"
    assert about["seen"]["records"] == len((shelf / "second/records/shard-0.jsonl").read_text().splitlines())
    assert studies.content(shelf / "third" / "verdict.json")["judged"]["verdict"] == "DEVIATED"
    total = "3 registered, 2 judged: 0 CONFIRMED, 0 REFUTED, 0 INCONCLUSIVE, 1 SCREENED, 1 DEVIATED; 1 amended"
    assert total in studies.here("status", shelf).stdout


def test_amended_studies_and_their_amendments_audit(history):
    shelf = history[0]
    assert studies.here("audit", shelf / "study").returncode == 0
    done = studies.ran(0, "audit", shelf / "third", "--json")
    held = {finding["item"]: finding["status"] for finding in json.loads(done.stdout)["findings"]}
    assert held["amendment"] == "held"


def test_a_withdrawn_study_is_not_run_any_more(old):
    done = studies.here("withdraw", old, "--reason", "The golds are wrong.")
    assert (done.returncode, done.stderr) == (0, "")
    assert "before its claim, with 0 probed and 0 held-out records seen: The golds are wrong." in done.stdout
    for act in ("probe", "confirm", "withdraw"):
        more = WHY if act == "withdraw" else ()
        refused(4, "was withdrawn (The golds are wrong.)", act, old, *more, unchanged=old)
    assert studies.here("audit", old).returncode == 0
    assert "1 withdrawn" in studies.here("status", old).stdout


def test_a_verdict_is_not_withdrawn(history):
    refused(4, "a judged study cannot be withdrawn", "withdraw", history[0] / "second", *WHY, unchanged=history[0])


def test_both_commands_start_without_torch():
    for name in ("protocol.amend", "protocol.withdraw"):
        code = f"import runpy; sys.argv[1:] = ['--help']; runpy.run_module('{name}', run_name='__main__')"
        done = studies.subprocess.run(
            [studies.sys.executable, "-c", studies.BLOCK_TORCH + code], cwd=studies.ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "Exit status" in done.stdout
