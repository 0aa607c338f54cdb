"""What settings promise, without torch, is what the policies declare."""

import re

import pytest
import studies

from policies.catalogue import CATALOGUE, get
from policies.structure import structure
from protocol.lock import installed_versions, lock
from protocol.lock.promises import derive_promises


@pytest.mark.parametrize("interval", [None, 16])
@pytest.mark.parametrize("slack", [True, False])
def test_the_settings_of_every_policy_promise_what_it_declares(interval, slack):
    """A part of a new class belongs into `protocol/lock/promises.py`."""
    for name, policy in CATALOGUE.items():
        if interval and policy.evicts and policy.cadence.interval is None and not policy.prefill_only_signals:
            policy = get(name, {"cadence.interval": interval, "cadence.slack": slack})
        assert derive_promises(structure(policy)) == policy.promises._asdict(), name


def test_what_a_part_of_another_distribution_promises_is_not_known():
    assert derive_promises(structure(CATALOGUE["h2o"]) | {"selection": "elsewhere.Top()"}) is None


@pytest.mark.parametrize(
    ("named", "installed", "relation"),
    [
        ("0.2.0", "0.2.0", "installed"),
        ("0.2.1", "0.2.0", "undetermined"),
        ("0.10", "0.9.9", "undetermined"),
        ("1.0.0rc1", "0.9.9", "undetermined"),
        ("0.1.9", "0.2.0", "unknown"),
        ("0.1.9", "0.1.10", "unknown"),
        ("latest", "0.2.0", "unknown"),
        ("", "0.2.0", "unknown"),
        ("9" * 400, "0.2.0", "unknown"),
        ("0.2.0", installed_versions.NO_RELEASE, "undetermined"),
        (installed_versions.NO_RELEASE, "0.2.0", "undetermined"),
    ],
)
def test_a_release_is_known_later_or_none(monkeypatch, named, installed, relation):
    monkeypatch.setattr(installed_versions, "release", lambda: installed)
    assert lock.compare_release(named) == relation


def test_releases_of_the_changelog_are_known():
    """A release that wrote locks of version 2 is listed before the next one is made."""
    released = set(re.findall(r"^## (\d+\.\d+\.\d+)", (studies.ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert released - {installed_versions.release()} <= lock.EARLIER_RELEASES
