"""Faults that users of other libraries reported, row by row, and the tests that hold ours right.

A test of a row has `pitfall_NN` in its name; there are more of them than are named here, the most telling ones stand in
the list. `python -m pytest -k pitfall_NN` runs a row.
"""
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).parent

ROWS = {
    1: ("a query that sees no key: 0, gradient 0, nothing NaN", [
        "ops/test_attention.py::test_pitfall_01_fully_masked_row",
        "ops/test_tiled_attention.py::test_pitfall_01_the_first_tile_of_a_row_is_masked",
        "kernels/test_attention_kernel.py::test_pitfall_01_a_query_that_sees_nothing",
    ]),
    2: ("gradients that share memory", [
        "test_ownership.py::test_pitfall_02_gradients_of_a_sum_are_two_arrays",
        "test_ownership.py::test_pitfall_02_views_of_one_cotangent",
        "ops/test_all_ops.py::test_pitfall_02_gradients_share_no_memory",
    ]),
    3: ("a window of one key too many; eviction", [
        "ops/test_attention.py::test_pitfall_03_window",
        "generation/test_cache.py::test_pitfall_03_a_window_forgets_exactly",
    ]),
    4: ("a causal mask in the wrong corner", [
        "ops/test_attention.py::test_pitfall_04_causal_bottom_right",
        "kernels/test_attention_kernel.py::test_pitfall_03_and_04_window_and_alignment",
    ]),
    5: ("leaves accumulate, interior nodes do not; a freed graph refuses", [
        "test_engine.py::test_pitfall_05_leaves_add_up_and_interior_nodes_do_not",
        "test_engine.py::test_pitfall_05_second_backward_is_an_error_for_every_op",
    ]),
    6: ("additions lost in a parallel loop", [
        "ops/test_embedding.py::test_pitfall_06_one_row_ten_thousand_times",
        "ops/test_linear.py::test_pitfall_06_bias_gradient_of_many_rows",
        "ops/test_normalization.py::test_pitfall_06_gain_and_bias_gradients_of_many_rows",
        "ops/test_mixture.py::test_pitfall_06_ten_thousand_rows_for_one_expert",
        "ops/test_arithmetic.py::test_pitfall_06_one_row_added_to_ten_thousand",
        "test_kernels.py::test_pitfall_06_repeats_are_bit_identical",
    ]),
    7: ("indices out of range, negative ones", [
        "ops/test_embedding.py::test_pitfall_07_ids_out_of_range",
        "ops/test_loss.py::test_pitfall_07_21_targets_out_of_range",
        "nn/test_positions.py::test_pitfall_07_learned_positions_past_the_table",
    ]),
    8: ("variance in one pass", [
        "ops/test_normalization.py::test_pitfall_08_mean_large_beside_the_spread",
        "kernels/test_kernels_equal_definitions.py::test_pitfall_08_layer_norm_of_a_large_mean",
    ]),
    9: ("top-p drops the token that crosses, or all", [
        "generation/test_filters.py::test_pitfall_09_top_p_keeps_the_one_that_crosses",
        "generation/test_filters.py::test_pitfall_09_top_p_of_float32_keeps_one",
    ]),
    10: ("packed documents see each other", [
        "data/test_packing.py::test_pitfall_10_documents_do_not_touch_each_other",
        "data/test_packing.py::test_pitfall_10_loss_and_gradient_stay_inside",
        "ops/test_tiled_attention.py::test_pitfall_10_documents_across_tiles",
    ]),
    11: ("gradient None or zero", [
        "optim/test_adam.py::test_pitfall_11_none_is_skipped_and_zero_is_decayed",
        "optim/test_sgd.py::test_pitfall_11_none_is_skipped_and_zero_is_applied",
        "optim/test_sgd.py::test_pitfall_11_zero_grad_gives_both",
    ]),
    12: ("tied weights", [
        "models/test_transformer.py::test_pitfall_12_a_tied_matrix_is_one_parameter",
        "models/test_transformer.py::test_pitfall_12_a_tied_step_equals_the_sum_of_both_paths",
    ]),
    13: ("0 * inf in a branch that was not chosen", [
        "ops/test_selection.py::test_pitfall_13_where_passes_on_the_nan_that_was_made_before_it",
        "ops/test_loss.py::test_pitfall_13_ignored_rows_are_not_read",
    ]),
    14: ("a node visited before all its consumers", [
        "test_engine.py::test_pitfall_14_every_consumer_before_the_node",
        "test_engine.py::test_pitfall_14_random_graphs_of_30_nodes",
    ]),
    15: ("an ndarray on the left of an operator", ["test_op.py::test_pitfall_15_ndarray_on_the_left"]),
    16: ("rotary angles in the model's dtype", [
        "ops/test_rotary.py::test_pitfall_16_table_is_made_in_float64",
        "nn/test_components.py::test_pitfall_16_casting_the_model_leaves_the_angles_alone",
    ]),
    17: ("clipping at the edges", [
        "optim/test_clip.py::test_pitfall_17_huge_but_finite",
        "optim/test_clip.py::test_pitfall_17_one_factor_over_all_parameters",
    ]),
    18: ("decay through the moments, or without the rate", [
        "optim/test_adam.py::test_pitfall_18_decoupled_decay_is_not_an_l2_penalty",
        "optim/test_adam.py::test_pitfall_18_moments_contain_no_decay",
    ]),
    19: ("parallel sums under a condition", [
        "kernels/test_kernels_equal_definitions.py::test_pitfall_19_valid_targets_are_counted_right_on_any_number_of_threads",
    ]),
    20: ("accumulation by pieces instead of tokens", [
        "training/test_step.py::test_pitfall_20_accumulation_counts_tokens_not_pieces",
        "training/test_step.py::test_pitfall_20_pieces_add_up_to_the_gradient_of_the_batch",
    ]),
    21: ("invalid targets accepted", ["ops/test_loss.py::test_pitfall_21_ignore_index_anywhere"]),
    22: ("a schedule that jumps on resuming", [
        "optim/test_schedule.py::test_pitfall_22_cosine_values",
        "optim/test_schedule.py::test_pitfall_22_resuming_is_bit_equal_and_groups_keep_their_base_rates",
    ]),
    23: ("optimizer state by order instead of name", [
        "training/test_checkpoint.py::test_pitfall_23_moments_follow_names_not_places",
        "optim/test_adam.py::test_pitfall_23_resuming_is_bit_equal",
    ]),
    24: ("the padding row of a table", [
        "ops/test_embedding.py::test_pitfall_24_padding_row",
        "optim/test_adam.py::test_pitfall_24_decay_of_a_padding_row",
    ]),
    25: ("GELU's tail", [
        "ops/test_activation.py::test_pitfall_25_gelu_values",
        "kernels/test_vectormath.py::test_pitfall_25_the_tail_does_not_cancel",
    ]),
    26: ("dynamic scaling with cached keys", [
        "generation/test_cache_identity.py::test_pitfall_26_dynamic_scaling_is_refused_where_cached_keys_would_be_wrong",
        "ops/test_rotary.py::test_pitfall_26_dynamic_remembers_nothing",
    ]),
    27: ("a scaling that is read and not applied", [
        "ops/test_rotary.py::test_pitfall_27_llama3",
        "ops/test_rotary.py::test_pitfall_27_every_scaling_changes_scores_past_the_limit",
    ]),
    28: ("ALiBi's slopes", [
        "ops/test_position_bias.py::test_pitfall_28_alibi_slopes",
        "ops/test_position_bias.py::test_pitfall_28_absolute_positions_under_a_cache",
    ]),
    29: ("pairs of equal neighbours, ties", [
        "data/test_bpe.py::test_pitfall_29_by_hand",
        "data/test_bpe.py::test_pitfall_29_incremental_counts_are_recounts_after_every_merge",
    ]),
    30: ("a reshape where a transpose was meant", [
        "nn/test_attention_layer.py::test_pitfall_30_heads_are_split_by_features",
        "audit/test_mutants.py::test_pitfall_30_heads_split_by_a_bare_reshape",
    ]),
    31: ("True means the opposite elsewhere", [
        "ops/test_attention.py::test_pitfall_31_true_means_may_see",
        "nn/test_mask_convention.py::test_pitfall_31_every_way_in",
        "test_masks.py::test_pitfall_31_only_booleans_are_masks",
    ]),
    32: ("generation behind right padding", [
        "generation/test_greedy.py::test_pitfall_32_right_padded_generation",
        "generation/test_cache.py::test_pitfall_32_right_padded_prompts",
    ]),
    33: ("dropout in evaluation, and its scale", [
        "ops/test_dropout.py::test_pitfall_33_mode_and_scale",
        "models/test_transformer.py::test_pitfall_33_evaluation_ignores_every_dropout",
    ]),
    34: ("no_grad that leaks", [
        "test_settings.py::test_pitfall_34_recursion",
        "test_settings.py::test_pitfall_34_each_thread_has_its_own",
    ]),
    35: ("empty batches", [
        "ops/test_linear.py::test_pitfall_35_no_rows",
        "ops/test_attention.py::test_pitfall_35_no_queries_no_keys_no_rows",
    ]),
    36: ("temperature 0, top-k beyond the vocabulary, logits that are none", [
        "generation/test_filters.py::test_pitfall_36_temperature",
        "generation/test_filters.py::test_pitfall_36_top_k",
        "generation/test_filters.py::test_pitfall_36_logits_that_are_none",
    ]),
    37: ("an odd width", ["nn/test_positions.py::test_pitfall_37_odd_widths"]),
    38: ("RMSNorm's two conventions", [
        "ops/test_rms_norm.py::test_pitfall_38_by_hand",
        "ops/test_rms_norm.py::test_pitfall_38_one_plus_w",
    ]),
    39: ("views that are not contiguous", [
        "ops/test_all_ops.py::test_pitfall_39_layout_of_inputs",
        "kernels/test_attention_kernel.py::test_pitfall_39_heads_in_place_and_other_layouts",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("number", ROWS)
def test_every_row_has_its_tests(number):
    what, where = ROWS[number]
    assert what
    assert where
    for place in where:
        path, _, name = place.partition("::")
        assert f"{number:02}" in re.findall(r"\d\d", name.split("pitfall", 1)[1]), name
        assert re.search(rf"^def {name}\(", (TESTS / path).read_text(encoding="utf-8"), re.M), place


def test_no_test_names_a_row_that_is_not_there():
    assert list(ROWS) == list(range(1, 40))
    everything = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    names = re.findall(r"^def test_(\w*pitfall_\w+)\(", everything, re.M)
    assert len(names) > 100
    for name in names:
        assert int(re.search(r"pitfall_(\d\d)", name).group(1)) in ROWS, name
