"""Toucan data, as published, to parquet files that verl trains on.

Readers turn each published layout into `Conversation`; filters count what is dropped and why; writers give
SFT, RL and evaluation rows. Start with `python -m data_prep.build --help`.
"""
