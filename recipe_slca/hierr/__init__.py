"""HierR, the two rewards of a rollout: how it acted (process) and how it replied (summary). METHOD 3.

`process` scores the calls against the gold calls, `summary` grades the closing reply, and `hierr` puts both
together with the omission guard.
"""
