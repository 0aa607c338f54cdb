"""A study that another harness runs: locked, released, read once, judged, audited; and outputs that are not of it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import outside_studies
import pytest
import studies
from outside_studies import samples

from analysis.compare.scored_answers import ResultError
from figures import report
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.vocabulary import AS_RUN
from protocol.outside import lanes, output_files
from protocol.outside import released as released_ids

UNSEEN = "outputs were not made or replayed by this project; memory not measured"


class Claimed(NamedTuple):
    folder: Path
    released: list[int]


@pytest.fixture(scope="module")
def locked(tmp_path_factory) -> Path:
    folder = outside_studies.write(tmp_path_factory.mktemp("outside") / "registrations" / "sums")
    return outside_studies.lock(folder)


@pytest.fixture(scope="module")
def claimed_once(locked) -> Claimed:
    folder = Path(shutil.copytree(locked, locked.parent.parent / "claimed" / "sums"))
    return Claimed(folder, outside_studies.claim(folder))


@pytest.fixture
def claimed(claimed_once, tmp_path) -> Claimed:
    return claimed_once._replace(folder=Path(shutil.copytree(claimed_once.folder, tmp_path / "registrations" / "sums")))


def right(released: list[int], wrong: int = 0) -> dict[int, float | None]:
    """Scores of the released problems, of which so many first ones are wrong."""
    return {item: float(place >= wrong) for place, item in enumerate(released)}


def write_both(outputs: Path, released: list[int], wrong: int = 4) -> Path:
    return write_beside_right(outputs, released, samples(right(released, wrong)))


def write_beside_right(outputs: Path, released: list[int], lines: list[dict[str, Any]], **how: Any) -> Path:
    """The lines of h2o, beside a full cache that is right everywhere."""
    outside_studies.write_lm_eval(outputs, "none", samples(right(released)))
    outside_studies.write_lm_eval(outputs, "h2o", lines, **how)
    return outputs


@pytest.fixture(scope="module")
def judged_once(claimed_once) -> tuple[Path, str]:
    folder = Path(shutil.copytree(claimed_once.folder, claimed_once.folder.parent.parent / "judged" / "sums"))
    status, text = outside_studies.read_outputs(folder, write_both(folder.parent / "out", claimed_once.released))
    assert status == 0, text
    return folder, text


@pytest.fixture
def judged(judged_once, tmp_path) -> Path:
    return Path(shutil.copytree(judged_once[0], tmp_path / "registrations" / "sums"))


def test_a_lock_has_the_pool_the_rule_and_the_commands_and_nothing_that_is_measured(locked):
    content = Registration(locked).lock.content
    pool = hashlib.sha256((locked / "pool.jsonl").read_bytes()).hexdigest()
    assert content["data"] == {"sums": pool}
    assert content["items"]["sums"]["dev"] == []
    assert len(content["items"]["sums"]["confirm"]) == 210
    assert [cell[2] for cell in content["grid"]] == [AS_RUN, AS_RUN]
    assert content["protocol"]["content"]["arms"]["none"] == {"command": "lm_eval --tasks sums_test"}
    assert [content[name] for name in ("policies", "promises", "weights", "slot_bytes", "full_use")] == [{}] * 5
    assert "cache_tolerance" not in content["protocol"]["content"]["decision"]
    assert {*content["checks"]["rule"]["verdicts"].values()} >= {"CONFIRMED", "REFUTED"}


def test_the_claim_releases_another_part_of_the_pool_for_every_claim(locked, claimed_once, tmp_path):
    again = outside_studies.claim(Path(shutil.copytree(locked, tmp_path / "registrations" / "sums")))
    for released in (claimed_once.released, again):
        assert len(set(released)) == 210
        assert {*released} <= {*range(outside_studies.POOL)}
    assert again != claimed_once.released


def test_the_verdict_counts_the_rows_and_says_what_was_not_seen(judged_once, claimed_once):
    folder, text = judged_once
    judged = json.loads((folder / "verdict.json").read_text())["judged"]
    (row,) = judged["contrasts"]
    assert judged["verdict"] == "CONFIRMED"  # 4 of 210 lost, of a margin of a fifth
    assert (row["n"], row["gains"], row["losses"]) == (210, 0, 4)
    assert float(row["difference"]) == pytest.approx(-4 / 210, abs=1e-6)
    assert (row["cache_ratio"], row["matched"], row.get("memory")) == (None, True, None)
    assert "OUTPUTS OF OTHERS" in text.splitlines()[0]
    assert UNSEEN in text
    page = report.render_without_drawings(folder)
    assert UNSEEN in page
    for written in (text, page):
        assert "equal memory" not in written
        assert "equal measured memory" not in written


def test_an_audit_reads_the_records_again_from_the_files(judged):
    status, found = outside_studies.run_audit(judged)
    assert status == 0, found
    assert found["outputs"][0] == found["judgement"][0] == found["grid"][0] == "held"
    assert not {"policies", "sense", "grades", "trajectories"} & found.keys()


def test_the_other_commands_know_it(judged, capsys):
    for name in ("status", "export"):
        options = {"export": ("--format", "osf")}.get(name, ())
        assert "measured memory" not in studies.ran(0, name, judged, *options).stdout
    for name in ("croissant", "in-toto", "aspredicted"):
        assert studies.here("export", judged, "--format", name).returncode == 0
    for name, *options in (("probe",), ("rehearse",), ("regrade",), ("show",), ("audit", "--replay", 1)):
        done = studies.here(name, judged, *options)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1
        assert "fault" not in done.stderr


def test_others_replicate_it_with_their_own_outputs(judged, tmp_path):
    done = studies.ran(6, "replicate", "--fresh", judged)
    child = tmp_path / "replications" / "sums-fresh-001"
    assert f"next: kv-prereg confirm {child}" in done.stdout
    released = outside_studies.claim(child)
    status, text = outside_studies.read_outputs(child, write_both(tmp_path / "theirs", released, wrong=90))
    assert status == 10, text
    status, found = outside_studies.run_audit(child)
    assert status == 0, found
    assert studies.here("replicate", judged).returncode == 2  # its problems were drawn for its own lock


def inspect_outputs(outputs: Path, released: list[int]) -> None:
    grades = dict.fromkeys(released, "C")
    outside_studies.write_inspect(outputs / "none.json", grades)
    outside_studies.write_inspect(outputs / "h2o.json", grades | dict.fromkeys(released[:4], "I"))


def csv_outputs(outputs: Path, released: list[int]) -> None:
    outside_studies.write_csv(outputs / "none.csv", right(released))
    outside_studies.write_csv(outputs / "h2o" / "scores.csv", right(released, 4))


@pytest.mark.parametrize("write", [inspect_outputs, csv_outputs])
def test_logs_of_inspect_and_tables_are_judged_as_samples_of_lm_eval_are(claimed, judged_once, tmp_path, write):
    write(tmp_path / "out", claimed.released)
    status, text = outside_studies.read_outputs(claimed.folder, tmp_path / "out")
    assert status == 0, text
    numbers = [
        json.loads((folder / "verdict.json").read_text())["judged"] for folder in (claimed.folder, judged_once[0])
    ]
    assert numbers[0] == numbers[1]
    assert outside_studies.run_audit(claimed.folder)[0] == 0


@pytest.mark.parametrize(("names", "is_one"), [(("a", "a"), True), (("", ""), True), (("a", "b"), False)])
def test_two_logs_of_one_second_with_equal_scores_are_two_runs_if_they_have_two_names(claimed, tmp_path, names, is_one):
    """inspect_ai writes seconds, and begins the runs of one call together."""
    created = datetime.now(UTC).replace(microsecond=0)
    for arm, name in zip(("none", "h2o"), names, strict=True):
        log = outside_studies.write_inspect(tmp_path / f"out/{arm}.json", dict.fromkeys(claimed.released, "C"))
        said = json.loads(log.read_text())
        said["eval"] |= {"created": created.isoformat(), "eval_id": name, "task_args": {"press": arm}}
        log.write_text(json.dumps(said))
    files = output_files.find_files(tmp_path / "out", ["none", "h2o"])
    with pytest.raises(ResultError, match="each arm needs its own run") if is_one else nullcontext():
        lanes.make_bodies(Registration(claimed.folder), files)


def test_a_score_that_a_file_leaves_empty_is_missing_and_not_wrong(claimed, tmp_path):
    outside_studies.write_csv(tmp_path / "out/none.csv", right(claimed.released))
    outside_studies.write_csv(tmp_path / "out/h2o.csv", right(claimed.released) | {claimed.released[0]: None})
    assert outside_studies.read_outputs(claimed.folder, tmp_path / "out")[0] == 11
    bodies = [record["body"] for record in Registration(claimed.folder).confirm_records]
    assert [(body["grade"], body["reason"]) for body in bodies if body["state"] != "ok"] == [
        (None, "its row has no score")
    ]


def test_a_row_that_is_left_out_falls_under_the_missing_rule(claimed, tmp_path):
    write_beside_right(tmp_path / "out", claimed.released, samples(right(claimed.released[1:])))
    status, text = outside_studies.read_outputs(claimed.folder, tmp_path / "out")
    assert status == 11, text
    assert "1 of 420 lanes have no grade" in text


def test_outputs_are_not_read_before_the_claim(locked, tmp_path):
    folder = Path(shutil.copytree(locked, tmp_path / "registrations" / "sums"))
    with studies.unchanged(folder):
        status, text = outside_studies.read_outputs(folder, write_both(tmp_path / "out", [*range(210)]))
        assert status == 2
        assert "is not claimed" in text


YESTERDAY = datetime.now(UTC) - timedelta(days=1)


def of_an_older_run(outputs: Path, released: list[int]) -> None:
    write_beside_right(outputs, released, samples(right(released, 1)), made=YESTERDAY)


def results_of(outputs: Path, arm: str) -> Path:
    return next((outputs / arm).rglob("results_*.json"))


def one_run_for_two_arms_in_another_order(outputs: Path, released: list[int]) -> None:
    outside_studies.write_lm_eval(outputs, "none", samples(right(released, 4)))
    outside_studies.write_lm_eval(outputs, "h2o", samples(right(released, 4))[::-1])
    results_of(outputs, "h2o").write_bytes(results_of(outputs, "none").read_bytes())


def one_log_for_two_arms_that_was_indented(outputs: Path, released: list[int]) -> None:
    log = outside_studies.write_inspect(outputs / "none.json", dict.fromkeys(released, "C"))
    (outputs / "h2o.json").write_text(json.dumps(json.loads(log.read_text()), indent=1))


def an_older_run_under_another_date(outputs: Path, released: list[int]) -> None:
    of_an_older_run(outputs, released)
    samples_file = next((outputs / "h2o").rglob("samples_*.jsonl"))
    samples_file.rename(samples_file.with_name(samples_file.name.replace("T02-30", "T02-31")))


def an_older_run_without_its_results(outputs: Path, released: list[int]) -> None:
    of_an_older_run(outputs, released)
    results_of(outputs, "h2o").unlink()
    samples_file = next((outputs / "h2o").rglob("samples_*.jsonl"))
    samples_file.rename(samples_file.with_name(samples_file.name.replace("2026-11-28", "2026-11-20")))


def the_rest_from_another_run(outputs: Path, released: list[int]) -> None:
    write_beside_right(outputs, released, samples(right(released[:100], 4)))
    first = next((outputs / "h2o").rglob("samples_*.jsonl"))
    rest = "".join(json.dumps(line) + "\n" for line in samples(right(released[100:])))
    first.with_name(first.name.replace("T02-30", "T03-30")).write_text(rest)


def of_no_time(outputs: Path, released: list[int]) -> None:
    write_both(outputs, released)
    said = json.loads(results_of(outputs, "h2o").read_text())
    results_of(outputs, "h2o").write_text(json.dumps(said | {"date": 1e308}))


def of_a_day_without_a_zone(outputs: Path, released: list[int]) -> None:
    outside_studies.write_inspect(outputs / "none.json", dict.fromkeys(released, "C"))
    log = outside_studies.write_inspect(outputs / "h2o.json", dict.fromkeys(released, "C"))
    said = json.loads(log.read_text())
    said["eval"]["created"] = "2026-01-01T00:00:00"
    log.write_text(json.dumps(said))


def a_score_that_stands_twice(outputs: Path, released: list[int]) -> None:
    write_both(outputs, released)
    path = next((outputs / "h2o").rglob("samples_*.jsonl"))
    path.write_text(path.read_text().replace('"exact_match": 0.0', '"exact_match": 0.0, "exact_match": 1.0'))


def an_unfinished_log(outputs: Path, released: list[int]) -> None:
    outside_studies.write_inspect(outputs / "none.json", dict.fromkeys(released, "C"))
    log = outside_studies.write_inspect(outputs / "h2o.json", dict.fromkeys(released[:50], "C"))
    log.write_text(log.read_text().replace('"success"', '"cancelled"'))


def beside(change: Callable[[list[int]], list[dict[str, Any]]], **how: Any) -> Callable[[Path, list[int]], Any]:
    """The cheat whose lines of h2o are these of the released problems."""
    return lambda outputs, released: write_beside_right(outputs, released, change(released), **how)


CHEATS = {
    "a choice from before the claim": (
        lambda outputs, released: write_both(outputs, [*range(210)]),
        "were not released by the claim",
    ),
    "the whole pool": (
        lambda outputs, released: write_both(outputs, [*range(outside_studies.POOL)]),
        "110 problems of h2o were not released by the claim",
    ),
    "another model": (beside(lambda ids: samples(right(ids, 1)), model="Qwen/Qwen3-8B"), "'Qwen/Qwen3-8B' ran"),
    "an older run": (of_an_older_run, "before the claim"),
    "one run for two arms": (beside(lambda ids: samples(right(ids))), "equals a file of h2o byte for byte"),
    "a problem twice": (beside(lambda ids: samples(right(ids)) + samples({ids[0]: 1.0})), "occurs twice"),
    "other questions": (
        beside(lambda ids: samples(right(ids, 1), doc_hash="another one")),
        "has a question that differs",
    ),
    "other prompts": (
        beside(lambda ids: samples(right(ids, 1), prompt_hash="with a hint")),
        "did not answer the same question",
    ),
    "an arm that is missing": (
        lambda outputs, released: outside_studies.write_lm_eval(outputs, "none", samples(right(released))),
        "h2o: has no file of answers",
    ),
    "half a point": (beside(lambda ids: samples(right(ids) | {ids[0]: 0.5})), "neither 0 nor 1"),
    "a time to come": (
        beside(lambda ids: samples(right(ids, 1)), made=datetime(2099, 1, 1, tzinfo=UTC)),
        "after it was read",
    ),
}


@pytest.mark.parametrize(
    ("cheat", "said"),
    [
        *(pytest.param(*case, id=name) for name, case in CHEATS.items()),
        (one_run_for_two_arms_in_another_order, "each arm needs its own run"),
        (one_log_for_two_arms_that_was_indented, "each arm needs its own run"),
        (an_older_run_under_another_date, "results of other runs"),
        (an_older_run_without_its_results, "before the claim"),
        (the_rest_from_another_run, "results of other runs"),
        (of_no_time, "is not a time"),
        (of_a_day_without_a_zone, "before the claim"),
        (a_score_that_stands_twice, "exact_match: occurs twice"),
        (an_unfinished_log, "the log did not finish"),
    ],
)
def test_outputs_that_are_not_of_this_study_are_refused_and_nothing_is_recorded(claimed, tmp_path, cheat, said):
    cheat(tmp_path / "out", claimed.released)
    status, text = outside_studies.read_outputs(claimed.folder, tmp_path / "out")
    assert status == 2, text
    assert said in text
    assert "--metric" not in text  # an option of compare: what is read here is registered
    assert "--common" not in text
    assert not (claimed.folder / "outside" / "outputs.json").exists()
    assert not (claimed.folder / "seal.json").exists()


def test_other_files_are_not_read_after_the_first(claimed, tmp_path, monkeypatch):
    """Killed between the files and the seal, it goes on with the files that were read, and with no others."""
    from protocol.evidence import seal

    write = seal.write
    monkeypatch.setattr(seal, "write", lambda study: (_ for _ in ()).throw(KeyboardInterrupt))
    write_both(tmp_path / "out", claimed.released, wrong=150)
    assert outside_studies.read_outputs(claimed.folder, tmp_path / "out")[0] == 130
    monkeypatch.setattr(seal, "write", write)
    better = write_both(tmp_path / "better", claimed.released, wrong=0 + 1)
    status, text = outside_studies.read_outputs(claimed.folder, better)
    assert status == 2
    assert "other files were read already" in text
    studies.ran(10, "confirm", claimed.folder)
    assert outside_studies.run_audit(claimed.folder)[0] == 0


def edit_file(folder: Path) -> None:
    path = max((folder / "outside/files").iterdir(), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes().replace(b'"exact_match": 0.0', b'"exact_match": 1.0', 1))


def edit_released(folder: Path) -> None:
    path = folder / "outside/released.json"
    ids = json.loads(path.read_text())
    ids["sums_test"][0] = next(item for item in range(outside_studies.POOL) if item not in ids["sums_test"])
    path.write_text(json.dumps(ids, separators=(",", ":")) + "\n")


def remove_file(folder: Path) -> None:
    next((folder / "outside/files").iterdir()).unlink()


def add_file(folder: Path) -> None:
    (folder / "outside/files" / ("0" * 64)).write_text("another run")


def remove_list(folder: Path) -> None:
    (folder / "outside/outputs.json").unlink()


def test_files_of_an_attempt_that_was_killed_before_its_list_are_no_evidence(claimed, tmp_path):
    stray = claimed.folder / "outside/files" / ("0" * 64)
    stray.parent.mkdir()
    stray.write_text("of outputs that were then replaced")
    assert outside_studies.read_outputs(claimed.folder, write_both(tmp_path / "out", claimed.released))[0] == 0
    assert not stray.exists()
    assert outside_studies.run_audit(claimed.folder)[0] == 0


@pytest.mark.parametrize(
    "name", ["../escaped.csv", "none/../../escaped.csv", "{}/escaped.csv", "none//x.csv", "./x.csv"]
)
def test_a_name_that_leads_elsewhere_is_refused_and_writes_nothing(judged, name, tmp_path, monkeypatch):
    home = tmp_path / "temporary" / "home"
    home.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    path = judged / "outside/outputs.json"
    listed = json.loads(path.read_text())
    files = next(iter(listed["files"].values()))
    files[-1]["name"] = name.format(tmp_path / "temporary")
    path.write_text(json.dumps(listed, sort_keys=True, separators=(",", ":")) + "\n")
    status, found = outside_studies.run_audit(judged)
    assert status == 3
    assert "path below the folder" in found["outputs"][1]
    assert [each for each in (tmp_path / "temporary").rglob("*") if each.is_file()] == []


def test_a_problem_that_stands_in_the_pool_under_two_ids_is_refused(tmp_path):
    """It would count twice: of forty problems in eight copies each, as 320."""
    folder = outside_studies.write(tmp_path / "registrations" / "sums")
    rows = [json.loads(line) for line in (folder / "pool.jsonl").read_text().splitlines()]
    rows[41]["doc_hash"] = rows[3]["doc_hash"]
    (folder / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = studies.ran(2, "register", folder)
    assert "pool.jsonl: line 42: '41' asks the same as '3'; leave one of them out" in done.stderr
    assert not (folder / "lock.json").exists()


@pytest.mark.parametrize(("item", "written"), [("7", 7), ("0", 0), ("007", "007"), ("9" * 20, "9" * 20), ("٣", "٣")])
def test_an_id_is_released_as_the_text_that_it_is(item, written):
    assert released_ids.write_id(item) == written
    assert json.loads(canonical.dumps({"ids": [released_ids.write_id(item)]}))["ids"] == [written]


@pytest.mark.parametrize("tamper", [edit_file, edit_released, remove_file, add_file, remove_list])
def test_what_was_read_is_evidence(judged, tamper):
    tamper(judged)
    status, found = outside_studies.run_audit(judged)
    assert status == 3
    assert found["outputs"][0] == "failed"
