"""Targets: the models whose output is to be reproduced, one module an engine."""
