"""One thread a worker: `pytest -n 2` already uses both cores, and pools that wait for each other gain nothing."""
import os

import pytest
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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A BLAS that loads more lanes than it uses raises the "invalid" flag for what happens to lie there. That is not
    our result, and it does not happen twice: a test that a matrix product's flag has stopped is run once more.
    """
    try:
        return (yield)
    except (FloatingPointError, RuntimeWarning) as error:
        if "encountered in matmul" not in str(error):
            raise
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
        return True
