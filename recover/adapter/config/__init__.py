"""The rebuilding of a lost adapter_config.json."""
