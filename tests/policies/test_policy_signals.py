import pytest
import torch
from policy_prompts import a_prompt, measured, plain_attention

from policies.signals import BLOCK, AttentionSums, attention_rows, group_mean

LENGTHS = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 44)


@pytest.mark.parametrize("n", LENGTHS)
def test_column_sums_are_those_of_the_whole_matrix_whatever_the_blocks(n):
    prompt = a_prompt(n, layers=1)
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    sums = measured(AttentionSums(), prompt)
    torch.testing.assert_close(sums.double(), attention.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("last", [1, 32, 150, 1000])
def test_window_sums_are_those_of_the_last_rows(last):
    prompt = a_prompt(170, layers=1)
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    sums = measured(AttentionSums(window=last), prompt)
    torch.testing.assert_close(sums.double(), attention[:, -last:].sum(1), rtol=1e-5, atol=1e-5)


def test_rows_of_attention_are_causal_and_sum_to_one():
    prompt = a_prompt(90, layers=1)
    rows = attention_rows(prompt.queries[0][:, 40:73], prompt.keys[0][:, :73], prompt.scale, 40)
    whole = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    assert rows.shape == (4, 33, 73)
    torch.testing.assert_close(rows.double(), whole[:, 40:73, :73], rtol=1e-5, atol=1e-6)


def test_half_precision_inputs_are_summed_in_float32():
    prompt = a_prompt(400, layers=1, dtype=torch.bfloat16)
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    sums = measured(AttentionSums(), prompt)
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums.double(), attention.sum(1), rtol=1e-5, atol=1e-5)


def test_double_precision_stays_double():
    prompt = a_prompt(20, layers=1, dtype=torch.float64)
    assert measured(AttentionSums(), prompt).dtype == torch.float64


def test_group_mean_averages_neighbouring_query_heads():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 0.0], [20.0, 0.0]])
    assert group_mean(values, 2).tolist() == [[2.0, 3.0], [15.0, 0.0]]


def test_equal_signals_are_one_key():
    assert {AttentionSums(window=32), AttentionSums(window=32), AttentionSums()} == {
        AttentionSums(window=32),
        AttentionSums(None),
    }


def test_signals_make_no_tensor_on_another_device():
    prompt = a_prompt(200, layers=1)
    elsewhere = prompt._replace(queries=prompt.queries.to("meta"), keys=prompt.keys.to("meta"))
    assert measured(AttentionSums(window=32), elsewhere).device.type == "meta"
