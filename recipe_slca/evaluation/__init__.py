"""Evaluation of trained models: in-domain, on public benchmarks, and their export."""
