"""Acceptance lines of the rules, the parameters and the audit, one file a theme."""
