"""verl on a machine without an accelerator: loaded only with VERL_PLATFORM=cpu."""
