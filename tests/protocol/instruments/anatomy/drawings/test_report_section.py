"""The section of a report about labelled traces: its tables against the files, and what it may not claim."""

import json
import shutil

import numpy as np
import pytest
import reports
import simulated_anatomy
from pages import table

from protocol.instruments.anatomy import analysis

SIGNAL = ("key_norm", 1)
TASKS = ("needle-768", "association-768")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The quickstart with a made-up anatomy in it, judged. No drawing is made."""
    made = simulated_anatomy.written(
        tmp_path_factory.mktemp("labelled") / "made",
        np.random.default_rng(3),
        planted=SIGNAL,
        models=("smollm2-135m",),
        tasks=TASKS,
        only_model="smollm2-135m",
        problems=22,
        states={2: "wrong", 4: "unmoved"},
        anatomy={"draws": 200},
    )
    study = reports.copied(made.parent / "study")
    own = json.loads((made / "lock.json").read_text())

    def lock(content):
        content["protocol"]["content"]["anatomy"] = own["protocol"]["content"]["anatomy"]
        content["protocol"]["content"]["arms"] |= own["protocol"]["content"]["arms"]
        for task in TASKS:
            content["items"][task]["dev"] = own["items"][task]["dev"]

    reports.rewrite(study, lock=lock)
    shutil.copytree(made / "anatomy", study / "anatomy")
    (study / "anatomy" / "chosen.json").write_text(json.dumps(analysis.choose(study)))
    (study / "anatomy" / "verdict.json").write_text(json.dumps(analysis.judge(study)))
    return study


@pytest.fixture
def page(folder, monkeypatch):
    monkeypatch.setattr("figures.study.draw", lambda folder, witness, to: ())  # drawings take their time
    return reports.written(folder, to=folder.parent)


def test_every_trace_is_counted_by_how_it_ended(page):
    rows = table(page, "Traces by half")
    assert [(row["task"], row["half"]) for row in rows] == [
        (task, half) for task in TASKS for half in ("choose", "test")
    ]
    assert [(row["traces"], row["wrong"], row["unmoved"]) for row in rows] == [
        *([("11", "1", "1"), ("11", "0", "0")] * 2)
    ]


def test_the_registered_test_stands_with_its_intervals_and_without_a_claim_on_policies(page, folder):
    verdict = json.loads((folder / "anatomy" / "verdict.json").read_text())
    for row, told in zip(verdict["pairs"], table(page, "Chosen on one half"), strict=True):
        assert (told["signal"], told["layer"]) == ("key_norm", "1")
        assert told["mean rho"] == f"{float(row['rho']['mean']):+.3f}"
        assert told["traces"] == str(row["rho"]["units"])
        low, high = map(float, row["rho"]["fisher"])
        assert told["Fisher, n = traces"] == f"[{low:+.3f}, {high:+.3f}]"
        assert told["beyond position says"] == row["beyond_position"]["word"]
    (section,) = [one for one in page.all("details") if one.attributes.get("id") == "anatomy"]
    assert "no verdict on a policy depends on any of this" in section.text
    assert "not that an arm which scores by it answers better" in section.text
    assert "The oracle, which knows the labels, is no arm and is left out" in section.text


def test_arms_have_their_agreement_and_the_oracle_has_none(page):
    rows = table(page, "Agreement with labels")
    assert {row["arm"] for row in rows} == set(simulated_anatomy.ARMS)
    keen, blind = ([float(row["AUC"]) for row in rows if row["arm"] == arm] for arm in ("keen", "blind"))
    assert min(keen) > max(blind)


def test_a_study_without_labels_has_no_such_section(tmp_path, monkeypatch):
    monkeypatch.setattr("figures.study.draw", lambda folder, witness, to: ())
    page = reports.written(reports.copied(tmp_path / "study"))
    assert "anatomy" not in {one.attributes.get("id") for one in page.all("details")}
    assert "Needed tokens" not in page.text
