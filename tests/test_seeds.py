"""The course material, row by row: which lab, exercise, command or test realises each figure, lab, table row and fault.

    python tests/test_seeds.py          prints the course map of the README

No row is silently absent: what is not there yet says "later", what will not come says "out of scope", with the reason.
The tests below hold that everything named exists, and that every lab has a row.
"""
import argparse
import importlib
import pathlib
import re
import shlex

import pytest

from minitx.cli import COMMANDS

ROOT = pathlib.Path(__file__).parent.parent
LAB = "demos/labs/"
OPS, NN, MODELS, GENERATION = "tests/ops/test_", "tests/nn/test_", "tests/models/test_", "tests/generation/test_"
AUDIT, DATA, TRAINING, OPTIM = "tests/audit/test_", "tests/data/test_", "tests/training/test_", "tests/optim/test_"

# (part of the course, what it shows or asks, who realises it: one place, or several in the order of reading)
ROWS = [
    # ------------------------------------------------------------------ the labs, in their order
    ("labs", "block parts: W1 (32, 16), W2 (16, 32), pre-norm; (2, 6, 16) in and out, and changed", LAB + "01_block_parts.py"),
    ("labs", "residual: [1, 2, 3] + [0.1, -0.2, 0.3] = [1.1, 1.8, 3.3]", LAB + "02_residual.py"),
    ("labs", "LayerNorm of two rows, row means 0 and stds 1; [1, 3] by LayerNorm and RMSNorm", LAB + "03_layernorm.py"),
    ("labs", "FFN (2, 5, 8) -> 32 -> (2, 5, 8)", LAB + "04_feedforward.py"),
    ("labs", "sinusoidal table of 3 positions at width 8; odd widths; positions past any table", LAB + "05_positions.py"),
    ("labs", "[BOS, hello, world] = [0, 1, 2] -> rows of E -> (1, 3, d) -> logits", LAB + "06_tokens_to_vectors.py"),
    ("labs", "encoder block under padding and causal masks at once, changes times 10, valid rows to 1e-6", LAB + "07_both_masks.py"),
    ("labs", "zero padding is not zero after position and bias", LAB + "08_zero_padding.py"),
    ("labs", "padded rows still carry values; pooling and loss leave them out", LAB + "09_padded_rows.py"),
    ("labs", "both Boolean mask conventions on one example", LAB + "10_mask_conventions.py"),
    ("labs", "decoder block: target (2, 3, 16), memory (2, 5, 16), mask (3, 3); the mask as -inf", LAB + "11_cross_attention.py"),
    ("labs", "permutation equivariance without positions, lost under a causal mask", LAB + "12_permutation.py"),
    ("labs", "query heads 0-3 share KV head 0, 4-7 KV head 1; MHA, MQA; repetition equals sharing", LAB + "13_grouped_heads.py"),
    ("labs", "norms do the same in training and inference", LAB + "14_norm_modes.py"),
    ("labs", "inputs [BOS, A, B], targets [A, B, EOS]; without the shift the answer leaks", LAB + "15_shift.py"),
    ("labs", "masks and information flow of the three families, measured", LAB + "16_three_families.py"),
    ("labs", "one teacher-forced pass equals T prefix passes, and its time", LAB + "17_teacher_forcing.py"),
    ("labs", "gradient at the bottom and top of 12 and 48 layers, pre-norm and post-norm", LAB + "18_depth.py"),
    ("labs", "the router that collapses without its balance loss", LAB + "19_router.py"),
    ("labs", "memory: 134,217,728 scores, 256 MiB; KV cache 1 GiB; activations", LAB + "20_memory.py"),
    ("labs", "the five misconceptions, each against a number", LAB + "21_misconceptions.py"),
    ("labs", "trained at 16 tokens, asked at 256: does it find the needle? by position method and place", LAB + "22_used_context.py"),
    ("labs", "noise: random tokens stay at ln V, a mask off by one goes far below", LAB + "23_noise.py"),
    ("labs", "linear attention: its error against the length", LAB + "24_linear_attention.py"),
    ("labs", "incremental logits equal full logits", LAB + "25_incremental.py"),
    # ------------------------------------------------------------------ figures and formulas
    ("figures", "Q, K, V (2, 8, 128, 64), scores (2, 8, 128, 128), output (2, 128, 512)", LAB + "01_block_parts.py"),
    ("figures", "8 heads x 4096² scores = 134,217,728 elements, 256 MiB in fp16", [LAB + "20_memory.py", MODELS + "cost.py::test_figure_of_the_course_scores", "minitx card original --cost --batch 1 --length 4096 --dtype fp16"]),
    ("figures", "2 B L T H_kv d_h b: 32 layers, 8,192 tokens, 8 KV heads, width 128, 2 bytes: 1 GiB", [LAB + "20_memory.py", MODELS + "cost.py::test_figure_of_the_course_cache", "minitx card llama --cost --batch 1 --length 8192 --dtype fp16"]),
    ("figures", "attention O(T² D), feed-forward O(T D²); which costs more from what length on", MODELS + "cost.py::test_overtaking_is_the_first_such_length"),
    ("figures", "FFN(x) = W2 φ(W1 x + b1) + b2", NN + "blocks.py::test_feedforward_by_hand"),
    ("figures", "softmax(Q Kᵀ / √d_h + M) V, head by head, and the output projection", [NN + "attention_layer.py::test_equals_plain_loops", "exercise: attention"]),
    ("figures", "post-norm y = LN(x + f(x))", NN + "blocks.py::test_post_norm_is_the_equation_of_2017"),
    ("figures", "pre-norm y = x + f(LN(x)); not the same function", NN + "blocks.py::test_pre_norm_is_its_equation_and_not_the_same_function"),
    ("figures", "LayerNorm and RMSNorm, each along the features of one token", ["exercise: layer-norm", "exercise: rms-norm"]),
    ("figures", "z = W_vocabᵀ h + b, softmax over the vocabulary, cross-entropy of the next token", [LAB + "06_tokens_to_vectors.py", "exercise: cross-entropy"]),
    # ------------------------------------------------------------------ the parts of a block and its inputs
    ("parts", "multi-head attention mixes positions", "exercise: heads"),
    ("parts", "the residual connection keeps signal and gradient", [LAB + "02_residual.py", "exercise: residual"]),
    ("parts", "LayerNorm, RMSNorm: a stable scale", LAB + "03_layernorm.py"),
    ("parts", "the FFN works on each position alone, and holds most of a block's weights", LAB + "04_feedforward.py"),
    ("parts", "positions bring the order in", LAB + "12_permutation.py"),
    ("parts", "token + position + segment; each may be absent", NN + "components.py::test_segments"),
    ("parts", "tokenizer: words, pieces, bytes; special tokens mark boundaries", [DATA + "bpe.py::test_pieces_by_hand", DATA + "bpe.py::test_special_tokens_are_never_split"]),
    ("parts", "a token's embedding is not a sentence's vector: pool the hidden vectors", NN + "heads.py::test_pool_by_hand"),
    ("parts", "RMSNorm", "exercise: rms-norm"),
    ("parts", "RoPE", "exercise: rotary"),
    ("parts", "cross-attention: the target asks, the source answers", [LAB + "11_cross_attention.py", "exercise: cross-attention"]),
    ("parts", "GQA and MQA: fewer keys and values, as many queries", ["exercise: grouped-query", LAB + "13_grouped_heads.py"]),
    ("parts", "SwiGLU and GEGLU: two projections, gate and value", ["exercise: swiglu", OPS + "gated.py::test_a_gate_is_its_activation_times_up"]),
    ("parts", "dropout, residual scale and initialisation belong to the architecture", MODELS + "transformer.py::test_initialisation_of_gpt2"),
    # ------------------------------------------------------------------ positions
    ("positions", "sinusoidal: no parameters, any length", [LAB + "05_positions.py", "exercise: positions"]),
    ("positions", "learned: a table that ends", NN + "positions.py::test_pitfall_07_learned_positions_past_the_table"),
    ("positions", "relative bias on the scores", [OPS + "position_bias.py::test_buckets_of_t5_by_value", "exercise: relative-bias"]),
    ("positions", "RoPE turns Q and K; base, scaling and extrapolation are named", [OPS + "rotary.py::test_scores_depend_on_the_distance_alone", OPS + "rotary.py::test_pitfall_27_every_scaling_changes_scores_past_the_limit"]),
    ("positions", "ALiBi: a bias by distance", [OPS + "position_bias.py::test_alibi_by_hand", "exercise: alibi"]),
    ("positions", "the method is part of checkpoint and configuration", MODELS + "card.py::test_the_fingerprint_changes_with_what_weights_mean"),
    # ------------------------------------------------------------------ exercises
    ("exercises", "draw information flow and masks of the three families", LAB + "16_three_families.py"),
    ("exercises", "sinusoidal positions, odd and even widths, past the trained length", [LAB + "05_positions.py", LAB + "22_used_context.py"]),
    ("exercises", "change a future token in a pre-norm block", [LAB + "07_both_masks.py", "exercise: causal-padding"]),
    ("exercises", "full-prefix against KV-cache logits", [LAB + "25_incremental.py", "exercise: kv-cache"]),
    ("exercises", "estimate scores, FFN activations and KV cache", LAB + "20_memory.py"),
    ("exercises", "d_model 32: what else must change?", LAB + "01_block_parts.py"),
    ("exercises", "norm_first=False is which architecture?", [LAB + "01_block_parts.py", NN + "blocks.py::test_post_norm_is_the_equation_of_2017"]),
    ("exercises", "why the FFN widens inside and keeps its output shape", LAB + "04_feedforward.py"),
    ("exercises", "target length 4: how must the mask change?", LAB + "11_cross_attention.py"),
    ("exercises", "why GQA and MQA help the memory of inference", [LAB + "13_grouped_heads.py", LAB + "20_memory.py"]),
    # ------------------------------------------------------------------ misconceptions and common errors
    ("misconceptions", "a Transformer has no order", [LAB + "21_misconceptions.py", LAB + "12_permutation.py"]),
    ("misconceptions", "all tokens can be generated in parallel", [LAB + "21_misconceptions.py", LAB + "17_teacher_forcing.py"]),
    ("misconceptions", "a KV cache makes long contexts cost the same", [LAB + "21_misconceptions.py", LAB + "25_incremental.py"]),
    ("misconceptions", "a long context is a used context", [LAB + "22_used_context.py", LAB + "21_misconceptions.py"]),
    ("misconceptions", "LayerNorm settles stability", [LAB + "21_misconceptions.py", LAB + "18_depth.py"]),
    ("misconceptions", "a Transformer is only attention", LAB + "04_feedforward.py"),
    ("misconceptions", "same shape, same content", LAB + "01_block_parts.py"),
    ("misconceptions", "encoder and decoder mixed up: is the future visible, is there cross-attention?", LAB + "16_three_families.py"),
    ("misconceptions", "batch first or sequence first: one is meant, the other converted or refused", "tests/pytorch/test_torch_interop.py::test_attention_of_every_construction"),
    ("misconceptions", "a block of today taken for that of 2017", "minitx card original llama"),
    ("misconceptions", "training is hundreds of times as fast by architecture: it depends, so times are measured", "demos/recurrent.py"),
    # ------------------------------------------------------------------ masks as a security boundary
    ("boundaries", "a changed future token does not move past logits", ["minitx audit DIR", AUDIT + "leaks.py::test_a_causal_mask_off_by_one"]),
    ("boundaries", "a changed padded token does not move valid outputs", AUDIT + "leaks.py::test_padding_that_is_seen_by_an_encoder"),
    ("boundaries", "source padding is not read by cross-attention", AUDIT + "leaks.py::test_source_padding_read_by_cross_attention"),
    ("boundaries", "the loss counts valid targets only", AUDIT + "leaks.py::test_a_loss_that_counts_wrongly"),
    ("boundaries", "samples of different lengths do not touch each other", AUDIT + "leaks.py::test_rows_of_a_batch_that_touch_each_other"),
    ("boundaries", "packed documents do not touch each other", AUDIT + "leaks.py::test_documents_that_see_each_other"),
    ("boundaries", "incremental equals full", AUDIT + "leaks.py::test_a_cache_that_forgets"),
    ("boundaries", "a mask off by one trains faster and is wrong", ["minitx audit gpt2 --noise", LAB + "23_noise.py"]),
    ("boundaries", "no legal key, an empty sequence: a policy, and it is tested", OPS + "attention.py::test_pitfall_01_fully_masked_row"),
    # ------------------------------------------------------------------ families
    ("families", "encoder-only (BERT): represent, classify, label, fill gaps", ["minitx card bert", MODELS + "components_in_models.py::test_heads_by_shape_and_none"]),
    ("families", "decoder-only (GPT): next token", ["minitx card gpt2", "minitx train text --file F"]),
    ("families", "encoder-decoder (2017, T5): one sequence into another", ["minitx card original t5", "minitx train reverse"]),
    ("families", "mixture of experts: routing, balance, unused experts", ["minitx card mixtral", LAB + "19_router.py"]),
    ("families", "they differ in more than masks: objective, tokenizer, norm, position, data", [DATA + "objectives.py::test_masked_lm_in_its_shares", DATA + "objectives.py::test_next_token_shifts_once"]),
    # ------------------------------------------------------------------ 2017 and now
    ("then and now", "topology: encoder-decoder, causal stack", "minitx card original llama"),
    ("then and now", "norm: post-LayerNorm, pre-RMSNorm or pre-LayerNorm", ["minitx card original llama", "minitx card original gpt2"]),
    ("then and now", "position: sinusoidal, RoPE or relative bias", ["minitx card original llama", "minitx card t5 mpt"]),
    ("then and now", "FFN: ReLU, GELU, SwiGLU, GEGLU, mixture of experts", ["minitx card original bert", "minitx card gemma2 mixtral"]),
    ("then and now", "heads: MHA, GQA, MQA", [LAB + "13_grouped_heads.py", "minitx card original llama"]),
    ("then and now", "kernel: plain products, fused and tiled", [OPS + "tiled_attention.py::test_equals_the_textbook", "exercise: tiled-attention"]),
    ("then and now", "the right column is no standard: each preset is one combination", MODELS + "presets.py::test_the_published_number_of_parameters"),
    # ------------------------------------------------------------------ long sequences
    ("long texts", "exact tiled attention: no T x T matrix, the same work", ["minitx bench attention", OPS + "tiled_attention.py::test_memory_does_not_grow_with_the_square"]),
    ("long texts", "windows and block patterns", ["tests/test_masks.py::test_boolean_arrays_take_part", "minitx card mistral"]),
    ("long texts", "linear (kernel) attention", [LAB + "24_linear_attention.py", OPS + "linear_attention.py::test_error_against_the_length"]),
    ("long texts", "chunks: what is read in pieces is what is read at once", GENERATION + "cache.py::test_in_pieces_and_in_batches_equals_alone_and_at_once"),
    ("long texts", "recurrence: a state of constant size, learned token after token", "demos/recurrent.py"),
    ("long texts", "memory, compression, retrieval", "out of scope: other architectures than the Transformer"),
    ("long texts", "128k or 1M tokens are supported: a claim, until retrieval is measured by place", LAB + "22_used_context.py"),
    # ------------------------------------------------------------------ stability
    ("stability", "residual and norm layout, initialisation", LAB + "18_depth.py"),
    ("stability", "optimizer and groups of weight decay", OPTIM + "adam.py::test_a_module_says_what_is_decayed"),
    ("stability", "warm-up and schedule", OPTIM + "schedule.py::test_noam_is_the_formula_of_the_paper"),
    ("stability", "gradient clipping", OPTIM + "clip.py::test_pitfall_17_one_factor_over_all_parameters"),
    ("stability", "mixed precision and loss scaling", "out of scope: NumPy on a CPU has no half precision worth training in"),
    ("stability", "dropout and mode", MODELS + "transformer.py::test_pitfall_33_evaluation_ignores_every_dropout"),
    ("stability", "validation, checkpoint, seed and data order", ["minitx train reverse --resume DIR", TRAINING + "resume.py::test_interrupted_at_any_step_and_resumed_it_is_the_same_run"]),
    ("stability", "outliers and overflow of attention's logits: watched while training", TRAINING + "monitor.py::test_the_largest_logit_is_the_one_behind_the_largest_weight"),
    # ------------------------------------------------------------------ generation as a system of its own
    ("generation", "prefill, then decode; each with its time", ["minitx bench generate", GENERATION + "generate.py::test_timings_tell_prefill_from_decode"]),
    ("generation", "reports name batch, lengths, sampling, cache, threads, precision", "tests/cli/test_generate_decoding.py::test_statistics_name_everything"),
    ("generation", "training activations against what stays resident in inference", [LAB + "20_memory.py", "minitx card gpt2 --cost --batch 1 --length 1024"]),
    ("generation", "with and without a cache the same, dropout off", [GENERATION + "generate.py::test_greedy_with_and_without_cache_is_equal", GENERATION + "cache.py::test_a_model_in_training_mode_is_read_without_dropout_and_left_as_it_was"]),
    ("generation", "beams and batches change what the cache holds", GENERATION + "cache.py::test_rows_change_places_fork_stop_and_go_back"),
    ("generation", "quantised cache: a quarter of the bytes, and its error", GENERATION + "cache_int8.py::test_each_number_is_off_by_at_most_half_a_step"),
    ("generation", "positions, mask and eviction in the cache", GENERATION + "cache.py::test_pitfall_03_a_window_forgets_exactly"),
    ("generation", "tenants do not read each other's cache", GENERATION + "prefix.py::test_no_tenant_gets_what_another_has_stored"),
    ("generation", "time to live", GENERATION + "prefix.py::test_time_to_live"),
    ("generation", "a cache of another model version is refused", GENERATION + "cache_identity.py::test_another_model_is_refused_by_name"),
    ("generation", "choosing from the distribution: temperature, top-k, top-p, min-p", GENERATION + "filters.py::test_the_order_is_constraints_temperature_top_k_top_p_min_p"),
    ("generation", "paged or offloaded caches, distributed serving, GPUs", "out of scope: one process on one CPU"),
    # ------------------------------------------------------------------ faults and counterexamples
    ("faults", "a causal mask the wrong way round, or off by one, leaks the future", AUDIT + "leaks.py::test_no_causal_mask_at_all"),
    ("faults", "padding, packing, attention across documents", AUDIT + "leaks.py::test_documents_whose_positions_do_not_begin_again"),
    ("faults", "the middle of a long context is used less", LAB + "22_used_context.py"),
    ("faults", "contaminated benchmarks and corpora: how much of the held-out text was seen", "tests/tasks/test_file_tasks.py::test_seen_8_grams_by_hand"),
    ("faults", "scaling, grouped heads, windows and a quantised cache together", GENERATION + "cache_int8.py::test_with_groups_windows_and_scalings_together"),
    ("faults", "streams in constant memory: a recurrent network beside the growing cache", ["demos/recurrent.py", "minitx bench generate"]),
    ("faults", "local vision: a convolution needs less data than attention", "out of scope: there are no convolutions here; demos/read_digits.py shows patches"),
    # ------------------------------------------------------------------ bias of the task, and the card
    ("task bias", "images: patches, positions, augmentation", "demos/read_digits.py"),
    ("task bias", "sets: no absolute positions", [LAB + "12_permutation.py", NN + "components.py::test_alibi_alone_does_not_tell_left_from_right"]),
    ("task bias", "time series: causal cutoff, scale, calendar", "out of scope: a matter of the data, not of the model"),
    ("card", "the minimal reproduction card: nine lines, every field in its place", [MODELS + "card.py::test_the_card_of_the_course", MODELS + "card.py::test_every_field_of_the_configuration_has_one_place"]),
    ("card", "labels do not reproduce a model: the fingerprint is of everything that weights mean", MODELS + "card.py::test_the_fingerprint_covers_the_tokenizer_and_not_the_run"),
    ("claims", "products, leader boards, what an architecture alone is worth", "out of scope: about trained products, not about the code"),
]  # fmt: skip


def places(row):
    return [row[2]] if isinstance(row[2], str) else row[2]


def course_map() -> str:
    lines = ["| course | item | where |", "|---|---|---|"]
    for row in ROWS:
        words = [where if where.startswith(("later: ", "out of scope: ")) else f"`{where}`" for where in places(row)]
        lines.append(f"| {row[0]} | {row[1]} | {', '.join(words)} |")
    return "\n".join(lines)


def leads_to_a_command(line):
    """The command exists, and takes these arguments."""
    _, name, *arguments = shlex.split(line)
    assert name in COMMANDS
    parser = argparse.ArgumentParser(prog=f"minitx {name}", exit_on_error=False)
    importlib.import_module(f"minitx.cli.{name}").configure(parser)
    parser.parse_args(arguments)


def leads_to_a_file(where):
    path, _, test = where.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert bool(test) == path.startswith("tests/"), "a test is named in its file; a lab or demo is a file"
    assert not test or re.search(rf"^def {test}\(", text, re.M), where


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1][:50]}")
def test_every_row_leads_somewhere(row):
    for where in places(row):
        if where.startswith(("later: ", "out of scope: ")):
            assert len(where) > 30, "say why"
        elif where.startswith("minitx "):
            leads_to_a_command(where)
        elif where.startswith("exercise: "):
            from minitx.learn.shelf import exercise

            slug = where.removeprefix("exercise: ")
            assert exercise(slug).slug == slug
        else:
            leads_to_a_file(where)


def test_no_row_is_there_twice_and_every_lab_has_one():
    items = [row[:2] for row in ROWS]
    assert len(set(items)) == len(items)
    labs = [row[2] for row in ROWS if row[0] == "labs"]
    assert labs == sorted(f"{LAB}{path.name}" for path in (ROOT / LAB).glob("*.py"))


def test_the_readme_shows_the_map():
    assert course_map() in (ROOT / "README.md").read_text(encoding="utf-8"), "run `python tests/test_seeds.py`"


if __name__ == "__main__":
    print(course_map())
