-- grain: one prompt group of one step, tokens of the same weights (`is_fresh`) and others apart. Sums of squares and
-- products inside states that several responses share (same prompt, same tokens so far, same version): the normaliser
-- of a temperature is one and the same there. x: mean of the two log-probs, y: their difference. What was not drawn is
-- left out: a sampler that is certain of what the trainer gives less than the placeholder's log-probability.
with
opening as (
    select
        step, group_id, behavior_version, position, fresh is not null as is_fresh,
        (logp_same_engine + logp_behavior) / 2 as x,
        coalesce(fresh, log_rho) as y,
        invalid is null and isfinite(coalesce(fresh, log_rho))
            and not (logp_behavior = 0 and logp_same_engine < $half) as counts,
        count(*) over before as n_before,
        sum(hash(token_id, position)) over before as path
    from examined
    where position < 16
    window before as (partition by step, seq_id order by position rows between unbounded preceding and 1 preceding)
),
state as (
    select
        step, group_id, is_fresh, count(*) as n, regr_sxx(y, x) as xx, regr_sxy(y, x) as xy, regr_syy(y, x) as yy
    from opening
    where counts and n_before = position
    group by step, group_id, is_fresh, behavior_version, position, path
    having count(*) > 1
)
select step, group_id, is_fresh, sum(n)::bigint as n, sum(xx) as xx, sum(xy) as xy, sum(yy) as yy
from state
group by step, group_id, is_fresh
order by step, group_id
