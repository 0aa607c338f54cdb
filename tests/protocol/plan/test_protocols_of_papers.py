"""Protocols that bear a paper's claim have the paper's settings."""

import studies

import splits
from protocol.workspace.planned_study import read_protocol


def test_the_claim_of_crystalcache_is_asked_at_its_lengths_depths_budgets_and_answers():
    """Sections 4.1, 4.2, 4.4 and 4.5; its 32,768 tokens less 128, so that an answer fits after them."""
    _, protocol = read_protocol(studies.ROOT / "registrations" / "crystal-retrieval-8b")
    settings = {}
    for task in protocol.tasks:
        frozen = splits.load(task.name)
        assert len(frozen.confirm) >= 200
        family, *_ = frozen.confirm[0].split("/")
        settings[family] = tuple({item.split("/")[place] for item in frozen.confirm} for place in (1, 2))
        assert (task.query, task.max_new_tokens) == ("inside", 50)
    assert settings == {
        "needle-topics": ({"4096", "8192", "16384", "32640"}, {"0", "0.25", "0.5", "0.75", "1"}),
        "association-topics": ({"4096", "8192", "16384"}, {"high", "low"}),
        "association-topics-moved": ({"4096", "8192", "16384"}, {"high", "low"}),  # ours, not the paper's
    }
    assert [str(budget) for budget in protocol.budgets] == ["0.3", "0.5"]
    assert [model.partition("@")[0] for model in protocol.models] == [
        "hf:meta-llama/Llama-3.1-8B-Instruct",
        "hf:mistralai/Mistral-7B-Instruct-v0.3",
        "hf:Qwen/Qwen3-8B",
    ]
    # A claim of all comparisons is confirmed by all of them.
    assert int(protocol.decision.rule_settings["at_least"]) == 3 * 3 * 2 * len(protocol.decision.against)
    assert protocol.generation.temperature == 0
