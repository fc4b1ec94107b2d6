"""Speculative decoding that gives exactly the target model's text, faster."""
