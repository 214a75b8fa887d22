"""All cases: at least one for every op, and for everything that an op differentiates."""
from minitx.audit.case import Case
from minitx.audit.cases import basic, components, fused, mixture, transformer

CASES: list[Case] = [*basic.CASES, *transformer.CASES, *components.CASES, *fused.CASES, *mixture.CASES]
