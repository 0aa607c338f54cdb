"""What leaves the project: registration texts and in-toto statements, made from the evidence files alone."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import finished_study
import pytest
import studies
from looped import looped
from sampled import sampled, shipped

from protocol import export
from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import canonical, documents
from protocol.instruments.exports import every_eval_ever, lock_sentences, preregistration
from protocol.lock import lock

SHIPPED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/lock.json"))
JUDGED = [folder for folder in SHIPPED if (folder / "verdict.json").exists()]

# The OSF's form "OSF Preregistration", and the last part, which is ours but for its heading.
OSF = """
## Study Information ### Title ### Hypotheses
## Design Plan ### Study type ### Blinding ### Study design ### Randomization
## Sampling Plan ### Existing Data ### Explanation of existing data ### Data collection procedures
### Sample size ### Sample size rationale ### Stopping rule
## Variables ### Manipulated variables ### Measured variables ### Indices
## Analysis Plan ### Statistical models ### Transformations ### Inference criteria ### Data exclusion
### Missing data ### Exploratory analysis
## Other ### What is frozen ### Registered settings ### Since locking
"""
NINE = """
1) Data collection. Have any data been collected for this study already?
2) Hypothesis. What's the main question being asked or hypothesis being tested in this study?
3) Dependent variable. Describe the key dependent variable(s) specifying how they will be measured.
4) Conditions. How many and which conditions will participants be assigned to?
5) Analyses. Specify exactly which analyses you will conduct to examine the main question/hypothesis.
6) Outliers and Exclusions. Describe exactly how outliers will be defined and handled, and your precise
   rule(s) for excluding observations.
7) Sample Size. How many observations will be collected or what will determine sample size? No need to justify
   decision, but be precise about exactly how the number will be determined.
8) Other. Anything else you would like to pre-register? (e.g., secondary analyses, variables collected for
   exploratory purposes, unusual analyses planned?)
9) Name. Give a title for this AsPredicted pre-registration.
"""
WITHOUT_TORCH = studies.BLOCK_TORCH + "from protocol import export\nsys.exit(export.main(sys.argv[1:]))\n"


def names(folders):
    return [folder.name for folder in folders]


def flat(text: str) -> str:
    return " ".join(text.split())


def headings(text: str) -> str:
    return " ".join(line for line in text.splitlines() if line.startswith(("## ", "### ")))


@pytest.fixture
def study(tmp_path) -> Path:
    return shutil.copytree(
        studies.ROOT / "registrations" / "quickstart",
        tmp_path / "quickstart",
        ignore=shutil.ignore_patterns("figures", "records", "probe"),
    )


@pytest.fixture
def unconfirmed(study) -> Path:
    """The same, as it was when it was locked."""
    for name in ("claim.json", "seal.json", "verdict.json"):
        (study / name).unlink()
    first = (study / "ledger.jsonl").read_bytes().splitlines(keepends=True)[0]
    (study / "ledger.jsonl").write_bytes(first)
    return study


def edited(folder: Path, change) -> lock.Lock:
    """The lock of `folder` with other content, as if that had been locked."""
    content = studies.content(folder / "lock.json")
    change(content)
    return lock.Lock(content, canonical.digest(content))


PUBLISHED = {"accuracy": "0.9", "published": "0.95", "margin": "0.02"}
GATE = {"accuracy": "0.5", "truncated": "0.2", "places": [{"model": "smollm2-135m", "task": "needle-768"} | PUBLISHED]}


@looped("folder", SHIPPED)
def test_every_shipped_study_has_a_text_under_the_headings_of_the_osf(folder):
    text = export.export_study(Registration(folder), "osf")
    assert headings(text) == flat(OSF)
    assert not re.search(r"\bNone, |None\b(?!:|\.)|\{|\}", text), "a value was not put into words"


@looped("folder", SHIPPED)
def test_every_shipped_study_answers_the_nine_questions(folder):
    asked = re.findall(r"^## (.*)$", export.export_study(Registration(folder), "aspredicted"), flags=re.MULTILINE)
    assert " ".join(asked) == flat(NINE)


@pytest.mark.parametrize("form", ["osf", "aspredicted"])
def test_the_text_has_every_number_that_the_lock_registers(form):
    text = export.export_study(Registration(studies.ROOT / "registrations" / "quickstart"), form)
    for said in (
        "At equal memory, does CrystalCache answer more needle and association questions than each baseline?",
        "needle-768 has 25 held-out problems (15 more are for development",
        "association-768 has 23 held-out problems (21 more are for development",
        "With 22 cells these are 528 lanes",  # 11 cells x 25 + 11 cells x 23
        "at least 9 of 16 contrasts favour crystal with p at most 0.003125",
        "none goes against it with p at most 0.05",
        "exceed the other's by more than 0.02",
        "100000 draws",
        "0.559 where 60% of the problems differ",
        "none at all where 20% of the problems differ",
        "0.016 times the nominal one",
        "The seeds (0) are author-chosen.",
        "decision.missing = inconclusive",
        "No problem is excluded",
        "No lock can show what its author ran in private beforehand.",
        "7019cd01b1226f5f0dd66847453a401cdc27c3f08196ab9ae8f2da991bfd6918",
        "2026-11-21T05:52:48+00:00 probe (number 1)",
    ):
        assert said in text, said


def test_every_registered_setting_stands_in_the_text_as_it_was_written():
    for folder in SHIPPED:
        content = studies.content(folder / "lock.json")["protocol"]["content"]
        text = export.export_study(Registration(folder), "osf")
        for table in ("decision", "generation", "sweep"):
            for field, value in content.get(table, {}).items():
                if isinstance(value, dict):
                    parts = (f"{name} {part}" for name, part in sorted(value.items()))
                    written = f"({', '.join(parts)})"
                else:
                    written = ", ".join(map(str, value)) if isinstance(value, list) else value
                assert f"- {table}.{field} = {written}\n" in text


def test_a_lock_without_a_verdict_has_its_text_and_no_statement(unconfirmed):
    with studies.unchanged(unconfirmed):
        done = studies.ran(0, "export", unconfirmed, "--format", "osf")
        assert "No data" not in done.stdout
        assert "Registration prior to creation of data" in done.stdout
        assert done.stdout.rstrip().endswith("- 2026-11-21T05:52:44+00:00 register")
        done = studies.here("export", unconfirmed, "--format", "in-toto", "--to", unconfirmed / "statement.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert "has no verdict; run: kv-prereg confirm" in done.stderr


@looped(
    ("change", "said"),
    [
        (
            lambda lock: lock["protocol"]["content"].update(exclude={"prompt_tokens_above": 900}),
            "more than 900 tokens under a model's tokenizer is excluded for that model",
        ),
        (
            lambda lock: lock["protocol"]["content"]["decision"].update(missing="wrong"),
            "decision.missing = wrong: a lane that failed or has no grade counts as not correct",
        ),
        (
            lambda lock: lock["protocol"]["content"].update(randomness={"source": "nonce"}),
            "are derived from the lock's digest and a number that the registered auditor draws",
        ),
        (
            lambda lock: lock.update(parent={"name": "first", "lock": "e" * 64}),
            f"This is a reproduction of first (lock {'e' * 64}), whose results were known",
        ),
        (
            lambda lock: lock["protocol"]["content"]["decision"].update(rule="equivalent", margin="0.03"),
            "- decision.margin = 0.03",
        ),
        (lambda lock: None, "No gate is registered: nothing checks whether the full cache can do the task."),
        (
            lambda lock: lock["protocol"]["content"].update(gate=GATE),
            "Gate of smollm2-135m on needle-768: at least 0.90 correct, at most 0.20 cut, published 0.95 ± 0.02.",
        ),
        (
            lambda lock: lock["protocol"]["content"].update(gate=GATE),
            "Gate of smollm2-135m on association-768: at least 0.50 correct, at most 0.20 cut.",
        ),
        (lambda lock: lock["protocol"]["content"].update(gate=GATE), "- gate.accuracy = 0.5"),
        (
            lambda lock: lock["sources"].update({"analysis/judgement/gate.py": "0" * 64}),
            "whatever the rule says.\n\nThe verdict is about smollm2-135m alone.",
        ),
        (
            lambda lock: lock["checks"].update(golds={"math500": {"confirm": 299, "dev": 201}}),
            "The known answers of math500 (299 held out) were read to verify that the grader recognises",
        ),
    ],
)
def test_the_text_says_what_only_some_locks_have(change, said):
    folder = studies.ROOT / "registrations" / "quickstart"
    for text in (preregistration.format_osf, preregistration.format_as_predicted):
        assert said in text(edited(folder, change), ledger.read(folder))


def test_of_a_lock_of_before_nothing_is_said_that_its_own_code_does_not_do():
    text = export.export_study(Registration(studies.ROOT / "registrations" / "quickstart"), "osf")
    assert "SCREENED" not in text


@pytest.mark.parametrize("after_claim", [True, False])
def test_an_amendment_says_why_and_what_had_been_seen(after_claim):
    folder = studies.ROOT / "registrations" / "quickstart"
    seen = {
        "probe": {"attempts": 2, "records": 40},
        "selection": False,
        "claim": after_claim,
        "records": 7 * after_claim,
        "verdict": None,
    }
    amends = {"name": "old", "lock": "a" * 64, "reason": "A typo.", "diff": [], "seen": seen}
    held = edited(folder, lambda lock: lock.update(amends=amends | {"after_claim": after_claim}))
    text = preregistration.format_as_predicted(held, ledger.read(folder))
    assert f"This amends old (lock {'a' * 64}). Reason: A typo." in text
    assert "probe: 2 attempts, 40 records; selection: no;" in text
    assert ("the verdict can only be DEVIATED" in text) == after_claim
    assert ("It's complicated." in text) == after_claim


@pytest.mark.parametrize("folder", shipped(JUDGED))
def test_a_statement_has_the_form_of_in_toto_v1_and_says_what_the_verdict_says(folder):
    made = json.loads(export.export_study(Registration(folder), "in-toto"))
    assert list(made) == ["_type", "subject", "predicateType", "predicate"]
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert re.fullmatch(r"https://[a-z.-]+/[a-z0-9/]+", made["predicateType"])
    subjects = {one["name"]: one["digest"] for one in made["subject"]}
    assert list(subjects) == ["lock.json", "claim.json", "seal.json", "verdict.json", "ledger.jsonl"]
    paths = [str(folder / name) for name in subjects]
    sums = subprocess.run(["sha256sum", *paths], capture_output=True, text=True).stdout.splitlines()
    assert list(subjects.values()) == [{"sha256": line.split()[0]} for line in sums]
    judged, predicate = studies.content(folder / "verdict.json")["judged"], made["predicate"]
    is_unwitnessed = folder.name in (
        "agreement-programs",
        "control-effect",
        "looks-chain-2",
        "openvino-bytes-2",
        "slip-repairs",
    )
    assert predicate["verdict"] == ("CONFIRMED (UNWITNESSED)" if is_unwitnessed else judged["verdict"])
    assert predicate["contrasts"] == judged["contrasts"]
    assert predicate["proves"] == judged["proves"]
    assert predicate["doesNotProve"] == judged["does_not_prove"]
    last = json.loads((folder / "ledger.jsonl").read_bytes().splitlines()[-1])
    assert predicate["ledger"] == {"count": last["index"] + 1, "head": last["sha256"]}
    decision = studies.content(folder / "lock.json")["protocol"]["content"]["decision"]
    assert predicate["rule"]["decision"] == decision


def test_a_statement_names_the_proofs_of_outside_witnesses_by_their_digests(study):
    (study / "anchors" / "headers").mkdir(parents=True)
    (study / "anchors" / "lock.ots").write_bytes(b"proof")
    (study / "anchors" / "headers" / "1.hex").write_bytes(b"header")
    sums = subprocess.run(["sha256sum", study / "anchors" / "lock.ots"], capture_output=True, text=True).stdout
    anchors = json.loads(export.export_study(Registration(study), "in-toto"))["predicate"]["anchors"]
    assert [anchor["name"] for anchor in anchors] == ["anchors/headers/1.hex", "anchors/lock.ots"]
    assert anchors[1]["digest"] == {"sha256": sums.split()[0]}


def test_a_text_is_written_once(study, tmp_path):
    to = tmp_path / "out" / "prereg.md"
    arguments = ("export", study, "--format", "osf", "--to", to)
    assert studies.here(*arguments).returncode == 0
    assert to.read_text() == export.export_study(Registration(study), "osf")
    to.write_text("mine")
    assert "never overwritten" in studies.ran(2, *arguments).stderr
    assert to.read_text() == "mine"


@pytest.mark.parametrize("form", ["osf", "aspredicted", "in-toto"])
def test_a_lock_that_the_ledger_does_not_begin_with_is_not_exported(tmp_path, form):
    finished_study.locked(study := tmp_path / "study")
    content = studies.content(study / "lock.json")
    content["protocol"]["content"]["seeds"] = [1]
    (study / "lock.json").write_bytes(canonical.dumps(content) + b"\n")
    done = studies.here("export", study, "--format", form)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Tampered: lock.json: is not the lock with which ledger.jsonl begins")


def test_a_verdict_of_another_lock_is_not_stated(study):
    content = studies.content(study / "verdict.json")
    (study / "verdict.json").write_bytes(canonical.dumps(content | {"lock": "0" * 64}) + b"\n")
    assert (
        "verdict.json: names a different lock or seal" in studies.ran(3, "export", study, "--format", "in-toto").stderr
    )


def test_a_forged_lock_without_what_is_needed_gives_one_line(tmp_path):
    digest = lock.write(tmp_path, finished_study.lock_content())
    ledger.append(tmp_path, "register", {"lock": digest})
    studies.refused(3, "a field is missing or wrong: 'rule'", "export", tmp_path, "--format", "osf")


def test_a_forged_lock_that_is_not_what_a_lock_holds_is_no_lock(tmp_path):
    documents.write(tmp_path / "lock.json", {"kind": "kv-prereg lock"})
    done = studies.ran(3, "export", tmp_path, "--format", "osf")
    assert "lock.json: the fields ['amends', 'asked', 'batch', 'bundle', 'chance', 'checks'," in done.stderr
    assert "'parent'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("form", sampled(["in-toto", "osf", "aspredicted"], of=3))
def test_exporting_needs_neither_torch_nor_a_network(study, form):
    command = [sys.executable, "-c", WITHOUT_TORCH, str(study), "--format", form, "--json"]
    done = subprocess.run(command, cwd=studies.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"format": form, "text": export.export_study(Registration(study), form)}


def test_arms_that_locking_could_not_run_are_not_said_to_differ():
    found = {"on": {"m": "a random network of its architecture"}, "pairs": [], "left_out": ["1d", "thinkv"]}
    said = " ".join(lock_sentences._trial_runs(found, {}))
    assert "No two arms kept the same slots." in said
    assert "Not run, since statistics of a model are missing: 1d, thinkv." in said
    assert "Not run" not in " ".join(lock_sentences._trial_runs(found | {"left_out": []}, {}))


@pytest.mark.parametrize("form", ["osf", "aspredicted"])
def test_registered_looks_are_a_stopping_rule_and_without_them_there_is_none(form):
    texts = [
        flat(export.export_study(Registration(studies.ROOT / "registrations" / name), form))
        for name in ("looks-chain-2", "alpha-chain")
    ]
    assert "After 200, 400, 600 problems of each task" in texts[0]
    assert "There is no stopping rule" not in texts[0]
    assert "There is no stopping rule" in texts[1]


def exported(name, form, change):
    return flat(preregistration_text(edited(studies.ROOT / "registrations" / name, change), form))


def preregistration_text(locked, form):
    return {"osf": preregistration.format_osf, "aspredicted": preregistration.format_as_predicted}[form](locked, [])


@pytest.mark.parametrize("form", ["osf", "aspredicted"])
def test_looks_are_never_called_one_look_at_all_records(form):
    texts = [exported(name, form, lambda content: None) for name in ("looks-chain-2", "alpha-chain")]
    assert ["There is one look, at all records." in text for text in texts] == [False, True]
    assert "at most 3 looks, which share alpha" in texts[0]


@pytest.mark.parametrize("form", ["osf", "aspredicted"])
def test_neighbours_are_told_and_tested_where_they_reach(form):
    def add(content):
        content["protocol"]["content"]["neighbours"] = ["91", "95"]

    text = exported("looks-chain-2", form, add)
    assert "Only comparators also run at 91, 95." in text
    assert "With more memory, the subject must also win against the comparator at the nearest" in text
    assert "Only comparators" not in exported("looks-chain-2", form, lambda content: None)


@pytest.mark.parametrize("seal", [None, "b" * 64])
def test_lanes_that_are_cited_are_not_said_to_be_run_and_sealed_ones_are_existing_data(seal):
    def cite(content):
        content["cites"] = {"recent": {"name": "earlier", "lock": "a" * 64, "seal": seal, "other_code": 0}}

    text = exported("looks-chain-2", "osf", cite)
    assert "except those of recent, whose records come from an earlier study" in text
    assert f"records of earlier (lock {'a' * 64}), which {'was not' if seal is None else 'had been'} sealed" in text
    assert ("Registration prior to creation of data" in text) == (seal is None)


def test_an_arm_without_a_graded_answer_has_no_result_elsewhere(monkeypatch):
    """It has no accuracy, and its files are not at fault."""
    study = Registration(studies.ROOT / "registrations" / "looks-chain-2")
    for number, arm in enumerate(study.verdict.content["judged"]["arms"]):
        monkeypatch.setitem(arm, "accuracy", None if number == 0 else arm["accuracy"])
    counts = [len(document["evaluation_results"]) for document in every_eval_ever.build_documents(study)]
    assert sum(counts) == len(study.verdict.content["judged"]["arms"]) - 1
    (verdict,) = {
        document["source_metadata"]["additional_details"]["verdict"]
        for document in every_eval_ever.build_documents(study)
    }
    assert verdict == "CONFIRMED (UNWITNESSED)"
