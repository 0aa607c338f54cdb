"""What fits itself and everything that an auditor has: no folder shows it. What does is named by each.

`item` is what can tell, `words` how docs/threat-model.md calls it.
"""

from decimal import Decimal

from rewrite_cases import named
from rewrites_of_protocols import registered, relabelled
from rewrites_of_records import unmeasured

REPLAY = "kv-prereg audit --replay"
REPLICATION = "kv-prereg replicate"
ANCHOR = "an anchor of the lock"
LATER = "an anchor of the claim or the seal"
NOTHING = "nothing"
SLOT = 64  # bytes of a slot of one KV head of the tiny model: a key and a value of 8 numbers


@named("A2", REPLAY, "Two evicting arms swapped throughout")
def two_evicting_arms_are_exchanged(rewrite):
    """crystal did what random did, everywhere."""
    for lane, other in rewrite.pairs("crystal", "random"):
        for name in ("text", "answer", "grade", "grade_reason"):
            lane.body[name], other.body[name] = other.body[name], lane.body[name]


@named("A2", REPLAY, "A text that nobody generated")
def an_answer_is_written_into_a_text(rewrite):
    """crystal finds every needle."""
    from protocol import tasks

    for lane in rewrite.of("crystal"):
        gold = tasks.get(lane.cell["task"]).gold(lane.body["problem"])
        lane.body |= {"text": f" {gold}", "answer": gold, "grade": "correct", "grade_reason": ""}


@named("A2", REPLAY, "A text that nobody generated")
def an_answer_that_was_cut_ended_by_itself(rewrite):
    """No answer of the full cache was cut, so that the gate is passed."""
    for lane in rewrite.of("full"):
        lane.body |= {"stop": "eos", "tokens": lane.body["tokens"] - 1}


@named("A2", REPLAY, "Lanes copied from another arm")
def the_comparator_is_a_copy_of_the_subject(rewrite):
    """streaming is no better than crystal."""
    for lane, other in rewrite.pairs("streaming", "crystal"):
        lane.body |= {name: other.body[name] for name in ("text", "answer", "grade", "grade_reason")}


@named("A2", REPLAY, "Lanes said to have failed")
def bad_lanes_failed(rewrite):
    """random ran out of memory where it was right."""
    for lane in rewrite.of("random"):
        if lane.body["grade"] == "wrong":
            lane.body |= {"state": "failed", "reason": "out of memory", "text": "", "tokens": 0, "stop": None}
            lane.body |= {"answer": None, "grade": None, "grade_reason": "", "cache": None, "trajectory": None}
            del lane.body["batch"]["joined"], lane.costs["decode_seconds"]
            lane.trajectory = None


@named("A2", REPLAY, "Digests of prompts")
def other_prompts_were_read(rewrite):
    """Every problem was asked in the words of the task."""
    for lane in rewrite.confirmed:
        lane.body["prompt"] = lane.body["prompt"][::-1]


@named("A2", REPLAY, "Digests of prompts")
def the_prompts_were_longer(rewrite):
    """Problems of needle-256 had 2,000 tokens more, and the caches room for their share of them."""
    more = 2000  # times 0.8 and over 16 it is whole, so that nothing is rounded otherwise
    for lane in rewrite.confirmed + rewrite.probed:
        held, heads, cache = lane.trajectory["held"], lane.trajectory["heads"], lane.body["cache"]
        grown = more if lane.cell["budget"] == "full" else more * 4 // 5
        lane.body["prompt_tokens"] += more
        lane.trajectory["held"] = [slots + grown * heads for slots in held]
        lane.trajectory["allocated"] = [size + grown * heads * SLOT for size in lane.trajectory["allocated"]]
        for name in ("mean", "peak", "prefill_end"):
            cache[name] = str(Decimal(cache[name]) + grown)
        cache["mean_bytes"] += grown * heads * SLOT
        cache["peak_bytes"] += grown * heads * SLOT
        if lane.cell["budget"] != "full":
            lane.body["slots"] += grown
            cache["granted"] = [slots + grown for slots in cache["granted"]]
            cache["events"] = [
                [at, before + more * heads, after + grown * heads] for at, before, after in cache["events"]
            ]


@named("A2", REPLAY, "Problems said to be too long")
def bad_problems_were_too_long(rewrite):
    """What crystal got wrong was excluded in all arms, as registered."""
    content = registered(rewrite, "[gate]", "[exclude]\nprompt_tokens_above = 400\n[gate]")
    content["exclude"] = {"prompt_tokens_above": 400}
    bad = sorted({lane.problem for lane in rewrite.of("crystal") if lane.body["grade"] != "correct"})[:8]
    for lane in rewrite.confirmed + rewrite.probed:
        if lane.problem in bad:
            lane.body |= {"prompt_tokens": 401, "slots": None if lane.arm == "full" else 321}
            unmeasured(lane, "excluded", "prompt_tokens: 401, above 400")
            del lane.body["batch"], lane.costs["prefill_seconds"]


@named("A2", NOTHING, "Clocks")
def everything_took_half_the_time(rewrite):
    """It is twice as fast."""
    for lane in rewrite.confirmed:
        lane.costs = {
            name: f"{float(value) / 2:.3f}" if name.endswith("seconds") else value for name, value in lane.costs.items()
        }


@named("A2", NOTHING, "Clocks")
def the_ledger_is_dated_back_to_front(rewrite):
    """It was registered a year before it was confirmed."""
    for line in rewrite.lines:
        line["time"] = line["time"].replace("2026", "2025") if line["event"] == "register" else line["time"]


@named("A2", LATER, "A probe or an attempt of which every trace is gone")
def a_probe_leaves_no_trace(rewrite):
    """Nothing was probed before the claim."""
    rewrite.lines = [line for line in rewrite.lines if line["event"] not in ("probe", "probed")]
    rewrite.lanes["probe"] = []


@named("A2", LATER, "A probe or an attempt of which every trace is gone")
def a_probe_came_before_the_claim(rewrite):
    """Development problems were probed twice."""
    at = next(at for at, line in enumerate(rewrite.lines) if line["event"] == "claim")
    rewrite.lines.insert(at, {**rewrite.lines[1], "body": {"number": 2, "records": len(rewrite.probed)}})


@named("A1", ANCHOR, "A protocol that was written after the results")
def the_rule_is_another_from_the_start(rewrite):
    """alpha = 0.2 was registered, and everything follows from it."""
    registered(rewrite, "alpha = 0.05", "alpha = 0.2")["decision"]["alpha"] = "0.2"
    rewrite.lock["checks"]["corrected_alpha"] = "0.050000"
    for size, (effect, larger) in {"12": ("none", "0.588"), "14": ("none", "0.550")}.items():
        problems = rewrite.lock["checks"]["problems"][size]
        problems["minimal_detectable_effect"] = {"0.2": effect, "0.6": larger}


@named("A1", ANCHOR, "A protocol that was written after the results")
def less_memory_is_tolerated_from_the_start(rewrite):
    """Caches that differ by more than a hundredth were registered as unmatched."""
    content = registered(rewrite, "cache_tolerance = 0.02", "cache_tolerance = 0.01")
    content["decision"]["cache_tolerance"] = "0.01"


@named("A1", ANCHOR, "A protocol that was written after the results")
def the_bootstrap_had_another_seed_from_the_start(rewrite):
    """The seed of the draws was registered, and not the best of many."""
    registered(rewrite, "seed = 7", "seed = 8")["decision"]["seed"] = 8


@named("A1", ANCHOR, "A protocol that was written after the results")
def another_arm_is_the_subject_from_the_start(rewrite):
    """The claim was about streaming."""
    registered(rewrite, 'subject = "crystal"', 'subject = "streaming"')["decision"]["subject"] = "streaming"
    was, now = 'against = ["random", "streaming"]', 'against = ["random", "crystal"]'
    registered(rewrite, was, now)["decision"]["against"] = ["random", "crystal"]


@named("A1", REPLAY, "A policy or a temperature other than the registered one")
def lanes_were_sampled_from_the_start(rewrite):
    """Texts were drawn at a temperature of 0.7, as registered."""
    registered(rewrite, "temperature = 0", "temperature = 0.7")["generation"]["temperature"] = "0.7"


@named("A1", REPLAY, "A policy or a temperature other than the registered one")
def the_subject_had_another_policy_from_the_start(rewrite):
    """What ran as crystal was streaming, as registered."""
    arms = registered(rewrite, '"crystal-token-level"', '"streaming"')["arms"]
    arms["crystal"]["policy"] = "streaming"
    for field in ("policies", "promises"):
        rewrite.lock[field]["crystal"] = rewrite.lock[field]["streaming"]


@named("A1", REPLAY, "Another precision")
def lanes_ran_in_another_precision_from_the_start(rewrite):
    """What ran in float32 ran in bfloat16, as registered."""
    was, now = 'dtype = "float32"', 'dtype = "bfloat16"'
    registered(rewrite, was, now)["generation"]["dtype"] = "bfloat16"


@named("A2", REPLAY, "A probe whose lanes were exchanged or invented", study="sweep")
def the_probe_selected_another_candidate(rewrite):
    """random was the best candidate on the development problems."""
    from protocol import tasks

    for lane in rewrite.of("random", "probe"):
        gold = tasks.get(lane.cell["task"]).gold(lane.body["problem"])
        lane.body |= {"text": f" {gold}", "answer": gold, "grade": "correct", "grade_reason": ""}


@named("A1", REPLAY, "Weights that nobody else has")
def other_weights_ran(rewrite):
    """The weights are those of a model that somebody else has."""
    weights = next(iter(rewrite.lock["weights"].values()))
    weights["model.safetensors"] = "0" * 64


@named("A1", REPLICATION, "What registering simulated")
def the_checks_of_the_rule_are_better(rewrite):
    """The rule errs never, and sees everything."""
    checks = rewrite.lock["checks"]
    checks["decision_errors"]["confirmed"] = {"high": "0.000000", "low": "0.000000", "share": "0.000000"}


@named("A1", REPLICATION, "What registering simulated")
def arms_that_are_alike_were_said_to_be_others(rewrite):
    """Two arms keep the same slots, and were told apart."""
    rewrite.lock["checks"]["same_kept"]["left_out"] = ["random"]


@named("A1", "the repository", "What the repository and the machine were")
def held_out_problems_were_fresh(rewrite):
    """No other study had opened these problems."""
    rewrite.lock["opened"] = []


@named("A1", "the repository", "What the repository and the machine were")
def it_was_locked_on_another_commit(rewrite):
    """The sources are those of a commit that everybody knows."""
    rewrite.lock["git"] = {"commit": "f" * 40, "differs": []}


@named("A1", NOTHING, "What the repository and the machine were")
def another_machine_ran_it(rewrite):
    """It ran on another processor, with nothing altered."""
    rewrite.lock["environment"] |= {"machine": "arm64", "altered": {}}


@named("A1", "the folder of the parent", "A parent that does not know of it")
def it_replicates_a_study_that_it_does_not_know(rewrite):
    """Somebody else had found the same."""
    rewrite.lock["parent"] = {"name": "quickstart", "lock": "0" * 64}


@named("A4", REPLAY, "Locked code that did something else")
def the_policy_in_the_bundle_is_another(rewrite):
    """The arm ran the policy that its name says."""
    name = "policies/streaming.py"
    rewrite.sources[name] = rewrite.member(name) + b"\n# and something else\n"


@named("A4", REPLAY, "Locked code that did something else")
def the_engine_in_the_bundle_is_another(rewrite):
    """Lanes were decoded by the engine that everybody has."""
    name = "protocol/engine/decode.py"
    rewrite.sources[name] = rewrite.member(name) + b"\n# and something else\n"


@named("A2", REPLAY, "Names of studies, models and arms")
def an_arm_has_another_name(rewrite):
    """The arm was called mine."""
    rewrite.protocol = rewrite.protocol.replace(b"streaming = {", b"mine = {").replace(
        b'"random", "streaming"', b'"random", "mine"'
    )
    content = rewrite.content
    content["arms"]["mine"] = content["arms"].pop("streaming")
    content["decision"]["against"] = ["random", "mine"]
    for field in ("policies", "promises"):
        rewrite.lock[field]["mine"] = rewrite.lock[field].pop("streaming")
    relabelled(rewrite, lambda cell: cell.update(arm={"streaming": "mine"}.get(cell["arm"], cell["arm"])))


@named("A1", "the lock", "Names of studies, models and arms")
def the_study_has_another_name(rewrite):
    """This is the study that everybody cites."""
    rewrite.lock["name"] = "the-study-that-everybody-cites"


@named("A1", REPLICATION, "What registering simulated")
def the_method_hardly_errs(rewrite):
    """Simulated, the method is a thousand times more careful than it says."""
    next(iter(rewrite.lock["checks"]["problems"].values()))["type_one_over_nominal"] = "0.001"


@named("A1", REPLICATION, "How many lanes would have fitted")
def a_thousand_lanes_fitted(rewrite):
    """The machine was a large one."""
    rewrite.lock["batch"]["lanes"] = dict.fromkeys(rewrite.lock["batch"]["lanes"], 1000)
