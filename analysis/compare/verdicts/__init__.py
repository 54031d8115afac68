"""What a comparison comes to, each built on those before it.

verdict      is A better than B? one sentence for two settings
separation   which of several settings differ, all pairs judged together
collapses    which settings collapse, or end below where they began
standing     the table: where each setting ends, every pair, the best of each schedule against each of the others
best         a row for each setting, who leads in a few words
wording      the numbers, differences, schedules and lists of these sentences
"""
