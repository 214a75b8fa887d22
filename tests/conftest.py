"""One thread a worker: `pytest -n 2` already uses both cores, and pools of threads that wait for each other do not."""
import os

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and numba are imported
    for name in ("MINITX_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
