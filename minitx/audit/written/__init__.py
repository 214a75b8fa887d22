"""Every layer, block and model once more, written out plainly: the witness for how they are put together.

Slow and short, and read from the equations, not from minitx/nn. In all of it `F` is one of the two vocabularies of
words.py, smaller ops or PyTorch; `m` stands for the module (a Twin): it has the module's attributes, with leaves of the
vocabulary's own kind in the place of parameters.
"""

from minitx.audit.written import layers, models
from minitx.audit.written.twin import WRITTEN, Twin, write
from minitx.audit.written.words import pytorch, smaller

__all__ = ["WRITTEN", "Twin", "write", "smaller", "pytorch", "layers", "models"]
