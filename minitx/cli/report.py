"""What a finished run shows: how good it is, samples, pictures, where everything is, and what to try next."""
from __future__ import annotations

from minitx import plot
from minitx.training import Trainer, load_model

FILES = {
    "model.safetensors": "the best model",
    "training.safetensors": "the state after the last step",
    "config.json": "the configuration card",
    "tokenizer.json": "the vocabulary",
    "log.jsonl": "figures by step",
    "loss.png": "loss by step",
    "attention.png": "who attends to whom, by head and layer",
}


def report(trainer: Trainer, seconds: float) -> None:
    folder, task = trainer.directory, trainer.task
    assert folder is not None
    model = load_model(folder).model  # the best one: what `minitx generate` will use
    evaluation = task.evaluate(model)
    print(f"\ntrained for {minutes(seconds)}")
    print("\n".join(evaluation.lines()))
    print("\nheld-out samples")
    for given, truth, said in task.samples(model, 5):
        mark = "" if evaluation.exact_match is None else "   right" if said == truth else "   wrong"
        print(f"  input       {_indented(given)}")
        print(f"  truth       {_indented(truth)}")
        print(f"  prediction  {_indented(said)}{mark}\n")
    plot.loss(folder / "log.jsonl", folder / "loss.png")
    plot.attention(model, task, folder / "attention.png")
    print(f"saved in {folder}")
    for name, meaning in FILES.items():
        if (folder / name).exists():
            print(f"  {name:<21} {meaning}")
    print("\nnext, try")
    for command in task.next_steps(str(folder)):
        print(f"  {command}")


def minutes(seconds: float) -> str:
    whole, rest = divmod(round(seconds), 60)
    return f"{whole} min {rest} s" if whole else f"{rest} s"


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * 14)
