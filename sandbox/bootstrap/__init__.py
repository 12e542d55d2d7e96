"""What runs before the packages are installed, and what installs them."""
