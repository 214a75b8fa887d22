import pytest


@pytest.fixture(autouse=True, scope="module")
def few_questions():
    """An evaluation of 20 questions in place of 1,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitx.tasks.sequences.HELD_OUT", 20)
        yield
