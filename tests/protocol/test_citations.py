"""Baselines run once: an arm takes the sealed records of an earlier study, by digest, where all is equal."""

import copy
import json
import re
import shutil

import pytest
import studies

from analysis.judgement import cited_records, qualifiers
from analysis.judgement.untrusted_files import RecordError
from figures.drawing import page
from protocol.evidence import citations, late_randomness, ledger, record_lines, records, seal
from protocol.evidence.registration import Registration
from protocol.formats import canonical, documents, journal
from protocol.formats.refusals import BadInput, Tampered

SMALL = studies.ONE_TASK | {
    'name = "needle-256"\n': 'name = "needle-256"\ndev = 2\nconfirm = 6\n',
    "max_new_tokens = 24": "max_new_tokens = 6",
    'against = ["random", "streaming"]': 'against = ["random"]',
    "seeds = [0]": "seeds = [0, 1]",
}
CITING = SMALL | {
    'crystal = { policy = "crystal-token-level" }': 'snapkv = { policy = "snapkv" }',
    'streaming = { policy = "streaming" }\n': "",
    'subject = "crystal"': 'subject = "snapkv"',
    "[generation]": '[cite]\nfull = "earlier"\nrandom = "earlier"\n[generation]',
    "seeds = [0]": "seeds = [1]",
}
SWEPT = {
    **studies.SWEEP,
    **{old: new for old, new in SMALL.items() if old not in studies.ONE_TASK and "against" not in old},
    "[generation]": '[cite]\nstreaming = "earlier"\nfull = "earlier"\n[generation]',
}


def run(name, folder, *arguments):
    return studies.ran((0, 11), name, folder, *arguments)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, tiny_model):
    """`earlier`; `first`, which cites it and was locked before its claim; `second`, locked after its seal."""
    shelf = tmp_path_factory.mktemp("registrations")
    run("register", studies.write(shelf / "earlier", tiny_model, SMALL))
    run("register", studies.write(shelf / "first", tiny_model, CITING))
    run("register", studies.write(shelf / "swept", tiny_model, SWEPT))
    studies.refused(2, "cites earlier, which is not sealed; first: kv-prereg confirm", "confirm", shelf / "first")
    assert not (shelf / "first" / "claim.json").exists()
    run("confirm", shelf / "earlier")
    run("register", studies.write(shelf / "second", tiny_model, CITING))
    run("confirm", shelf / "first")
    return shelf


@pytest.fixture(scope="module")
def swept(shelf):
    """A sweep whose baseline is cited, locked before the claim of `earlier` too."""
    run("probe", shelf / "swept")
    run("confirm", shelf / "swept")
    return shelf / "swept"


@pytest.fixture
def copied(shelf, tmp_path):
    return shutil.copytree(shelf, tmp_path / "shelf")


def lanes(study):
    return {records.body_key(record["body"]): record for record in study.confirm_records}


def audit(folder):
    done = studies.here("audit", folder, "--json")
    found = json.loads(done.stdout)
    return done.returncode, {item["item"]: (item["status"], item["detail"]) for item in found["findings"]}


def test_cited_arms_are_not_decoded_and_their_records_are_those_of_the_earlier_study(shelf):
    earlier, first = lanes(Registration(shelf / "earlier")), lanes(Registration(shelf / "first"))
    assert len(first) == 3 * 6
    cited = {lane: record for lane, record in first.items() if lane.arm != "snapkv"}
    assert len(cited) == 2 * 6
    for lane, record in cited.items():
        assert {name: record[name] for name in ("body", "costs", "sha256")} == {
            name: earlier[lane][name] for name in ("body", "costs", "sha256")
        }
    own = [json.loads(line)["body"]["cell"]["arm"] for line in studies.shard_text(shelf / "first").splitlines()]
    assert own == 6 * ["snapkv"]


def test_a_replay_decodes_cited_lanes_too_and_they_are_what_this_study_would_have_decoded(shelf):
    done = studies.here("audit", shelf / "first", "--replay", 18, "--nonce", "00" * 8, "--details")
    assert "18 of 18 lanes drawn with the nonce" in done.stdout, done.stdout + done.stderr


def test_the_verdict_says_which_arms_were_cited_and_from_where(shelf):
    lock = Registration(shelf / "earlier").lock.digest[:12]
    judged = Registration(shelf / "first").verdict.content["judged"]
    assert [entry for entry in judged["qualifiers"] if entry["word"] == "CITED"] == [
        {"word": "CITED", "text": f"the lanes of full, random are records of earlier (lock {lock})"}
    ]


def test_a_reproduction_says_that_the_cited_arms_were_not_decoded_again(shelf):
    first = Registration(shelf / "first")
    reproduction = first.lock.content | {"parent": {"name": "first", "lock": first.lock.digest}}
    words = dict(qualifiers.list_qualifiers(first.verdict.content["judged"], reproduction))
    assert words["CITED"].endswith("; this reproduction decoded only the other arms")


def test_a_study_that_was_locked_first_is_named_by_the_claim_that_it_cites_and_a_later_one_is_on_known_problems(shelf):
    first, second = Registration(shelf / "first"), Registration(shelf / "second")
    assert Registration(shelf / "earlier").claim.content["cited_by"] == sorted(
        Registration(shelf / name).lock.digest for name in ("first", "swept")
    )
    assert first.lock.content["opened"] == []
    assert [entry["name"] for entry in second.lock.content["opened"]] == ["earlier"]
    assert first.lock.content["cites"]["full"]["seal"] is None
    assert second.lock.content["cites"]["full"]["seal"] == Registration(shelf / "earlier").seal.digest


def test_both_audit(shelf):
    assert audit(shelf / "earlier")[0] == 0
    status, found = audit(shelf / "first")
    assert status == 0, found
    assert found["cited"][0] == "held"
    assert found["cited"][1].startswith("12 records equal those of earlier, sealed as ")


def test_a_sweep_probes_its_cited_baseline_and_does_not_confirm_it(shelf, swept):
    """Two that cite one study audit without git too: its claim says that both were locked before it."""
    study = Registration(swept)
    assert "streaming" in {record["body"]["cell"]["arm"] for record in study.probe_records}
    assert {record["body"]["cell"]["arm"] for record in study.own_records} == {"chosen", "snapkv"}
    assert len(study.confirm_records) - len(study.own_records) == 24
    assert [audit(folder)[0] for folder in (swept, shelf / "first")] == [0, 0]


def test_a_folder_that_is_not_here_leaves_it_untold(copied):
    shutil.rmtree(copied / "earlier")
    status, found = audit(copied / "first")
    assert status == 7
    assert found["cited"][0] == "cannot tell"
    assert "earlier, whose records are cited, is not in a folder next to first; restore it" in found["cited"][1]


def test_no_verdict_is_repeated_without_the_records_that_it_cites(copied):
    """By table, report, forest, plot, show and exports, which read a verdict this way."""
    assert page.read_supported_judgement(copied / "first")["qualifiers"]
    (copied / "earlier").rename(copied.parent / "earlier")
    with pytest.raises(
        page.NoVerdict, match="cites records of earlier, whose folder is missing next to this one; restore it"
    ):
        page.read_supported_judgement(copied / "first")


def test_no_verdict_is_repeated_with_other_records_than_those_of_the_cited_study(copied):
    locked = Registration(copied / "first").lock.content
    cited_records.refuse_unsupported(copied / "first", locked)
    forge(copied / "first", "shard-cited.jsonl", "random", lambda record: record["body"].update(tokens=1))
    with pytest.raises(RecordError, match="earlier lacks records that this study cites"):
        cited_records.refuse_unsupported(copied / "first", locked)


def test_another_study_under_the_name_fails(copied, shelf):
    shutil.rmtree(copied / "earlier")
    shutil.copytree(copied / "second", copied / "earlier")
    assert audit(copied / "first")[1]["cited"] == (
        "failed",
        f"earlier: has a different lock from the one that is cited, {Registration(shelf / 'earlier').lock.digest[:12]}",
    )


@pytest.fixture
def cited(shelf):
    """The study that is cited, by arm, and the content of the lock that cites it."""
    earlier = Registration(shelf / "earlier")
    return {"full": earlier, "random": earlier}, copy.deepcopy(Registration(shelf / "second").lock.content)


def protocol_of(content):
    return content["protocol"]["content"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lock: protocol_of(lock)["generation"].update(temperature="0.6"), "generation/temperature: changed"),
        (lambda lock: protocol_of(lock)["generation"].update(kernel="native"), "generation/kernel: new"),
        (lambda lock: protocol_of(lock)["generation"].update(interval=4), "generation/interval: new"),
        (
            lambda lock: protocol_of(lock)["tasks"][0].update(max_new_tokens=7),
            "tasks/needle-256/max_new_tokens: changed",
        ),
        (lambda lock: protocol_of(lock)["tasks"][0].update(query="outside"), "tasks/needle-256/query: changed"),
        (lambda lock: protocol_of(lock).update(exclude={"prompt_tokens_above": 9}), "exclude: changed"),
        (lambda lock: lock["items"]["needle-256"].update(manifest="0" * 64), "items/needle-256/manifest: changed"),
        (
            lambda lock: lock["items"]["needle-256"]["confirm"].append("other"),
            "items/needle-256/confirm/other: missing",
        ),
        (lambda lock: lock["policies"]["random"].update(protect="other"), "policies/protect: changed"),
        (lambda lock: lock["promises"]["random"].update(interval=3), "promises/interval: changed"),
        (lambda lock: lock["asked"].update(random="Think."), "asked: changed"),
        (lambda lock: lock["batch"].update(first_event=3), "first_event: changed"),
        (lambda lock: lock["environment"]["torch"].update(device="NVIDIA H200"), "device: changed"),
        (lambda lock: lock["data"].update({"needle-256": "0" * 64}), "data/needle-256: changed"),
    ],
    ids=lambda value: value.partition(":")[0].replace("/", ".") if isinstance(value, str) else "",
)
def test_every_fact_on_which_a_lane_depends_has_to_be_equal_and_is_named(cited, change, said):
    studies_by_arm, content = cited
    change(content)
    with pytest.raises(BadInput, match=rf"cite\.(full|random): earlier decoded it differently: .*{re.escape(said)}"):
        citations.cite(studies_by_arm, content)


def test_other_weights_seeds_and_budgets_are_refused_by_name(cited):
    studies_by_arm, content = cited
    (model,) = content["weights"]
    for place, value, said in (
        (content["weights"][model], {"model.safetensors": "0" * 64}, f"weights/{model}/model.safetensors: changed"),
        (content["weights"][model], {"adapter.json": "0" * 64}, f"weights/{model}/adapter.json: new"),
    ):
        kept = dict(place)
        place.update(value)
        with pytest.raises(BadInput, match=re.escape(said)):
            citations.cite(studies_by_arm, content)
        place.clear()
        place.update(kept)
    for index, value in ((4, 2), (2, "0.9")):
        changed = copy.deepcopy(content)
        cell = next(cell for cell in changed["grid"] if cell[3] == "random")
        cell[index] = value
        with pytest.raises(BadInput, match=re.escape(f"grid/{'/'.join(map(str, cell))}: missing")):
            citations.cite(studies_by_arm, changed)


def test_batches_sizes_of_splits_and_what_other_arms_calibrate_may_differ(cited):
    studies_by_arm, content = cited
    protocol_of(content)["generation"].update(problems_per_batch=3, lanes_per_batch=9)
    protocol_of(content)["tasks"][0].update(dev=1, confirm=5)
    content["items"]["needle-256"]["confirm"].pop()
    (files,) = content["weights"].values()
    files["statistics-text.safetensors"] = "0" * 64
    content["environment"]["distributions"]["torch"] = {"version": "0", "files": "0" * 64}
    for name in ("policies", "protocol/harness", "protocol/layers", "protocol/sandbox", "analysis"):
        content["sources"][f"{name}/new.py"] = "0" * 64
    content["environment"]["distributions"]["math-verify"] = {"version": "0", "files": "0" * 64}
    entry = citations.cite(studies_by_arm, content)["random"]
    assert entry["other_code"] == 6  # all but what judges
    assert (
        "decoded with 6 other files or libraries"
        in qualifiers.list_qualifiers(
            {"verdict": "SCREENED", "contrasts": []}, {**content, "cites": {"random": entry}}
        )[-1].text
    )


def test_code_of_others_is_decoded_anew(cited):
    studies_by_arm, content = cited
    content["policies"]["random"]["distribution"] = "theirs 1.0"
    with pytest.raises(BadInput, match=r"cite\.random: runs code of others"):
        citations.cite(studies_by_arm, content)


@pytest.mark.parametrize(
    ("prepare", "name", "said"),
    [
        (lambda shelf: None, "absent", "is not in"),
        (lambda shelf: (shelf / "link").symlink_to(shelf / "earlier"), "link", "is a link"),
        (lambda shelf: None, "second", "cites records itself; cite the study that decoded them"),
        (lambda shelf: (shelf / "mine").mkdir(), "mine", "is this study"),
        (lambda shelf: (shelf / "bare").mkdir(), "bare", "is not locked"),
        (lambda shelf: look(shelf / "earlier"), "earlier", "may stop at an interim look"),
        (lambda shelf: withdraw(shelf / "earlier"), "earlier", "was withdrawn; cite a study that is still valid"),
    ],
    ids=["absent", "a link", "one that cites", "itself", "not locked", "with looks", "withdrawn"],
)
def test_only_a_study_that_decoded_and_stands_is_cited(copied, prepare, name, said):
    prepare(copied)
    with pytest.raises(BadInput, match=said):
        citations.open_cited(copied / "mine", {"cite": {"random": name}})


def look(folder):
    content = studies.content(folder / "lock.json")
    content["protocol"]["content"]["decision"] |= {"looks": [3, 6], "spending": "pocock"}
    (folder / "lock.json").write_bytes(canonical.dumps(content) + b"\n")


def withdraw(folder):
    path = folder / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    ledger.append(folder, "withdraw", {"reason": "a fault", "seen": {}})


LATE = SMALL | {"[generation]": '[randomness]\nsource = "local"\n[generation]'}
CITING_LATE = CITING | {
    "[generation]": '[randomness]\nsource = "cited"\n[cite]\nfull = "late"\nrandom = "late"\n[generation]'
}


@pytest.fixture(scope="module")
def late_shelf(tmp_path_factory, tiny_model):
    """`late`, whose problems its claim draws, and `first`, which was locked before that claim and cites it."""
    shelf = tmp_path_factory.mktemp("registrations")
    run("register", studies.write(shelf / "late", tiny_model, LATE))
    run("register", studies.write(shelf / "first", tiny_model, CITING_LATE))
    run("confirm", shelf / "late")
    run("confirm", shelf / "first")
    return shelf


def test_problems_that_are_drawn_late_are_drawn_once_for_both(shelf, late_shelf):
    late, first = Registration(late_shelf / "late"), Registration(late_shelf / "first")
    assert first.lock.content["opened"] == []
    drawn, taken = (study.claim.content["randomness"] for study in (late, first))
    assert taken == {"source": "cited", "value": drawn["value"], "key": drawn["key"]}
    theirs = {(key.problem, record["body"]["prompt"]) for key, record in lanes(late).items()}
    own = {(body["problem"], body["prompt"]) for body in (record["body"] for record in first.own_records)}
    assert len(own) == 6
    assert own <= theirs
    as_registered = {record["body"]["prompt"] for record in lanes(Registration(shelf / "earlier")).values()}
    assert as_registered.isdisjoint(prompt for _, prompt in own)


def test_a_study_with_the_late_value_of_another_audits_and_replays(late_shelf):
    status, found = audit(late_shelf / "first")
    assert status == 0, found
    assert "which came after this lock" in found["randomness"][1]
    done = studies.here("audit", late_shelf / "first", "--replay", 18, "--nonce", "00" * 8, "--details")
    assert "18 of 18 lanes drawn with the nonce" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("protocol", "said"),
    [(CITING_LATE, "has drawn its problems already"), (CITING, "draws its problems and seeds after the lock")],
)
def test_drawn_problems_are_cited_before_they_are_drawn_or_not_at_all(late_shelf, tmp_path, tiny_model, protocol, said):
    shelf = shutil.copytree(late_shelf, tmp_path / "shelf")
    text = {old: new.replace('"earlier"', '"late"') for old, new in protocol.items()}
    studies.refused(2, said, "register", studies.write(shelf / "second", tiny_model, text))
    assert not (shelf / "second" / "lock.json").exists()


def test_no_lock_says_that_drawn_problems_were_opened(late_shelf, tmp_path):
    """Whoever saw what `late` drew, and then wrote its lock into `opened`, would be on problems called fresh."""
    shelf = shutil.copytree(late_shelf, tmp_path / "shelf")
    first, late = Registration(shelf / "first"), Registration(shelf / "late")
    first.lock.content["opened"].append({"name": "late", "lock": late.lock.digest, "problems": {}})
    citations.refuse_unusable(first, lambda study: [])
    claim = json.loads((late.folder / "claim.json").read_bytes())
    assert claim.pop("cited_by") == [first.lock.digest]
    (late.folder / "claim.json").write_bytes(canonical.dumps(claim) + b"\n")
    with pytest.raises(BadInput, match="whose claim does not name this lock"):
        citations.refuse_unusable(first, lambda study: [])


def test_another_late_value_than_that_of_the_cited_claim_fails(late_shelf):
    study = Registration(late_shelf / "first")
    value = "00" * 32
    other = {"source": "cited", "value": value, "key": late_randomness.derive_key(study.lock.digest, value)}
    with pytest.raises(Tampered, match="does not follow from the lock"):  # its own lock is not that of the draw
        late_randomness.claim_key(study.lock, documents.Document({"randomness": other}, ""))
    other["key"] = late_randomness.derive_key(Registration(late_shelf / "late").lock.digest, value)
    assert late_randomness.claim_key(study.lock, documents.Document({"randomness": other}, "")) == other["key"]
    study.claim.content["randomness"] = other
    with pytest.raises(Tampered, match="differs from the value that late drew"):
        citations.check(study)


def forge(folder, shard, arm, change):
    """Edit one record of an arm, chain its shard again, and seal and enter all anew, as whoever has the folder can."""
    path, chain, lines, is_open = folder / "records" / shard, journal.START, [], True
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if is_open and record["body"]["cell"]["arm"] == arm:
            change(record)
            is_open = False
        data, chain = record_lines.format_line(*map(canonical.dumps, (record["body"], record["costs"])), chain)
        lines.append(data.decode() + "\n")
    path.write_text("".join(lines))
    entries = [entry for entry in Registration(folder).entries if entry.event not in ("seal", "verdict")]
    for name in ("ledger.jsonl", "seal.json", "verdict.json"):
        (folder / name).unlink()
    for entry in entries:
        ledger.append(folder, entry.event, entry.body)
    seal.write(Registration(folder))


def flip(record):
    record["body"]["grade"] = "correct" if record["body"]["grade"] != "correct" else "wrong"


def test_a_copy_that_was_edited_fails_even_with_a_new_seal(copied):
    forge(copied / "first", "shard-cited.jsonl", "random", flip)
    with pytest.raises(Tampered, match="differs from the record of earlier, which is cited for it"):
        citations.check(Registration(copied / "first"))


def test_seconds_of_a_copy_are_those_of_the_cited_record(copied):
    forge(
        copied / "first", "shard-cited.jsonl", "random", lambda record: record["costs"].update(decode_seconds="9.000")
    )
    with pytest.raises(Tampered, match="differs from the record of earlier"):
        citations.check(Registration(copied / "first"))


def test_a_cited_study_that_was_edited_and_sealed_anew_fails(copied):
    forge(copied / "earlier", "shard-0.jsonl", "random", flip)
    with pytest.raises(
        Tampered, match=r"earlier: has a different seal from the one that claim\.json and lock\.json cite"
    ):
        citations.check(Registration(copied / "first"))


def test_the_evidence_of_a_cited_study_is_audited_too(copied):
    studies.edit(copied / "earlier" / "records" / "shard-0.jsonl", '"grade":"', '"grade": "', 1)
    assert audit(copied / "first")[1]["cited"][0] == "failed"


def test_a_study_that_says_it_came_first_and_is_not_named_by_the_claim_is_refused(copied, shelf):
    """`second` with an empty `opened` would be on fresh problems; the claim of `earlier` does not name its lock."""
    second = Registration(copied / "second")
    second.lock.content["opened"].clear()
    with pytest.raises(BadInput, match="whose claim does not name this lock"):
        citations.refuse_unusable(second, lambda study: [])
    citations.refuse_unusable(Registration(copied / "second"), lambda study: [])
    with pytest.raises(Tampered, match="whose audit fails: seal"):
        citations.refuse_unusable(Registration(copied / "first"), lambda study: ["seal"])
