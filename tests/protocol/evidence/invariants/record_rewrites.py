"""Rewrites of a study of `simulated_records`, each with the relations that it breaks."""

import copy

import simulated_records
from simulated_records import HEADS, SLOT

from protocol.evidence import records
from protocol.evidence.invariants.vocabulary import Vocabulary


def short(body):
    return 2 < body["tokens"] < 20


def evicted(body):
    return len(body["cache"]["events"]) > 2


def summed(body, trajectory):
    """The account of a trajectory in its record, by a plain loop."""
    held, allocated = trajectory["held"], trajectory["allocated"]
    slots, size = 0, 0
    for one, other in zip(held, allocated, strict=True):
        slots, size = slots + one, size + other
    heads = trajectory["heads"]
    body["cache"] |= {
        "mean": f"{slots / len(held) / heads:.6f}",
        "peak": f"{max(held) / heads:.6f}",
        "prefill_end": f"{held[0] / heads:.6f}",
        "mean_bytes": size // len(allocated),
        "peak_bytes": max(allocated),
    }


def in_cache(name, value):
    def change(made):
        made.lane("a", "6", evicted)["cache"][name] = value

    return change


def in_body(name, value, *lane):
    def change(made):
        body = made.lane(*lane)
        body[name] = value(body) if callable(value) else value

    return change


def in_costs(name, value, *lane):
    def change(made):
        costs = made.costs(made.lane(*lane))
        costs.pop(name, None)
        if value is not None:
            costs[name] = value

    return change


def in_batch(name, value):
    def change(made):
        batch = made.lane(at=1)["batch"]
        batch[name] = value(batch[name])

    return change


def not_ok(state, **changes):
    def change(made):
        if state == "failed":
            made.__dict__.update(copy.deepcopy(vars(made.others["failing"])))
        next(line["body"] for line in made.lines if line["body"]["state"] == state).update(changes)

    return change


def longer_trajectory(made):
    body = made.lane(test=short)
    trajectory = made.trajectory(body)
    trajectory["held"].append(trajectory["held"][-1] + HEADS)
    trajectory["allocated"].append(trajectory["allocated"][-1])
    summed(body, trajectory)


def held_elsewhere(made):
    body = made.lane("a", "6", evicted)
    trajectory = made.trajectory(body)
    trajectory["held"][1] -= 1
    summed(body, trajectory)


def another_width(made):
    body = made.lane()
    trajectory = made.trajectory(body)
    trajectory["heads"] *= 2
    summed(body, trajectory)


def event_found_more(made):
    made.lane("a", "6", evicted)["cache"]["events"][1][1] += HEADS


def event_of_the_full_cache(made):
    body = made.lane()
    slots = HEADS * body["prompt_tokens"]
    body["cache"] |= {"events": [[0, slots, slots]], "granted": [body["prompt_tokens"]]}


def without_the_last_event(made):
    """What was held is as if it had not fired; there is room for it."""
    body = made.lane("a", "6", evicted)
    trajectory, cache = made.trajectory(body), body["cache"]
    step, before, after = cache["events"].pop()
    cache["granted"].pop()
    trajectory["held"][step:] = [slots + before - after for slots in trajectory["held"][step:]]
    trajectory["allocated"] = [8 * trajectory["allocated"][0]] * len(trajectory["held"])
    summed(body, trajectory)


def an_event_leaves(made, more):
    """So many slots more of every head than was granted, or fewer."""
    body = made.lane("a", "0.5", lambda body: len(body["cache"]["events"]) == 1 and body["tokens"] < 3)
    trajectory = made.trajectory(body)
    body["cache"]["events"][0][2] += more * HEADS
    trajectory["held"] = [slots + more * HEADS for slots in trajectory["held"]]
    summed(body, trajectory)


def an_event_leaves_less(made):
    an_event_leaves(made, -1)


def bytes_of_one_slot_more(made):
    body = made.lane()
    trajectory = made.trajectory(body)
    trajectory["allocated"] = [size + SLOT for size in trajectory["allocated"]]
    summed(body, trajectory)


def bytes_that_change_alone(made):
    body = made.lane("b", "6", evicted)
    trajectory = made.trajectory(body)
    trajectory["allocated"][1] += SLOT * HEADS
    summed(body, trajectory)


def questions_differ(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["outside"])))
    body = made.lane(test=lambda body: body["tokens"] > 2)
    trajectory = made.trajectory(body)
    trajectory["held"][1:] = [slots + HEADS for slots in trajectory["held"][1:]]
    summed(body, trajectory)


def a_long_stay_takes_no_time(made):
    joined = [line for line in made.lines if "joined" in line["body"].get("batch", {})]
    first = max(joined, key=lambda line: (-line["body"]["batch"]["joined"], line["body"]["tokens"]))
    first["costs"]["decode_seconds"] = "0.000"


def uncited_trajectory(made):
    made.sides[0].append({"held": [1], "allocated": [1], "heads": HEADS})


def side_file_turned(made):
    name, side = made.names[0], made.sides[0]
    side.reverse()
    for line in made.lines:
        own, _, at = (line["body"]["trajectory"] or "").partition("#")
        if own == name:
            line["body"]["trajectory"] = records.make_citation(name, len(side) - 1 - int(at))


def side_file_says_it_twice(made):
    made.trajectory(made.lane())


def another_seed(made):
    made.lane()["cell"]["seed"] = 99


def lines_swapped(made):
    made.lines[3], made.lines[4] = made.lines[4], made.lines[3]


def a_line_left_out(made):
    del made.lines[13]


def earlier_attempt(made):
    for line in made.lines[:-3]:
        line["costs"]["attempt"] = 2


def grants_here_and_there(made):
    del made.lane("a", "6")["cache"]["granted"]


def prompt_of_another(made):
    first = made.lines[0]["body"]
    other = next(line["body"]["problem"] for line in made.lines if line["body"]["problem"] != first["problem"])
    for line in made.lines:
        if line["body"]["problem"] == other:
            line["body"]["prompt"] = first["prompt"]


def copied_seeds(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["many"])))
    texts = {}
    for line in made.lines:
        body = line["body"]
        if (body["cell"]["arm"], body["cell"]["budget"]) == ("a", "6"):
            body["text"] = texts.setdefault(body["problem"], body["text"])


def measured_less_than_the_prompt(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["measured"])))
    made.content["full_use"][simulated_records.MODEL]["t"]["held"]["dp1"] = 7


def measured_more_than_fits(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["measured"])))
    made.content["full_use"][simulated_records.MODEL]["t"]["held"]["dp1"] = 19 + 30


def measured_on_fewer_problems(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["measured"])))
    del made.content["full_use"][simulated_records.MODEL]["t"]["held"]["dp1"]


def slots_of_another_share(made):
    made.__dict__.update(copy.deepcopy(vars(made.others["measured"])))
    made.content["full_use"][simulated_records.MODEL]["t"]["slots"]["0.4 of full"] = 10


def words_are_tokens(made):
    made.words = {simulated_records.MODEL: Vocabulary(True, 2)}
    body = made.lane(test=lambda body: body["tokens"] > 2)
    body["text"] += " w1"


def pieces_are_short(made):
    made.words = {simulated_records.MODEL: Vocabulary(False, 2)}
    body = made.lane(test=lambda body: body["tokens"] == 2)
    body["text"] = "seven c"


def marked(body):
    """An event before its mark, and an interval or more after it."""
    return evicted(body) and body["thought"] and 6 < body["thought"] < body["tokens"] - 6


def of_thinking(change):
    def changed(made):
        made.__dict__.update(copy.deepcopy(vars(made.others["thinking"])))
        change(made, made.lane("a", "6", marked))

    return changed


def in_thought(value):
    return of_thinking(lambda made, body: body.update(thought=value(body)))


def nothing_thought(made, body):
    del body["thought"]


def a_mark_elsewhere_in_the_text(made, body):
    """By one word; the trajectory is as it was."""
    made.words = {simulated_records.MODEL: Vocabulary(True, 8, frozenset({"</think>"}))}
    body["text"] = "w1 " + body["text"].removesuffix(" " + body["text"].split(" ")[-1])


def an_event_while_it_answers(made, body):
    """It cuts the lane to its budget, and there is room for it."""
    trajectory, cache, step = made.trajectory(body), body["cache"], body["thought"] + 2
    before = trajectory["held"][step]
    cache["events"].append([step, before, 6 * HEADS])
    cache["granted"].append(6)
    trajectory["held"][step:] = [slots - before + 6 * HEADS for slots in trajectory["held"][step:]]
    summed(body, trajectory)


def no_place_for_the_answer(made, body):
    trajectory, step = made.trajectory(body), body["thought"]
    few = trajectory["allocated"][step - 1]
    trajectory["allocated"][step:] = [few] * len(trajectory["allocated"][step:])
    summed(body, trajectory)


def ended_elsewhere(body):
    return {"eos": "length", "length": "eos"}[body["stop"]]


# The rewrite, and every relation that it breaks: the first is the one that is meant.
def of_agreement(change):
    """Change a lane of an arm that was fed the full cache's text, of some length."""

    def rewrite(made):
        made.__dict__.update(copy.deepcopy(vars(made.others["agreeing"])))
        change(made.lane("a", "6", short))

    return rewrite


def one_more_agrees(body):
    digits = body["divergence"]["agrees"]
    body["divergence"]["agrees"] = digits.replace("0", "1", 1) if "0" in digits else digits.replace("1", "0", 1)


def without_its_last_place(body):
    divergence = body["divergence"]
    divergence["agrees"], divergence["nats"] = divergence["agrees"][:-1], divergence["nats"][:-1]


BREAKS = [
    (of_agreement(one_more_agrees), ["divergence"]),
    (of_agreement(without_its_last_place), ["divergence"]),
    (of_agreement(lambda body: body["divergence"]["nats"].append(0)), ["divergence"]),
    (of_agreement(lambda body: body["divergence"]["nats"].__setitem__(0, 10**9 + 1)), ["divergence"]),
    (of_agreement(lambda body: body.pop("divergence")), ["divergence"]),
    (of_agreement(lambda body: body.update(score="0.123456")), ["divergence"]),
    (of_agreement(lambda body: body.update(text=body["text"][:-1] + "9")), ["one text"]),
    (in_body("divergence", {"agrees": "1", "nats": [0]}, "a", "6"), ["divergence"]),
    (in_body("registration", "8" * 64), ["registration"]),
    (in_body("phase", "probe"), ["registration"]),
    (in_body("slots", 9), ["budget"]),
    (in_body("slots", 9, "b", "6"), ["budget", "granted", "cadence"]),
    (not_ok("excluded", reason="too long"), ["exclusion"]),
    (not_ok("failed", text="so"), ["state", "text"]),
    (not_ok("failed", tokens=1), ["state"]),
    (not_ok("excluded", answer="8"), ["state"]),
    (not_ok("excluded", grade_reason="so"), ["state"]),
    (in_body("stop", ended_elsewhere), ["stop", "moments"]),
    (in_body("text", "so", "full", "full", lambda body: body["tokens"] == 0), ["text"]),
    (words_are_tokens, ["text"]),
    (pieces_are_short, ["text"]),
    (in_thought(lambda body: None), ["cadence", "room"]),
    (in_thought(lambda body: body["thought"] - 1), ["room"]),
    (in_thought(lambda body: body["tokens"] + 1), ["thought", "cadence", "room"]),
    (of_thinking(nothing_thought), ["thought", "cadence", "room"]),
    (of_thinking(lambda made, body: body.update(text="w1 " * body["tokens"])), ["thought"]),
    (of_thinking(a_mark_elsewhere_in_the_text), ["thought"]),
    (of_thinking(an_event_while_it_answers), ["cadence", "room", "side file"]),
    (of_thinking(no_place_for_the_answer), ["room", "side file"]),
    (in_body("thought", 1, "full", "full", lambda body: body["tokens"] > 2), ["thought"]),
    (in_body("answer", "5"), ["no answer"]),
    (in_costs("prefill_seconds", None), ["costs"]),
    (in_costs("decode_seconds", None), ["costs"]),
    (in_costs("lanes", 5), ["costs"]),
    (in_costs("device", None), ["costs"]),
    (in_costs("host", None), ["costs"]),
    (in_body("tokens", lambda body: body["tokens"] + 1, "full", "full", lambda b: 1 < b["tokens"] < 20), ["moments"]),
    (longer_trajectory, ["moments", "joined", "side file"]),
    (another_width, ["heads", "growth", "room", "side file"]),
    (in_cache("mean", "10.000000"), ["summary"]),
    (in_cache("peak", "10.500000"), ["summary"]),
    (in_cache("prefill_end", "5.000000"), ["summary"]),
    (in_cache("mean_bytes", 7), ["summary"]),
    (in_cache("peak_bytes", 7), ["summary"]),
    (held_elsewhere, ["growth", "side file"]),
    (event_found_more, ["growth"]),
    (event_of_the_full_cache, ["growth", "granted"]),
    (without_the_last_event, ["cadence", "room", "side file"]),
    (in_cache("granted", [6]), ["granted"]),
    (in_cache("granted", [7] * 3), ["granted", "left"]),
    (an_event_leaves_less, ["left", "side file"]),
    (bytes_of_one_slot_more, ["room", "side file"]),
    (bytes_that_change_alone, ["room", "side file"]),
    (in_cache("state_bytes", 0), ["carried"]),
    (lambda made: made.lane()["cache"].update(state_bytes=8), ["carried"]),
    (lambda made: made.lane()["cache"].update(window_bytes=SLOT), ["windows", "room"]),
    (lambda made: made.lane()["cache"].update(reads="6.000000"), ["reads"]),
    (in_body("prompt", "8" * 64), ["one prompt"]),
    (in_body("prompt_tokens", lambda body: body["prompt_tokens"] - 1), ["one prompt", "growth"]),
    (questions_differ, ["one question", "side file"]),
    (in_costs("prefill_seconds", "9.000"), ["one prefill"]),
    (in_batch("problems", lambda problems: problems[::-1]), ["company"]),
    (in_batch("problems", lambda problems: [*problems, "p9"]), ["company"]),
    (in_batch("lanes", lambda lanes: lanes + 1), ["company"]),
    (in_batch("joined", lambda joined: joined + 1), ["joined"]),
    (a_long_stay_takes_no_time, ["clocks"]),
    (uncited_trajectory, ["side file"]),
    (side_file_turned, ["side file"]),
    (side_file_says_it_twice, ["side file"]),
    (another_seed, ["lanes", "order"]),
    (lines_swapped, ["order", "side file"]),
    (a_line_left_out, ["order"]),
    (earlier_attempt, ["attempts"]),
    (grants_here_and_there, ["form", "granted"]),
    (in_body("grade_second", "wrong"), ["form"]),
    (prompt_of_another, ["own prompts"]),
    (copied_seeds, ["own draws"]),
    (measured_less_than_the_prompt, ["full use"]),
    (measured_more_than_fits, ["full use"]),
    (measured_on_fewer_problems, ["full use"]),
    (slots_of_another_share, ["budget"]),
]
