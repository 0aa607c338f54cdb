"""lm-eval with the engine as one of its models: its whole command line, and --model kv-prereg.

    kv-prereg lm-eval run --model kv-prereg --tasks gsm8k --log_samples \\
        --model_args model=chain-llama policy=snapkv budget=64 --output_path out/snapkv

lm-eval 0.4.13 has no entry point for models, so the harness is started here, after the model is registered.
Its model_args, one by one or as JSON, are those of `protocol.adapters.engine_lm.EngineLM`:

    model   a source of `kv-prereg models`
    policy  a name of `kv-prereg policies`; full, which evicts nothing, without it
    set     the policy's settings by their paths, in JSON: {"scoring.window": 64}
    budget  slots per KV head and layer, or a share of the prompt as 0.3
    query   how many of the last tokens of a prompt are fed after the compression; none without it
    seed, dtype, log (a file for one line a request)

What was held stands in the results, under config and kv_prereg. Nothing that runs here is registered.
Exit status: 0 the harness ran; 2 refused in one line, or by the harness itself.
"""

import sys
from importlib.util import find_spec

from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput, Refusal

NAME = "kv-prereg"


def main() -> int:
    if sys.argv[1:] in ([], ["--help"], ["-h"]):
        print_escaped(__doc__ or "", sys.stdout)
        return 0
    try:
        register()
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except Refusal as refusal:
        print_escaped(f"{type(refusal).__name__}: {refusal}", sys.stderr)
        return refusal.exit_status
    return 0


def register() -> None:
    """Register the model with lm-eval. Raises BadInput if the harness is not installed."""
    if find_spec("lm_eval") is None:
        raise BadInput("lm-eval: is not installed; run: pip install '.[run,tasks]'")
    import lm_eval.models  # noqa: F401 (its own are registered first)
    from lm_eval.api.registry import model_registry

    from protocol.adapters.engine_lm import EngineLM

    model_registry.register(NAME, target=EngineLM)


if __name__ == "__main__":
    sys.exit(main())
