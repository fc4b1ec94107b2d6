"""The native engine in Python: model files read and checked, weights packed, and a reference forward in NumPy."""
