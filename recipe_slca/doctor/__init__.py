"""Why does my run not start? `python -m recipe_slca.doctor [the same hydra arguments as the run]`."""
