-- grain: one prompt group of one step: sums over its tokens with a known engine's part (tokens.sql).
-- low, high: the bounds of the loss's clip on the ratio to the sampler. C.1's correction is -(r - 1)A, r to each engine.
select
    step, group_id,
    count(*) as n,
    sum(shortfall) as shortfall,
    sum(apart * apart) as square,
    sum(apart) as apart,
    count(*) filter (log_apart = 0) as equal,
    count(*) filter (exp(log_apart) not between $low and $high) as outside,
    count(*) filter (clipped) as clipped,
    count(*) filter (
        clipped and exp(coalesce(logp_gate, logp_current) - logp_behavior - log_apart) between $low and $high
    ) as by_engine,
    coalesce(sum(abs(advantage)), 0) as weight,
    coalesce(sum(advantage * apart), 0) as bias,
    coalesce(sum(abs(advantage * apart)), 0) as noise,
    sum(advantage * (exp(log_rho_new) - exp(log_rho))) as gain,
    sum(abs(advantage) * abs(expm1(log_rho_new))) as correction,
    sum(advantage * (exp(log_rho_new) - exp(log_rho_new - log_apart))) filter (advantage > 0) as skew_positive,
    sum(advantage * (exp(log_rho_new) - exp(log_rho_new - log_apart))) filter (advantage < 0) as skew_negative
from engine_token
group by step, group_id
order by step, group_id
