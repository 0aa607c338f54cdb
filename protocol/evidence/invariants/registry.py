"""Every invariant, once: the audit's check, the table in docs/records.md and the tests follow from this list."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.evidence.invariants import batch_invariants, memory_invariants, record_invariants, study_invariants
from protocol.evidence.invariants.invariant import list_declared

INVARIANTS = list_declared(record_invariants, memory_invariants, batch_invariants, study_invariants)
# Fields that invariants check in part or not at all, and what checks the rest.
UNCHECKED_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "text": "the model's output: audit grades it again, and a replay decodes it again",
        "answer": "extracted from the text: audit grades it again",
        "grade": "extracted from the text: audit grades it again",
        "score": "extracted from the text: audit grades it again",
        "grade_reason": "the grader's remark on the text: audit grades it again",
        "grade_second": "extracted from the text: audit grades it again",
        "score_second": "extracted from the text: audit grades it again",
        "cache.reads": "lies between the bounds of its pages and all slots: a replay counts it exactly",
        "cache.state_bytes": "at least the bytes of the positions: a replay measures it exactly",
        "prompt": "the digest of tokens: a replay rebuilds the prompt",
        "costs.prefill_seconds": "measured by a clock: one value for each problem, which may be any value",
        "costs.decode_seconds": "measured by a clock: only the order of these values is checked",
        "costs.executor": "where the lane ran: no other number depends on it",
        "costs.host": "where the lane ran: no other number depends on it",
        "costs.device": "the kind of accelerator: the lock says only whether there was one",
    }
)
