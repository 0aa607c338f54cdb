"""A study whose arms are settings of one policy: locked, probed, selected, confirmed, audited, told."""

import copy
import re
import shutil

import pytest
import studies

from analysis.judgement import arm_text
from analysis.judgement.judgement import selection_summary
from policies import snapkv
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Tampered
from protocol.lock import lock
from protocol.recompute import verify_lock

SHORT = 'short = { policy = "snapkv", set = { "scoring.window" = 8, "protect.recent" = 8 } }'
LONG = 'long = { policy = "snapkv", set = { "scoring.window" = 64, "protect.recent" = 64 } }'
NEVER = 'whole = { policy = "snapkv", set = { "cadence.at_prefill" = false } }'
# Two settings of one policy are the candidates; what is never evicted from is so by a setting.
STUDY = studies.SWEEP | {
    'full = { policy = "full" }': NEVER,
    'crystal = { policy = "crystal-token-level" }': f"{SHORT}\n{LONG}",
    'random = { policy = "random" }\n': "",
    'missing = "inconclusive"': studies.SWEEP['missing = "inconclusive"'].replace(
        '["h2o", "random"]', '["short", "long"]'
    ),
}


@pytest.fixture(scope="module")
def locked(tiny_model, tmp_path_factory):
    place = tmp_path_factory.mktemp("settings") / "registrations" / "study"
    folder = studies.write(place, tiny_model, STUDY)
    studies.ran(0, "register", folder)
    return folder


@pytest.fixture(scope="module")
def probed(locked, tmp_path_factory):
    folder = shutil.copytree(locked, tmp_path_factory.mktemp("settings") / "registrations" / "study")
    studies.ran(0, "probe", folder)
    return folder


def test_the_lock_holds_what_was_set_and_every_setting_that_follows(locked):
    content = studies.content(locked / "lock.json")
    assert content["protocol"]["content"]["arms"]["short"] == {
        "policy": "snapkv",
        "set": {"scoring.window": 8, "protect.recent": 8},
    }
    windows = {arm: content["policies"][arm].get("scoring.window") for arm in ("short", "long", "snapkv")}
    assert windows == {"short": "8", "long": "64", "snapkv": "32"}
    assert [cell[2] for cell in content["grid"] if cell[3] == "whole"] == ["full"]
    assert not [pair["arms"] for pair in content["checks"]["same_kept"]["pairs"]]


def test_what_is_selected_is_told_with_its_settings(probed):
    chosen = studies.content(probed / "selection.json")["selected"]
    own = {"short": 8, "long": 64}[chosen["winner"]]
    assert (chosen["policy"], chosen["set"]) == ("snapkv", {"scoring.window": own, "protect.recent": own})
    assert selection_summary("0" * 64, {"selected": chosen}) == {
        "arm": chosen["winner"],
        "policy": "snapkv",
        "set": chosen["set"],
        "selection": "0" * 64,
    }
    said = f"(policy snapkv, protect.recent = {own}, scoring.window = {own})"
    assert arm_text.describe_arm(chosen) == said.strip("()")
    text = studies.here("export", probed, "--format", "osf").stdout
    assert f"{chosen['winner']} {said}" in " ".join(text.split())


def test_an_audit_derives_the_lock_again(probed):
    study = Registration(probed)
    assert "settings of 5 arms match the installed policies" in verify_lock.check_policies(study)
    assert verify_lock.check(study)


def changed(study: Registration, path: tuple[str, ...], value: object) -> Registration:
    content = copy.deepcopy(study.lock.content)
    place = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return Registration.with_lock(study.folder, lock.Lock(content, "0" * 64))


WINDOW = ("policies", "short", "scoring.window")
SET = ("protocol", "content", "arms", "short", "set")


@pytest.mark.parametrize(
    ("path", "value", "check", "said"),
    [
        (WINDOW, "32", verify_lock.check_policies, "policies.short.scoring.window: '32', but must be '8'"),
        (WINDOW, "8 or quit()", verify_lock.check_policies, "but must be '8'"),
        ((*SET, "scoring.window"), 16, verify_lock.check, "set.scoring.window: 16, but must be 8"),
        ((*SET, "scoring.window"), {"a": 1}, verify_lock.check, "a table of 1, but must be 8"),
        ((*SET, "scoring.windw"), 8, verify_lock.check, "set.scoring.windw: 8, but this entry must be absent"),
        (SET, 8, verify_lock.check, "arms.short.set: 8, but must be a table of 2"),
    ],
)
def test_settings_that_the_lock_has_otherwise_are_named(locked, path, value, check, said):
    with pytest.raises(Tampered, match=re.escape(said)):
        check(changed(Registration(locked), path, value))


def test_what_never_evicts_is_told_by_its_settings_whatever_its_policy_is_called(locked):
    study = Registration(locked)
    assert verify_lock.check(study)
    evicting = changed(study, ("promises", "whole", "fires"), "prefill")
    with pytest.raises(Tampered, match="grid"):
        verify_lock.check(evicting)


def test_a_setting_that_its_policy_refuses_cannot_have_been_locked(locked, tmp_path, monkeypatch):
    study = Registration(locked)
    monkeypatch.setattr(snapkv, "refuse_window", lambda window, kernel: (_ for _ in ()).throw(ValueError("too wide")))
    with pytest.raises(Tampered, match=r"arms.short.set.scoring.window: too wide"):
        verify_lock.check_policies(study)
    monkeypatch.setattr(lock, "is_of_other_code", lambda _: True)  # which may take it
    with pytest.raises(CannotTell, match=r"arm short, long: scoring.window: too wide"):
        verify_lock.check_policies(study)
