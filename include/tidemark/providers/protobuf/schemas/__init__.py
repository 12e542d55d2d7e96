"""Protobuf's schemas: descriptor sets, texts of .proto files, and the columns of a message.

This folder is no kind of decoder; a sink uses it too.
"""
