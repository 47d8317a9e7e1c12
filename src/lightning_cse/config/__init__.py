"""The command line and its configs: where they are, what they may say, and how they become a run.

Nothing is imported here: entry points import `lightning_cse.config.launch` and stay quick to answer ``--help``.
"""
