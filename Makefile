.PHONY: placeholder
