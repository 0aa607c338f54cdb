"""A claim or a folder shows a witness that there was not, or hides one that there was."""

import hashlib

from rewrite_cases import named
from rewrites_of_folders import put
from rewriting import Rewrite

PROOF = b'{"branch":"kv-prereg-anchors","commit":"' + b"0" * 40 + b'","remote":"https://nowhere.invalid"}\n'


def cite(rewrite: Rewrite, proofs: dict[str, bytes], **present: bytes) -> None:
    """The claim cites `proofs`; anchors/ has those, and in their place `present`."""
    cited = {name: hashlib.sha256(data).hexdigest() for name, data in proofs.items()}
    rewrite.later["claim"] = lambda claim: claim | {"witness": cited}
    for name, data in present.items():
        rewrite.last.append(put(f"anchors/lock.{name}", data))


@named("A13", "claim", "cites a proof of the lock that is missing: anchors/'lock.git.json'")
def the_claim_cites_a_proof_that_nobody_has(rewrite):
    """A remote witnessed the lock."""
    cite(rewrite, {"lock.git.json": PROOF})


@named("A13", "claim", "cites a proof of the lock that is missing")
def the_claim_cites_a_file_elsewhere_as_a_proof(rewrite):
    """The lock is its own witness."""
    cite(rewrite, {"../lock.json": PROOF})


@named("A13", "claim", "differs from the proof of the lock that claim.json cites")
def the_cited_proof_was_exchanged(rewrite):
    """The remote is one that a reader trusts."""
    cite(rewrite, {"lock.tsr": PROOF}, tsr=b"another")


@named("A13", "anchors", "lock.sigstore.json: is not a proof from any witness that this release knows")
def a_witness_that_is_not_known_is_cited(rewrite):
    """A log that everybody reads has the lock."""
    cite(rewrite, {"lock.sigstore.json": PROOF})
    rewrite.last.append(put("anchors/lock.sigstore.json", PROOF))


@named("A13", "claim", "witness")
def the_claim_says_in_words_who_witnessed_it(rewrite):
    """A committee saw the lock."""
    rewrite.later["claim"] = lambda claim: claim | {"witness": "a committee"}


@named("A13", "claim", "witness")
def the_claim_names_a_witness_by_no_digest(rewrite):
    """As above."""
    rewrite.later["claim"] = lambda claim: claim | {"witness": {"lock.git.json": "seen"}}


@named("A13", "registered|protocol", "witness")
def the_lock_says_that_a_witness_was_registered(rewrite):
    """Somebody was to stamp the lock, whom the protocol does not name."""
    rewrite.content["witness"] = {"kind": "git", "remote": "origin"}


def judged(rewrite: Rewrite, **fields: object) -> None:
    rewrite.keeps_judgement = True
    rewrite.later["verdict"] = lambda verdict: verdict | {"judged": verdict["judged"] | fields}


@named("A13", "judgement", "qualifiers")
def the_verdict_lost_its_qualifiers(rewrite):
    """Nothing qualifies the word; it reads as those of before qualifiers."""
    rewrite.keeps_judgement = True
    rewrite.later["verdict"] = lambda verdict: (
        verdict | {"judged": {name: value for name, value in verdict["judged"].items() if name != "qualifiers"}}
    )


@named("A13", "judgement", "qualifiers")
def the_verdict_calls_itself_witnessed(rewrite):
    """A witness stands behind the word."""
    judged(rewrite, qualifiers=[{"word": "WITNESSED", "text": "by a committee"}])


@named("A13", "judgement", "witness")
def the_verdict_has_a_field_of_witnesses(rewrite):
    """As above."""
    judged(rewrite, witness="ANCHORED (lock by git)")


@named("A13", "judgement", "differs from what today's analysis gives")
def another_library_made_it_confirmed(rewrite):
    """Another numpy confirms what this one does not: the word follows from the words of the contrasts, and those
    from numbers."""
    rewrite.lock["environment"]["distributions"]["numpy"]["version"] = "0.0.1"
    judged(rewrite, verdict="CONFIRMED", title="Another study")
