"""A problem is shown as its records have it, after the verdict alone; what was kept, decoded again."""

import io
import json
import os
import re
import shutil

import pytest
import studies

from analysis.exploratory.text_difference import Divergence
from protocol import show as command
from protocol.evidence.registration import Registration
from protocol.formats.files import cache_home
from protocol.formats.refusals import BadInput, Tampered
from protocol.instruments.show import problem_answers, problem_reader, retained_tokens
from protocol.instruments.show import terminal_view as texts
from protocol.instruments.show.problem_answers import Piece
from protocol.instruments.show.problem_reader import LaneFilter

QUICK = studies.ROOT / "registrations" / "quickstart"
ALPHA = studies.ROOT / "registrations" / "alpha-chain"
PROBLEM = "chain/08/011"  # which arms lose at one budget and not at the other


def bodies(folder, phase="records"):
    lines = studies.shard_text(folder, phase).splitlines()
    return [json.loads(line)["body"] for line in lines]


def shown(folder, name, **asked):
    return problem_reader.read_problem(Registration(folder), cache_home(), name, LaneFilter(**asked), lambda line: None)


@pytest.fixture(scope="module")
def kept():
    """One lane of a shipped study, of which everything was asked: seven events while decoding."""
    cell = {"model": "chain-qwen2", "budget": "64", "arm": "1d", "seed": 1}
    asked = {"with_retained": True, "event": "last", **cell}
    return shown(ALPHA, "chain/16/000", **asked), next(
        body for body in bodies(ALPHA) if body["problem"] == "chain/16/000" and cell.items() <= body["cell"].items()
    )


# What the records say


def test_the_problems_that_its_help_names_are_held_out_ones_that_can_be_shown():
    named = set(re.findall(r"--problem (\S+)", command.__doc__))
    assert named
    assert named <= {body["problem"] for body in bodies(ALPHA)}


def test_every_lane_of_the_cell_is_there_as_it_was_recorded(confirmed):
    recorded = bodies(confirmed)
    name = next(body["problem"] for body in recorded if body["cell"]["task"] == "needle-256")
    own = {body["cell"]["arm"]: body for body in recorded if body["problem"] == name}
    seen = shown(confirmed, name)
    assert seen.reference.arm == "full"
    assert [one.arm for one in seen.answers] == ["crystal", "random", "streaming"]
    for one in (seen.reference, *seen.answers):
        body = own[one.arm]
        assert (one.text, one.tokens, one.grade, one.answer) == tuple(
            body[field] for field in ("text", "tokens", "grade", "answer")
        )
        assert f"{one.mean_slots:.6f}" == body["cache"]["mean"]
        assert f"{max(one.held):.6f}" == body["cache"]["peak"]
        assert (one.parts is None) == (one.text == own["full"]["text"])
    assert seen.phase == "confirm"
    assert seen.gold
    assert seen.gold[0] in seen.prompt  # a needle is there to be found


def test_of_several_models_seeds_and_budgets_the_first_is_shown_and_the_others_are_named():
    seen = shown(ALPHA, PROBLEM)
    assert (seen.model, seen.seed) == ("chain-qwen2", 1)
    assert [(one.arm, one.budget) for one in seen.answers] == [
        ("1d", "64"), ("1d_div", "64"), ("snapkv_with_window", "64")
    ]  # fmt: skip
    assert seen.others == ("--model chain-llama", "--budget 128", "--seed 2, 3")
    one = shown(ALPHA, PROBLEM, arm="1d", seed=3, model="chain-llama")
    assert [(each.arm, each.budget) for each in one.answers] == [("1d", "64"), ("1d", "128")]
    assert one.reference.arm == "full"
    assert (one.model, one.seed, one.others) == ("chain-llama", 3, ())


def test_problems_of_a_probe_are_shown_beside_the_baseline_where_no_full_cache_ran():
    name = bodies(ALPHA, "probe")[0]["problem"]
    seen = shown(ALPHA, name, phase="probe")
    assert seen.reference.arm == "1d"
    assert {"1d_div-0.5", "1d_div-1.0", "1d_div-1.5"} <= {one.arm for one in seen.answers}
    assert seen.remarks == ("No full cache ran here: 1d is the reference instead.",)


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("chain/06/00", {}, "--problem 'chain/06/00': is not a problem of this study; kv-prereg show "),
        ("chain/12/044", {}, "--problem 'chain/12/044': is a development problem; add --phase probe"),
        (PROBLEM, {"phase": "probe"}, "is a held-out problem, which no probe has run; leave out --phase probe"),
        (
            PROBLEM,
            {"arm": "1e"},
            "--arm '1e': no record of this problem has this value; write one of full, 1d, 1d_div, snapkv",
        ),
        (PROBLEM, {"task": "chian"}, "--task 'chian': is not a task of this study; did you mean 'chain'?"),
        (PROBLEM, {"seed": 4}, "--seed '4': no record of this problem has this value; write one of 1, 2, 3"),
        (PROBLEM, {"arm": "full", "budget": "64"}, "no lane has all of these options; leave one of them out"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_near_one(name, asked, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        shown(ALPHA, name, **asked)


def test_a_line_that_was_edited_is_refused(confirmed, tmp_path):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    shard = folder / "records" / "shard-0.jsonl"
    first = bodies(folder)[0]
    before = b'"prompt_tokens":%d' % first["prompt_tokens"]
    shard.write_bytes(shard.read_bytes().replace(before, before + b"0", 1))
    with pytest.raises(Tampered, match="the line was edited"):
        shown(folder, first["problem"])


# Before the verdict


@pytest.mark.parametrize("written", [False, True])  # by hand, where the ledger does not cite it
def test_nothing_of_a_held_out_problem_is_shown_before_the_verdict(written, confirmed, tmp_path, monkeypatch):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))  # its verdict line
    if not written:
        (folder / "verdict.json").unlink()
    monkeypatch.setattr(problem_reader.records, "read_problem", None)  # its records are not even read
    monkeypatch.setattr(Registration, "confirm_records", property(None))
    for act in (
        lambda study: problem_reader.find_differing(study, LaneFilter(), print),
        lambda study: shown(folder, "needle/256/x"),
    ):
        with pytest.raises(BadInput, match=r"has no verdict"):
            act(Registration(folder))


def test_development_problems_are_shown_while_the_study_waits_and_what_was_kept(probed):
    name = bodies(probed, "probe")[0]["problem"]
    seen = shown(probed, name, phase="probe", arm="streaming", with_retained=True)
    (one,) = seen.answers
    assert one.kept.same
    assert seen.prompt is not None


# What was kept


def test_a_lane_decoded_again_is_the_recorded_one_token_for_token(kept):
    seen, body = kept
    (one,) = seen.answers
    assert one.kept.same
    assert one.kept.said.startswith("decoded again with the same result")
    assert one.text == body["text"]


def test_as_many_slots_are_kept_as_the_record_counts(kept):
    seen, body = kept
    (one,) = seen.answers
    step, _, after = body["cache"]["events"][-1]
    heads = round(after / float(one.slots))  # an event leaves the budget in each of them
    assert (one.kept.event, one.kept.step) == (len(body["cache"]["events"]), step)
    assert len(one.kept.pieces) == body["prompt_tokens"] + step
    assert sum(piece.share for piece in one.kept.pieces) * heads == pytest.approx(after)
    answer = "".join(piece.text for piece in one.kept.pieces[one.kept.prompt :])
    assert answer + one.kept.after == body["text"]
    assert "find " in "".join(piece.text for piece in one.kept.pieces[: one.kept.prompt])


def test_the_event_that_is_shown_is_the_last_one_before_the_texts_part_and_what_it_drops_is_gone(kept):
    cell = {"model": "chain-qwen2", "budget": "64", "arm": "1d", "seed": 1}
    (one,) = shown(ALPHA, "chain/16/000", with_retained=True, **cell).answers
    steps = [step for step, *_ in one.events]
    words = len(one.text[: one.parts.character].split())  # its tokens are words
    assert one.kept.step == max(step for step in steps if step <= words)
    assert one.kept.before
    assert one.kept.event == steps.index(one.kept.step) + 1 < len(steps)
    later = kept[0].answers[0].kept.pieces
    pairs = list(zip(one.kept.pieces, later, strict=False))
    assert all(early.text == late.text and early.share >= late.share for early, late in pairs)
    assert any(early.share > late.share for early, late in pairs)


def test_an_event_after_the_parting_is_not_called_one_before_it(monkeypatch):
    """As where two prompts differ and a policy waits, so that texts part before its first event."""
    cell = {"model": "chain-qwen2", "budget": "64", "arm": "1d", "seed": 1}
    monkeypatch.setattr(retained_tokens, "_token_index", lambda texts, character: -1)
    (one,) = shown(ALPHA, "chain/16/000", with_retained=True, **cell).answers
    assert one.kept.event == 1
    assert not one.kept.before
    assert "before" not in one.kept.event_text


def test_streaming_keeps_the_first_tokens_and_the_last_ones(confirmed):
    name = next(body["problem"] for body in bodies(confirmed) if body["cell"]["task"] == "needle-256")
    (one,) = shown(confirmed, name, arm="streaming", with_retained=True).answers
    shares = [piece.share for piece in one.kept.pieces]
    gone = [place for place, share in enumerate(shares) if share == 0]
    assert set(shares) == {0.0, 1.0}
    assert len(shares) - len(gone) == one.slots
    assert gone == list(range(4, 4 + len(gone)))  # four sinks


# As a terminal shows it


def told(seen, *, colours=False, plain=False):
    stream = io.StringIO()
    texts.write_lines(texts.format_problem(seen, colours=colours, plain=plain), stream, colours=colours)
    return stream.getvalue()


def test_marks_stand_below_the_tokens_that_were_kept(kept):
    seen, _ = kept
    lines = told(seen, plain=True).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("    prompt  "))
    found, marks = "", ""
    while not lines[at].startswith(("    after", "    answer")):
        margin, row = len("    prompt  "), lines[at][12:]
        below = lines[at + 1] if not set(lines[at + 1]) - set(" .-=#") else ""
        found, marks = found + row, marks + below[margin:].ljust(len(row))[: len(row)]
        at += 2 if below else 1
    pieces = seen.answers[0].kept.pieces[: seen.answers[0].kept.prompt]
    expected = "".join(
        " .-=#"[0 if p.share == 0 else 4 if p.share == 1 else 1 if p.share <= 1 / 3 else 2 if p.share <= 2 / 3 else 3]
        * len(p.text)
        for p in pieces
    )
    whole = "".join(piece.text for piece in pieces)
    drop = [place for place, char in enumerate(whole) if not char.isspace()]
    kept_marks = [char for char, text in zip(marks, found, strict=True) if not text.isspace()]
    assert kept_marks == [expected[place] for place in drop]


def test_without_colours_no_escape_is_sent_and_with_them_texts_are_the_same(kept):
    seen, _ = kept
    bare, styled = told(seen), told(seen, colours=True)
    assert "\x1b" not in bare
    assert "\x1b[" in styled
    assert max(map(len, bare.splitlines())) <= texts.WIDTH + 4


def test_what_a_model_wrote_cannot_act_on_the_terminal(kept):
    seen, _ = kept
    bad = "a \x1b[2J\u202eb\rc"
    one = seen.answers[0]._replace(text=bad, kept=None, parts=Divergence(1, 0))
    whole = seen._replace(prompt=bad, answers=(one,), problem=bad)
    for colours in (False, True):
        printed = told(whole, colours=colours)
        assert "\x1b[2J" not in printed
        assert not {"\u202e", "\r"} & set(printed)
        assert "a \\u001b[2J\\u202eb\\u000dc" in printed.replace("\n    ", " ")


# The command


def run(capsys, *argv):
    status = command.main([str(each) for each in argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_list_counts_the_lanes_that_are_graded_otherwise_and_says_how_to_look_at_the_first(capsys):
    recorded = bodies(QUICK)
    whole = {
        (body["cell"]["task"], body["problem"]): body["grade"] == "correct"
        for body in recorded
        if body["cell"]["arm"] == "full"
    }
    worse: dict[str, int] = {}
    better: dict[str, int] = {}
    for body in recorded:
        before, now = whole[body["cell"]["task"], body["problem"]], body["grade"] == "correct"
        if before != now:
            counted = worse if before else better
            counted[body["problem"]] = counted.get(body["problem"], 0) + 1
    status, out, _ = run(capsys, QUICK, "--json")
    found = json.loads(out)
    assert status == 0
    assert {one["problem"]: one["lost"] for one in found["differing"] if one["lost"]} == worse
    assert {one["problem"]: one["gained"] for one in found["differing"] if one["gained"]} == better
    assert found["beside"] == "the full cache"
    counts = [one["lost"] + one["gained"] for one in found["differing"]]
    assert counts == sorted(counts, reverse=True)
    _, out, _ = run(capsys, QUICK)
    assert f"next: kv-prereg show {QUICK} --problem {found['differing'][0]['problem']} --model " in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--kept"], "--kept: needs one problem; name it with --problem"),
        (["--problem", PROBLEM, "--event", "2"], "--event: chooses the event for --kept; add --kept"),
        (["--problem", PROBLEM, "--html", "nowhere/x.html"], "name a file in an existing folder"),
        (["--problem", PROBLEM, "--html", ALPHA / "x.html"], "is in the registration, which may contain only evidence"),
    ],
)
def test_options_that_say_nothing_together_are_refused(capsys, argv, said):
    status, out, err = run(capsys, ALPHA, *argv)
    assert (status, out) == (2, "")
    assert said in err


def test_an_event_is_counted_from_one(capsys):
    with pytest.raises(SystemExit):
        command.main([str(ALPHA), "--problem", PROBLEM, "--kept", "--event", "0"])
    assert "write a number of at least 1, or last" in capsys.readouterr().err


def test_json_has_the_whole_of_what_is_shown(capsys):
    status, out, _ = run(capsys, ALPHA, "--problem", PROBLEM, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["reference"]["arm"] == "full"
    assert [one["arm"] for one in found["answers"]] == ["1d", "1d_div", "snapkv_with_window"]
    assert found["answers"][0]["parts"] is None or found["answers"][0]["parts"]["word"] > 0


def test_a_reader_that_has_gone_is_no_error():
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as gone:
        texts.write_lines([[texts.Part("more than nothing")]], gone, colours=False)


# Answers of a problem


@pytest.mark.parametrize(
    ("share", "level"), [(0, 0), (1 / 8, 1), (4 / 12, 1), (0.34, 2), (8 / 12, 2), (0.67, 3), (7 / 8, 3), (1, 4)]
)
def test_a_share_has_one_of_five_levels_none_and_all_alone(share, level):
    assert problem_answers.share_level(share) == level


def test_neighbouring_tokens_of_one_level_are_one_run_and_no_text_is_lost():
    pieces = [Piece("a", 0), Piece(" b", 0), Piece(" c", 1), Piece("", 1), Piece(" d", 0)]
    assert problem_answers.merge_levels(pieces) == [("a b", 0), (" c", 4), (" d", 0)]
    assert problem_answers.merge_levels([]) == []
