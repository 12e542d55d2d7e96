"""Protobuf's schemas: descriptor sets, texts of .proto files, the columns of a message. No kind: a sink uses it too."""
