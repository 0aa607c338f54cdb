import sys
from dataclasses import fields
from importlib import import_module

import pytest

import policies
from policies import Policy, Protect, TopK, UnknownPolicy
from policies.catalogue import CATALOGUE
from policies.structure import ORIGINAL_CLASS_PATHS, structure

NAMES = """
full random streaming h2o snapkv crystal tova knorm keydiff pyramidkv chunkkv chunkkv-20 ada-snapkv scissorhands
crystal-uniform crystal-no-rarity crystal-token-level crystal-static-graph crystal-still crystal-adaptive-merge
crystal-rarity-inverse crystal-rarity-exponential crystal-rarity-document crystal-chunk-128 crystal-steepness-2
crystal-d-only crystal-impact-only crystal-average crystal-product crystal-coverage crystal-tiers
crystal-over-budget crystal-blog 1d 1d_div 1d_div-1.0 1d_div-1.5 variant_b q_stats schedule-front schedule-back
schedule-inverted state_ask state_emit snapkv_with_window r-kv snapkv-rkv streamingllm-rkv raas longflow lagkv
ahakv epikv hs-variance band-adaptive attn-x-hs kv-key kv-val lagkv-causal crystal-kv-lite crystal-kv thinkv
segment-hs thinkv-annealed subspace full-subspace syn_mem syn_mem-1 syn_mem-2 syn_mem-3 syn_mem-4
syn_mem-attention syn_mem-massless syn_mem-attention-massless chunkkv-cumulative pyramidkv-cumulative h2o-window
caote expected-attention defensivekv layer-defensivekv keydiff-blocks lagkv-blocks caote-blocks kvzip epicache
epicache-shared-budget 1d-per-layer 1d-per-head 1d-per-head_div ada-1d ada-1d_div pyramid-1d pyramid-1d_div
1d_div-per-layer 1d_div-per-head 1d_div-scheduled static_route random-twin
"""


def test_the_catalogue_names_its_policies_in_order():
    assert " ".join(policies.names()) == " ".join(NAMES.split())


def test_the_catalogue_is_read_only():
    with pytest.raises(TypeError):
        CATALOGUE["h2o"] = CATALOGUE["full"]  # type: ignore[index]


def test_an_unknown_name_suggests_the_nearest_one():
    with pytest.raises(UnknownPolicy, match="no policy named 'snapvk'; did you mean 'snapkv'"):
        policies.get("snapvk")
    with pytest.raises(UnknownPolicy, match="kv-prereg policies lists all"):
        policies.get("zzzzz")
    assert issubclass(UnknownPolicy, ValueError)


def test_an_override_replaces_one_component():
    parent = policies.get("crystal")
    child = policies.get("crystal", selection=TopK())
    assert policies.diff(parent, child) == {"selection": (parent.selection, TopK())}


def test_an_override_that_is_no_component_is_refused_by_name():
    with pytest.raises(ValueError, match="window is not a component of a policy; override one of scoring, "):
        policies.get("snapkv", window=8)


def test_a_policy_does_not_differ_from_itself():
    assert policies.diff(policies.get("h2o"), policies.get("h2o")) == {}


def test_diff_names_every_component_in_which_two_policies_differ():
    assert set(policies.diff(policies.get("h2o"), policies.get("snapkv"))) == {"scoring", "protect"}
    assert set(policies.diff(policies.get("full"), policies.get("crystal"))) == {
        "scoring",
        "selection",
        "cadence",
        "protect",
    }
    assert policies.diff(policies.get("random"), policies.get("crystal"))["selection"][0] == TopK()


def test_a_lock_calls_a_class_that_has_moved_by_its_first_path():
    assert structure(policies.get("snapkv_with_window"))["scoring"] == "policies.snapkv.WindowFirst()"
    for now, first in ORIGINAL_CLASS_PATHS.items():
        module, _, name = now.rpartition(".")
        assert hasattr(import_module(module), name)
        module, _, name = first.rpartition(".")
        assert not hasattr(import_module(module), name)  # a path never means two classes


def test_a_lock_holds_a_setting_that_is_gone_as_every_policy_had_it():
    held = structure(policies.get("crystal-chunk-128"))
    assert held["scoring.coattention.sketch"] == "None"
    assert held["scoring.coattention.chunk"] == "128"
    assert not any(name.endswith("sketch") for name in structure(policies.get("snapkv")))


def test_a_policy_is_six_components_and_what_it_protects():
    assert [field.name for field in fields(Policy)] == [
        "scoring",
        "selection",
        "routing",
        "cadence",
        "state",
        "decoding",
        "protect",
    ]
    plain = Policy(scoring=policies.get("full").scoring)
    assert (plain.selection, plain.protect, plain.evicts) == (TopK(), Protect(sinks=4, recent=128), True)


def test_everything_exported_exists():
    assert all(hasattr(policies, name) for name in policies.__all__)
    assert sorted(policies.__all__) == policies.__all__


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """Installs a distribution with one module and the entry points given as 'name = object' lines."""

    def install(*points: str) -> None:
        (tmp_path / "elsewhere.py").write_text(
            "import policies\nnewest = policies.get('streaming', protect=policies.Protect(0, 0))\nodd = 3\n"
        )
        info = tmp_path / "elsewhere-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[kv_prereg.policies]", *points]))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "elsewhere", raising=False)

    yield install
    sys.modules.pop("elsewhere", None)


def test_another_distribution_can_add_a_policy(third_party):
    third_party("newest = elsewhere:newest")
    assert policies.names() == (*CATALOGUE, "newest")
    assert policies.get("newest").protect == Protect(0, 0)
    with pytest.raises(UnknownPolicy, match="did you mean 'newest'"):
        policies.get("newst")


def test_another_distribution_cannot_take_a_name(third_party):
    third_party("h2o = elsewhere:newest")
    with pytest.raises(
        ValueError, match=r"entry point h2o of kv_prereg.policies: this name is already in use.* elsewhere:newest"
    ):
        policies.get("snapkv")


def test_an_entry_point_must_be_a_policy(third_party):
    third_party("odd = elsewhere:odd")
    with pytest.raises(ValueError, match=r"entry point odd of kv_prereg.policies must be a Policy, not int"):
        policies.get("odd")


def test_the_oracle_is_no_policy_and_its_name_says_why():
    with pytest.raises(UnknownPolicy, match="which no policy can know"):
        policies.get("oracle-occlusion")
    assert "oracle-occlusion" not in policies.names()
