"""One thread a worker: `pytest -n 2` already uses both cores, and pools that wait for each other gain nothing."""
import os

from hypothesis import settings

# The same examples every time in CI, where a run says yes or no to a change; new ones at everybody's desk.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and numba are imported
    for name in ("MINITX_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def pytest_collection_modifyitems(items):
    """What compares with PyTorch carries the mark `torch`, wherever it stands."""
    for item in items:
        if "/pytorch/" in item.nodeid or getattr(item, "originalname", "") == "test_pytorch":
            item.add_marker("torch")
