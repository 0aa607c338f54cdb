"""Models: named sources, one download step, safetensors only.

May import: policies, protocol.layers, protocol.formats, protocol.lock, protocol.evidence; huggingface_hub, safetensors,
tokenizers, torch, transformers.
"""
