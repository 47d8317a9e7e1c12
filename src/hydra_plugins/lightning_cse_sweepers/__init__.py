"""What lightning_cse adds to Hydra: ``hydra/sweeper=points`` and ``hydra/launcher=ray``.

Hydra finds plugins in the namespace package ``hydra_plugins`` and loads every module whose name has no leading
underscore, at each start of each command: these modules import nothing heavy. It puts them into `sys.modules` only
afterwards, where a dataclass with annotations that are text looks for its module: these modules evaluate theirs.
"""
