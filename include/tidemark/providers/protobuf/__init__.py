"""Protocol Buffers: records are read with a message of a descriptor set."""
