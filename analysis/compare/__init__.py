"""Ablations: is A better than B, in what do they differ, and how sure can one be?

groups = grouped_settings(Member(run_id, run, summarise(run)) for ...)   # runs that differ in their seed only
align(members, "eval_accuracy", by="tokens").frame               # or by="step", by="time"
aggregate(frame, "iqm")                                          # interquartile mean with its bootstrap band
curves(groups, "reward", "tokens", "iqm", window=3)              # what a chart shows: smoothed, aggregated, with bands
found = standing(groups, "eval_accuracy")                        # a row a setting, a contrast a pair, judged together
standing_words(found).sentences                                       # best, tied with it, undecided, worse
found.contrast(0, 1).over_seeds                                  # setting 0 minus setting 1, with its interval
difference_over(a, b, "eval_accuracy", by="tokens")              # A - B along the axis with its band
component_differences(groups)                                    # which parts of the algorithms differ
chosen_metric(groups, "eval_accuracy")                           # or the next sensible one where no run has it
prompt_difference(pairs_by_seed(a, b))                           # reward on the prompts that both saw
"""
