"""Every invariant, once: the audit's check, the table in docs/records.md and the tests follow from this list.
"""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.evidence.relations import (
    of_company,
    of_memory,
    of_records,
    of_studies,
)
from protocol.evidence.relations.relation import Relation

__all__ = ["FREE", "RELATIONS"]

RELATIONS: tuple[Relation, ...] = (
    *of_records.RELATIONS,
    *of_memory.RELATIONS,
    *of_company.RELATIONS,
    *of_studies.RELATIONS,
)
# Fields that invariants check in part or not at all, and what checks the rest.
FREE: Mapping[str, str] = MappingProxyType(
    {
        "text": "what a model said: graded again by the audit, decoded again by a replay",
        "answer": "read out of the text: graded again by the audit",
        "grade": "read out of the text: graded again by the audit",
        "score": "read out of the text: graded again by the audit",
        "grade_reason": "said of the text: graded again by the audit",
        "grade_second": "read out of the text: graded again by the audit",
        "score_second": "read out of the text: graded again by the audit",
        "cache.state_bytes": "at least what positions take: a replay measures the rest",
        "prompt": "the digest of tokens: a replay makes the prompt again",
        "costs.prefill_seconds": "a clock's: one value a problem, any value",
        "costs.decode_seconds": "a clock's: only their order follows",
        "costs.executor": "who ran it: of no number",
        "costs.host": "who ran it: of no number",
        "costs.device": "who ran it: the lock says which kind of device counts",
    }
)
