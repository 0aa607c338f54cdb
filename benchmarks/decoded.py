"""The engine of one tree, as `benchmarks.reasoning --before` runs it: started once, asked round by round.

Decodes development problems as registrations/alpha-chain does: all arms, budgets and seeds of the confirmed
protocol in one batch of lanes. For every line that comes in it decodes them once and answers with a line:
process time, tokens, and a digest of texts, events, slots held and bytes.

    PYTHONPATH=TREE python -P benchmarks/decoded.py MODEL PROBLEMS
"""

from __future__ import annotations

import itertools
import json
import sys
from hashlib import sha256
from pathlib import Path
from time import process_time

import torch

from protocol import engine
from protocol.models import sources
from protocol.models.load import load
from protocol.plan import grid
from protocol.tasks import held_out_guard, prompting
from protocol.workspace import planned_study
from splits import load as split

REGISTRATION = Path("registrations/alpha-chain")


def main(source: str, problems: int) -> None:
    _, registered = planned_study.read_protocol(REGISTRATION)
    assert registered.sweep is not None
    protocol = registered.confirm_design(registered.sweep.candidates[0])
    settings, task = protocol.generation, protocol.tasks[0]
    torch.set_num_threads(settings.threads)
    plan = planned_study.PlannedStudy(protocol, sources.cache_home())
    model = load(source, plan.home)
    counter = prompting.counter(model.tokenizer)
    requests = []
    for problem in split(task.name).dev[:problems]:
        built = held_out_guard.build(plan.tasks[task.name], task.name, problem, counter)
        context, query = prompting.render(built, model.tokenizer, task.query, "")
        prompt = engine.Prompt(tuple(context), tuple(query))
        lanes = []
        for arm, budget, seed in itertools.product(protocol.arms, protocol.budgets, protocol.seeds):
            cell = grid.Cell(source, task.name, str(budget), arm.name, seed)
            policy = grid.policy_of(protocol, cell, None)
            slots = budget.count_slots(len(prompt.context)) if policy.evicts else None
            lanes.append(engine.Lane(f"{arm.name}/{budget}/{seed}", policy, slots, seed))
        requests.append(engine.Request(built.id, prompt, tuple(lanes)))
    for _ in sys.stdin:
        start = process_time()
        run = engine.run(
            model,
            requests,
            max_new_tokens=task.max_new_tokens,
            temperature=float(settings.temperature),
            top_p=float(1 if settings.top_p is None else settings.top_p),
            max_concurrent=settings.lanes_per_batch,
            prefill_chunk=settings.prefill_chunk,
            first_event=settings.steps_before_eviction,
        )
        seconds = process_time() - start
        every = (one for answers in run.answers for one in answers.outcomes)
        made = [one for one in every if isinstance(one, engine.Outcome)]  # of one that failed, no tokens are counted
        told = [(one.token_ids, one.stop, one.slots, one.events, one.allocated, one.state_bytes) for one in made]
        tokens, digest = sum(len(one.token_ids) for one in made), sha256(repr(told).encode()).hexdigest()
        print(json.dumps({"seconds": seconds, "tokens": tokens, "digest": digest}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
