"""What lanes did is made to be something else, and counted and judged as if it had been so."""

from rewrite_cases import named


@named("A2", "grades", "grade")
def every_grade_of_the_subject_is_flipped(rewrite):
    """crystal answers everything."""
    for lane in rewrite.of("crystal"):
        lane.body |= {"grade": "correct", "answer": "1234", "grade_reason": ""}


@named("A2", "grades", "timeout", status="cannot tell")
def no_answer_is_made_a_timeout(rewrite):
    """The comparator was never verified in time."""
    for lane in rewrite.of("random"):
        lane.body |= {"grade": "timeout", "answer": "1"}


@named("A2", "grades", "error", status="cannot tell")
def no_answer_is_made_an_error_of_the_grader(rewrite):
    """The lanes of the comparator have no grade."""
    for lane in rewrite.of("random"):
        lane.body |= {"grade": "error", "grade_reason": "the grader crashed"}


@named("A2", "grades", "answer")
def another_answer_was_extracted(rewrite):
    """The text had an answer, which was wrong."""
    rewrite.of("full")[0].body |= {"answer": "7", "grade": "wrong", "grade_reason": ""}


@named("A2", "grades", "grade")
def the_text_of_a_truncated_answer_is_completed(rewrite):
    """The answer came within its 24 tokens."""
    for lane in rewrite.of("crystal"):
        lane.body["text"] += " and so on and so on, one word after the other, the answer is 1"


@named("A2", "grades", "grade")
def texts_are_exchanged_between_problems(rewrite):
    """Each answer stands with the problem that it answers."""
    lanes = rewrite.of("full")
    told = next(lane for lane in lanes if lane.body["answer"] is not None)
    other = next(lane for lane in lanes if lane.body["answer"] is None)
    told.body["text"], other.body["text"] = other.body["text"], told.body["text"]


@named("A2", "sense", "moments")
def answers_are_shorter(rewrite):
    """crystal answers in ten tokens."""
    for lane in rewrite.of("crystal"):
        lane.body |= {"stop": "eos", "tokens": 10}


@named("A2", "sense", "one prompt")
def an_arm_read_another_prompt(rewrite):
    """All arms were asked the same."""
    for lane in rewrite.of("crystal"):
        lane.body["prompt"] = "0123456789abcdef" * 4


@named("A2", "sense", "own prompts", status="cannot tell")
def two_problems_had_one_prompt(rewrite):
    """They were two problems."""
    first, second = rewrite.of("full")[0].problem, rewrite.of("full")[1].problem
    digest = next(lane.body["prompt"] for lane in rewrite.confirmed if lane.problem == first)
    for lane in rewrite.confirmed:
        if lane.problem == second:
            lane.body["prompt"] = digest


@named("A2", "probe", "a held-out prompt was probed")
def a_held_out_prompt_had_been_probed(rewrite):
    """What was probed had not been held out."""
    rewrite.probed[0].body["prompt"] = rewrite.confirmed[0].body["prompt"]


@named("A2", "sense", "budget")
def prompts_are_longer(rewrite):
    """The prompts had ten times as many tokens."""
    for lane in rewrite.confirmed:
        lane.body["prompt_tokens"] *= 10


@named("A2", "sense", "growth")
def prompts_are_longer_and_budgets_too(rewrite):
    """The prompts had ten times as many tokens, and the budgets were 0.8 of them."""
    for lane in rewrite.confirmed:
        lane.body["prompt_tokens"] *= 10
        if lane.body["slots"]:
            lane.body["slots"] = -(-lane.body["prompt_tokens"] * 8 // 10)
            lane.body["cache"]["granted"] = [lane.body["slots"]]


@named("A2", "sense", "company")
def more_problems_decoded_together(rewrite):
    """Two problems shared a batch."""
    first, second = (rewrite.confirmed[at].body["problem"] for at in (0, 4))
    for lane in rewrite.confirmed[:8]:
        lane.body["batch"]["problems"] = [first, second]


@named("A2", "records", "decode_seconds")
def a_lane_ended_before_it_began(rewrite):
    """It took less than no time."""
    rewrite.of("crystal")[0].costs["decode_seconds"] = "-1.0"


@named("A2", "sense", "side file")
def a_side_file_holds_what_no_lane_did(rewrite):
    """There was another lane, that nobody recorded."""
    lane = rewrite.of("crystal")[0]
    rewrite.spare = {lane.side: {**lane.trajectory, "held": [4] * len(lane.trajectory["held"])}}


@named("A2", "sense", "order")
def lines_stand_in_another_order(rewrite):
    """The lanes ran in this order."""
    rewrite.confirmed.reverse()


@named("A2", "sense", "order")
def the_lanes_of_one_problem_change_places(rewrite):
    """crystal ran before the full cache."""
    lanes = rewrite.confirmed
    lanes[0], lanes[1] = lanes[1], lanes[0]


@named("A2", "sense", "exclusion")
def a_lane_is_excluded(rewrite):
    """The prompt was too long, as registered."""
    unmeasured(rewrite.of("crystal")[0], "excluded", "prompt_tokens 216 above 200")
    del rewrite.of("crystal")[0].body["batch"]


def unmeasured(lane, state, reason):
    """No number is left of a lane that did not end well."""
    lane.body |= {"state": state, "reason": reason, "text": "", "tokens": 0, "stop": None, "answer": None}
    lane.body |= {"grade": None, "grade_reason": "", "cache": None, "trajectory": None}
    lane.body["batch"].pop("joined", None)
    lane.costs.pop("decode_seconds", None)
    lane.trajectory = None


@named("A2", "sense", "exclusion")
def a_problem_is_excluded(rewrite):
    """The prompt was too long for all arms, as registered."""
    first = rewrite.confirmed[0].problem
    for lane in rewrite.confirmed:
        if lane.problem == first:
            unmeasured(lane, "excluded", "prompt_tokens 216 above 200")
            del lane.body["batch"]
            lane.costs.pop("prefill_seconds", None)


@named("A2", "sense", "state")
def a_lane_that_failed_answered_all_the_same(rewrite):
    """It failed, and its text shows that it was right."""
    lane = rewrite.of("random")[0]
    text = lane.body["text"]
    unmeasured(lane, "failed", "out of memory")
    lane.body["text"] = text


@named("A2", "sense", "summary")
def two_arms_have_changed_places(rewrite):
    """What the full cache did is what crystal did."""
    for lane, other in rewrite.pairs("crystal", "full"):
        lane.trajectory, other.trajectory = other.trajectory, lane.trajectory


@named("A2", "grid", "registered records are missing")
def a_bad_lane_is_left_out(rewrite):
    """All that ran is there."""
    del rewrite.lanes["confirm"][0]


@named("A2", "claim", "attempt")
def an_aborted_attempt_is_merged_into_the_next(rewrite):
    """It ran in one go, and recorded its first lanes in a second attempt."""
    for lane in rewrite.confirmed:
        lane.costs["attempt"] = 2


@named("A2", "sense", "attempts")
def attempts_have_changed_places(rewrite):
    """The second attempt ran first."""
    for number, lane in enumerate(rewrite.confirmed):
        lane.costs["attempt"] = 2 if number < 52 else 1
    at = next(at for at, line in enumerate(rewrite.lines) if line["event"] == "attempt")
    rewrite.lines.insert(at + 1, {**rewrite.lines[at], "body": {"number": 2, "records": 52}})


@named("A2", "grid", "is not registered")
def a_record_is_of_a_development_problem(rewrite):
    """A problem that was probed was held out."""
    dev = rewrite.lock["items"]["needle-256"]["dev"][0]
    first = rewrite.confirmed[0].body["problem"]
    for lane in rewrite.confirmed:
        if lane.body["problem"] == first:
            lane.body["problem"] = dev
            lane.body["batch"]["problems"] = [dev]
