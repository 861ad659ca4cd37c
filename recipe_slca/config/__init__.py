"""Hydra configs: `--config-path=pkg://recipe_slca.config`."""
