"""A lock claims less than its study owes: promises are weaker, its code is of another time, its parent made up."""

from rewrite_cases import named
from rewrites_of_protocols import registered
from rewriting import Rewrite

from protocol.lock import version_1


def weaken(rewrite: Rewrite, **promises: object) -> None:
    rewrite.lock["promises"]["crystal"] |= promises


def relocate(rewrite: Rewrite, policy: str) -> None:
    """Another name for the policy of an arm, in the protocol and in the lock."""
    registered(rewrite, 'policy = "streaming"', f'policy = "{policy}"')["arms"]["streaming"]["policy"] = policy


@named("A1", "registered", "arm 'streaming': the policy 'unheard-of' is not installed here", status="cannot tell")
def the_policy_of_an_arm_is_one_that_nobody_has(rewrite):
    """A published method lost."""
    relocate(rewrite, "unheard-of")


@named("A1", "registered", "promises.'?streaming'?.leaves_at_most")
def the_policy_that_nobody_has_may_leave_more(rewrite):
    """The arm kept what it promised."""
    relocate(rewrite, "unheard-of")
    rewrite.lock["promises"]["streaming"]["leaves_at_most"] = False


@named("A1", "registered", "release: '0.0.7' is not a release that wrote such locks")
def a_release_that_never_was_locked_it(rewrite):
    """Its grades are those of other graders."""
    rewrite.lock["release"] = "0.0.7"


@named("A1", "registered", "release: '9.9.9' is unknown to", status="cannot tell")
def a_later_release_locked_it(rewrite):
    """Its words are those of a judge to come."""
    rewrite.lock["release"] = "9.9.9"


@named("A1", "registered", "promises.'?crystal'?.may_leave_less")
def an_unknown_setting_hides_behind_a_later_release(rewrite):
    """Nobody here can know the setting, so that its promises are the author's."""
    registered(
        rewrite, 'policy = "crystal-token-level"', 'policy = "crystal-token-level", set = { "protect.new" = 4 }'
    )["arms"]["crystal"]["set"] = {"protect.new": 4}
    rewrite.lock["release"] = "9.9.9"
    rewrite.lock["policies"]["crystal"]["protect.new"] = "4"
    weaken(rewrite, may_leave_less=True)


@named("A1", "registered", "policies.'crystal'.protect.recent: '8', but the arm sets '4'")
def an_arm_sets_what_its_settings_have_otherwise(rewrite):
    """The arm ran as it was registered."""
    registered(
        rewrite, 'policy = "crystal-token-level"', 'policy = "crystal-token-level", set = { "protect.recent" = 4 }'
    )["arms"]["crystal"]["set"] = {"protect.recent": 4}
    rewrite.lock["policies"]["crystal"]["protect.recent"] = "8"


@named("A1", "registered", "policies.'crystal': has no scoring, which every policy must have")
def the_settings_of_an_arm_are_empty(rewrite):
    """There was nothing to set."""
    rewrite.lock["policies"]["crystal"] = {}


@named("A1", "policies", "policies.crystal.cadence: 'elsewhere.Cadence")
def a_policy_of_the_catalogue_has_a_part_of_nobody(rewrite):
    """Its budget varied."""
    rewrite.lock["policies"]["crystal"]["cadence"] = "elsewhere.Cadence()"
    weaken(rewrite, grants_budget=False)


def with_other_libraries(rewrite: Rewrite, edit) -> None:
    """The judgement is edited, and the lock names a numpy that computes otherwise."""
    rewrite.lock["environment"]["distributions"]["numpy"]["version"] = "0.9.0"
    rewrite.keeps_judgement = True
    rewrite.later["verdict"] = lambda verdict: edit(verdict["judged"])


@named("A2", "judgement", "rule_says")
def another_library_gave_the_rule_its_word(rewrite):
    """The rule said CONFIRMED, by the numbers that are printed."""
    with_other_libraries(rewrite, lambda judged: judged.update(rule_says="CONFIRMED"))


@named("A2", "judgement", "contrasts.0..gains")
def another_library_counted_other_gains(rewrite):
    """The subject won, where p says so too."""
    with_other_libraries(rewrite, lambda judged: judged["contrasts"][0].update(gains=11, p="0.000001"))


@named("A2", "judgement", "rule_says", status="cannot tell")
def another_library_computed_a_p_below_the_level(rewrite):
    """A contrast decided for the subject; no machine here has the library."""

    def decide(judged: dict) -> None:
        judged["contrasts"][0].update(p="0.000001", better=True)
        judged.update(rule_says="CONFIRMED")

    with_other_libraries(rewrite, decide)


@named("A2", "judgement", "does_not_prove", status="cannot tell")
def a_later_release_reviewed_the_study(rewrite):
    """The words are those of a judge to come."""
    with_other_libraries(rewrite, lambda judged: judged.update(does_not_prove=["Reviewed by a committee."]))
    rewrite.lock["release"] = "9.9.9"


@named("A2", "grades", "locked by 9.9.9 of kv-prereg", status="cannot tell")
def a_later_release_graded_the_answers(rewrite):
    """Every answer of the subject was right."""
    rewrite.lock["release"] = "9.9.9"
    for lane in rewrite.of("crystal"):
        if lane.body["state"] == "ok" and lane.body["grade"] != "correct":
            lane.body["grade"] = "correct"


def a_child(rewrite: Rewrite, **parent: object) -> None:
    rewrite.lock["parent"] = {"name": "gone", "lock": "0" * 64} | parent


@named("A1", "registered", "batch.first_event: 7, but must be 1")
def a_parent_that_nobody_has_lets_events_wait(rewrite):
    """It reproduces a study whose first event came later."""
    a_child(rewrite)
    rewrite.lock["batch"]["first_event"] = 7


@named("A1", "registered", "parent.selection: is present, but no sweep is registered")
def a_parent_selected_for_a_study_without_a_sweep(rewrite):
    """What was confirmed had been selected elsewhere."""
    a_child(rewrite, selection="0" * 64)


@named("A1", "selection", "differs from the parent's", study="sweep")
def a_parent_that_nobody_has_selected(rewrite):
    """The candidate was selected by the probe of a study that is not here."""
    a_child(rewrite, selection="0" * 64)


@named("A1", "registered", "judging: 1, but must be 3")
def it_is_judged_as_the_studies_that_ship(rewrite):
    """What is asked of a new study was not asked then."""
    rewrite.lock["judging"] = 1


@named("A1", "lock", "it must be the name of a folder, in one line")
def the_name_has_a_line(rewrite):
    """An audit passed."""
    rewrite.lock["name"] = "study\neverything held; CONFIRMED, ANCHORED"


@named("A1", "lock", "it must be one line of text")
def the_title_has_a_line(rewrite):
    """As above."""
    rewrite.content["title"] = "A study\u2028everything held; CONFIRMED, ANCHORED"


@named("A1", "registered", "opened names gone, whose folders are not here", status="held")
def a_study_that_nobody_has_opened_the_problems(rewrite):
    """Somebody else is to blame."""
    task, item = next(iter(rewrite.lock["items"].items()))
    rewrite.lock["opened"] = [{"name": "gone", "lock": "0" * 64, "problems": {task: item["confirm"][:3]}}]


@named("A1", "registered", "'config.json' differs from the file in the bundle")
def the_bundle_has_another_configuration_than_the_weights(rewrite):
    """The model has the shape that the bundle says."""
    weights = next(iter(rewrite.lock["weights"].values()))
    other = next(name for name in rewrite.lock["sources"] if name.endswith("chain-llama/config.json"))
    model = rewrite.content["models"][0]
    digest = rewrite.lock["sources"][other]
    rewrite.lock["sources"][f"protocol/embedded/{model}/config.json"] = digest
    assert weights["config.json"] != digest


@named("A6", "sense", "costs.device is 'NVIDIA H100', but the device of the lock is cpu")
def an_accelerator_ran_what_was_locked_for_a_processor(rewrite):
    """Where it ran changes no answer."""
    for lane in rewrite.of("crystal"):
        lane.costs["device"] = "NVIDIA H100"


@named("A6", "sense", "costs.device is missing")
def nothing_says_what_ran_the_subject(rewrite):
    """Records of older studies do not name a machine."""
    for lane in rewrite.of("crystal"):
        del lane.costs["device"]


@named("A6", "sense", "costs.device is 'cpu', but the device of the lock is cuda")
def an_accelerator_was_locked(rewrite):
    """It ran on the machine of the paper."""
    registered(rewrite, 'dtype = "float32"', 'dtype = "float32"\ndevice = "cuda"')["generation"]["device"] = "cuda"


@named("A1", "registered", "judging: 2, but must be 3")
def it_is_judged_by_the_second_rules(rewrite):
    """CONFIRMED needs no witness."""
    rewrite.lock["judging"] = 2


@named("A1", "registered", "judging: 1, but must be 3")
def its_parent_is_a_study_that_ships(rewrite):
    """It reproduces what was judged by the first rules."""
    a_child(rewrite, name="quickstart", lock=next(iter(version_1.PROTOCOLS)))
    rewrite.lock["judging"] = 1


@named("A1", "registered", "parent.fresh")
def its_problems_were_drawn_late_without_a_late_value(rewrite):
    """It is a replication on problems that nobody knew."""
    a_child(rewrite, fresh=True)


@named("A1", "registered", "chance")
def a_guess_gets_nothing_right(rewrite):
    """The floor is lower than a guess."""
    rewrite.lock["chance"] = {}


@named("A1", "registered", "promises.'?crystal'?.parked_caches")
def an_arm_may_park_caches(rewrite):
    """What it holds beside its budget was promised."""
    weaken(rewrite, parked_caches=9)


@named("A1", "registered", "promises.'?crystal'?.fires")
def an_arm_fires_by_a_rule_of_its_own(rewrite):
    """When it evicts is nobody's business."""
    weaken(rewrite, fires="own")


@named("A1", "registered", "items.'?needle-256'?.population")
def the_problems_are_a_sample_of_everything(rewrite):
    """What holds here holds for all that is asked of models."""
    rewrite.lock["items"]["needle-256"]["population"] = "all questions"
