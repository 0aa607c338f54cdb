"""The records of a judged study as a Croissant 1.0 data set, for catalogues and loaders of data sets.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html. `record_fields` declares the fields. License,
creator, address and date of publication are left out, since no file of a study has them: whoever publishes
the folder adds them if a catalogue needs them.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from analysis.output import headline
from protocol.evidence.bytes import files
from protocol.evidence.bytes.fields import DIGEST, Field, OrNull, Table
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import record_fields, records
from protocol.evidence.run.registration import VERDICT, Registration

__all__ = ["LISTS", "NUMBERS", "of"]

CONFORMS = "http://mlcommons.org/croissant/1.0"
# The @context that the specification prescribes, verbatim.
CONTEXT: Mapping[str, Any] = MappingProxyType(
    {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "citeAs": "cr:citeAs",
        "column": "cr:column",
        "conformsTo": "dct:conformsTo",
        "cr": "http://mlcommons.org/croissant/",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "dct": "http://purl.org/dc/terms/",
        "equivalentProperty": "cr:equivalentProperty",
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "extract": "cr:extract",
        "field": "cr:field",
        "fileObject": "cr:fileObject",
        "fileProperty": "cr:fileProperty",
        "fileSet": "cr:fileSet",
        "format": "cr:format",
        "includes": "cr:includes",
        "isLiveDataset": "cr:isLiveDataset",
        "jsonPath": "cr:jsonPath",
        "key": "cr:key",
        "md5": "cr:md5",
        "parentField": "cr:parentField",
        "path": "cr:path",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "recordSet": "cr:recordSet",
        "references": "cr:references",
        "regex": "cr:regex",
        "repeated": "cr:repeated",
        "replace": "cr:replace",
        "samplingRate": "cr:samplingRate",
        "sc": "https://schema.org/",
        "separator": "cr:separator",
        "source": "cr:source",
        "subField": "cr:subField",
        "transform": "cr:transform",
    }
)
# Types of numbers, by path in the body of a record; all other fields are text.
NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("cell.seed", "prompt_tokens", "slots", "tokens", "thought"), "sc:Integer"),
        **dict.fromkeys(("cache.mean_bytes", "cache.peak_bytes", "cache.state_bytes"), "sc:Integer"),
        **dict.fromkeys(("score", "score_second"), "sc:Float"),
        **dict.fromkeys(("cache.mean", "cache.peak", "cache.prefill_end"), "sc:Float"),
    }
)
LISTS = ("cache.events", "cache.granted", "batch")  # not described as columns; only in the file
SETS = MappingProxyType(
    {"confirm": "One row for each registered lane.", "probe": "Lanes on development problems, tried before."}
)


def of(study: Registration) -> dict[str, Any]:
    """Return the description of a judged registration, with paths relative to the folder of its lock.json.

    Raises BadInput without a verdict: until then nobody looks at held-out records.
    """
    if not study.has(VERDICT):
        raise BadInput(f"{study.folder} has no verdict; run: kv-prereg confirm {study.folder}")
    phases = [phase for phase in SETS if (study.folder / _shard(phase)).is_file()]
    said = headline.line(study.verdict.content["judged"])
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "dct:conformsTo": CONFORMS,
        "name": study.lock.content["name"],
        "description": f"{study.registered['question']} Verdict of the registered rule: {said}. Lock: "
        f"sha256:{study.lock.digest}. Whether this evidence holds, kv-prereg audit says.",
        "keywords": ["KV cache", "cache eviction", "pre-registration", *study.registered["models"]],
        "distribution": [_file(study, phase) for phase in phases],
        "recordSet": [_rows(phase) for phase in phases],
    }


def _shard(phase: str) -> str:
    return f"{records.FOLDERS[phase]}/shard-0.jsonl"


def _file(study: Registration, phase: str) -> dict[str, Any]:
    name = _shard(phase)
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "encodingFormat": "application/jsonlines",
        "sha256": files.plain_sha256(study.folder / name),
    }


def _rows(phase: str) -> dict[str, Any]:
    name = records.FOLDERS[phase]
    columns = [_column(phase, path, field) for path, field in _scalars(record_fields.BODY.fields)]
    digest = Field(DIGEST, "Digest of the record, by which chain and seal name it.")
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": SETS[phase],
        "key": {"@id": f"{name}/sha256"},
        "field": [*columns, _column(phase, "sha256", digest)],
    }


def _scalars(fields: Mapping[str, Field], above: str = "") -> Iterator[tuple[str, Field]]:
    """Yield each field that holds a single value, with its path."""
    for name, field in fields.items():
        path = f"{above}{name}"
        kind = field.kind.kind if isinstance(field.kind, OrNull) else field.kind
        if path in LISTS:
            continue
        if isinstance(kind, Table):
            yield from _scalars(kind.fields, f"{path}.")
        else:
            yield path, field


def _column(phase: str, path: str, field: Field) -> dict[str, Any]:
    """Describe a field of the body, or the digest of the record, which is outside of the body."""
    beside = path == "sha256"
    source: dict[str, Any] = {
        "fileObject": {"@id": _shard(phase)},
        "extract": {"column": path if beside else "body"},
    }
    if not beside:
        source["transform"] = {"jsonPath": f"$.{path}"}
    column = path.replace(".", "_").removeprefix("cell_")
    return {
        "@type": "cr:Field",
        "@id": f"{records.FOLDERS[phase]}/{column}",
        "name": column,
        "description": field.meaning + (f" Left out where: {field.without}." if field.without else ""),
        "dataType": NUMBERS.get(path, "sc:Text"),
        "source": source,
    }
