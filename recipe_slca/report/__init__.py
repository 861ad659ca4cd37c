"""Make a run visible: one HTML page of its rollouts, and the curves of several runs.

    python -m recipe_slca.report trajectories RUN_DIR --output page.html
    python -m recipe_slca.report curves RUN [RUN ...] --output DIR

`rollout_dump` and `run_logs` read what a run wrote, `trajectories` and `curves` show it. The page is
`page.html`, `page.css`, `page.js` and `rollout.js`, put into one file that loads nothing.
"""
