# %% [markdown]
# # Reversing, and what the attention looks at
# The Trainer does the loop of train_copy.py and keeps a log. Afterwards the cross-attention shows how it is done: the
# first symbol to be said is looked up at the end of the source, the last one at its beginning: an anti-diagonal.

# %%
import os
import tempfile
from pathlib import Path

import numpy as np

from minitx import plot
from minitx.models import Transformer
from minitx.tasks import get_task
from minitx.training import Trainer, TrainingConfig, live_progress, load_model, read_log

STEPS = int(os.environ.get("MINITX_STEPS", 800))
directory = Path(tempfile.mkdtemp()) / "reverse"
task = get_task("reverse", longest=8)
model = Transformer(task.config(layers=1), rng=np.random.default_rng(0))
config = TrainingConfig(steps=STEPS, lr=2e-3, eval_every=STEPS // 4, detail_every=STEPS // 4)
trainer = Trainer(model, task, config, directory, live_progress())
trainer.run()
print(*trainer.evaluation.lines(), sep="\n")

# %% Everything that was measured on the way, layer by layer
for record in read_log(directory / "log.jsonl"):
    for layer, figures in record.get("layers", {}).items():
        print(record["step"], layer, {name: round(value, 3) for name, value in figures.items()})

# %% The checkpoint holds the best model.
model, tokenizer, card = load_model(directory)
for source, truth, said in task.samples(model, 5):
    print(f"{source:16} -> {said:16} {'right' if said == truth else 'wrong, it is ' + truth}")

# %% Who looks where: the mean over the heads, darker for more
maps, down, across = plot.attention_maps(model, task)
print("      ", "   ".join(across))
for symbol, row in zip(down, maps["decoder.0.cross"].mean(0), strict=True):
    print(f"{symbol:>4} ", " ".join(f"{weight:.1f}".replace("0.0", " . ") for weight in row))

# %%
plot.attention(model, task, directory / "attention.png")
plot.loss(directory / "log.jsonl", directory / "loss.png")
print(f"pictures are in {directory}")
