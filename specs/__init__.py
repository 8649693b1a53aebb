"""What things are: the words of the design as strict models. Imports neither torch, prefect nor langchain."""
