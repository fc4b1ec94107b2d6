"""The planner's physics: numbers with units in, numbers with units out. It knows no models, only their sizes.

speedup    tokens per step and speed-up when scoring is free: the founding papers' formulas
costs      the same with measured costs of scoring, drafting and overhead
agreement  acceptance from the two laws: rejection, coupled, lenient, block verification
trees      expected tokens of a tree, and how large it should be
shape      what a forward pass is made of; presets, config.json
roofline   seconds of a pass on a device; where speculation stops paying
memory     what fits, and how many requests are left
acceptance how often a drafter is assumed to agree, by task, with the source
planner    which drafter, how many tokens, will it fit, will it pay (question, candidates, ranking)
length_table     speed-up by draft length from two numbers
engine_settings  the answer as options of this engine and of others
"""
