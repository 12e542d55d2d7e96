"""The set-up: checks the machine and installs the packages. It runs before they are installed."""
