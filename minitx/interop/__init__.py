"""Doors to other libraries. Nothing here is imported by the rest of minitx, and each needs its library installed."""
