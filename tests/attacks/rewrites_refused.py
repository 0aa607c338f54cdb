"""What registering refuses stands in a lock all the same, and what a lock says of others is made up."""

from rewrite_cases import named
from rewrites_of_protocols import registered
from rewriting import Rewrite

NOTE = '[generation]\ntemperature = 0\ndtype = "float32"'


def claimed(rewrite: Rewrite, **claim: str) -> None:
    """A claim beside the rule, in the protocol and in the lock."""
    written = ", ".join(f'{name} = "{value}"' for name, value in claim.items())
    content = registered(rewrite, NOTE, f"[claims]\nbest = {{ {written} }}\n{NOTE}")
    content["claims"] = {"best": claim}


@named("A1", "registered", "protocol.toml: claims.best.arm: full never evicts")
def a_claim_is_about_the_full_cache(rewrite):
    """The full cache was claimed to be better than an arm."""
    claimed(rewrite, arm="full", says="better", parent="crystal")


@named("A1", "registered", "protocol.toml: gate: missing")
def no_gate_was_registered(rewrite):
    """The full cache may do whatever it does."""
    registered(rewrite, "[gate]\naccuracy = 0.05\ntruncated = 0.5\n", "")
    del rewrite.content["gate"]


@named("A1", "registered", "protocol.toml: sweep.candidates: name at least two", study="sweep")
def a_sweep_has_one_candidate(rewrite):
    """The winner was chosen from several."""
    written = registered(rewrite, 'candidates = ["h2o", "random"]', 'candidates = ["h2o"]')
    registered(rewrite, 'random = { policy = "random" }\n', "")
    written["sweep"]["candidates"] = ["h2o"]
    rewrite.lanes["probe"] = [lane for lane in rewrite.probed if lane.arm != "random"]
    del written["arms"]["random"], rewrite.lock["policies"]["random"], rewrite.lock["promises"]["random"]


@named("A1", "registered", "protocol.toml: claims.best.arm")
def the_locked_code_refuses_less(rewrite):
    """The code that was locked let the claim in."""
    name = "protocol/plan/checks.py"
    rewrite.sources[name] = rewrite.member(name) + b"\n# More is let in.\n"
    claimed(rewrite, arm="nobody", says="better", parent="crystal")


@named("A1", "policies", "policies.crystal.protect.recent")
def an_arm_hides_behind_one_that_nobody_has(rewrite):
    """Nothing can be told of the policies, since one of them is not installed here."""
    registered(rewrite, 'policy = "streaming"', 'policy = "unheard-of"')
    rewrite.content["arms"]["streaming"]["policy"] = "unheard-of"
    rewrite.lock["policies"]["crystal"]["protect.recent"] = "16"


def amending(rewrite: Rewrite, **other: object) -> None:
    """The lock amends one that is not here, of which nothing had been seen, in the way that `other` says."""
    seen = {"probe": {"attempts": 0, "records": 0}, "selection": False, "claim": False, "records": 0, "verdict": None}
    changed = [{"path": "protocol/decision/alpha", "was": "0.01", "is": "0.05"}]
    about = {"name": "gone", "lock": "0" * 64, "reason": "why", "diff": changed, "after_claim": False}
    rewrite.lock["amends"] = about | {"seen": seen} | other


@named("A1", "amendment", "no folder next to it has the lock that it amends", status="cannot tell")
def what_it_amends_is_not_here(rewrite):
    """It amends a study of which nothing had been seen, and the audit holds."""
    amending(rewrite)


@named("A1", "registered", "amends.after_claim: is false, but amends.seen lists a claim")
def it_amends_before_a_claim_what_was_claimed(rewrite):
    """The amendment came before any claim."""
    amending(rewrite)
    rewrite.lock["amends"]["seen"]["claim"] = True


@named("A1", "registered", "amends.seen: lists records or a verdict")
def it_had_seen_records_without_a_claim(rewrite):
    """Nobody had claimed the problems whose records were seen."""
    amending(rewrite)
    rewrite.lock["amends"]["seen"]["records"] = 96


@named("A1", "registered", "amends.diff: 'protocol/decision/alpha' differs from the value in this lock")
def it_amends_to_what_it_does_not_say(rewrite):
    """The amendment made the rule stricter."""
    amending(rewrite, diff=[{"path": "protocol/decision/alpha", "was": "0.05", "is": "0.01"}])


@named("A1", "registered", "amends.diff: is empty")
def it_amends_nothing(rewrite):
    """The amendment changed no number."""
    amending(rewrite, diff=[])


@named("A1", "registered", "weights.*: has no .*safetensors")
def no_weights_were_locked(rewrite):
    """The model is what was locked."""
    model = next(iter(rewrite.lock["weights"]))
    rewrite.lock["weights"][model] = {}


@named("A1", "registered", "weights.*: 'x' is not a file from which a model is read")
def the_weights_are_of_a_file_that_no_model_has(rewrite):
    """The model is what was locked."""
    next(iter(rewrite.lock["weights"].values()))["x"] = "0" * 64


@named("A1", "registered", "weights.*: has no tokenizer file")
def no_tokenizer_was_locked(rewrite):
    """The model is what was locked."""
    model, names = next(iter(rewrite.lock["weights"].items()))
    rewrite.lock["weights"][model] = {name: digest for name, digest in names.items() if "tokenizer" not in name}


@named("A1", "registered", "environment.distributions: is empty")
def nothing_was_installed(rewrite):
    """It ran on what it says."""
    rewrite.lock["environment"]["distributions"] = {}


@named("A5", "registered", "contains the invisible character U.2800")
def the_question_cannot_be_seen(rewrite):
    """The study asks something."""
    was = rewrite.content["question"]
    registered(rewrite, was, "\u2800")["question"] = "\u2800"
