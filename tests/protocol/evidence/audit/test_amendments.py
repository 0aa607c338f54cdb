"""How a registration ends without a verdict, on studies written through the evidence layer alone."""

import finished_study as toy
import pytest
import studies

from protocol.evidence import claim, ledger, seal, selection, verdict
from protocol.evidence.audit import amendment
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import documents
from protocol.formats.findings import CannotTell, NotRun, Unfinished
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock

SEEN_NOTHING = {
    "probe": {"attempts": 0, "records": 0},
    "selection": False,
    "claim": False,
    "records": 0,
    "verdict": None,
}


@pytest.fixture
def old(tmp_path):
    toy.locked(tmp_path / "old")
    return tmp_path / "old"


def changed(old, new, seeds=(1,), why="a typing error"):
    """The content of a lock for `new` that amends `old`, its seeds being others."""
    held = lock.read(old)
    written = held.content["protocol"]["content"] | {"seeds": list(seeds)}
    protocol = held.content["protocol"] | {"content": written}
    content = {**held.content, "name": new.name, "protocol": protocol}
    return {**content, "amends": amendment.describe_amendment(Registration.with_lock(old, held), why, content)}


def locked(new, content):
    new.mkdir()
    (new / "protocol.toml").write_bytes(toy.PROTOCOL)
    digest = lock.write(new, content)
    ledger.append(new, "register", {"lock": digest})
    return lock.read(new)


def amended(old, name="new", **changes):
    """`old` amended as the command does it: the new lock, then the line in the old ledger."""
    new = old.parent / name
    made = locked(new, changed(old, new, **changes))
    amendment.close_ledger(Registration(old), made)
    return new


def last(folder):
    entry = ledger.read(folder)[-1]
    return entry.event, entry.body


def content(**protocol):
    return {"protocol": {"content": protocol}, "sources": {"a.py": "1", "b/c.py": "2"}, "items": "not compared"}


def test_every_value_that_differs_is_listed_with_its_path():
    was = content(seeds=[0, 1], arms={"x": {"policy": "h2o"}, "y": {"policy": "full"}}, tasks=[{"n": 1}], on=True)
    now = content(seeds=[0, 1, 2], arms={"x": {"policy": "tova"}, "z": {"policy": "full"}}, tasks=[{"n": 2}], on=1)
    now["sources"] = {"a.py": "1", "b/c.py": "3", "d.py": "4"}
    now["items"] = "other"
    assert amendment.diff_locks(was, now) == [
        {"path": "protocol/arms/x/policy", "was": "h2o", "is": "tova"},
        {"path": "protocol/arms/y", "was": {"policy": "full"}},
        {"path": "protocol/arms/z", "is": {"policy": "full"}},
        {"path": "protocol/on", "was": True, "is": 1},
        {"path": "protocol/seeds", "was": [0, 1], "is": [0, 1, 2]},
        {"path": "protocol/tasks/0/n", "was": 1, "is": 2},
        {"path": "sources/b/c.py", "was": "2", "is": "3"},
        {"path": "sources/d.py", "is": "4"},
    ]


def test_the_difference_is_the_same_before_the_lock_is_written_and_when_it_is_read():
    was, now = content(pair=[1, 2]), content(pair=(1, 3), models=("m",))
    assert amendment.diff_locks(content(pair=(1, 2), models=["m"]), content(pair=[1, 2], models=("m",))) == []
    assert amendment.diff_locks(was, now) == amendment.diff_locks(was, content(pair=[1, 3], models=["m"]))


def test_before_the_claim_an_amendment_is_a_new_version(old):
    digest = lock.read(old).digest
    about = lock.read(amended(old)).content["amends"]
    assert about == {
        "name": "old",
        "lock": digest,
        "reason": "a typing error",
        "diff": [{"path": "protocol/seeds/0", "was": 0, "is": 1}],
        "seen": SEEN_NOTHING,
        "after_claim": False,
    }


def test_what_had_been_seen_is_counted(old):
    held = lock.read(old)
    ledger.append(old, "probe", {"number": 1, "records": 0})
    with ShardWriter(old / "probe") as shard:
        costs = {"attempt": 1, "prefill_seconds": "0.1", "decode_seconds": "0.1"}
        shard.append([(toy.body(held.digest, arm, "p0", phase="probe"), costs) for arm in toy.ARMS])
    toy.confirm(old, stop_after=3)
    probe = {"attempts": 1, "records": 2}
    about = changed(old, old.parent / "new")["amends"]
    assert about["seen"] == SEEN_NOTHING | {"probe": probe, "claim": True, "records": 3}
    assert about["after_claim"]
    toy.confirm(old)
    verdict.write(Registration.with_lock(old, held), toy.JUDGED)
    about = changed(old, old.parent / "new")["amends"]
    assert about["seen"] == SEEN_NOTHING | {"probe": probe, "claim": True, "records": 6, "verdict": "REFUTED"}


def test_an_amendment_of_an_amendment_does_not_forget_the_claim(old):
    toy.confirm(old, stop_after=1)
    second = amended(old, "second")
    third = amended(second, "third", seeds=(2,))
    about = lock.read(third).content["amends"]
    assert (about["seen"], about["after_claim"]) == (SEEN_NOTHING, True)
    assert "after a claim" in amendment.verify(Registration(third))


def test_an_amendment_that_changes_nothing_is_refused(old):
    held = lock.read(old)
    with pytest.raises(BadInput, match=r"changes nothing; edit its protocol\.toml"):
        amendment.describe_amendment(Registration.with_lock(old, held), "why", {**held.content, "name": "new"})


def test_the_old_ledger_is_closed_once_by_the_new_lock(old):
    new = amended(old)
    digest = lock.read(new).digest
    assert last(old) == ("amended", {"lock": digest, "reason": "a typing error"})
    before = studies.snapshot(old)
    amendment.close_ledger(Registration(old), lock.read(new))
    assert studies.snapshot(old) == before
    with pytest.raises(AlreadyClaimed, match=f"a typing error.*{digest}"):
        ledger.append(old, "probe", {"number": 2, "records": 0})
    assert studies.snapshot(old) == before


@pytest.mark.parametrize("end", ["verdict", "withdraw"])
def test_a_ledger_that_is_closed_stays_as_it_is_when_its_study_is_amended(old, end):
    if end == "verdict":
        toy.confirm(old)
        verdict.write(Registration(old), toy.JUDGED)
    else:
        amendment.withdraw(Registration(old), "wrong golds")
    with studies.unchanged(old):
        new = amended(old)
    assert amendment.verify(Registration(new)).startswith("old, ")
    assert amendment.find_successor(Registration(old)) == Registration(new)


def test_going_on_with_a_study_whose_amendment_is_locked_shows(old):
    made = locked(old.parent / "new", changed(old, old.parent / "new"))
    toy.confirm(old, stop_after=1)
    with studies.unchanged(old), pytest.raises(Tampered, match=r"was continued after new was locked"):
        amendment.close_ledger(Registration(old), made)
    with pytest.raises(Tampered, match=r"amends\.seen"):
        amendment.verify(Registration.with_lock(old.parent / "new", made))


def test_an_amendment_that_was_cut_off_runs_only_when_it_is_completed(old):
    new = old.parent / "new"
    made = locked(new, changed(old, new))
    assert amendment.is_unfinished(Registration(old), new)
    with pytest.raises(BadInput, match=r"kv-prereg amend .*old .*new --reason"):
        amendment.refuse_unclosed_parent(Registration.with_lock(new, made))
    with pytest.raises(Unfinished, match="this lock has not closed its ledger yet"):
        amendment.verify(Registration.with_lock(new, made))
    (new / "probe").mkdir()
    with pytest.raises(Tampered, match="has not closed"):
        amendment.verify(Registration.with_lock(new, made))
    (new / "probe").rmdir()
    amendment.close_ledger(Registration(old), made)
    amendment.refuse_unclosed_parent(Registration.with_lock(new, made))
    with pytest.raises(AlreadyClaimed, match=r"is already an amendment of .*old"):
        amendment.is_unfinished(Registration(old), new)


def test_only_the_newest_version_is_amended(old):
    second = amended(old, "second")
    amended(second, "third", seeds=(2,))
    with pytest.raises(AlreadyClaimed, match=r"kv-prereg amend \S*third \S*fourth"):
        amendment.is_unfinished(Registration(old), old.parent / "fourth")
    assert not amendment.is_unfinished(Registration(old.parent / "third"), old.parent / "fourth")


def test_a_version_whose_amendment_was_taken_away_is_not_amended_again(old):
    new = amended(old)
    digest = lock.read(new).digest
    new.rename(old.parent.parent / f"{old.parent.name} elsewhere")
    with pytest.raises(AlreadyClaimed, match=digest):
        amendment.is_unfinished(Registration(old), old.parent / "other")


def test_what_amends_nothing_has_nothing_to_verify(old):
    with pytest.raises(NotRun):
        amendment.verify(Registration(old))
    amendment.refuse_unclosed_parent(Registration(old))


def test_without_the_parent_an_amendment_cannot_be_told(old):
    new = amended(old)
    held = lock.read(new)
    assert amendment.verify(Registration.with_lock(new, held)) == "old, before any claim; 1 values differ, as listed"
    old.rename(old.parent / "renamed")
    with pytest.raises(CannotTell, match=held.content["amends"]["lock"]):
        amendment.verify(Registration.with_lock(new, held))


def test_of_two_amendments_of_one_version_neither_can_be_told(old):
    """The ledger of a judged version names neither; one of the two may have left out the version between."""
    toy.confirm(old)
    verdict.write(Registration.with_lock(old, lock.read(old)), toy.JUDGED)
    first, second = old.parent / "first", old.parent / "second"
    locked(first, changed(old, first))
    amendment.verify(Registration(first))
    locked(second, changed(old, second, seeds=(2,)))
    for folder, other in ((first, second), (second, first)):
        with pytest.raises(CannotTell, match=f"{other.name} amends old too"):
            amendment.verify(Registration(folder))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("diff", []),
        ("diff", [{"path": "protocol/seeds", "was": [0], "is": [1]}]),
        ("seen", SEEN_NOTHING),
        ("seen", SEEN_NOTHING | {"claim": True}),
        ("after_claim", False),
    ],
)
def test_an_amendment_that_says_other_than_its_parent_shows_fails(old, field, value):
    toy.confirm(old, stop_after=2)
    new = old.parent / "new"
    told = changed(old, new)
    assert told["amends"][field] != value
    told["amends"][field] = value
    made = locked(new, told)
    ledger.append(old, "amended", {"lock": made.digest, "reason": "a typing error"})
    with pytest.raises(Tampered, match=rf"amends\.{field}"):
        amendment.verify(Registration.with_lock(new, made))


def test_a_parent_whose_ledger_says_otherwise_fails(old):
    new = amended(old)
    lines = (old / ledger.NAME).read_bytes().splitlines(keepends=True)
    (old / ledger.NAME).write_bytes(b"".join(lines[:-1]))
    ledger.append(old, "amended", {"lock": "0" * 64, "reason": "a typing error"})
    with pytest.raises(Tampered, match="another amendment"):
        amendment.verify(Registration(new))


@pytest.mark.parametrize("claimed", [False, True])
def test_a_withdrawal_says_why_and_what_had_been_seen(old, claimed):
    if claimed:
        toy.confirm(old, stop_after=2)
    seen = SEEN_NOTHING | ({"claim": True, "records": 2} if claimed else {})
    assert amendment.withdraw(Registration(old), "wrong golds") == seen
    assert last(old) == ("withdraw", {"reason": "wrong golds", "seen": seen})
    with studies.unchanged(old):
        for act in (
            lambda: amendment.withdraw(Registration(old), "again"),
            lambda: ledger.append(old, "probe", {"number": 2, "records": 0}),
            lambda: ledger.ensure(old, "claim", {"claim": "0" * 64}),
            lambda: verdict.write(Registration(old), toy.JUDGED),
        ):
            with pytest.raises((AlreadyClaimed, Tampered), match=r"withdrawn \(wrong golds\)|seal\.json: missing"):
                act()


def test_nothing_is_sealed_after_a_withdrawal(old):
    toy.confirm(old, stop_after=6)
    amendment.withdraw(Registration(old), "wrong golds")
    with studies.unchanged(old), pytest.raises(AlreadyClaimed, match="withdrawn"):
        seal.write(Registration(old))


def test_a_sealed_study_that_was_withdrawn_gets_no_verdict(old):
    toy.confirm(old)
    amendment.withdraw(Registration(old), "wrong golds")
    with studies.unchanged(old), pytest.raises(AlreadyClaimed, match="withdrawn"):
        verdict.write(Registration(old), toy.JUDGED)


def test_nothing_is_selected_after_a_withdrawal(old):
    amendment.withdraw(Registration(old), "wrong golds")
    parent = toy.locked(old.parent / "parent")
    selection.write(Registration.with_lock(old.parent / "parent", parent), {"winner": "crystal"})
    with studies.unchanged(old):
        with pytest.raises(AlreadyClaimed, match="withdrawn"):
            selection.write(Registration(old), {"winner": "crystal"})
        with pytest.raises(AlreadyClaimed, match="withdrawn"):
            selection.adopt(Registration(old), Registration(old.parent / "parent"))


def test_a_verdict_is_not_withdrawn(old):
    toy.confirm(old)
    verdict.write(Registration(old), toy.JUDGED)
    with studies.unchanged(old):
        with pytest.raises(AlreadyClaimed, match="was judged REFUTED"):
            amendment.withdraw(Registration(old), "it is not what I hoped for")
        lines = (old / ledger.NAME).read_bytes().splitlines(keepends=True)
        (old / ledger.NAME).write_bytes(b"".join(lines[:-1]))  # a crash came before the verdict's line
        with pytest.raises(AlreadyClaimed, match="was judged REFUTED"):
            amendment.withdraw(Registration(old), "it is not what I hoped for")
        (old / ledger.NAME).write_bytes(b"".join(lines))


def test_a_study_that_is_being_run_is_not_withdrawn(old):
    with (
        studies.unchanged(old),
        claim.exclusive_run(Registration(old)),
        pytest.raises(AlreadyClaimed, match="another process"),
    ):
        amendment.withdraw(Registration(old), "wrong golds")


def test_a_claim_whose_line_a_crash_cut_off_is_entered_before_the_ledger_is_closed(old):
    content = {"kind": "kv-prereg claim", "version": 1, "lock": lock.read(old).digest, "ledger": ledger.read_head(old)}
    digest = documents.write(old / claim.NAME, content)
    assert amendment.withdraw(Registration(old), "wrong golds")["claim"]
    assert [(entry.event, entry.body.get("claim")) for entry in ledger.read(old)][1:] == [
        ("claim", digest),
        ("withdraw", None),
    ]


def test_what_is_not_locked_whole_is_neither_withdrawn_nor_amended(old, tmp_path):
    (old / ledger.NAME).unlink()
    with pytest.raises(BadInput, match=r"kv-prereg register"):
        amendment.withdraw(Registration(old), "why")
    (tmp_path / "written").mkdir()
    with pytest.raises(BadInput, match="is not locked"):
        amendment.withdraw(Registration(tmp_path / "written"), "why")
    assert not (old / ledger.NAME).exists()


@pytest.mark.parametrize("text", ["", " \n\t", "a\x1b[31mb", "\u202eabc", "\udc80"])
def test_a_reason_that_says_nothing_is_refused(text):
    with pytest.raises(BadInput, match="--reason"):
        amendment.clean_reason(text)


def test_a_reason_is_one_line():
    assert amendment.clean_reason(" The golds\n are wrong: e\u0301. ") == "The golds are wrong: \u00e9."


@pytest.mark.parametrize("word", ["INVALID", "confirmed", "SUPPORTED", None])
def test_a_verdict_is_a_word_that_a_rule_gives(old, word):
    toy.confirm(old)
    with (
        studies.unchanged(old),
        pytest.raises(BadInput, match="CONFIRMED, REFUTED, INCONCLUSIVE, SCREENED, DEVIATED, RE-USED"),
    ):
        verdict.write(Registration(old), toy.JUDGED | {"verdict": word})
    assert verdict.VERDICTS == ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED", "RE-USED", "INVALID")


def test_how_a_study_ended_is_audited(old):
    toy.locked(old.parent / "withdrawn")
    with pytest.raises(NotRun):
        amendment.describe_ending(Registration(old))
    new = amended(old)
    assert amendment.describe_ending(Registration(old)) == "amended by new: a typing error"
    new.rename(old.parent.parent / f"{old.parent.name} elsewhere")
    with pytest.raises(CannotTell, match="which is in no folder next to it"):
        amendment.describe_ending(Registration(old))
    folder = old.parent / "withdrawn"
    toy.confirm(folder, stop_after=2)
    amendment.withdraw(Registration(folder), "wrong golds")
    assert amendment.describe_ending(Registration(folder)) == "withdrawn after its claim: wrong golds"
    (folder / "records" / "shard-0.jsonl").unlink()
    with pytest.raises(Tampered, match="lists other things as seen"):
        amendment.describe_ending(Registration(folder))


def test_a_study_closed_by_another_amendment_than_the_one_beside_fails(old):
    locked(old.parent / "new", changed(old, old.parent / "new"))
    ledger.append(old, "amended", {"lock": "0" * 64, "reason": "why"})
    with pytest.raises(Tampered, match="an amendment other than new"):
        amendment.describe_ending(Registration(old))
