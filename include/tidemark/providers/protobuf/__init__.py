"""Protocol Buffers, read with a message of a descriptor set."""
