"""Between lock and confirmation somebody changes what would run. Confirm names it and runs nothing."""

import os
from pathlib import Path
from unittest import mock

import pytest
import studies
from attacking import assert_refused, findings

from protocol.models import sources as models
from protocol.workspace import drift


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("protocol.toml", b'"random", "streaming"', b'"random"', "protocol.toml: differs from the locked file"),
        ("lock.json", b'"version":2', b'"version": 2', "lock.json"),
    ],
    ids=["an easier rule", "a lock edited by hand"],
)
def test_what_was_registered_is_edited(unconfirmed, name, old, new, words):
    studies.edit(unconfirmed / name, old, new)
    assert_refused(3, words, "confirm", unconfirmed)


def test_the_decision_rule_is_softened(unconfirmed, sources, edited):
    edited(sources / "analysis/rules/superior.py", lambda code: code.replace(b"CONFIRMED", b"CONFIRMED ", 1))
    assert_refused(3, "analysis/rules/superior.py: changed", "confirm", unconfirmed, tree=sources)


def test_an_untracked_module_is_put_beside_the_policies(unconfirmed, sources):
    """As it is typed it would stop nobody: the locked tree does not have it. Here the working tree runs."""
    stray = sources / "policies" / "sitehelp.py"
    stray.write_text("BONUS = 1\n")
    try:
        with mock.patch.object(drift, "ROOT", sources):
            assert_refused(3, "policies/sitehelp.py: new", "confirm", unconfirmed)
    finally:
        stray.unlink()


def test_held_out_problems_are_moved_to_the_development_split(unconfirmed, sources, edited):
    edited(sources / "splits/needle-256.json", lambda data: data.replace(b'"confirm":', b'"confirm" :', 1))
    assert_refused(3, "splits/needle-256.json: changed", "confirm", unconfirmed, tree=sources)


def test_the_locked_sources_are_replaced(unconfirmed):
    bundle = unconfirmed / "sources.zip"
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"x")
    assert findings(unconfirmed)["sources"]["status"] == "failed"


@pytest.fixture
def swapped(monkeypatch, tmp_path):
    """swapped(path, data): the model has another file in the place of `path`, for this test alone: the model
    itself is that of all tests, which run beside this one.
    """
    files = models.model_files

    def swap(path: Path, data: bytes) -> None:
        other = tmp_path / path.name
        other.write_bytes(data)
        monkeypatch.setattr(models, "model_files", lambda *of: files(*of) | {path.name: other})

    return swap


def test_the_weights_are_swapped(unconfirmed, tiny_model, swapped):
    weights = tiny_model / "model.safetensors"
    kept = weights.read_bytes()
    swapped(weights, kept[:-1] + bytes([kept[-1] ^ 1]))
    assert_refused(3, "model.safetensors: changed", "confirm", unconfirmed)


def test_the_chat_template_is_swapped(unconfirmed, tiny_model, swapped):
    path = next(
        path for path in tiny_model.iterdir() if b"im_start" in path.read_bytes() and path.suffix != ".safetensors"
    )
    swapped(path, path.read_bytes() + b" ")
    assert_refused(3, f"{path.name}: changed", "confirm", unconfirmed)


def test_no_environment_variable_lets_an_edit_pass(unconfirmed, sources, edited, monkeypatch):
    for name in ("KV_PREREG_FORCE", "FORCE", "PYTHONOPTIMIZE", "KV_PREREG_SKIP_CHECKS"):
        monkeypatch.setitem(os.environ, name, "1")
    edited(sources / "policies/streaming.py", lambda code: code + b"\n# tuned\n")
    assert_refused(3, "policies/streaming.py: changed", "confirm", unconfirmed, tree=sources)
