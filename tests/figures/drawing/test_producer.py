"""The name of who drew a page changes with whatever its bytes depend on."""

import shutil

import pytest
from studies import ROOT

from figures.drawing import producer


def named(monkeypatch, root) -> str:
    monkeypatch.setattr(producer, "ROOT", root)
    return producer.producer_name.__wrapped__()


@pytest.mark.parametrize("edited", ["analysis/judge.py", "figures/plots/forest.py"])
def test_another_byte_of_the_code_is_another_name(edited, tmp_path, monkeypatch):
    for package in producer.SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    before = named(monkeypatch, tmp_path)
    assert before == producer.producer_name()
    with (tmp_path / edited).open("a") as source:
        source.write("\n")
    assert named(monkeypatch, tmp_path) != before


@pytest.mark.parametrize("library", producer.LIBRARIES)
def test_another_version_of_a_library_is_another_name(library, monkeypatch):
    version = producer.metadata.version
    other = {library: "0.0"}
    monkeypatch.setattr(producer.metadata, "version", lambda name: other.get(name) or version(name))
    assert f"{library} 0.0" in producer.producer_name.__wrapped__()
