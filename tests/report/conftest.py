from chromium import browser

__all__ = ["browser"]
