"""Looking at a computation: its graph as a picture, its ops as a table, the op that made a NaN by name."""

from minitx.tracing.anomaly import detect_anomaly
from minitx.tracing.drawing import graph
from minitx.tracing.recording import Trace, trace

__all__ = ["graph", "trace", "Trace", "detect_anomaly"]
