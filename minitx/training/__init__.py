"""Training: a configuration, the loop, a log, and checkpoints from which a run goes on bit for bit."""

from minitx.training.checkpoint import Loaded, load_card, load_model, load_training, save_model
from minitx.training.config import TrainingConfig
from minitx.training.log import CLOCKS, read_log
from minitx.training.progress import live_progress
from minitx.training.step import NotFinite
from minitx.training.tensorfile import CheckpointError
from minitx.training.trainer import Result, Trainer

__all__ = [
    "TrainingConfig", "Trainer", "Result", "NotFinite", "save_model", "load_model", "load_training", "load_card",
    "Loaded", "CheckpointError", "read_log", "CLOCKS", "live_progress",
]  # fmt: skip
