"""Data: characters to ids and back, rows to batches, files to text, and the rule that decides what is held out."""

from minitx.data.batch import IGNORED, Batch, encoder_decoder, ended, language_model, pad
from minitx.data.bpe import BytePairTokenizer, TextStream
from minitx.data.files import read_pairs, read_text
from minitx.data.loader import DataSet, PackedBatches, PaddedBatches
from minitx.data.objectives import masked_lm, next_token, next_token_of_rows, sequence_to_sequence
from minitx.data.packing import Packed, best_fit, cut, pack
from minitx.data.tokenizer import BOS, EOS, PAD, CharTokenizer
from minitx.data.vocabulary import Tokenizer, tokenizer_from_dict

__all__ = [
    "CharTokenizer", "PAD", "BOS", "EOS", "Batch", "IGNORED", "pad", "ended", "encoder_decoder", "language_model",
    "read_text", "read_pairs",
    "BytePairTokenizer", "TextStream", "Tokenizer", "tokenizer_from_dict",
    "next_token", "next_token_of_rows", "masked_lm", "sequence_to_sequence",
    "Packed", "pack", "best_fit", "cut", "DataSet", "PaddedBatches", "PackedBatches",
]
