"""What a comparison comes to, each built on those before it.

verdict      is A better than B? one sentence for two settings
standing     who leads under each schedule: the verdict on the best against each of the others
collapses    which settings collapse, or end below where they began
conclusions  all of it, and what single changes do, in at most five sentences
wording      the numbers, differences, schedules and lists of these sentences
"""
