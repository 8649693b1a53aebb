"""Base models: from the name in a spec to a local folder with safetensors weights and a tokenizer.

Nothing here imports torch at module level; conversions run in worker processes.
"""
