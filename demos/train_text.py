# %% [markdown]
# # A language model on the characters of a text
# A small GPT-2. Give it a file of yours (100 KB or more); without one it reads the source of this very library.

# %%
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import minitx
from minitx.generation import answer
from minitx.models import Transformer
from minitx.tasks import get_task
from minitx.training import Trainer, TrainingConfig, live_progress

STEPS = int(os.environ.get("MINITX_STEPS", 1500))
directory = Path(tempfile.mkdtemp())
if len(sys.argv) == 2 and Path(sys.argv[1]).is_file():
    file = Path(sys.argv[1])
else:
    file = directory / "source.txt"
    sources = sorted(Path(minitx.__file__).parent.glob("ops/*.py"))
    file.write_text("\n".join(path.read_text(encoding="utf-8") for path in sources), encoding="utf-8")

# %%
task = get_task("text", file=file, context=64)
print(task.describe())
model = Transformer(task.config(layers=2, d_model=96, dropout=0.1), rng=np.random.default_rng(0))
print(model)

# %% Bits per character: 8 for raw bytes, about 2 for a general compressor on English, about 1 for people.
config = TrainingConfig(steps=STEPS, batch_size=16, lr=2e-3, weight_decay=0.1, eval_every=max(STEPS // 4, 1))
trainer = Trainer(model, task, config, directory / "run", live_progress())
trainer.run()
print(*trainer.evaluation.lines(), sep="\n")

# %% How it goes on where the held-out text begins so
for start, truth, said in task.samples(model, 2):
    print(f"--- {start!a}\n    text:  {truth!a}\n    model: {said!a}")

# %% A prompt of your own (of characters that occur in the text)
print(answer(model, task.tokenizer, ["def "], max_new=40)[0])
