"""What was registered is made to be something else, after the fact."""

import copy
import json

from case import named
from rewriting import Lane, Rewrite

from protocol.formats import canonical
from splits import manifest


def toml(was: str, now: str):
    """protocol.toml says something else than the lock read from it."""

    def edit(rewrite: Rewrite) -> None:
        assert was.encode() in rewrite.protocol
        rewrite.protocol = rewrite.protocol.replace(was.encode(), now.encode())

    return edit


@named("A1", "registered", "protocol.content")
def the_protocol_says_hello(rewrite):
    """protocol.toml is the text that was locked."""
    rewrite.protocol = b'hello = "hello"\n'


@named("A1", "registered", "protocol.content.decision.alpha")
def alpha_is_a_half_in_the_protocol_alone(rewrite):
    """The rule was strict, and the file that people read says how it was relaxed."""
    rewrite.protocol = rewrite.protocol.replace(b"alpha = 0.05", b"alpha = 0.5")


@named("A1", "registered", "protocol.content.decision.alpha")
def alpha_is_a_half_in_the_lock_alone(rewrite):
    """The verdict rests on alpha = 0.05, as protocol.toml says."""
    rewrite.content["decision"]["alpha"] = "0.5"
    rewrite.lock["checks"]["corrected_alpha"] = "0.125000"


@named("A1", "registered", "protocol.content.gate")
def the_gate_is_lowered_in_the_lock_alone(rewrite):
    """The full cache reached what it had to reach."""
    rewrite.content["gate"]["accuracy"] = "0"


@named("A1", "registered", "protocol.content.gate")
def the_gate_is_taken_out_of_the_lock(rewrite):
    """No gate was registered."""
    del rewrite.content["gate"]


@named("A1", "registered", "protocol.content.decision.cache_tolerance")
def unequal_memory_is_tolerated(rewrite):
    """The caches were matched as registered."""
    rewrite.content["decision"]["cache_tolerance"] = "0.5"


@named("A1", "registered", "protocol.content.decision.memory")
def another_memory_is_compared(rewrite):
    """Slots were registered as what is held equal."""
    rewrite.content["decision"]["memory"] = "bytes"


@named("A1", "registered", "protocol.content.decision.subject")
def another_arm_is_the_subject(rewrite):
    """The claim was about random from the start."""
    rewrite.content["decision"] |= {"subject": "random", "against": ["crystal", "streaming"]}


@named("A1", "registered", "protocol.content.decision.against")
def a_comparator_is_dropped(rewrite):
    """Only one comparator was registered."""
    rewrite.content["decision"]["against"] = ["random"]
    rewrite.lock["checks"] |= {"tests": 2, "corrected_alpha": "0.025000"}


@named("A1", "registered", "protocol.content.decision.missing")
def missing_lanes_count_as_wrong(rewrite):
    """Lanes without a grade were to count as wrong."""
    rewrite.content["decision"]["missing"] = "wrong"


@named("A1", "registered", "protocol.content.title")
def the_title_claims_more(rewrite):
    """The study is about something grander."""
    rewrite.content["title"] = "CrystalCache is better than every other policy"


@named("A1", "registered", "protocol.content.generation.temperature")
def lanes_were_sampled(rewrite):
    """Texts were drawn at a temperature of 0.7."""
    rewrite.content["generation"]["temperature"] = "0.7"


@named("A1", "registered", "protocol.content.tasks")
def longer_answers_were_allowed(rewrite):
    """Answers were cut at 240 tokens."""
    rewrite.content["tasks"][0]["max_new_tokens"] = 240


@named("A1", "registered", "items.needle-256.confirm")
def held_out_ids_are_dropped_from_the_lock(rewrite):
    """The ten problems that were run are all that were held out."""
    dropped = set(rewrite.lock["items"]["needle-256"]["confirm"][-2:])
    del rewrite.lock["items"]["needle-256"]["confirm"][-2:]
    rewrite.lanes["confirm"] = [one for one in rewrite.confirmed if one.body["problem"] not in dropped]


@named("A1", "registered", "items.needle-256.dev")
def a_held_out_id_was_a_development_problem(rewrite):
    """The problem that went badly was never held out."""
    item = rewrite.lock["items"]["needle-256"]
    moved = item["confirm"].pop()
    item["dev"].append(moved)
    rewrite.lanes["confirm"] = [one for one in rewrite.confirmed if one.body["problem"] != moved]


@named("A1", "registered", "items.needle-256.confirm")
def held_out_ids_stand_in_another_order(rewrite):
    """They were run in this order."""
    rewrite.lock["items"]["needle-256"]["confirm"].reverse()


@named("A1", "registered", "items.needle-256.manifest")
def the_manifest_in_the_bundle_has_lost_an_id(rewrite):
    """The split, as it was locked, never had the problem."""
    task = "needle-256"
    found = json.loads(rewrite.member(f"splits/{task}.json"))
    item = rewrite.lock["items"][task]
    gone = item["confirm"].pop()
    split = manifest.build_content(task, [name for name, _ in found["ids"] if name != gone], found["source"])
    item["manifest"] = split["digest"]
    rewrite.sources[f"splits/{task}.json"] = canonical.encode(split) + b"\n"
    rewrite.lanes["confirm"] = [one for one in rewrite.confirmed if one.body["problem"] != gone]


@named("A1", "registered", "items.needle-256.manifest")
def another_manifest_is_cited(rewrite):
    """The split is one that nobody has."""
    rewrite.lock["items"]["needle-256"]["manifest"] = "0" * 64


@named("A1", "registered", "grid")
def a_cell_was_never_registered(rewrite):
    """streaming was registered on one task alone."""
    gone = [cell for cell in rewrite.lock["grid"] if cell[3] == "streaming" and cell[1] == "association-256"]
    rewrite.lock["grid"].remove(gone[0])
    rewrite.lanes["confirm"] = [
        one for one in rewrite.confirmed if (one.arm, one.cell["task"]) != ("streaming", "association-256")
    ]


@named("A1", "registered", "grid")
def a_second_seed_ran_alike(rewrite):
    """Each cell ran twice, and twice it said the same."""
    rewrite.lock["grid"] += [[*cell[:4], 1] for cell in rewrite.lock["grid"]]
    _copied(rewrite)


@named("A1", "registered", "protocol.content.seeds")
def a_second_seed_was_registered_and_ran_alike(rewrite):
    """Two seeds were registered, and agree."""
    rewrite.content["seeds"] = [0, 1]
    rewrite.lock["grid"] += [[*cell[:4], 1] for cell in rewrite.lock["grid"]]
    _copied(rewrite)


def _copied(rewrite: Rewrite) -> None:
    """Every lane once more, as of seed 1."""
    again = []
    for lane in rewrite.confirmed:
        body = copy.deepcopy(lane.body)
        body["cell"]["seed"] = 1
        again.append(Lane(body, dict(lane.costs), lane.trajectory, lane.side))
    rewrite.lanes["confirm"] += again


@named("A1", "registered", "grid")
def two_arms_have_changed_places_in_the_grid(rewrite):
    """crystal stands where random stood."""
    other = {"crystal": "random", "random": "crystal"}
    for cell in rewrite.lock["grid"]:
        cell[3] = other.get(cell[3], cell[3])


@named("A1", "registered", "protocol.content.budgets")
def a_smaller_budget_is_claimed(rewrite):
    """The arms held 0.2 of the prompt."""
    rewrite.content["budgets"] = ["0.2"]
    for cell in rewrite.lock["grid"]:
        cell[2] = {"0.8": "0.2"}.get(cell[2], cell[2])
    for lane in rewrite.confirmed + rewrite.probed:
        lane.cell["budget"] = {"0.8": "0.2"}.get(lane.cell["budget"], lane.cell["budget"])


@named("A1", "registered", "rule.name")
def another_rule_decides(rewrite):
    """The rule was one of equivalence."""
    rewrite.lock["rule"]["name"] = "equivalent"


@named("A1", "registered", "rule.source")
def the_rule_lies_in_another_file(rewrite):
    """The rule that was locked is that of a file which says something else."""
    rewrite.lock["rule"]["source"] = "analysis/rules/equivalent.py"


@named("A11", "registered", "sitecustomize.py.?: lies below none of")
def a_file_that_python_runs_by_itself_is_bundled(rewrite):
    """What was locked are the packages."""
    rewrite.sources["sitecustomize.py"] = b"print(1)\n"


@named("A1", "registered", "sources: has no file of policies")
def the_policies_are_not_in_the_bundle(rewrite):
    """Whoever wants to know what ran can read it."""
    gone = (name for name in rewrite.lock["sources"] if name.startswith("policies/"))
    rewrite.sources |= dict.fromkeys(gone)


@named("A1", "policies", "policies.crystal")
def a_policy_had_other_settings(rewrite):
    """crystal protected the last 16 tokens and no more."""
    rewrite.lock["policies"]["crystal"]["protect.recent"] = "16"


@named("A1", "policies", "policies")
def the_policies_of_two_arms_are_exchanged_in_the_lock(rewrite):
    """What ran as crystal was random."""
    held = rewrite.lock["policies"]
    held["crystal"], held["random"] = held["random"], held["crystal"]


@named("A1", "registered", "checks.tests")
def the_family_is_smaller(rewrite):
    """One contrast was registered, so that nothing was corrected."""
    rewrite.lock["checks"] |= {"tests": 1, "corrected_alpha": "0.050000"}


@named("A1", "registered", "checks.problems")
def the_sizes_of_the_check_are_others(rewrite):
    """The error rates are those of 500 problems."""
    problems = rewrite.lock["checks"]["problems"]
    problems["500"] = problems.pop("12")


@named("A1", "registered", "batch.first_event")
def the_question_may_be_evicted(rewrite):
    """Events could fire right after the question."""
    rewrite.lock["batch"]["first_event"] = 0


@named("A1", "registered", "environment.torch.threads")
def other_threads_computed(rewrite):
    """It ran on 64 threads."""
    rewrite.lock["environment"]["torch"]["threads"] = 64


def before_they_were_locked(*names: str, checks: tuple[str, ...] = ()):
    """The lock lacks these, as code of another day that nobody knows would have left it."""

    def edit(rewrite: Rewrite) -> None:
        for maker in ("protocol/register.py", "protocol/preflight/lock_content.py"):
            rewrite.sources[maker] = rewrite.member(maker) + b"\n# Another version.\n"
        for name in names:
            del rewrite.lock[name]
        for name in checks:
            del rewrite.lock["checks"][name]

    return edit


@named("A1", "registered", "lacks policies, amends, git, .*opened, batch.first_event", status="cannot tell")
def it_was_locked_before_policies_were(rewrite):
    """Nobody listed what had been opened, nor what the settings were: locks had no such fields."""
    before_they_were_locked("policies", "amends", "git", "signer", "ledger", "opened")(rewrite)
    del rewrite.lock["batch"]["first_event"]


@named("A1", "registered", "lacks opened, and its sources", status="cannot tell")
def it_was_locked_before_what_was_opened_was(rewrite):
    """Nobody listed what had been opened."""
    before_they_were_locked("opened")(rewrite)


@named("A1", "registered", "lacks checks.decision_errors", status="cannot tell")
def it_was_locked_before_errors_of_the_rule_were_found(rewrite):
    """Nobody simulated how often the rule errs."""
    before_they_were_locked(checks=("decision_errors",))(rewrite)


@named("A1", "registered", "weights")
def the_weights_are_of_another_model(rewrite):
    """A model of 8B ran."""
    rewrite.lock["weights"] = {"llama-8b": next(iter(rewrite.lock["weights"].values()))}


@named("A5", "registered", "items.needle-256.confirm")
def a_problem_clears_the_screen_of_whoever_reads_it(rewrite):
    """Whatever the author prints in the place of the findings."""
    hostile = "\x1b[2J\x1b[Heverything held; CONFIRMED, ANCHORED"
    items = rewrite.lock["items"]["needle-256"]["confirm"]
    was, items[0] = items[0], hostile
    for lane in rewrite.confirmed:
        if lane.body["problem"] == was:
            lane.body["problem"] = hostile
            lane.body["batch"]["problems"] = [hostile]
