import drawing_checks
import judgements
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure

from figures.plots.ablation import ablation, is_ablation

JUDGED, SIXTEEN = judgements.judgement(), judgements.sixteen()
SNAPKV, H2O, RANDOM, LACACHE, STREAMING = range(5)


def lock(effects=None, policies=None, tasks=("needle-512",)):
    """96 problems a task. Arms run the policy of their own name unless `policies` says otherwise."""
    names = ["crystal", *judgements.FIVE]
    effects = {"0.2": "0.080", "0.6": "0.150"} if effects is None else effects
    return {
        "protocol": {"content": {"arms": {n: {"policy": (policies or {}).get(n, n)} for n in names}}},
        "items": {task: {"confirm": [f"needle/512/0/{i:03d}" for i in range(96)]} for task in tasks},
        "checks": {"problems": {"96": {"minimal_detectable_effect": effects}}},
    }


@pytest.fixture(scope="module")
def five() -> Figure:
    return drawing_checks.drawn(ablation, JUDGED, lock())


@pytest.fixture(scope="module")
def sixteen() -> Figure:
    return drawing_checks.drawn(ablation, SIXTEEN, lock(tasks={contrast["task"] for contrast in SIXTEEN["contrasts"]}))


# ---------------------------------------------------------------- when it is drawn


def family(**policies):
    return dict.fromkeys(["crystal", *judgements.FIVE], "crystal") | policies


@pytest.mark.parametrize(
    ("policies", "answer"),
    [
        (None, False),
        (family(snapkv="crystal-static", h2o="crystal-product"), True),
        (family(snapkv="crystal-static", h2o="snapkv"), False),
        (family(snapkv="crystals"), False),
        (family(crystal="crystal-breath"), True),
    ],
    ids=["baselines", "variants", "one baseline", "another word", "a subject with a suffix"],
)
def test_it_is_for_a_subject_among_variants_of_itself_alone(policies, answer):
    assert is_ablation(JUDGED, lock(policies=policies)) == answer


def settings(**changed):
    """The locked settings of the subject and of five arms, each with one part of its own; `changed`: others."""
    plain = {"scoring": "Window()", "scoring.width": "7", "selection": "TopK()", "state": "Verbatim()"}
    variants = {name: plain | {"selection": f"{name}()"} for name in judgements.FIVE}
    return {"policies": {"crystal": plain} | variants | changed}


@pytest.mark.parametrize(
    ("name", "changed", "answer"),
    [
        ("kept-warm", None, True),
        ("crystal-far", {"scoring": "Norm()", "selection": "Diverse()"}, False),
        ("crystal", {}, False),
    ],
    ids=["one part under another name", "two parts under the subject's name", "the same policy"],
)
def test_locked_settings_say_what_a_variant_is_and_not_its_name(name, changed, answer):
    held = lock(policies=dict.fromkeys(judgements.FIVE, name)) | settings()
    if changed is not None:
        held["policies"][next(iter(judgements.FIVE))] = held["policies"]["crystal"] | changed
    assert is_ablation(JUDGED, held) == answer


def test_an_arm_that_is_in_no_contrast_may_be_anything():
    held = lock(policies=family())
    held["protocol"]["content"]["arms"]["full"] = {"policy": "full"}
    assert is_ablation(JUDGED, held)


@pytest.mark.parametrize(("winner", "answer"), [("crystal-static", True), ("snapkv", False)])
def test_the_subject_of_a_sweep_is_the_policy_that_was_selected(winner, answer):
    """Its name is no arm of the protocol."""
    held = lock(policies=family(h2o="crystal-product"))
    del held["protocol"]["content"]["arms"]["crystal"]
    selected = {"arm": "h2o", "policy": winner, "selection": "0" * 64}
    assert is_ablation(JUDGED | {"selected": selected}, held) == answer


# ---------------------------------------------------------------- it draws what was judged, turned round


@pytest.mark.parametrize(("drawn", "judged"), [("five", JUDGED), ("sixteen", SIXTEEN)], ids=["five", "sixteen"])
def test_a_bar_is_minus_the_judged_difference_and_its_line_the_simultaneous_interval_turned_round(
    request, drawn, judged
):
    artists = drawing_checks.by_gid(request.getfixturevalue(drawn))
    for index, one in enumerate(judged["contrasts"]):
        if one["difference"] is None:
            assert f"bar-{index}" not in artists
            continue
        (bar,), (line,), (point,) = (artists[f"{kind}-{index}"] for kind in ("bar", "interval", "point"))
        assert bar.get_x() == 0
        assert bar.get_width() == point.get_xdata()[0] == pytest.approx(-100 * float(one["difference"]))
        ends = [-100 * float(one[end]) for end in ("high_simultaneous", "low_simultaneous")]
        assert list(line.get_xdata()) == pytest.approx(ends)
        assert ends[0] <= point.get_xdata()[0] <= ends[1]
        low, high = bar.axes.get_xlim()
        assert low < ends[0]
        assert ends[1] < high


@pytest.mark.parametrize(
    ("index", "marker", "filled"), [(SNAPKV, "D", True), (LACACHE, "D", True), (H2O, "o", False), (RANDOM, "D", False)]
)
def test_only_what_passes_with_matched_memory_is_filled(five, index, marker, filled):
    artists = drawing_checks.by_gid(five)
    (point,), (bar,) = artists[f"point-{index}"], artists[f"bar-{index}"]
    assert point.get_marker() == marker
    assert bool(same_color(point.get_markerfacecolor(), "white")) != filled
    assert bool(same_color(bar.get_facecolor(), "white")) != filled


def test_a_row_prints_its_numbers_beside_its_bar(five):
    y = drawing_checks.by_gid(five)[f"point-{LACACHE}"][0].get_ydata()[0]
    row = {text.get_text() for text in drawing_checks.texts(five) if text.get_position()[1] == y}
    assert row == {
        "lacache",
        "+9.4",
        "[\N{MINUS SIGN}80.0, +90.0]",
        "0.0010",
        "96",
        "13.5 %",  # (12 + 1) / 96
    }


def test_unmatched_rows_carry_a_dagger_and_rows_without_estimate_say_so(five):
    at = [(text.get_text(), text.get_position()[1]) for text in drawing_checks.texts(five)]
    rows = dict(at)
    assert [y for text, y in at if text == "†"] == [rows["random"]]
    assert [y for text, y in at if text == "not estimated"] == [rows["streaming"]]


def test_contrasts_stand_in_registered_order_below_their_group(sixteen):
    (axes,) = sixteen.axes
    names = {*(contrast["against"] for contrast in SIXTEEN["contrasts"])}
    labels = sorted(
        (text.get_position()[1], text.get_text())
        for text in axes.texts
        if text.get_text() in names or " · budget " in text.get_text()
    )
    assert [name for _, name in labels if name in names] == [contrast["against"] for contrast in SIXTEEN["contrasts"]]
    assert labels[0][1] == "smollm2-135m · needle-512 · budget 0.25"
    assert [y for y, _ in labels] == list(range(24))


# ---------------------------------------------------------------- detectable effects


def test_effects_below_the_registered_detectable_ones_are_shaded_the_smaller_over_the_larger(five):
    artists = drawing_checks.by_gid(five)
    (small,), (large,) = artists["shade-0.2-0"], artists["shade-0.6-0"]
    for shade, reach in ((small, 8), (large, 15)):
        box = shade.get_paths()[0].get_extents()
        assert (box.x0, box.x1) == pytest.approx((-reach, reach))
    assert small.get_zorder() > large.get_zorder()
    assert not same_color(small.get_facecolor(), large.get_facecolor())


def test_a_detectable_effect_beyond_the_axis_is_shaded_to_its_end():
    row = judgements.contrast("h2o", *judgements.FIVE["h2o"])
    figure = ablation(judgements.judgement([row]), lock({"0.2": "0.900", "0.6": "none"}))
    (shade,) = drawing_checks.by_gid(figure)["shade-0.2-0"]
    box = shade.get_paths()[0].get_extents()
    assert (box.x0, box.x1) == pytest.approx(figure.axes[0].get_xlim())


def test_the_registered_effects_are_printed_and_so_is_that_there_is_none():
    figure = ablation(JUDGED, lock({"0.6": "0.150", "0.2": "none"}))
    note = "needle-512, 96 problems: none if 20 % of the problems are discordant; 15.0 pp (light)"
    assert note in drawing_checks.said(figure)
    (shade,) = drawing_checks.by_gid(figure)["shade-0.2-0"]
    assert shade.get_paths()[0].get_extents().width == 0


def test_the_directions_the_family_and_the_verdict_are_said(five):
    said = drawing_checks.said(five)
    for words in ("← crystal better", "variant better →", "5 registered contrasts", "significant by Bonferroni 0.01."):
        assert words in said
    assert "A small study: INCONCLUSIVE" in said


def test_a_drawing_of_max_t_does_not_speak_of_bonferroni():
    said = drawing_checks.said(ablation(JUDGED | {"method": "max-t"}, lock()))
    assert "Bonferroni" not in said
    assert "significant by max-t 0.05." in said
