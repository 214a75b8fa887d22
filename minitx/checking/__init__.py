"""Beside `minitx.gradcheck`: what can be checked, the report, and what wrong gradients have to do with right ones."""
