"""Aliases: names in other tools for fields and values of protocol.toml, with the name or fix here."""

from collections.abc import Mapping
from types import MappingProxyType

PROBLEMS = "write dev and confirm in [[tasks]], the numbers of problems for the probe and for the confirmation"
SETTING = 'write the settings of a policy in set, e.g. set = { "scoring.window" = 64 }'
BUDGET = "budgets are written at the top of the file and apply to every arm; leave it out"
ONE_TASK = dict.fromkeys(("limit", "num_samples", "n", "n_problems", "num_problems", "samples"), PROBLEMS)

DESIGN: Mapping[str, str] = MappingProxyType(
    {
        "max_problems": PROBLEMS,
        "sample_size": PROBLEMS,
        **ONE_TASK,
        "name": "title",
        "hypothesis": "question",
        "model": "models",
        "policies": "arms",
        "presses": "arms",
        "compression_ratio": "write budgets: the share that is kept, 0.3 for a compression ratio of 0.7",
    }
)
TASK: Mapping[str, str] = MappingProxyType(
    {
        "max_problems": PROBLEMS,
        "max_tokens": "max_new_tokens",
        "max_gen_toks": "max_new_tokens",
        "max_length": "max_new_tokens",
        "path": "file",
        "dataset": "file",
        "data_file": "file",
        "metric": "grader",
        "scorer": "grader",
        **ONE_TASK,
    }
)
ARM: Mapping[str, str] = MappingProxyType(
    {
        "settings": "set",
        **dict.fromkeys(("budget", "ratio", "compression_ratio", "budgets", "cache_size"), BUDGET),
        **dict.fromkeys(("window", "window_size", "kernel", "kernel_size", "sinks", "recent"), SETTING),
    }
)
GENERATION: Mapping[str, str] = MappingProxyType(
    {
        "batch_size": "problems_per_batch",
        "do_sample": "temperature = 0 decodes greedily and a temperature above 0 samples; leave do_sample out",
        "seed": "write seeds at the top of the file, above all tables",
        "torch_dtype": "dtype",
        "precision": "dtype",
        "top_k": "sampling has only temperature and top_p; leave it out",
        "num_beams": "there is no beam search; leave it out",
    }
)
DECISION: Mapping[str, str] = MappingProxyType(
    {
        "baseline": "against",
        "baselines": "against",
        "control": "against",
        "treatment": "subject",
        "arm": "subject",
        "significance": "alpha",
        "level": "alpha",
        "test": "method",
        "correction": "every rule corrects for multiple testing itself; leave it out",
        "n_resamples": "draws",
        "n_bootstrap": "draws",
        "permutations": "draws",
    }
)
_HALF = 'float16 is not supported; write "bfloat16", the other half precision, or "float32"'
DTYPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fp16", "float16", "half", "f16", "torch.float16"), _HALF),
        **dict.fromkeys(("bf16", "torch.bfloat16", "bfloat"), "bfloat16"),
        **dict.fromkeys(("fp32", "float", "single", "f32", "full", "torch.float32"), "float32"),
        **dict.fromkeys(("fp64", "float64", "double"), 'write "float32", the highest precision that is supported'),
        **dict.fromkeys(
            ("int8", "int4", "fp8", "auto"), 'write "float32" or "bfloat16", the number format of weights and cache'
        ),
    }
)
DEVICES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("gpu", "nvidia", "h100", "h200", "a100"), "cuda"),
        **dict.fromkeys(("cuda:0", "cuda:1"), 'write "cuda", and choose the card with CUDA_VISIBLE_DEVICES'),
        **dict.fromkeys(("mps", "metal", "xpu", "tpu", "npu"), 'this device is not supported; write "cpu" or "cuda"'),
        "auto": 'the device must be registered; write "cpu" or "cuda"',
    }
)
METHODS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("ttest", "t-test", "paired-t", "student"), "t"),
        **dict.fromkeys(("permutation", "paired-permutation", "randomization", "randomisation"), "sign-flip"),
        **dict.fromkeys(("published", "as_published", "reproduction"), "as-published"),
        **dict.fromkeys(("bca", "percentile", "paired-bootstrap"), "bootstrap"),
        "mcnemar": 'write "sign-flip": with one answer to each problem it tests what McNemar\'s test does',
        "wilcoxon": 'rank tests do not compare accuracies; write "sign-flip"',
    }
)
RULER = 'tasks of RULER are lm-eval\'s; write lm_eval = "niah_single_1" and lengths = [4096] instead of name'
TASKS: Mapping[str, str] = MappingProxyType(
    {
        "ruler": RULER,
        **dict.fromkeys(("niah", "niah_single_1", "niah_multikey_2", "vt", "cwe", "fwe"), RULER),
        "longbench": 'write lm_eval = "longbench_qasper" and data = "qasper.jsonl" instead of name',
        **dict.fromkeys(("math", "math-500", "hendrycks_math"), "math500"),
        **dict.fromkeys(("aime", "aime2024"), "aime24"),
    }
)
