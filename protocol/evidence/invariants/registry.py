"""Every invariant, once: the audit's check, the table in docs/records.md and the tests follow from this list."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType

from protocol.evidence.invariants import batch_invariants, memory_invariants, record_invariants, study_invariants
from protocol.evidence.invariants.invariant import Invariant


def _list_declared(*modules: ModuleType) -> Iterator[Invariant]:
    """Yield the invariants of modules, in the order in which they are defined."""
    for module in modules:
        yield from (value for value in vars(module).values() if isinstance(value, Invariant))


INVARIANTS = tuple(_list_declared(record_invariants, memory_invariants, batch_invariants, study_invariants))
# Fields that invariants check in part or not at all, and what checks the rest.
UNCHECKED_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "text": "what a model said: graded again by the audit, decoded again by a replay",
        "answer": "read out of the text: graded again by the audit",
        "grade": "read out of the text: graded again by the audit",
        "score": "read out of the text: graded again by the audit",
        "grade_reason": "said of the text: graded again by the audit",
        "grade_second": "read out of the text: graded again by the audit",
        "score_second": "read out of the text: graded again by the audit",
        "cache.reads": "between the bounds of its pages and all slots: a replay counts it",
        "cache.state_bytes": "at least what positions take: a replay measures the rest",
        "prompt": "the digest of tokens: a replay makes the prompt again",
        "costs.prefill_seconds": "a clock's: one value a problem, any value",
        "costs.decode_seconds": "a clock's: only their order follows",
        "costs.executor": "who ran it: of no number",
        "costs.host": "who ran it: of no number",
        "costs.device": "which accelerator: the lock says whether it was one",
    }
)
