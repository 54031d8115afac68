-- grain: one usable token on which the engine's part is known. log_apart: the log-ratio of one version in the trainer's
-- engine and in the sampler's; where it is not recomputed, of tokens that the policy's own version sampled.
create or replace temp view engine_token as
select *, expm1(log_apart) as apart, greatest(-expm1(log_apart), 0) as shortfall
from (
    select
        *,
        case when logp_behavior is not null
            then coalesce(log_engine, case when version_lag = 0 then log_rho end) end as log_apart
    from usable
)
where isfinite(log_apart);
