"""Labelling traces: one half, the choice, the other half; continued, killed, audited, refused if edited."""

import hashlib
import json
import shutil
from contextlib import nullcontext

import labelled_traces
import pytest
import studies

from protocol import status
from protocol.evidence import claim, ledger
from protocol.evidence.audit import study_status
from protocol.evidence.registration import Registration
from protocol.formats import canonical, journal
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput, Tampered
from protocol.instruments.anatomy import trace_file
from protocol.instruments.anatomy.run import trace_record as occlusion
from protocol.recompute import replay

ANATOMY = """
[anatomy]
window = 4
stride = 3
reading = "dropped"
occlude = "reasoning"
new_tokens = 4
alpha = 0.05
draws = 1000
seed = 7
"""
DUE = 8  # development problems of the task, of which four choose
CHANGES = studies.ONE_TASK | {
    'missing = "inconclusive"': f'missing = "inconclusive"{ANATOMY}',
    "budgets = [0.8]": "budgets = [6]",
    'random = { policy = "random" }': 'h2o = { policy = "h2o" }',
    'crystal = { policy = "crystal-token-level" }\n': "",
    'subject = "crystal"': 'subject = "h2o"',
    'against = ["random", "streaming"]': 'against = ["streaming"]',
}


def made_up(planned, model, task, problem, settings, lanes=None):
    """What every trace of a model comes to that answers well: every other one is changed by no occlusion."""
    from protocol.tasks import held_out_guard

    held_out_guard.build(planned.tasks[task], task, problem, lambda text: len(text.split()))  # refused where held out
    gold = held_out_guard.gold(planned.tasks[task], problem)
    text = gold if isinstance(gold, str) else gold[0]
    state = "labelled" if int(problem[-1], 16) % 2 else "unmoved"
    one = labelled_traces.line(model.name, task, problem, state)
    body = {name: part for name, part in one.body.items() if name not in ("half", "chosen", "attempt")}

    def said(entry):
        return entry | {"text": text if entry["grade"] == "correct" else "none of it"}

    kept = [
        said(entry | {"arm": arm, "budget": "6", "slots": 6})
        for entry, arm in zip(body["kept"], ("h2o", "streaming", "oracle-occlusion"), strict=False)
    ]
    numbers = labelled_traces.rows(state == "labelled")
    values = labelled_traces.packed([*numbers[:6], numbers[7]])  # of six slots the oracle is the last
    body |= {"text": text, "control": said(body["control"]), "kept": kept}
    body["windows"] = {
        reading: [
            [start, stop, *((text, grade) if grade == "correct" else ("none of it", "no answer"))]
            for start, stop, _, grade in found
        ]
        for reading, found in body["windows"].items()
    }
    body["values"] = {**body["values"], "sha256": hashlib.sha256(values).hexdigest(), "kept": len(kept)}
    return occlusion.TraceLine(body, values)


def each(label):
    """In the place of what labels traces together."""

    def together(planned, model, task, problems, *rest):
        for problem in problems:
            yield label(planned, model, task, problem, *rest)

    return together


@pytest.fixture(scope="module")
def locked(made, tiny_model):
    def make(shelves):
        studies.ran(0, "register", studies.write(shelves / "study", tiny_model, CHANGES))

    return made("anatomy-locked", make) / "study"


@pytest.fixture(scope="module")
def labelled(made, locked):
    """Labelled to the end, by what is made up."""

    def make(shelves):
        folder = shutil.copytree(locked, shelves / "study")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(occlusion, "occlude_traces", each(made_up))
            done = studies.here("anatomy", folder)
        assert done.returncode == 0, done.stderr
        (shelves / "anatomy.txt").write_text(done.stdout)

    return made("anatomy-labelled", make) / "study"


@pytest.fixture
def study(labelled, tmp_path):
    return shutil.copytree(labelled, tmp_path / "study")


def lines(folder):
    return (folder / "anatomy" / "traces.jsonl").read_bytes().splitlines(keepends=True)


def bodies(folder):
    return [json.loads(line)["body"] for line in lines(folder)]


def cut_ledger(folder, count):
    path = folder / ledger.NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))


def rechained(folder, change):
    """The file as somebody would write it who knows how lines are chained."""
    found, chain, written = bodies(folder), "0" * 64, []
    change(found)
    for body in found:
        sha256 = canonical.digest(body)
        chain = journal.next_chain(chain, sha256)
        written.append(canonical.dumps({"body": body, "sha256": sha256, "chain": chain}) + b"\n")
    (folder / "anatomy" / "traces.jsonl").write_bytes(b"".join(written))


def audited(folder, item="anatomy"):
    done = studies.here("audit", folder, "--json")
    found = {finding["item"]: finding for finding in json.loads(done.stdout)["findings"]}
    return found[item]["status"], found[item]["detail"]


def test_one_half_chooses_before_the_other_is_labelled_and_the_audit_holds_all_of_it(labelled):
    found = bodies(labelled)
    assert [one["half"] for one in found] == ["choose"] * 4 + ["test"] * 4
    assert [one["attempt"] for one in found] == [1] * 4 + [2] * 4
    events = [entry.event for entry in Registration(labelled).entries]
    again = ["anatomy", "occluded"]
    assert events == ["register", *again, "anatomy-chosen", *again, "anatomy-judged"]
    chosen = hashlib.sha256((labelled / "anatomy" / "chosen.json").read_bytes()[:-1]).hexdigest()
    assert [one.get("chosen") for one in found] == [None] * 4 + [chosen] * 4
    status, detail = audited(labelled)
    assert status == "held", detail
    assert f"{DUE} of {DUE} traces: " in detail
    assert "texts of traces grade as recorded" in detail
    text = (labelled.parent / "anatomy.txt").read_text()
    assert "TOO FEW TRACES" in text
    assert "not a verdict on any policy" in text


def test_interrupted_it_goes_on_where_it_stopped_and_comes_to_the_same(study, labelled, monkeypatch):
    monkeypatch.setattr(occlusion, "occlude_traces", each(made_up))
    whole = lines(study)
    (study / "anatomy" / "verdict.json").unlink()
    (study / "anatomy" / "chosen.json").unlink()
    (study / "anatomy" / "traces.jsonl").write_bytes(b"".join(whole[:2]) + whole[2][:50])
    cut_ledger(study, 2)  # the first attempt began
    status, detail = audited(study)
    assert (status, "2 of 8 traces (INCOMPLETE)" in detail) == ("unfinished", True)
    studies.ran(0, "anatomy", study)
    assert lines(study)[:2] == whole[:2]
    assert [one["attempt"] for one in bodies(study)] == [1, 1, 2, 2, 3, 3, 3, 3]
    assert audited(study)[0] == "held"
    verdict, first = (studies.content(folder / "anatomy" / "verdict.json") for folder in (study, labelled))
    assert verdict["pairs"] == first["pairs"]
    with studies.unchanged(study):
        assert studies.here("anatomy", study).returncode == 0  # finished: it is told again and nothing is run


@pytest.mark.parametrize("left", [4, 7])
def test_cut_off_between_a_document_and_its_line_it_completes_it(study, monkeypatch, left):
    """The ledger lacks the line of chosen.json, or of verdict.json, which are there."""
    monkeypatch.setattr(occlusion, "occlude_traces", each(made_up))
    if left == 4:
        (study / "anatomy" / "verdict.json").unlink()
        (study / "anatomy" / "traces.jsonl").write_bytes(b"".join(lines(study)[:4]))
    cut_ledger(study, left - 1)
    assert audited(study)[0] == "unfinished"
    studies.ran(0, "anatomy", study)
    assert audited(study)[0] == "held"
    assert [entry.event for entry in Registration(study).entries].count("anatomy") == 2


@pytest.mark.soak
def test_killed_it_loses_no_trace(locked, tmp_path):
    """By the code that labels: a model that knows nothing is wrong with its whole cache, which is counted."""
    folder = shutil.copytree(locked, tmp_path / "study")
    process = studies.forked(labelled_traces.traced_slowly, str(folder))
    studies.kill_when_it_grows(process, folder / "anatomy" / "traces.jsonl")
    kept = [line for line in lines(folder) if line.endswith(b"\n")]
    done = studies.ran(0, "anatomy", folder, "--json")
    assert lines(folder)[: len(kept)] == kept
    assert json.loads(done.stdout)["states"] == {"wrong": DUE}
    status, detail = audited(folder)
    assert (status, f"{DUE} wrong" in detail) == ("held", True)


def regraded(found):
    found[0]["control"]["text"] = "none of it"


def fewer(found):
    del found[-1]


def other_half(found):
    found[3]["half"] = "test"
    found[3]["chosen"] = found[4]["chosen"]


def unseen(found):
    found[5]["chosen"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "says"),
    [(regraded, "belong to it"), (fewer, "belong to it"), (other_half, "belong to it"), (unseen, "belong to it")],
)
def test_lines_that_were_rewritten_do_not_fit_the_ledger(study, change, says):
    rechained(study, change)
    status, detail = audited(study)
    assert status == "failed"
    assert says in detail


def forged(folder, change):
    """Lines, documents and ledger, rewritten by somebody who knows all of it."""
    from protocol.evidence.registration import Registration as Opened

    rechained(folder, change)
    analysed = {
        name: {
            key: value
            for key, value in studies.content(folder / "anatomy" / name).items()
            if key not in ("kind", "version", "lock", "traces", "ledger", "chosen")
        }
        for name in ("chosen.json", "verdict.json")
    }
    found = bodies(folder)
    for name in analysed:
        (folder / "anatomy" / name).unlink()
    cut_ledger(folder, 1)
    path = folder / "anatomy" / "traces.jsonl"
    path.unlink()
    for half, name in (("choose", "chosen.json"), ("test", "verdict.json")):
        trace_file.begin_attempt(Opened(folder))
        with trace_file.TraceWriter(Opened(folder)) as writer:
            for body in found:
                if body["half"] == half:
                    held = (folder / "anatomy" / "values" / body["values"]["sha256"]).read_bytes()
                    own = (
                        {"chosen": trace_file.read_document(Opened(folder), "chosen.json").digest}
                        if half == "test"
                        else {}
                    )
                    writer.append(body | own, held)
        trace_file.end_attempt(Opened(folder))
        trace_file.write_document(Opened(folder), name, analysed[name])


def relabelled(found):
    for one in found:
        one["windows"]["dropped"][2][2:] = [one["text"], "correct"]


def test_a_whole_forgery_still_breaks_a_relation_a_grade_or_the_analysis(study):
    forged(study, lambda found: None)
    assert audited(study)[0] == "held"  # the forger can write what is honest
    forged(study, regraded)
    status, detail = audited(study)
    assert status == "failed"
    assert "control is recorded with the grade 'correct', but is now" in detail
    forged(study, relabelled)
    status, detail = audited(study)
    assert status == "failed"
    assert "states: " in detail


def test_an_analysis_that_was_edited_is_not_what_todays_says(study):
    found = trace_file.read_document(Registration(study), "verdict.json").content
    (study / "anatomy" / "verdict.json").unlink()
    cut_ledger(study, 6)
    own = {"kind", "version", "lock", "traces", "ledger", "chosen"}
    pairs = [{**found["pairs"][0], "word": "AGREES"}]
    edited = {key: value for key, value in found.items() if key not in own} | {"pairs": pairs}
    trace_file.write_document(Registration(study), "verdict.json", edited)
    status, detail = audited(study)
    assert status == "failed"
    assert "pairs[0].word is 'AGREES', but today's analysis gives 'TOO FEW TRACES'" in detail


def test_what_vanished_is_missed_and_what_is_strange_is_told(study):
    strange = study / "anatomy" / "notes.txt"
    strange.write_text("x")
    assert audited(study, "files")[0] == "failed"
    strange.unlink()
    orphan = study / "anatomy" / "values" / ("0" * 64)
    orphan.write_bytes(b"x")
    assert audited(study) == ("failed", f"anatomy/values/{'0' * 64}: no line cites it")
    orphan.unlink()
    side = study / "anatomy" / "values" / bodies(study)[0]["values"]["sha256"]
    data = side.read_bytes()
    side.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "has a digest that differs from its name" in audited(study)[1]
    side.unlink()
    assert "missing, although a line cites it" in audited(study)[1]
    side.write_bytes(data)
    (study / "anatomy" / "chosen.json").unlink()
    assert audited(study)[0] == "failed"


def test_it_is_refused_without_an_anatomy_and_once_claimed(registered, study, tmp_path):
    other = shutil.copytree(registered, tmp_path / "other" / registered.name)
    assert "registers no [anatomy]" in studies.ran(2, "anatomy", other).stderr
    shutil.copytree(study / "anatomy", other / "anatomy")
    assert audited(other, "files")[0] == "failed"
    shutil.rmtree(study / "anatomy")
    cut_ledger(study, 1)
    claim.take(Registration(study))
    assert "is claimed, but traces are labelled only before the claim" in studies.ran(4, "anatomy", study).stderr
    assert not (study / "anatomy").exists()
    assert audited(study) == ("not run", "registered, but no trace was labelled before the claim")


def test_no_held_out_problem_is_occluded(locked, tmp_path, monkeypatch):
    """Planted among the development problems of the lock, it is refused where it would be built."""
    from protocol.instruments.anatomy.run import labelling
    from protocol.workspace import study as opening

    folder = shutil.copytree(locked, tmp_path / "study")
    opened = opening.open_study(Registration(folder), tmp_path)
    item = opened.lock.content["items"]["needle-256"]
    item["dev"].insert(0, item["confirm"][0])
    monkeypatch.setattr(labelling, "exclusive_attempt", lambda *asked: nullcontext())  # which sees it before
    monkeypatch.setattr(labelling, "estimate_workload", lambda *asked: labelling.Workload(0, 0, 0))
    with pytest.raises(BadInput, match="is held out; only confirm may read it"):
        labelling.anatomy(opened)
    assert not (folder / "anatomy" / "values").exists()


def test_no_testing_trace_is_labelled_before_the_choice_is_written(locked, tmp_path, monkeypatch):
    folder, seen = shutil.copytree(locked, tmp_path / "study"), []

    def watching(planned, model, task, problem, *rest):
        seen.append((trace_file.assign_half(problem, {}), (folder / "anatomy" / "chosen.json").exists()))
        return made_up(planned, model, task, problem, *rest)

    monkeypatch.setattr(occlusion, "occlude_traces", each(watching))
    assert studies.here("anatomy", folder).returncode == 0
    assert seen == [("choose", False)] * 4 + [("test", True)] * 4


def test_a_half_without_a_problem_is_refused_before_the_lock(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, CHANGES | {ANATOMY: f"{ANATOMY}traces = 1\n"})
    done = studies.ran(2, "register", folder)
    assert "no development problem of needle-256 falls into the half 'choose'" in done.stderr
    assert not (folder / "lock.json").exists()


def test_a_rehearsal_labels_one_trace(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, CHANGES)
    done = studies.here("rehearse", folder, "--problems", 1, "--tokens", 4, "--json")
    trace = json.loads(done.stdout)["trace"]
    assert (trace["state"], trace["reason"][:6], trace["occlusions"]) == ("wrong", "graded", 0)
    assert [path.name for path in folder.iterdir()] == ["protocol.toml"]


def test_status_says_how_far_it_is_and_what_is_next(locked, labelled):
    for folder, left, following in ((locked, "0 of 8 traces", "anatomy"), (labelled, "", "confirm")):
        at = study_status.read_status(Registration(folder))
        assert at.instruments == {"anatomy": left}
        assert status.next_step(at, []) == f"kv-prereg {following} {folder}"


def with_windows(changed):
    """As `made_up`, with so many windows in each reading that came otherwise."""

    def label(*about):
        body, values = made_up(*about)
        windows = {
            reading: [[*row[:2], "else", "wrong"] if index < changed else row for index, row in enumerate(rows)]
            for reading, rows in body["windows"].items()
        }
        return occlusion.TraceLine(body | {"windows": windows}, values)

    return label


@pytest.mark.parametrize(
    ("label", "refusal"), [(made_up, None), (with_windows(1), CannotTell), (with_windows(9), Tampered)]
)
def test_a_replay_labels_drawn_traces_again(study, tmp_path, monkeypatch, label, refusal):
    """Rounding may part few windows, of which nothing is said; it does not part most of them."""
    monkeypatch.setattr(occlusion, "occlude_traces", each(label))
    texts = replay._replay_instruments(Registration(study), tmp_path, "ab" * 16, replay.Engine(0, 1, ()))
    if refusal is None:
        (text,) = texts
        assert "of 3 drawn lines were reproduced" in text
        return
    with pytest.raises(refusal, match=r"anatomy: .* of 3 drawn lines differ; the first: .*windows"):
        list(texts)


@pytest.mark.parametrize(("parted", "refusal"), [({2}, CannotTell), ({1, 2, 3}, Tampered)])
def test_one_text_that_rounding_parts_accuses_nobody_and_three_do(study, tmp_path, monkeypatch, parted, refusal):
    """Its tokens, its span and its windows are then others too, and are not counted beside it."""
    texts = list[str]()

    def label(*about):
        body, values = made_up(*about)
        texts.append(body["problem"])
        others = {"text": "else", "tokens": body["tokens"] + 1} if len(texts) in parted else {}
        return occlusion.TraceLine(body | others, values)

    monkeypatch.setattr(occlusion, "occlude_traces", each(label))
    with pytest.raises(refusal, match=r"anatomy: \d+ of \d+ values of 3 drawn lines differ; the first: .*text"):
        list(replay._replay_instruments(Registration(study), tmp_path, "ab" * 16, replay.Engine(0, 1, ())))
