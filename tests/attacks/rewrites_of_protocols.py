"""protocol.toml and the lock are edited alike, and everything after them: what was registered fits itself,
and the records were not made so.
"""

from rewrite_cases import named
from rewriting import Rewrite


def registered(rewrite: Rewrite, was: str, now: str) -> dict:
    """Edits protocol.toml; the content of the lock is the caller's."""
    assert was.encode() in rewrite.protocol, was
    rewrite.protocol = rewrite.protocol.replace(was.encode(), now.encode())
    return rewrite.content


def relabelled(rewrite: Rewrite, change) -> None:
    """Edits every cell: of the grid, the records and the probe."""
    for cell in rewrite.lock["grid"]:
        named = dict(zip(("model", "task", "budget", "arm", "seed"), cell, strict=True))
        change(named)
        cell[:] = named.values()
    for lane in rewrite.confirmed + rewrite.probed:
        change(lane.cell)


@named("A2", "sense", "budget")
def a_smaller_budget_was_registered(rewrite):
    """The arms held 0.2 of the prompt, as registered."""
    registered(rewrite, "budgets = [0.8]", "budgets = [0.2]")["budgets"] = ["0.2"]
    relabelled(rewrite, lambda cell: cell.update(budget={"0.8": "0.2"}.get(cell["budget"], cell["budget"])))


@named("A2", "sense", "room|one question|moments")
def questions_stood_outside(rewrite):
    """The question could not be seen when slots were chosen, as registered."""
    registered(rewrite, 'query = "inside"', 'query = "outside"')["tasks"][0]["query"] = "outside"


@named("A2", "sense", "moments|one question")
def questions_stood_inside(rewrite):
    """The question could be seen when slots were chosen, as registered."""
    registered(rewrite, 'query = "outside"', 'query = "inside"')["tasks"][1]["query"] = "inside"


@named("A2", "sense", "order")
def tasks_were_to_run_in_another_order(rewrite):
    """The association ran first, as registered."""
    text = rewrite.protocol.decode()
    start, first, rest = text.split("[[tasks]]\n", 2)
    second, arms = rest.split("[arms]\n")
    rewrite.protocol = f"{start}[[tasks]]\n{second}[[tasks]]\n{first}[arms]\n{arms}".encode()
    rewrite.content["tasks"].reverse()
    grid = rewrite.lock["grid"]
    rewrite.lock["grid"] = [*grid[4:], *grid[:4]]


@named("A2", "sense|grid", "lanes|registered records are missing")
def an_arm_was_registered_that_never_ran(rewrite):
    """A fifth arm was registered, and hopeless."""
    arm = 'h2o = { policy = "h2o" }\n[generation]'
    registered(rewrite, "[generation]", arm)["arms"]["h2o"] = {"policy": "h2o"}
    cells = rewrite.lock["grid"]
    for at, task in ((8, "association-256"), (4, "needle-256")):
        cells.insert(at, [*cells[1][:1], task, "0.8", "h2o", 0])
    for field in ("policies", "promises"):
        rewrite.lock[field]["h2o"] = rewrite.lock[field]["streaming"]


@named("A2", "sense|registered", "weights|heads|model")
def an_embedded_model_ran(rewrite):
    """chain-llama ran, which everybody has."""
    was = rewrite.content["models"][0]
    registered(rewrite, was, "chain-llama")["models"] = ["chain-llama"]
    relabelled(rewrite, lambda cell: cell.update(model="chain-llama"))
    for part in (rewrite.lock["weights"], rewrite.lock["batch"]["lanes"], rewrite.lock["checks"]["same_kept"]["on"]):
        part["chain-llama"] = part.pop(was)


@named("A4", "grades", "lanes differ")
def the_generator_in_the_bundle_asks_for_another_answer(rewrite):
    """The answers were those that the locked task asks for."""
    name = "protocol/tasks/needle.py"
    rewrite.sources[name] = rewrite.member(name) + b"\nANSWER = '1'\n"
    lane = rewrite.of("crystal")[0]
    lane.body |= {"grade": "correct", "answer": "1", "grade_reason": ""}
