"""Models: named sources, one download step, safetensors only.

May import: policies, protocol.evidence; huggingface_hub, safetensors, tokenizers, torch, transformers.
"""
