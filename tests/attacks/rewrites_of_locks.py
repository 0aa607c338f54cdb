"""What was registered is made to be something else, after the fact."""

import copy
import json
import re

from rewrite_cases import named
from rewriting import Lane, Rewrite
from studies import ROOT

from protocol.evidence.registration import Registration
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


@named("A1", "registered", "items.needle-256.dev")
def a_held_out_id_was_a_development_problem(rewrite):
    """The problem that went badly was never held out."""
    item = rewrite.lock["items"]["needle-256"]
    moved = item["confirm"].pop()
    item["dev"].append(moved)
    rewrite.lanes["confirm"] = [one for one in rewrite.confirmed if one.body["problem"] != moved]


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


@named("A11", "registered", "sitecustomize.py.?: is in none of the packages")
def a_file_that_python_runs_by_itself_is_bundled(rewrite):
    """What was locked are the packages."""
    rewrite.sources["sitecustomize.py"] = b"print(1)\n"


@named("A1", "registered", "sources: has no file of policies")
def the_policies_are_not_in_the_bundle(rewrite):
    """Whoever wants to know what ran can read it."""
    gone = (name for name in rewrite.lock["sources"] if name.startswith("policies/"))
    rewrite.sources |= dict.fromkeys(gone)


@named("A1", "registered", "environment.torch.threads")
def other_threads_computed(rewrite):
    """It ran on 64 threads."""
    rewrite.lock["environment"]["torch"]["threads"] = 64


@named("A1", "lock", "has version 1, which only the studies that ship with kv-prereg may have")
def it_was_locked_before_policies_were(rewrite):
    """Nobody listed what had been opened, nor what the settings were: locks had no such fields."""
    rewrite.lock["version"] = 1
    for name in ("release", "promises", "policies", "amends", "git", "signer", "ledger", "opened"):
        del rewrite.lock[name]
    del rewrite.lock["batch"]["first_event"]


@named("A1", "registered", "checks.problems.12.minimal_detectable_effect")
def small_differences_would_have_been_found(rewrite):
    """The study reads as if it had the power that it lacks."""
    for size in rewrite.lock["checks"]["problems"].values():
        size["minimal_detectable_effect"] = {"0.2": "0.010", "0.6": "0.010"}


@named("A1", "registered", "protocol.toml: gate: missing")
def it_was_locked_with_the_sources_of_a_study_without_a_gate(rewrite):
    """The code that locked it, which ships with this project, asked for no gate."""
    shipped = Registration(ROOT / "registrations" / "alpha-chain")
    theirs = {name: data for name, data in shipped.source_files.items() if name.startswith("protocol/")}
    ours = [name for name in rewrite.lock["sources"] if name.startswith("protocol/")]
    rewrite.sources |= dict.fromkeys(ours) | theirs
    del rewrite.content["gate"]
    rewrite.protocol = re.sub(rb"\n\[gate\]\n(?:\w+ = .*\n)+", b"\n", rewrite.protocol)


@named("A1", "policies", "promises.crystal.leaves_exactly")
def an_arm_promises_nothing(rewrite):
    """What the arm left was for its policy to say."""
    rewrite.lock["promises"]["crystal"]["leaves_exactly"] = not rewrite.lock["promises"]["crystal"]["leaves_exactly"]


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
