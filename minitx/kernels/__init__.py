"""The same names as in minitx/ops, fast: a kernel is found by the name of its op and runs in its place."""
