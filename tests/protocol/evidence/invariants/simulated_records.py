"""An honest study without a model: lanes that stop when a draw says so, run by a plain loop, step by step.

Nothing here is told by a formula of the code under test: every forward is walked, and what is held, allocated
and joined is counted on the way.
"""

import random
from collections import deque

from finished_study import promise

from protocol.evidence import records
from protocol.formats import canonical

DIGEST = "7" * 64
HEADS, SLOT = 4, 64
MODEL = "m"
# An event every interval, whatever is held, which may leave less than it is granted.
WHENEVER = {"fires": "every", "leaves_exactly": False, "may_leave_less": True}


def lock(
    *,
    interval=4,
    slack=True,
    first_event=1,
    together=2,
    places=5,
    outside=False,
    budgets=("6", "0.5"),
    seeds=(1, 2),
    longest=None,
    most=30,
    problems=5,
    temperature="0.6",
    thinking=False,
    whenever=False,
    asked=None,
    sizes=None,
    agreement=False,
):
    """What a lock says of lanes. Two arms evict, `a` and `b`, the second of which a probe runs again. asked:
    what arms say beside the problem. sizes: what slots of the arms take, where it says that. agreement: whether
    they are fed the full cache's text.
    """
    generation = {"temperature": temperature, "problems_per_batch": together, "dtype": "float32"}
    if thinking:
        generation["think_only"] = True
    plain = promise("prefill" if not interval else "slack" if slack else "interval", interval=interval or None)
    task = {"name": "t", "query": "outside" if outside else "inside", "max_new_tokens": most}
    content = {"generation": generation, "tasks": [task], "arms": {}, "decision": {"against": ["b"]}}
    if agreement:
        content["outcome"] = {"kind": "agreement"}
    if longest:
        content["exclude"] = {"prompt_tokens_above": longest}
    cells = [("full", "full", seed) for seed in seeds]
    cells += [(budget, arm, seed) for arm in ("a", "b") for budget in budgets for seed in seeds]
    ids = [f"p{number}" for number in range(problems)]
    return {
        "protocol": {"content": content},
        "grid": [[MODEL, "t", *cell] for cell in cells],
        "items": {"t": {"confirm": ids, "dev": [f"d{item}" for item in ids]}},
        "batch": {"lanes": {MODEL: places}, "first_event": first_event},
        "promises": {
            "full": promise("never"),
            "a": plain | (WHENEVER if whenever else {}),
            "b": plain | {"leaves_exactly": False},
        },
        "weights": {},
        "asked": asked or {},
        "slot_bytes": {} if sizes is None else {MODEL: {"heads": HEADS, "width": 8, "arms": sizes}},
        "full_use": {MODEL: {"t": measured(ids)}} if "0.4 of full" in budgets else {},
        "layers": {},
    }


def measured(ids):
    """What the full cache held on development problems. Every prompt has 8 to 19 tokens, every answer room
    for 30: 21 slots are in reach of all.
    """
    return {"held": {f"d{item}": 21 for item in ids}, "mean": "21", "slots": {"0.4 of full": 9}}


class Lane:
    def __init__(self, content, problem, cell, tokens, fewest, draw):
        self.content, self.problem, self.cell = content, problem, cell
        budget, self.arm, self.seed = cell
        self.asked = content["asked"].get(self.arm.removesuffix(" (again)"), "")
        task = content["protocol"]["content"]["tasks"][0]
        self.most = task["max_new_tokens"]
        self.outside = task["query"] == "outside"
        self.prompt_tokens, self.query = tokens
        if self.outside:  # what is asked belongs to the question
            self.query += len(self.asked)
        else:
            self.prompt_tokens += len(self.asked)
        half = self.prompt_tokens // 2 + self.prompt_tokens % 2
        stored = content["slot_bytes"].get(MODEL, {"arms": {}})["arms"]
        own = stored.get(self.arm.removesuffix(" (again)"), {"bytes": SLOT})
        self.bytes = own["bytes"]
        named = {"full": None, "0.5": half, "0.4 of full": 9} | own.get("slots", {})
        self.slots = named[budget] if budget in named else int(budget)
        drawn = draw.choice([0, 1, 2, self.most - 1, self.most, *draw.sample(range(self.most), 3)])
        self.tokens = max(drawn, fewest)
        self.stop = "length" if self.tokens == self.most else "eos"
        promises = content["promises"][self.arm.removesuffix(" (again)")]
        self.interval = promises["interval"]
        if budget in own.get("slots", {}):
            self.interval = own["interval"]
        self.slack = promises["fires"] == "slack"
        self.whenever = promises["fires"] == "every"
        self.wait = content["batch"]["first_event"]
        self.thinking = content["protocol"]["content"]["generation"].get("think_only", False)
        # The place of the mark among its words, if it says one.
        places = [None, *range(1, self.tokens + 1)]
        self.thought = draw.choice([*places, *places[1:3], *places[-1:]]) if self.thinking else None
        self.step = 0
        self.level = self.prompt_tokens  # of each head
        self.divergence = None
        self.events, self.held, self.allocated, self.state = [], [], [], 0

    def evict(self, step):
        before, self.level = self.level, min(self.level, self.slots)
        if self.whenever:
            self.level = max(1, self.level - before % 3)
        self.events.append([step, HEADS * before, HEADS * self.level])
        self.state = max(self.state, 8 * HEADS * self.level * (self.interval is not None))

    def join(self, forwards):
        self.joined = forwards
        if self.slots:
            self.evict(0)
        self.room(self.query, max(0, self.wait - 1))
        self.note()

    def room(self, query, wait, answering=False):
        coming = query + self.most
        if answering:
            coming = self.most - self.step
        elif self.slots and self.interval:
            coming = min(coming, max(0, self.slots - self.level) + query + wait + self.interval)
        capacity, whole = self.level + coming, 0
        while whole < capacity * self.bytes:
            whole += 16 * SLOT
        while (capacity + 1) * self.bytes <= whole:
            capacity += 1
        self.size = HEADS * capacity * self.bytes

    def note(self):
        self.held.append(HEADS * self.level)
        self.allocated.append(self.size)

    def feed(self, count, new):
        self.level += count
        self.step += new
        if self.thought and self.step >= self.thought:
            if self.step == self.thought and self.slots and self.interval:
                self.room(0, 0, answering=True)
        elif self.slots and self.interval and self.step >= self.wait and self.due():
            self.evict(self.step)
            self.room(0, 0)
        self.note()

    def due(self):
        on_time = self.step % self.interval == 0
        if self.whenever:
            return on_time and self.step > 0
        full = self.level >= self.slots + self.interval
        return self.level > self.slots and (full if self.slack else on_time)

    @property
    def ended(self):
        return self.step == self.tokens - (self.stop == "length")


def run(content, phase="confirm", seed=0, fails=0.0, fewest=0):
    """The records of a phase in the order of their lines, and the trajectories of each unit."""
    draw = random.Random(seed)
    registered = content["protocol"]["content"]
    cells = [tuple(cell[2:]) for cell in content["grid"]]
    if phase == "probe":
        cells += [(budget, "b (again)", at) for budget, arm, at in cells if arm == "b"]
    ids = sorted(content["items"]["t"]["dev" if phase == "probe" else "confirm"])
    together = registered["generation"]["problems_per_batch"]
    outside = registered["tasks"][0]["query"] == "outside"
    lines, sides = [], []
    for at in range(0, len(ids), together):
        unit = ids[at : at + together]
        tokens = {problem: (draw.randrange(8, 20), draw.randrange(1, 4) * outside) for problem in unit}
        made = [Lane(content, problem, cell, tokens[problem], fewest, draw) for problem in unit for cell in cells]
        if "outcome" in registered:
            follow(made, draw)
        limit = registered.get("exclude", {}).get("prompt_tokens_above", 1000)
        excluded = {problem for problem in unit if tokens[problem][0] > limit}
        asked = [lane for lane in made if lane.problem not in excluded]
        failed = {id(lane) for lane in asked if draw.random() < fails}
        places = min(content["batch"]["lanes"][MODEL], len(asked))
        decode([lane for lane in in_turn(asked) if id(lane) not in failed], places)
        batch = {"problems": [problem for problem in unit if problem not in excluded], "lanes": places}
        side = []
        for lane in asked:
            own = {"held": lane.held, "allocated": lane.allocated, "heads": HEADS}
            if lane.held and own not in side:
                side.append(own)
        name = canonical.digest(side)
        sides += [side] * bool(side)
        for lane in made:
            body = asked_of(lane, phase)
            costs = {"attempt": 1, "executor": "local", "host": "here", "device": "cpu"}
            if lane.problem in excluded:
                body |= nothing("excluded", f"prompt_tokens: {lane.prompt_tokens}, above {limit}")
            else:
                costs["prefill_seconds"] = f"0.{unit.index(lane.problem)}2{len(lane.asked)}"
                body["batch"] = dict(batch)
                if id(lane) in failed:
                    body |= nothing("failed", "budget below the protected slots")
                else:
                    own = {"held": lane.held, "allocated": lane.allocated, "heads": HEADS}
                    body |= answered(lane, records.make_citation(name, side.index(own)))
                    body["batch"]["joined"] = lane.joined
                    costs["decode_seconds"] = f"{(lane.left - lane.joined) / 100:.3f}"
            lines.append({"body": body, "costs": costs, "sha256": "", "chain": ""})
    return lines, sides


def follow(lanes, draw):
    """Give every lane of an arm that evicts the text of the full cache, and what it would have said at each place."""
    full = {(lane.problem, lane.seed): lane for lane in lanes if lane.arm == "full"}
    for lane in lanes:
        if (leader := full[lane.problem, lane.seed]) is lane:
            continue
        lane.tokens, lane.stop, lane.thought = leader.tokens, leader.stop, leader.thought
        places = lane.tokens + (lane.stop == "eos")
        digits, nats = [draw.choice("011") for _ in range(places)], [draw.randrange(10**6) for _ in range(places)]
        lane.divergence = {"agrees": "".join(digits), "nats": nats}


def in_turn(lanes):
    """Problem by problem, those that are asked the same one after the other, what comes first going first."""
    turns = []
    for lane in lanes:
        if (lane.problem, lane.asked) not in turns:
            turns.append((lane.problem, lane.asked))
    problems = [problem for problem, _ in turns]
    turns.sort(key=lambda turn: problems.index(turn[0]))
    return [lane for turn in turns for lane in lanes if (lane.problem, lane.asked) == turn]


def decode(lanes, places):
    """Lanes join in their order as places are free; those of one prompt that join together read the question
    together.
    """
    waiting, running, forwards = deque(lanes), [], 0
    while waiting or running:
        while waiting and len(running) < places:
            prompt, arrived = (waiting[0].problem, waiting[0].asked), []
            while waiting and (waiting[0].problem, waiting[0].asked) == prompt and len(running) + len(arrived) < places:
                arrived.append(waiting.popleft())
            for lane in arrived:
                lane.join(forwards)
            if arrived[0].outside:
                forwards += 1
                for lane in arrived:
                    lane.feed(lane.query, 0)
            running += leave(arrived, forwards)
        if running:
            forwards += 1
            for lane in running:
                lane.feed(1, 1)
            running = leave(running, forwards)


def leave(lanes, forwards):
    for lane in lanes:
        lane.left = forwards
    return [lane for lane in lanes if not lane.ended]


def asked_of(lane, phase):
    budget, arm, seed = lane.cell
    return {
        "registration": DIGEST,
        "phase": phase,
        "cell": {"model": MODEL, "task": "t", "budget": budget, "arm": arm, "seed": seed},
        "problem": lane.problem,
        "prompt": canonical.digest(lane.problem + lane.asked),
        "prompt_tokens": lane.prompt_tokens,
        "slots": lane.slots,
    }


def nothing(state, reason):
    none = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))
    return {"state": state, "reason": reason, "text": "", "tokens": 0, "grade_reason": "", **none}


def graded(divergence):
    if divergence is None:
        return {"grade": "no answer", "grade_reason": "the text has no number"}
    agrees = [int(digit) for digit in divergence["agrees"]]
    score = f"{round(sum(agrees) / len(agrees), 6):.6f}"
    return {"grade": "scored", "grade_reason": "", "score": score, "divergence": divergence}


def answered(lane, trajectory):
    held, allocated, said = lane.held, lane.allocated, range(1, lane.tokens + 1)
    return {
        "state": "ok",
        "reason": "",
        "text": " ".join("</think>" if at == lane.thought else f"w{lane.seed}" for at in said),
        "tokens": lane.tokens,
        **({"thought": lane.thought} if lane.thinking else {}),
        "stop": lane.stop,
        "answer": None,
        **graded(lane.divergence),
        "trajectory": trajectory,
        "cache": {
            "mean": f"{round(sum(held) / len(held) / HEADS, 6):.6f}",
            "peak": f"{max(held) / HEADS:.6f}",
            "prefill_end": f"{held[0] / HEADS:.6f}",
            "mean_bytes": sum(allocated) // len(allocated),
            "peak_bytes": max(allocated),
            "state_bytes": lane.state,
            "events": lane.events,
            "granted": [lane.slots] * len(lane.events),
        },
    }
