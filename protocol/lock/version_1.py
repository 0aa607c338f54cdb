"""Locks of version 1: those of the studies that ship with this project, and no others.

Their format grew field by field, and nothing in such a lock says which fields it had to have, so that a new one
could leave out what it likes. It is read for the digests below alone, and completed to the shape of version 2.
What other code made of these studies, from their protocols to their verdicts, is excused by the same digests.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from protocol.formats.journal import START
from protocol.lock.promises import derive_promises

SHIPPED = (
    (  # alpha-chain
        "4021e9b8e27ec3ecc76024f2bd3501d026e9a0ee4a03ca415ca6f62fa7448676",
        "79dd26400ece86ac806a332b1f1eb938ba0e5b774ce7462ad12f6f947bbb9068",
    ),
    (  # anatomy-chain
        "77fefa40ca227d42cc5a63bebd1a6b7133e17d5f85adc4ae6e620fc3c2e2a33e",
        "b927a87c4cf21ed6624485c9b89f6478be46f1828dd18692150823e0c599cb73",
    ),
    (  # crystal-ablations
        "6b265e390c4a3390d6c83b4f28908ee0139985d548cfe50d743e8bcccf6109ea",
        "db4e74bfe3866c7b247a8500caab9acbe37e951003e9d8388d77dc38830aea09",
    ),
    (  # crystal-long
        "8afbda9646b6366f4d67786042048732a952f9b72b134e0270fe8b0f9b632c2e",
        "7c105f9aeb3c24874a23c99122ac85c86045614cd7da386397b54e723f31164f",
    ),
    (  # crystal-retrieval
        "2a196565b6090c86d11a97912e49a4e248ce7301f98992fac46e84cf02864e35",
        "196badacdb00171068f64e02a794043db8c306f98346323aafdc3c6437fafcf2",
    ),
    (  # crystal-retrieval-2
        "fd19999bb5a93eacecfd2f2e289233213d7aa0898d40a9a09c5f2eda7ea1a987",
        "474ca4c3e7d23df2e8c30f8538ba6c555e0494dea722eaef2a880fea055d4f5b",
    ),
    (  # gates-chain
        "f70e6263ed22740464f15086b77f9ad125bca3dd8fe97053dacf86afe95e8081",
        "f8d6d978d67213fc6eb7f828f035263b0441aa7e84560a729e1c69462883a3e6",
    ),
    (  # lossless-chain
        "e7ab190dab4a27f3fa754abf4157f605a843bb5cad75af32bf410a34ae740d51",
        "050fddc1f587b9c9c7a644b14ed468e2b185693c761a28e1bf9493775408bf18",
    ),
    (  # lrfu-grid
        "88a1011c32f6d6220518d8af7aa64930ff7ef0370b30b9e5bf49fe64d9eae80d",
        "ab10e1fe2a397245e87c7df5a32b968d65068ff7e2414669f024a3282f6e8737",
    ),
    (  # quickstart
        "7019cd01b1226f5f0dd66847453a401cdc27c3f08196ab9ae8f2da991bfd6918",
        "3d5dd3b36bce94d4dd10b3fa062e4b8d36fab958d14afc6cad3e5bf0d5b47e3c",
    ),
    (  # reasoning-field
        "c4e59658186aa5261b127dddf5f4054eaf73d968a57b7d7d3a7eccd5452efe69",
        "b7501dfbd9d58a94cb81f73b0a53e1eb428edd7e566f6f8293d0e83ff789ed70",
    ),
    (  # retrieval
        "93c693d5c76f78fe1eecb4236303d4d86cca05b2f83e2abc28f7fec7a25f9d20",
        "92b2b23fc7e850271856af2499c2c5abcbe8135bdbf2580c788ebde617658796",
    ),
)
"""The digests of the locks, each with the SHA-256 of its protocol.toml."""
PROTOCOLS: Mapping[str, str] = MappingProxyType(dict(SHIPPED))


def is_replicated(parent: Mapping[str, Any] | None, protocol: str) -> bool:
    """Whether a study replicates one of these, and so needs no gate and no measure of memory if that has none:
    it cites the lock and has the same protocol.toml. parent: the field of its lock; protocol: the SHA-256.
    """
    return parent is not None and PROTOCOLS.get(parent["lock"]) == protocol


def complete(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a lock of version 1 in the shape of version 2.

    `records` says what version 2 takes for granted: whether records say which lanes decoded together
    ("batches"), and what each eviction step was granted ("grants").
    """
    absent: dict[str, Any] = {
        **dict.fromkeys(("release", "amends", "git", "signer")),
        **{name: {} for name in ("policies", "asked", "full_use", "slot_bytes", "layers")},
        "opened": [],
        "judging": 1,
        "chance": {},
        "ledger": {"count": 0, "head": START},
    }
    unchecked: dict[str, Any] = {"golds": {}, "scored": [], **dict.fromkeys(("rule", "decision_errors", "same_kept"))}
    batch = content.get("batch", {})
    return {
        **absent,
        **content,
        "batch": {"lanes": {}, "first_event": 0, **batch},
        "checks": unchecked | content["checks"],
        "promises": dict(_promises(content)),
        "records": {"batches": "batch" in content, "grants": "first_event" in batch},
    }


def restore(derived: Mapping[str, Any], locked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a derived lock with what these studies may have otherwise, from the completed one: settings of
    policies and batches that are not locked, and the file of the rule, of which one contained all.
    """
    restored = {**derived, "records": locked["records"], "judging": 1, "chance": {}}
    restored |= {"policies": {}} if not locked["policies"] else {}
    restored |= {"batch": locked["batch"]} if not locked["records"]["grants"] else {}
    if derived["rule"]["source"] not in locked["sources"]:
        source = "analysis/decisions.py"
        restored["rule"] = {**derived["rule"], "source": source, "sha256": locked["sources"].get(source)}
    return restored


def _promises(content: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
    """Return what the policies promised, from their settings or, where these are not locked, their names."""
    registered = content["protocol"]["content"]
    if "policies" in content:
        return {arm: derive_promises(settings) or {} for arm, settings in content["policies"].items()}
    interval, has_slack = registered["generation"].get("interval"), registered["generation"].get("cadence") != "exact"
    plain = {
        "selection": "policies.selection.TopK()",
        "routing": "policies.routing.Shared()",
        "state": "policies.state.Verbatim()",
        "cadence": "policies.cadence.Cadence()",
        "cadence.slack": str(has_slack),
        "cadence.interval": str(interval),
    }
    return {
        arm: (derive_promises(plain | {"cadence.at_prefill": str(table["policy"] != "full")}) or {})
        | {"leaves_exactly": False}
        for arm, table in registered["arms"].items()
    }
