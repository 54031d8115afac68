-- grain: one step. What does not add up: exact quantiles and the kept top of the weights, largest first.
-- $kept: how many of the largest to keep.
with
sequence as (
    select step, seq_id, sum(log_rho) as log_w
    from token
    group by step, seq_id
    having not bool_or(invalid is not null)
),
sequence_top as (
    select step, max(log_w, $kept) as top_sequence from sequence group by step
)
select
    step,
    min(log_rho) as lowest,
    max(log_rho) as highest,
    quantile_cont(log_rho, [0.01, 0.5, 0.9, 0.99, 0.999]) as quantiles,
    max(log_rho, $kept) as top_token,
    max(log_rho_new, $kept) as top_token_new,
    any_value(top_sequence) as top_sequence
from token
left join sequence_top using (step)
where invalid is null
group by step
order by step
