"""A study whose arms are settings of one policy: locked, probed, selected, confirmed, audited, told."""

import copy
import shutil

import pytest
import studies

from analysis.judgement import arm_text
from analysis.judgement.judgement import selection_summary
from policies import snapkv
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Tampered
from protocol.lock import field_checks, lock
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
    done = studies.here("register", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def probed(locked, tmp_path_factory):
    folder = shutil.copytree(locked, tmp_path_factory.mktemp("settings") / "registrations" / "study")
    done = studies.here("probe", folder)
    assert done.returncode == 0, done.stderr
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
    assert "settings of 5 arms are those of the installed policies" in verify_lock.check_policies(study)
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
    ("path", "value", "said"),
    [
        (WINDOW, "32", "policies.'short'.'scoring.window': '32', where the arm sets 8"),
        (WINDOW, "8 or quit()", "where the arm sets 8"),
        ((*SET, "scoring.window"), 16, "policies.'short'.'scoring.window': '8', where the arm sets 16"),
        ((*SET, "scoring.window"), "8.5", "where the arm sets '8.5'"),
        ((*SET, "scoring.window"), True, "where the arm sets True"),
        ((*SET, "scoring.window"), {"a": 1}, "where the arm sets a table of 1"),
        ((*SET, "scoring.windw"), 8, "policies.'short'.'scoring.windw': null, where the arm sets 8"),
        (SET, 8, "arms.'short'.set: 8 is no table of settings"),
    ],
)
def test_settings_that_the_lock_has_otherwise_are_named_without_torch(locked, path, value, said):
    study = Registration(locked)
    assert not list(field_checks.faults(study.lock.content))
    (fault,) = field_checks.faults(changed(study, path, value).lock.content)
    assert fault.endswith(said)


def test_a_lock_of_before_settings_were_locked_has_no_arm_with_settings(locked):
    content = {name: value for name, value in studies.content(locked / "lock.json").items() if name != "policies"}
    assert any("where the arm sets" in fault for fault in field_checks.faults(content))


@pytest.mark.parametrize(
    ("text", "given", "same"),
    [
        ("0.75", "0.75", True),
        ("0.75", "0.750", True),
        ("1.0", 1, True),
        ("20", "20.0", True),
        ("1e-05", "0.00001", True),
        ("'text'", "text", True),
        ("'1'", "1", True),
        ("(1, 2)", [1, 2], True),
        ("True", True, True),
        ("1", True, False),
        ("True", 1, False),
        ("(1, 2)", [2, 1], False),
        ("(1,)", [1, 1], False),
        ("0.75", "0.7500001", False),
        ("None", "None", False),
        ("policies.snapkv.WindowAttention()", "8", False),
    ],
)
def test_a_locked_text_is_what_was_set_in_any_spelling_of_the_number(text, given, same):
    policies = {"mine": {"scoring.x": text}}
    faults = list(field_checks._setting_faults(policies, {"mine": {"policy": "p", "set": {"scoring.x": given}}}))
    assert (faults == []) == same


def test_what_a_pinned_prompt_wraps_is_found_inside():
    arms_of = {"mine": {"policy": "p", "set": {"protect.recent": 8}}}
    assert not list(field_checks._setting_faults({"mine": {"protect.inner.recent": "8"}}, arms_of))
    assert list(field_checks._setting_faults({"mine": {"protect.inner.recent": "9"}}, arms_of))


def test_what_never_evicts_is_told_by_its_settings_whatever_its_policy_is_called(locked):
    study = Registration(locked)
    assert verify_lock.check(study)
    evicting = changed(study, ("policies", "whole", "cadence.at_prefill"), "True")
    with pytest.raises(Tampered, match="grid"):
        verify_lock.check(evicting)


def test_a_setting_that_its_policy_refuses_cannot_have_been_locked(locked, tmp_path, monkeypatch):
    study = Registration(locked)
    monkeypatch.setattr(snapkv, "refuse_window", lambda window, kernel: (_ for _ in ()).throw(ValueError("too wide")))
    with pytest.raises(Tampered, match=r"arms.short.set.scoring.window: too wide"):
        verify_lock.check_policies(study)
    monkeypatch.setattr(field_checks, "is_todays_sources", lambda *_: False)  # other code may take it
    with pytest.raises(CannotTell, match=r"arm short, long: scoring.window: too wide"):
        verify_lock.check_policies(study)
