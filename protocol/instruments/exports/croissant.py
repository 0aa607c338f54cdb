"""The records of a judged study as a Croissant 1.0 data set, for catalogues and loaders of data sets.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html. `record_fields` declares the fields. License,
creator, address and date of publication are left out, since no file of a study has them: whoever publishes
the folder adds them if a catalogue needs them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analysis.rules import verdict_line
from protocol.evidence import records
from protocol.evidence.registration import VERDICT, Registration
from protocol.formats import files, record_fields, shards
from protocol.formats.fields import DIGEST, Field, OrNull, Table
from protocol.formats.refusals import BadInput

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
NUMBER_TYPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("cell.seed", "prompt_tokens", "slots", "tokens", "thought"), "sc:Integer"),
        **dict.fromkeys(("cache.mean_bytes", "cache.peak_bytes", "cache.state_bytes"), "sc:Integer"),
        **dict.fromkeys(("score", "score_second"), "sc:Float"),
        **dict.fromkeys(("cache.mean", "cache.peak", "cache.prefill_end"), "sc:Float"),
    }
)
LIST_FIELDS = ("cache.events", "cache.granted", "batch")  # not described as columns; only in the file
FORMATS = MappingProxyType({".xz": "application/x-xz", ".gz": "application/gzip"})  # of packed shards
RECORD_SETS = MappingProxyType(
    {"confirm": "One row for each registered lane.", "probe": "Lanes on development problems, run before."}
)


def describe_dataset(study: Registration) -> dict[str, Any]:
    """Return the description of a judged registration, with paths relative to the folder of its lock.json.

    Raises BadInput without a verdict: until then nobody looks at held-out records.
    """
    if not study.has(VERDICT):
        raise BadInput(f"{study.folder} has no verdict; run: kv-prereg confirm {study.folder}")
    paths = {phase: path for phase in RECORD_SETS for path in shards.list_shards(study.phase_folder(phase))}
    verdict_text = verdict_line.format_line(study.verdict.content["judged"])
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "dct:conformsTo": CONFORMS,
        "name": study.lock.content["name"],
        "description": (
            f"{study.protocol['question']} Verdict of the registered rule: {verdict_text}. Lock: "
            f"sha256:{study.lock.digest}. kv-prereg audit checks whether this evidence is intact."
        ),
        "keywords": ["KV cache", "cache eviction", "pre-registration", *study.protocol["models"]],
        "distribution": [_describe_file(study, phase, path) for phase, path in paths.items()],
        "recordSet": [_describe_records(phase) for phase in paths],
    }


def _shard_id(phase: str) -> str:
    return f"{records.FOLDERS[phase]}/shard-0.jsonl"


def _describe_file(study: Registration, phase: str, path: Path) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": _shard_id(phase),
        "name": _shard_id(phase),
        "contentUrl": path.relative_to(study.folder).as_posix(),
        "encodingFormat": FORMATS.get(path.suffix, "application/jsonlines"),
        "sha256": files.plain_sha256(path),
    }


def _describe_records(phase: str) -> dict[str, Any]:
    name = records.FOLDERS[phase]
    columns = [_describe_column(phase, path, field) for path, field in _scalar_fields(record_fields.BODY.fields)]
    digest = Field(DIGEST, "Digest of the record, by which the chain and the seal cite it.")
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": RECORD_SETS[phase],
        "key": {"@id": f"{name}/sha256"},
        "field": [*columns, _describe_column(phase, "sha256", digest)],
    }


def _scalar_fields(fields: Mapping[str, Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield each field that holds a single value, with its path."""
    for name, field in fields.items():
        path = f"{prefix}{name}"
        kind = field.kind.kind if isinstance(field.kind, OrNull) else field.kind
        if path in LIST_FIELDS:
            continue
        if isinstance(kind, Table):
            yield from _scalar_fields(kind.fields, f"{path}.")
        else:
            yield path, field


def _describe_column(phase: str, path: str, field: Field) -> dict[str, Any]:
    """Describe a field of the body, or the digest of the record, which is outside of the body."""
    is_digest = path == "sha256"
    source: dict[str, Any] = {
        "fileObject": {"@id": _shard_id(phase)},
        "extract": {"column": path if is_digest else "body"},
    }
    if not is_digest:
        source["transform"] = {"jsonPath": f"$.{path}"}
    column = path.replace(".", "_").removeprefix("cell_")
    return {
        "@type": "cr:Field",
        "@id": f"{records.FOLDERS[phase]}/{column}",
        "name": column,
        "description": field.description + (f" Left out where: {field.if_absent}." if field.if_absent else ""),
        "dataType": NUMBER_TYPES.get(path, "sc:Text"),
        "source": source,
    }
