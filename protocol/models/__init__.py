"""Models: named sources, one download step, safetensors only."""
