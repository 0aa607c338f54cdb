"""The arms of a judged study in the schema 0.3.0 of Every Eval Ever (https://evalevalai.com): a document a model.

The schema has results of a model and no contrast: a result is an arm at a budget, with its measured slots, and the
verdict stands in the details of the source, so that no accuracy is read without it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from analysis.rules import verdict_line
from protocol.evidence.registration import VERDICT, Registration
from protocol.formats.refusals import BadInput

SCHEMA = "0.3.0"
MEASURED = ("mean_slots", "peak_slots", "mean_bytes", "mean_tokens")


def build_documents(study: Registration) -> Iterator[dict[str, Any]]:
    """Yield a document for each model of the study. Raises BadInput without a verdict."""
    if not study.has(VERDICT):
        raise BadInput(f"{study.folder} has no verdict; run: kv-prereg confirm {study.folder}")
    judged, content = study.verdict.content["judged"], study.lock.content
    metric = "agreement with the full cache on its text" if "outcome" in study.protocol else "accuracy"
    retrieved = str(int(datetime.fromisoformat(study.entries[-1].time).timestamp()))
    for model in study.protocol["models"]:
        yield {
            "schema_version": SCHEMA,
            "evaluation_id": f"{content['name']}/{model}/{retrieved}",
            "retrieved_timestamp": retrieved,
            "source_metadata": {
                "source_name": judged["title"],
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
                "additional_details": {
                    "verdict": verdict_line.format_line(judged),
                    "lock_sha256": study.lock.digest,
                    "does_not_prove": " ".join(judged["does_not_prove"]),
                },
            },
            "eval_library": {"name": "kv-prereg", "version": content["release"] or "unknown"},
            "model_info": {
                "name": model,
                "id": model.removeprefix("hf:").partition("@")[0],
                "additional_details": {"deployment_type": "self_deployed", "model_availability": "open_weights"},
            },
            "evaluation_results": [
                _describe_arm(arm, metric)
                for arm in judged["arms"]
                if arm["model"] == model and arm["accuracy"] is not None
            ],
        }


def _describe_arm(arm: Mapping[str, Any], metric: str) -> dict[str, Any]:
    measured = {name: arm[name] for name in MEASURED if arm.get(name) is not None}
    return {
        "evaluation_name": f"{arm['task']}, {arm['arm']} at {arm['budget']}",
        "source_data": {"dataset_name": arm["task"], "source_type": "other"},
        "metric_config": {
            "metric_name": metric,
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": {
            "score": float(arm["accuracy"]),
            "details": {"arm": arm["arm"], "budget": arm["budget"], **measured},
            "uncertainty": {"num_samples": arm["n"]},
        },
    }
