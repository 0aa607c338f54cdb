"""The fields of a line of cost/<machine>.jsonl, from which docs/cost.schema.json is generated."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from protocol.formats import fields
from protocol.formats.fields import DIGEST, TIME, Choice, Field, Integer, Kind, OrNull, Table, Text

STATES = ("ok", "out of memory", "failed")
_SECONDS = Text(r"[0-9]+\.[0-9]{9}", 'seconds with nine places, such as "0.250000000"')
_RATE = Text(r"[0-9]+\.[0-9]{3}", 'a number with three places, such as "1200.500"')
_LOAD = Text(r"[0-9]+\.[0-9]{2}", 'a number with two places, such as "0.25"')
_CUDA = "the device is not a CUDA device"
_PROC = "the system does not report it"

MACHINE = Table(
    {
        "host": Field(Text(), "Its name."),
        "system": Field(Text(), "Kernel and architecture."),
        "processor": Field(Text(), "The processor model, as the system reports it; may be empty."),
        "cores": Field(Integer(1), "Logical cores."),
        "memory": Field(Integer(1), "Bytes of main memory."),
        "device": Field(Text(), 'The accelerator, or "cpu".'),
        "device_memory": Field(Integer(1), "Bytes of the accelerator's memory.", if_absent=_CUDA),
        "torch": Field(Text(), "Its version."),
        "threads": Field(Integer(1), "Number of threads that torch uses, as registered."),
        "clock": Field(Text(), "The clock that measured the seconds."),
    }
)
_POINT = Table(
    {
        "model": Field(Text(), "The model."),
        "prompt_tokens": Field(Integer(2), "Tokens of each prompt."),
        "lanes": Field(Integer(1), "Lanes decoded at once, each with its own prompt."),
        "budget": Field(Text(), 'As in a record; "full" for an arm that never evicts.'),
        "arm": Field(Text(), "The arm."),
    }
)
_PHASE: Mapping[str, Field] = {
    "tokens": Field(Integer(1), "Tokens that were fed, summed over all lanes."),
    "seconds": Field(_SECONDS, "Wall-clock seconds of the timed run."),
    "cpu_seconds": Field(_SECONDS, "Processor time of the process over all cores, in the same run."),
    "tokens_per_second": Field(_RATE, "The tokens divided by the seconds."),
    "rss_peak": Field(Integer(1), "The largest resident set of the preceding memory run.", if_absent=_PROC),
    "allocated_peak": Field(
        Integer(1), "torch.cuda.max_memory_allocated of the preceding memory run.", if_absent=_CUDA
    ),
    "reserved_peak": Field(Integer(1), "torch.cuda.max_memory_reserved of the preceding memory run.", if_absent=_CUDA),
}
_MEMORY = Table(
    {
        "weights": Field(Integer(1), "Bytes of the model's parameters."),
        "heads": Field(Integer(1), "Layers times KV heads."),
        "slot": Field(Integer(1), "Bytes of one slot of one KV head in one layer, as the arm stores it."),
        "held": Field(Integer(1), "Slots that all lanes held after the prefill, over layers and KV heads."),
        "room": Field(Integer(1), "Bytes allocated for keys and values after the prefill."),
        "room_peak": Field(Integer(1), "The most bytes allocated for keys and values in the whole run."),
        "rss_before": Field(Integer(1), "The resident set before the run.", if_absent=_PROC),
        "allocated": Field(Integer(1), "torch.cuda.memory_allocated after the prefill.", if_absent=_CUDA),
        "reserved": Field(Integer(1), "torch.cuda.memory_reserved after the prefill.", if_absent=_CUDA),
    }
)
MEASURED = Table(
    {
        "attempt": Field(Integer(1), "The attempt that made the measurement."),
        "repetition": Field(Integer(1), "From 1."),
        "point": Field(_POINT, "The settings of the run."),
        "state": Field(Choice(*STATES), "How the run ended."),
        "reason": Field(Text(), "Why the run is not ok; empty if it is ok."),
        "slots": Field(OrNull(Integer(1)), "The budget per KV head and layer; null without one."),
        "prompts": Field(DIGEST, "Digest of the canonical token ids of all prompts."),
        "prefill": Field(Table(_PHASE), "From the start until every lane has its slots and its first token."),
        "decode": Field(Table(_PHASE), "From the end of the prefill to the last token."),
        "memory": Field(_MEMORY, "The memory of the slots."),
        "load": Field(
            Table(
                {
                    "before": Field(_LOAD, "Load average of the last minute before the runs."),
                    "after": Field(_LOAD, "Load average of the last minute after the runs."),
                }
            ),
            "How busy the machine was before and after the runs.",
            if_absent=_PROC,
        ),
        "time": Field(TIME, "UTC time at the start, by the machine's clock; it proves nothing."),
    }
)
OK_ONLY = ("prefill", "decode", "memory")  # present if and only if the state is ok
_FIRST = Table(
    {
        "registration": Field(DIGEST, "Digest of the lock."),
        "machine": Field(MACHINE, "The machine and software of every line in this file."),
    }
)
_FAILED = Table({name: field for name, field in MEASURED.fields.items() if name not in OK_ONLY})
BODIES = (_FIRST, _FAILED, MEASURED)  # of the first line, of a failed repetition, of a successful one
EVENTS: Mapping[str, Field] = MappingProxyType(
    {
        "cost": Field(
            Table(
                {
                    "number": Field(Integer(1), "The attempt, from 1."),
                    "machine": Field(Text(), "The measurement file of the machine."),
                    "records": Field(Integer(), "The number of repetitions that were already in the file."),
                }
            ),
            "An attempt to measure time and memory began.",
        ),
        "costed": Field(
            Table(
                {
                    "machine": Field(Text(), "The measurement file of the machine."),
                    "records": Field(Integer(), "The number of repetitions in it."),
                    "head": Field(DIGEST, "The chain of its last line."),
                }
            ),
            "The attempt came to its end.",
        ),
    }
)


def find_fault(body: Any, index: int) -> str | None:
    """Return the fault of a line's `body`, beginning with the field; else None. index: of the line in its file."""
    if index == 0:
        return fields.find_fault(_FIRST, body, "body")
    ok = isinstance(body, Mapping) and body.get("state") == "ok"
    kind: Kind = MEASURED if ok else _FAILED
    if wrong := fields.find_fault(kind, body, "body"):
        return wrong
    if bool(body["reason"]) == ok:
        return f"body.reason: must {'be empty' if ok else 'give a reason'} in the state {body['state']!r}"
    return None
