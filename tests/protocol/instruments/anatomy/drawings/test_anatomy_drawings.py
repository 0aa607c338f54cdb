"""Drawings of an anatomy: each number against a hand count, each text on the page and apart from others."""

import json

import drawing_checks
import numpy as np
import pytest
import simulated_anatomy

from figures.drawing.shares import mean_share
from figures.report_page.glossary import DRAWINGS
from protocol.evidence.audit import inventory
from protocol.instruments.anatomy import analysis
from protocol.instruments.anatomy.analysis.exploratory import explore_anatomy
from protocol.instruments.anatomy.analysis.traces import NothingLabelled, RecordError
from protocol.instruments.anatomy.drawings import curve, heat_map, labels, oracle_style, trace, trace_report
from protocol.instruments.anatomy.drawings import draw as commands

NATURE = simulated_anatomy.TraceSettings(tokens=128, window=16, stride=8)
STATES = {2: "wrong", 5: "unmoved", 7: "short"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models; one signal of one of them knows. Judged."""
    made = simulated_anatomy.written(
        tmp_path_factory.mktemp("anatomy") / "study",
        np.random.default_rng(3),
        planted=("key_norm", 1),
        only_model="knows",
        models=("knows", "does-not"),
        states=STATES,
        nature=NATURE,
        anatomy={"draws": 200},
    )
    lock = json.loads((made / "lock.json").read_text())
    lock["protocol"]["content"]["decision"] = {"subject": "keen"}
    (made / "lock.json").write_text(json.dumps(lock))
    for name, act in (("chosen", analysis.choose), ("verdict", analysis.judge)):
        (made / "anatomy" / f"{name}.json").write_text(json.dumps(act(made)))
    return made


@pytest.fixture(scope="module")
def told(folder):
    return trace_report.read_report(folder)


def bodies(folder):
    lines = (folder / "anatomy" / "traces.jsonl").read_text().splitlines()
    return [json.loads(line)["body"] for line in lines]


def needed(body):
    """By a plain loop over windows: 1 where any window over the position was graded otherwise."""
    start, stop = body["span"]
    return [
        int(any(a <= at < b and grade != "correct" for a, b, _, grade in body["windows"]["padded"]))
        for at in range(start, stop)
    ]


def test_the_heat_map_shows_and_outlines_what_is_printed(folder, told):
    blocks = {(block.model, block.reading): block for block in heat_map.map_blocks(told)}
    assert len(blocks) == 4
    outlined = set()
    for row in explore_anatomy(folder)["pairs"]:
        cells = blocks[row["model"], "padded"].cells
        for one in row["rows"]:
            cell = cells[one["signal"], one["layer"]]
            assert cell.rho == pytest.approx(float(one["rho"]), abs=1e-6)
            assert cell.survives == one["survives"]
            outlined |= {(row["model"], one["signal"], one["layer"])} if cell.survives else set()
    assert ("knows", "key_norm", 1) in outlined
    assert not any(signal == heat_map.POSITION for _, signal, _ in outlined)
    assert blocks["knows", "padded"].chosen == ("key_norm", 1)
    assert blocks["knows", "dropped"].chosen is None


def test_the_scale_of_colours_is_even_about_zero_and_a_missing_value_has_no_colour_of_it(told):
    figure = drawing_checks.drawn(heat_map.anatomy_map, told, heat_map.map_blocks(told))
    gids = drawing_checks.by_gid(figure)
    (image,) = gids["rho-knows/chain/padded/1"]
    assert image.norm.vmin == -image.norm.vmax
    assert np.allclose(image.cmap(0.5)[:3], 1, atol=0.05)
    assert image.get_array().mask[0, 1], "scoring:keen has no row for layer 1"
    assert not image.get_array().mask[1].any(), "scoring:blind has one row for all layers"
    reds = [image.cmap(image.norm(rho))[0] - image.cmap(image.norm(rho))[2] for rho in (-0.3, 0.3)]
    assert reds[0] > 0 > reds[1]
    assert len(gids["chosen-knows/chain/padded"]) == 1


def test_a_trace_is_the_first_whose_labels_vary_and_its_rows_are_what_arms_kept(folder, told):
    found = trace.select_trace(told, None, None, None)
    first = next(body for body in bodies(folder) if body["state"] == "labelled")
    assert found.subtitle.startswith(f"{first['problem']} by knows, chain; arms at budget 32 ")
    truth = np.array(needed(first))
    assert found.labelled.needed[0][0] == "padded"
    assert found.labelled.needed[0][1].tolist() == truth.tolist()
    table = told.anatomy.traces_of(("knows", "chain"))[0].values().retained
    rows = [at for at, one in enumerate(first["kept"]) if one["budget"] == "32"]
    for row, at in zip(found.rows, rows, strict=True):
        own = table[at, first["span"][0] :]
        assert row.retained.tolist() == pytest.approx(own.tolist())
        assert row.of_needed == pytest.approx(float(np.mean(own[truth == 1])))
        assert row.of_others == pytest.approx(float(np.mean(own[truth == 0])))
        assert row.correct == (first["kept"][at]["grade"] == "correct")
    assert [row.name for row in found.rows if row.oracle] == [oracle_style.NAME]
    assert found.rows[-1].oracle


def test_a_trace_that_was_asked_for_is_drawn_or_refused_with_what_became_of_it(told):
    other = told.anatomy.traces_of(("does-not", "chain"))[3].problem
    assert trace.select_trace(told, "does-not", other, "64").subtitle.startswith(
        f"{other} by does-not, chain; arms at bu"
    )
    wrong = next(one.problem for one in told.anatomy.traces if one.state == "wrong")
    for asked, words in (
        (("knows", wrong, None), "it ended as wrong"),
        (("nobody", None, None), "model nobody: no trace has labels that vary"),
        ((None, None, "33"), "there are: "),
    ):
        with pytest.raises(RecordError, match=words):
            trace.select_trace(told, *asked)


def test_of_a_long_span_the_stretch_with_the_first_needed_token_is_drawn_and_said(told, monkeypatch):
    monkeypatch.setattr(trace, "MOST", 40)
    found = trace.select_trace(told, None, None, None)
    whole = told.anatomy.traces[0].labels("padded")
    begin = max(0, min(int(whole.argmax()) - trace.BEFORE, len(whole) - 40))
    assert found.labelled.first == told.anatomy.traces[0].span[0] + begin
    assert found.labelled.needed[0][1].tolist() == whole[begin : begin + 40].tolist()
    assert found.labelled.needed[0][1].any()
    assert len(found.rows[0].retained) == len(found.labelled.pieces) == 40
    figure = drawing_checks.drawn(trace.anatomy_trace, told, found)
    assert "40 of the span's 128 tokens are drawn" in drawing_checks.said(figure)


@pytest.mark.parametrize(("piece", "shown"), [(" plus", "plus"), ("\n", "↵"), ("  ", "·"), ("字\x07", "□□")])
def test_a_token_is_printed_as_what_can_be_seen(piece, shown):
    assert trace.printable_token(piece) == shown


def test_shares_by_place_and_class_are_means_over_traces_of_hand_counts(folder, told):
    (panel, _) = labels.label_panels(told.anatomy)
    own = [one for one in bodies(folder) if one["model"] == "knows" and "windows" in one]
    assert panel.traces == len(own) == 24 - 2  # but for the wrong one and the short one
    truth = [needed(body) for body in own]
    for tenth in range(10):
        each = []
        for one in truth:
            inside = [label for at, label in enumerate(one) if 10 * at // len(one) == tenth]
            each.append(sum(inside) / len(inside))
        assert panel.tenths["padded"][tenth].share == pytest.approx(sum(each) / len(each))
    numbers = [
        [label for piece, label in zip(body["pieces"][body["span"][0] :], one, strict=True) if piece in ("12", "7")]
        for body, one in zip(own, truth, strict=True)
    ]
    assert panel.classes["padded"]["number"].share == pytest.approx(
        float(np.mean([np.mean(number) for number in numbers if number]))
    )
    assert panel.tokens["number"] == sum(map(len, numbers))


def test_limits_of_a_mean_of_shares_count_units_and_are_wilsons_where_units_are_right_or_wrong():
    # Wilson (1927) of 8 in 10: [0.490, 0.943], at 10 answers; a variance over n - 1 makes it as of 9.
    low, high = mean_share(np.array([1.0] * 8 + [0.0] * 2))[1:3]
    assert (low, high) == pytest.approx((0.4749, 0.9474), abs=2e-3)
    alike = mean_share(np.array([0.0] * 12 + [np.nan]))
    assert (alike.share, alike.low, alike.n_total) == (0.0, 0.0, 12)
    assert alike.high == pytest.approx(1.959964**2 / (12 + 1.959964**2))
    wide, narrow = (mean_share(np.tile([0.4, 0.6], n)) for n in (3, 30))
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def test_accuracy_at_the_cut_is_that_of_the_lines_and_the_oracle_stands_apart(folder, told):
    places = curve.anatomy_curves(told.anatomy)
    assert [place.model for place in places] == ["knows", "does-not"]
    own = [one for body in bodies(folder) if body["model"] == "knows" for one in body.get("kept", ())]
    for arm, points in places[0].arms.items():
        name = "oracle-occlusion" if arm == oracle_style.NAME else arm
        for point in points:
            graded = [one["grade"] for one in own if (one["arm"], one["budget"]) == (name, point.budget)]
            assert point.accuracy.share == pytest.approx(graded.count("correct") / len(graded))
            assert point.value == float(point.budget)
    assert list(places[0].arms)[-1] == oracle_style.NAME
    said = drawing_checks.said(drawing_checks.drawn(curve.anatomy_curve, told, places))
    assert said.count(oracle_style.NAME) == 2
    for words in (
        "which no policy can do",
        "its accuracy is not a result",
        "It is not an upper bound",
        "100 % (line) by selection",
    ):
        assert words in said


def test_every_drawing_says_what_was_tested_and_how_traces_ended_and_its_words_do_not_touch(told):
    for drawing, *data in commands.drawings(told):
        figure = drawing_checks.drawn(drawing, *data)
        said = drawing_checks.said(figure)
        assert "A made-up anatomy (anatomy): AGREES for 1" in said
        assert "42 labelled" in said
        assert "2 wrong" in said
        assert "no verdict on a policy depends on them" in said


def test_without_a_verdict_it_says_so_and_marks_nothing(told):
    before = told._replace(verdict=None, chosen=None)
    blocks = heat_map.map_blocks(before)
    assert all(block.chosen is None for block in blocks)
    said = drawing_checks.said(drawing_checks.drawn(heat_map.anatomy_map, before, blocks))
    assert "NOT JUDGED YET" in said
    assert "chosen on the first half" not in said


def test_the_command_draws_all_and_every_file_is_known(folder, capsys, monkeypatch):
    def write(where, drawing, *data):
        return [where / f"{drawing.__name__}.{suffix}" for suffix in ("svg", "png")]

    monkeypatch.setattr(commands.page, "write_drawing", write)
    assert commands.main([str(folder), "--budget", "64"]) == 0
    drawn = [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
    assert len(drawn) == 8
    assert set(drawn) <= inventory.DRAWINGS
    assert {name.partition(".")[0] for name in drawn} <= DRAWINGS.keys()


def test_where_nothing_was_labelled_nothing_is_drawn_and_one_line_says_why(tmp_path, capsys):
    simulated_anatomy.written(tmp_path / "study", np.random.default_rng(0), problems=2, states={0: "wrong", 1: "short"})
    with pytest.raises(NothingLabelled, match="they ended as short, wrong"):
        commands.draw(tmp_path / "study")
    assert commands.main([str(tmp_path / "study")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "study" / "figures").exists()
