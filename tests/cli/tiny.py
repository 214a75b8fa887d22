"""Settings of a run that takes a second."""

TINY = ["--set", "layers=1", "d_model=8", "heads=2", "batch_size=4", "task.longest=3"]
