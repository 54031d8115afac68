-- grain: one sequence of one step that has rows which cannot be used, by cause. $clean: the files' footers say that
-- there are none, and nothing is read.
create or replace temp table unusable_sums as
select
    step, group_id, seq_id,
    count(*) as n_invalid,
    count_if(invalid = 'nan') as n_invalid_nan,
    count_if(invalid = 'infinite') as n_invalid_infinite,
    count_if(invalid = 'positive') as n_invalid_positive,
    count_if(invalid = 'advantage') as n_invalid_advantage
from token
where invalid is not null and not $clean
group by step, group_id, seq_id;
