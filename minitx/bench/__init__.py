"""Benchmarks: two sides, each in a process of its own, in turn; medians with their spread, compile time apart."""
